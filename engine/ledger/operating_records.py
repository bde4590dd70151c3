"""What operators ask for and what they did. Instants are aware and in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from engine.schedules.decisions import Overlap


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A run that somebody asks for: a manual one, or a rerun of a window.

    ``status`` is what overlap makes of it; ``overlap`` is its own, where it was given.
    """

    kind: Literal["manual", "rerun"]
    series: int
    bucket: int
    fire_time: datetime
    workflow_id: str
    status: Literal["claimed", "queued", "skipped", "rejected"]
    reason: str | None = None
    overlap: Overlap | None = None
    own_input: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class SkippedAhead:
    """A window to come that an operator skipped."""

    key: str
    fire_time: datetime
    workflow_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Action:
    """What somebody did, for the audit: who and when is the ledger's to add."""

    project: str
    key: str
    verb: str
    reason: str | None = None
    workflow_id: str | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ActionRow:
    """What somebody did, as people read it."""

    at: datetime
    by: str
    verb: str
    key: str
    project: str
    reason: str | None
    workflow_id: str | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
