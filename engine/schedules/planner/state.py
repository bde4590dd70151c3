"""State of a schedule as a plan reads it, the plan itself, and the versions of time rules."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal, Self

from engine.schedules.ids import Window
from engine.schedules.model import Schedule
from engine.schedules.planner.decisions import (
    ALL_READ,
    Decision,
    Hold,
    Known,
    Move,
    OpenFire,
    Unread,
)
from engine.schedules.timing.cron import EVALUATOR_VERSION
from engine.schedules.timing.cron_parser import parse
from engine.schedules.timing.zones import TZDATA_VERSION, zone
from engine.schedules.units import epoch_seconds, from_seconds

# --- versions of time rules ---
# Zone rules change several times a year, and an evaluator may be corrected. The ledger records the
# rules that each schedule was last computed by: a replica with older ones leaves it alone, one
# with newer ones takes it over. A fixed-time schedule must not fire a local time again then because
# its instant has moved (docs/time.md).

TIME_RULES: Final = f"{EVALUATOR_VERSION:04}/{TZDATA_VERSION}"
"""Versions of the evaluator and the zone rules; compared as text, newer ones are greater."""

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the local axis has no zone


def reading_at(schedule: Schedule, cursor: datetime) -> datetime | None:
    """Return the latest local time, naive, that a fixed-time schedule has reached at ``cursor``.

    None for schedules that do not fire once per local time: intervals, moments, and wildcard
    expressions, which fire at real readings only.
    """
    if not _is_fixed_time(schedule):
        return None
    rules, at = zone(schedule.timezone), epoch_seconds(cursor)
    piece = bisect_right(rules.starts, at) - 1
    reading = max(at + rules.offsets[piece], rules.reached[piece] - 1)
    return _EPOCH + timedelta(seconds=reading)


def cursor_by_new_rules(schedule: Schedule, cursor: datetime, reading: datetime | None) -> datetime:
    """Return the cursor, under the present rules, of a schedule that other rules computed.

    It is where the present rules show ``reading``, even if that is before ``cursor``: local times
    up to it have fired and do not fire again, later ones have not fired.

    Args:
        schedule: the schedule.
        cursor: its cursor under the other rules.
        reading: the result of `reading_at` for that cursor, under the other rules.
    """
    if reading is None or not _is_fixed_time(schedule):
        return cursor
    shown = (reading - _EPOCH) // timedelta(seconds=1)
    return from_seconds(zone(schedule.timezone).first_instant(shown))


def _is_fixed_time(schedule: Schedule) -> bool:
    return schedule.cron is not None and not parse(schedule.cron, schedule.key).wildcard


# --- state and plan ---

Origin = Literal["file", "api"]


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a schedule; without ``until`` it lasts until an operator resumes the schedule."""

    at: datetime
    reason: str | None = None
    by: str | None = None
    until: datetime | None = None


def hold_of(
    retired_at: datetime | None, schedule: Schedule | None, pause: Pause | None
) -> Hold | None:
    """Return why a schedule does not fire, if so; an unreadable definition is not ``disabled``."""
    if retired_at is not None:
        return "retired"
    if schedule is not None and not schedule.enabled:
        return "disabled"
    return "paused" if pause is not None else None


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A schedule's row, read under its lock.

    ``rules`` are the time rules by which it was computed, ``cursor_reading`` is the local time of
    its cursor by them; see ``TIME_RULES``. ``known``, ``open_fires`` and
    ``unread`` are what a plan needs of its fires; see ``engine.schedules.planner.decisions``.
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

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        cursor: datetime,
        *,
        series: int = 1,
        effective_from: datetime | None = None,
    ) -> Self:
        """Return the state of a schedule that no ledger has: decided up to ``cursor``."""
        return cls(
            key=schedule.key, project="", schedule=schedule, definition_version=1, digest="",
            series=series, suffixed=False, max_bucket=None,
            effective_from=effective_from or cursor, cursor=cursor, workflow_type=schedule.workflow,
            retired_at=None, pause=None, absent_since=None, failures=0, rules=TIME_RULES,
            cursor_reading=None,
        )  # fmt: skip

    def window(self, fire_time: datetime) -> Window:
        """Return the window of the current series that opens at ``fire_time``."""
        return Window(self.key, self.series, self.schedule.spec.bucket(fire_time), fire_time)

    @property
    def hold(self) -> Hold | None:
        """The reason why the schedule does not fire, if so."""
        return hold_of(self.retired_at, self.schedule, self.pause)


def current_cursor(state: ScheduleState) -> datetime:
    """Return the schedule's cursor by the current rules of time."""
    if state.rules == TIME_RULES:
        return state.cursor
    # The definition's start is a lower bound, also after an edit by a replica with older rules.
    cursor = cursor_by_new_rules(state.schedule, state.cursor, state.cursor_reading)
    return max(cursor, min(state.cursor, state.effective_from))


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions on every window up to ``cursor``.

    Attributes:
        state: the schedule as the plan found it.
        decisions: on undecided windows; the starts are in start order.
        cursor: everything up to here is now decided. It is before ``now``, and ``next_fire_at`` at
            once, if one plan cannot hold every decision or runs have to be looked at first.
        next_fire_at: when to plan again; None if nothing becomes due by itself.
        moves: decisions on fires that are already open.
        looks: runs to look at before the key is planned again; the decisions made here stand.
        resumed: the pause has ended by itself, and its windows are decided.
        audit: windows were missed; which of them have run has to be looked up first.
        withheld: a decision depends on the answer to a look, an audit or a send, so planning again
            at once is useless.
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

        A reader with an older cursor then still finds all of these windows decided.
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
        """The local time of the cursor, needed when zone rules change."""
        return reading_at(self.state.schedule, self.cursor)

    @property
    def max_bucket(self) -> int | None:
        """The highest bucket of the key once this plan is recorded."""
        spec = self.state.schedule.spec
        used = [
            spec.bucket(decision.last or decision.window.fire_time) for decision in self.decisions
        ]
        # A window that was skipped ahead has a row already and is passed over.
        used += [spec.bucket(at) for at in self.state.known if at <= self.cursor]
        return max(
            (*used, *(() if self.state.max_bucket is None else (self.state.max_bucket,))),
            default=None,
        )
