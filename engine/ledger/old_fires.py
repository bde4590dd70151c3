"""What the janitor sees of a ledger: keys, and old rows of theirs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from engine.ledger.fire_records import Status
from engine.schedules.model import Schedule


@dataclass(frozen=True, slots=True)
class KeyChores:
    """A key, and how far the janitor has come with it.

    Attributes:
        schedule: the newest definition; None when this version cannot read it.
        oldest: the fire time of its oldest row, if it has any.
        summarised_until, merged_until, settled_until: see the columns of table ``chores``.
    """

    key: str
    series: int
    cursor: datetime
    schedule: Schedule | None
    summarised_until: datetime | None
    merged_until: datetime | None
    settled_until: datetime | None
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class OldFire:
    """A row of ``fires`` that may leave.

    Attributes:
        version: changes with every write to the row.
        telling: whether it has more to say than a range can: an error, a history, an own input.
        rested_since: when it was decided, its run closed, or its last window opened, whichever
            came last.
        detail: the row as JSON.
    """

    id: int
    version: str
    project: str
    series: int
    bucket: int
    fire_time: datetime
    last_fire_time: datetime
    windows: int
    kind: str
    definition_version: int
    workflow_type: str | None
    task_queue: str
    status: Status
    reason: str | None
    timing: str | None
    missed: int
    merged_at: datetime | None
    telling: bool
    rested_since: datetime
    detail: str


@dataclass(frozen=True, slots=True)
class LongRow:
    """A row whose windows belong to several days."""

    project: str
    status: Status
    series: int
    fire_time: datetime
    last_fire_time: datetime
    windows: int
    definition_version: int


@dataclass(frozen=True, slots=True)
class DayPart:
    """So many windows of a long row are of this day."""

    project: str
    day: datetime
    windows: int
    status: Status
