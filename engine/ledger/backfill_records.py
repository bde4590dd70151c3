"""Backfills as the ledger keeps them: ranges of past windows that ticks lay, some at a time.

Instants are aware and in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, get_args

from engine.ledger.fire_records import Cause
from engine.ledger.schedule_records import ScheduleState
from engine.schedules.windows import Window

InLine = Literal["allow", "queue"]
"""How the windows of a backfill start: as fast as it goes, or one after another."""

BackfillState = Literal["laying", "done", "ended"]

Included = Literal["user", "excluded", "dependency", "coalesced"]
"""Causes of windows that a backfill starts only where its request names them."""

UNDECLARED: Final[Cause] = "undeclared"
"""The cause of a window without a row, which is from before its schedule was declared."""

BY_DEFAULT: Final[tuple[Cause, ...]] = (
    UNDECLARED, "expired", "rejected", "paused", "disabled", "retired", "queue_full", "overlap",
)  # fmt: skip
"""The causes of windows that every backfill starts."""

INCLUDED: Final[tuple[Included, ...]] = get_args(Included)


@dataclass(frozen=True, slots=True)
class Backfill:
    """One range.

    Attributes:
        series, definition_version: of the request. They say which windows it has, and how they run.
        first, last: the fire times of its first and its last window.
        cursor: every window of it up to here was laid or left alone.
        include: windows of which causes start.
        state: ``done`` is laid to its end; ``ended`` was given up before, for ``ended_reason``.
        next_at: when a tick looks at it next.
        laid_at: when windows were laid last.
        looked_at: up to when signs of lost commits were followed by a look at the key's runs.
        windows: how many it has.
        laid: how many of them start, or have.
        left_alone: how many of them do not, by why.
        error: why it could not be laid, when it was tried last.
    """

    id: int
    project: str
    key: str
    series: int
    definition_version: int
    first: datetime
    last: datetime
    cursor: datetime
    overlap: InLine
    include: tuple[Cause, ...]
    requested_by: str
    requested_at: datetime
    next_at: datetime
    windows: int
    state: BackfillState = "laying"
    ended_reason: str | None = None
    reason: str | None = None
    laid_at: datetime | None = None
    looked_at: datetime | None = None
    ended_at: datetime | None = None
    laid: int = 0
    left_alone: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None

    @property
    def done(self) -> int:
        """How many of its windows were laid or left alone."""
        return self.laid + sum(self.left_alone.values())

    def is_pending(self, cause: Cause | None, first: datetime, last: datetime) -> bool:
        """Whether windows of this cause, between these fire times, may still start by it."""
        ahead = self.state == "laying" and self.cursor < last and first <= self.last
        return ahead and cause in self.include

    def is_halted(self, state: ScheduleState) -> bool:
        """Whether the hold of its schedule halts it: a pause does that was not there before it."""
        if state.hold == "disabled":
            return True
        return state.pause is not None and state.pause.at > self.requested_at

    def ends(self, state: ScheduleState) -> str | None:
        """Why its schedule, as it is now, lets nothing more of it be laid; None when it does."""
        if state.retired_at is not None:
            return "the schedule was retired"
        if state.series != self.series:
            return "an edit changed when the schedule fires, and its windows are others now"
        return None


@dataclass(frozen=True, slots=True)
class ToLay:
    """A window that is to start after all; ``again``: its row says that it would not."""

    window: Window
    workflow_id: str
    again: bool


def as_backfill(row: Mapping[str, Any], left_alone: Mapping[str, int]) -> Backfill:
    """Return what the ledger read."""
    return Backfill(**{**row, "include": tuple(row["include"]), "left_alone": left_alone})
