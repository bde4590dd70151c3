"""What is declared, and what stands otherwise. Instants are aware and in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from engine.ledger.schedule_records import Origin, Pause
from engine.schedules.model import Schedule


@dataclass(frozen=True, slots=True)
class NewDefinition:
    """A definition to write, with the state it puts its schedule into."""

    schedule: Schedule
    project: str
    version: int
    series: int
    suffixed: bool
    max_bucket: int | None
    effective_from: datetime
    cursor: datetime
    next_fire_at: datetime | None
    workflow_type: str | None
    paused: bool
    origin: Origin = "file"
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class ProjectRow:
    """The file a project was applied from last.

    Attributes:
        refused: keys of it that were not applied: see ``refusing``.
    """

    revision: int | None
    file_digest: str
    applied_at: datetime
    file_name: str
    applied_by: str
    refused: tuple[str, ...] = ()

    @property
    def applied(self) -> str:
        """The digest of the file; empty while not all of it is applied."""
        return "" if self.refused else self.file_digest


@dataclass(frozen=True, slots=True)
class DriftRow:
    """A schedule that stands otherwise than its file alone would have it.

    Attributes:
        origin: an application's is in no file.
        pause: whoever holds it, the file's first state too.
        skipped: windows to come that an operator skipped.
    """

    key: str
    origin: Origin
    pause: Pause | None
    skipped: tuple[datetime, ...]
