"""What is known of a schedule: as a plan needs it, and as people read it.

Instants are aware and in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from engine.ledger.fire_records import Status
from engine.schedules.decisions import ALL_READ, Decision, Hold, Known, Move, OpenFire, Unread
from engine.schedules.model import Schedule
from engine.schedules.time_rules import TIME_RULES, reading_at
from engine.schedules.windows import Window


@dataclass(frozen=True, slots=True)
class Pause:
    """Why and since when a schedule does not fire; without ``until``, until somebody resumes it."""

    at: datetime
    reason: str | None = None
    by: str | None = None
    until: datetime | None = None


Origin = Literal["file", "api"]
State = Literal["active", "paused", "disabled", "ended", "retired"]


def state_of(hold: Hold | None, next_fire_at: datetime | None) -> State:
    """Return how a schedule stands: held, with windows to come, or with none any more."""
    return hold or ("active" if next_fire_at else "ended")


def hold_of(
    retired_at: datetime | None, schedule: Schedule | None, pause: Pause | None
) -> Hold | None:
    """Return why a schedule does not fire at present, if so; None for what nobody can read."""
    if retired_at is not None:
        return "retired"
    if schedule is not None and not schedule.enabled:
        return "disabled"
    return "paused" if pause is not None else None


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A schedule's row, as read under its lock.

    ``rules`` and ``cursor_reading`` say by which rules of time it was computed, and which local
    time it had come to by them; see ``engine.schedules.time_rules``. ``known``, ``open_fires`` and
    ``unread`` are what a plan must know of its fires; see ``engine.schedules.decisions``.
    """

    key: str
    project: str
    schedule: Schedule
    definition_version: int
    digest: str
    series: int
    suffixed: bool
    max_bucket: int | None
    effective_from: datetime
    cursor: datetime
    workflow_type: str | None
    retired_at: datetime | None
    pause: Pause | None
    absent_since: datetime | None
    failures: int
    rules: str
    cursor_reading: datetime | None
    origin: Origin = "file"
    known: Known = field(default_factory=dict)
    open_fires: tuple[OpenFire, ...] = ()
    unread: Unread = ALL_READ
    line_changes: int = 0

    def window(self, fire_time: datetime) -> Window:
        """Return the window of the present series that opens at ``fire_time``."""
        return Window(self.key, self.series, self.schedule.spec.bucket(fire_time), fire_time)

    @property
    def hold(self) -> Hold | None:
        """Why the schedule does not fire at present, if so."""
        return hold_of(self.retired_at, self.schedule, self.pause)


@dataclass(frozen=True, slots=True)
class Step:
    """What a plan does to one schedule: fires to write, and where its cursor goes.

    ``max_bucket`` is the highest bucket used afterwards. ``moves``, ``looks``, ``resumed``,
    ``audit`` and ``withheld`` are the plan's.
    """

    state: ScheduleState
    decisions: tuple[Decision, ...]
    cursor: datetime
    next_fire_at: datetime | None
    moves: tuple[Move, ...] = ()
    looks: tuple[OpenFire, ...] = ()
    resumed: bool = False
    audit: bool = False
    withheld: bool = False

    @property
    def plain(self) -> bool:
        """Whether each window it passes has a row of its own, and nothing else changes.

        Whoever does not know how far the cursor has come then still finds all of them decided.
        """
        state = self.state
        if self.resumed or state.failures or state.rules != TIME_RULES:
            return False
        rows = {each.window.fire_time for each in self.decisions if each.windows == 1}
        at: datetime | None = state.cursor
        while at is not None and at < self.cursor:
            at = state.schedule.spec.next(at)
            if at not in rows and at not in state.known:
                return False
        return True

    @property
    def reading(self) -> datetime | None:
        """The local time that the schedule has come to, for when zone rules change."""
        return reading_at(self.state.schedule, self.cursor)

    @property
    def max_bucket(self) -> int | None:
        """The highest bucket the key has used once this step is written."""
        spec = self.state.schedule.spec
        used = [
            spec.bucket(decision.last or decision.window.fire_time) for decision in self.decisions
        ]
        # What an operator skipped before it came has its row, and is passed over.
        used += [spec.bucket(at) for at in self.state.known if at <= self.cursor]
        return max(
            (*used, *(() if self.state.max_bucket is None else (self.state.max_bucket,))),
            default=None,
        )


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule as people read it; ``schedule`` is None when this version cannot read it.

    Attributes:
        definition_version: the newest definition's, in force since ``effective_from``.
        next_fire_at: when it is looked at next; see ``next_start_at``.
        last_fire_at, last_status: of its newest fire; a window skipped ahead has not come yet.
        error: why it backs off, if it does.
        pause: why and since when it does not fire, where somebody paused it.
        origin: who declares it, a file or an application.
        skips: windows to come that somebody skipped, and why.
    """

    key: str
    project: str
    workflow: str
    schedule: Schedule | None
    state: State
    next_fire_at: datetime | None
    last_fire_at: datetime | None
    last_status: Status | None
    workflow_type: str | None
    definition_version: int
    series: int
    effective_from: datetime
    error: str | None
    rules: str = TIME_RULES
    pause: Pause | None = None
    origin: Origin = "file"
    skips: Mapping[datetime, str] = field(default_factory=dict)

    @property
    def next_start_at(self) -> datetime | None:
        """The next window that starts: excluded and skipped ones are looked at, and do not."""
        if self.next_fire_at is None or self.schedule is None:
            return self.next_fire_at
        return self.schedule.first_start(self.next_fire_at, but=self.skips)


@dataclass(frozen=True, slots=True)
class NextFire:
    """The window a schedule opens next, and the zone its people live by."""

    key: str
    fire_time: datetime
    timezone: str
