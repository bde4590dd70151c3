"""Decides what becomes of every due window. Pure: the moment is an argument.

``plan`` enumerates the windows in ``(cursor, now]``, never only the current one: polling the
current bucket loses windows whenever a tick comes late. What it returns is a value; the ledger
writes it and the starter acts on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Literal

from engine.schedules.instants import from_seconds
from engine.schedules.model import Schedule
from engine.schedules.windows import Window

_TICK = timedelta(microseconds=1)
"""The resolution of instants here and in PostgreSQL."""

FIRST_SIGHT = "first sight"
"""The reason of a window that was open when its schedule was first seen."""

MOST_ROWS = 2000
"""Decisions of one plan: ten years of weekly days off are a thousand stretches, each a row."""

_EXCLUDED = "excluded: "

Verdict = Literal["claimed", "skipped", "expired", "rejected"]
Hold = Literal["paused", "disabled", "retired"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to become of one window, or of a run of boring ones.

    Attributes:
        window: the window; of several, the first.
        verdict: ``claimed`` starts a run, everything else is final.
        reason: why, in words; None for an ordinary start.
        timing: ``on_time`` or ``caught_up`` (the starter turns the former into ``late``).
        missed: windows a caught-up start stands for besides its own, as far as they were
            decided in the same plan.
        not_before: with ``spread`` the start waits until then; None starts at once.
        windows: how many windows this decision covers.
        last: the fire time of the last of them.
    """

    window: Window
    verdict: Verdict
    reason: str | None = None
    timing: Literal["on_time", "caught_up"] | None = None
    missed: int = 0
    not_before: datetime | None = None
    windows: int = 1
    last: datetime | None = None

    @property
    def excluded(self) -> bool:
        """Whether it is a day off, as declared."""
        return self.verdict == "skipped" and (self.reason or "").startswith(_EXCLUDED)


@dataclass(frozen=True, slots=True)
class Plan:
    """Every window up to ``cursor`` is decided by ``decisions``; the next opens at ``next``."""

    decisions: tuple[Decision, ...]
    cursor: datetime
    next: datetime | None


def plan(
    schedule: Schedule,
    *,
    series: int,
    effective_from: datetime,
    cursor: datetime,
    now: datetime,
    hold: Hold | None = None,
    unable: str | None = None,
    final: bool = False,
    limit: int = 1000,
    rows: int = MOST_ROWS,
) -> Plan:
    """Decide the windows of ``schedule`` in ``(cursor, now]``.

    Args:
        schedule: the definition in force for these windows.
        series: the key's current series.
        effective_from: when the definition took effect. A window opening right then is owed by
            first sight: while it is the current one it starts, whatever its age.
        cursor: every window at or before it is decided already.
        now: the ledger's clock.
        hold: the schedule does not fire; its windows are skipped for that reason.
        unable: nobody can run the workflow; windows older than ``grace`` are rejected for
            that reason, and younger ones stay open for a replica that can.
        final: this definition ends at ``now``: no window may stay open, whatever its age.
        limit: the most runs to start at once; the rest stays due.

        rows: the most decisions to return, unless ``final``; the rest stays due.

    The rule: while the oldest undecided window is younger than ``grace``, every window starts;
    beyond it the catch-up policy speaks.
    """
    due = _Due(schedule, series, effective_from, now)
    first = schedule.spec.next(cursor)
    if first is None or first > now:
        return Plan((), cursor, wake_at(schedule, cursor))
    if hold is not None:
        decided = due.settle_whole(cursor, now, "skipped", hold)
    elif unable is not None and due.oldest(cursor) is not None:
        edge = now if final else now - schedule.grace - _TICK
        decided = due.settle(cursor, edge, "rejected", unable)
    else:
        decided = due.start(cursor, None if final else limit)
    decisions = (*islice(decided, None if final else rows),)
    if decisions:
        newest = decisions[-1]
        cursor = newest.last or newest.window.fire_time
    return Plan(decisions, cursor, wake_at(schedule, cursor))


@dataclass(frozen=True, slots=True)
class _Due:
    """The due windows of one schedule, and the ways to decide them.

    Excluded windows are settled on the way, whatever becomes of those around them.
    """

    schedule: Schedule
    series: int
    effective_from: datetime
    now: datetime

    def oldest(self, after: datetime) -> datetime | None:
        """Return the oldest due window after ``after`` that is not excluded."""
        oldest = self.schedule.first_start(after + _TICK)
        return oldest if oldest is not None and oldest <= self.now else None

    def start(self, after: datetime, limit: int | None) -> Iterator[Decision]:
        """Decide the windows in ``(after, now]`` of a schedule that fires."""
        oldest, edge = self.oldest(after), self.now - self.schedule.grace
        if oldest is None:
            return self.settle(after, self.now, "skipped", "excluded")
        if oldest + self.schedule.delay(oldest) >= edge:
            return self._start_all(after, limit)
        if oldest == self.effective_from and oldest == self.schedule.spec.previous(self.now):
            return self._start_all(after, 1)
        return self._catch_up_latest(after)

    def settle(
        self, after: datetime, until: datetime, verdict: Verdict, reason: str
    ) -> Iterator[Decision]:
        """Decide all windows in ``(after, until]``, one row for each stretch of one reason."""
        for begin, end, excluded in self._stretches(after, until):
            if excluded is None:
                yield from self.settle_whole(begin, end, verdict, reason)
            else:
                yield from self.settle_whole(begin, end, "skipped", excluded)

    def settle_whole(
        self, after: datetime, until: datetime, verdict: Verdict, reason: str
    ) -> Iterator[Decision]:
        """One decision for all windows in ``(after, until]``: however many, it is one row."""
        spec = self.schedule.spec
        first = spec.next(after)
        last = spec.previous(until)
        if first is None or last is None or first > until:
            return
        windows = spec.count(after, until)
        yield Decision(self._window(first), verdict, reason, windows=windows, last=last)

    def _start_all(self, after: datetime, limit: int | None) -> Iterator[Decision]:
        room = limit
        for begin, end, excluded in self._stretches(after, self.now):
            if excluded is not None:
                yield from self.settle_whole(begin, end, "skipped", excluded)
                continue
            fires = [*islice(self.schedule.spec.fires(begin, end), room)]
            yield from (self._claim(at, self._occasion(at), "on_time") for at in fires)
            if room is not None:
                room -= len(fires)
                if not room:
                    break

    def _catch_up_latest(self, after: datetime) -> Iterator[Decision]:
        """One run for the whole outage: the newest window, if the catch-up window reaches it."""
        # Instants have microseconds in PostgreSQL; the window at the very edge still counts.
        oldest, until = self.oldest(after), self.now
        slack = self.schedule.delay(oldest) if oldest else timedelta(0)
        edge = max(after, until - self.schedule.catch_up.window - slack - _TICK)
        yield from self.settle(after, edge, "expired", "older than the catch-up window")
        newest = self._newest(edge, until)
        if newest is None:
            yield from self.settle(edge, until, "skipped", "excluded")
            return
        coalesced, missed = f"coalesced into {self.schedule.spec.bucket(newest)}", 0
        for decision in self.settle(edge, newest - _TICK, "skipped", coalesced):
            missed += decision.windows if decision.reason == coalesced else 0
            yield decision
        reason = f"caught up for {missed} missed windows" if missed else None
        yield self._claim(newest, reason, "caught_up", missed)
        yield from self.settle(newest, until, "skipped", "excluded")

    def _newest(self, after: datetime, until: datetime) -> datetime | None:
        """Return the newest window in ``(after, until]`` that is not excluded."""
        for begin, end, excluded in reversed([*self._stretches(after, until)]):
            newest = self.schedule.spec.previous(end)
            if excluded is None and newest is not None and newest > begin:
                return newest
        return None

    def _stretches(
        self, after: datetime, until: datetime
    ) -> Iterator[tuple[datetime, datetime, str | None]]:
        """Divide ``(after, until]`` by what excludes the windows in it; None is nothing."""
        excluded = self.schedule.exclusions
        if excluded is None or until <= after:
            yield after, until, None
            return
        for begin, end, reason in excluded.divide(after, until):
            yield begin, end, f"{_EXCLUDED}{reason}" if reason else None

    def _occasion(self, at: datetime) -> str | None:
        # No window before the definition is owed, so only first sight has one right at its start.
        return FIRST_SIGHT if at == self.effective_from else None

    def _claim(
        self,
        at: datetime,
        reason: str | None,
        timing: Literal["on_time", "caught_up"],
        missed: int = 0,
    ) -> Decision:
        delay = self.schedule.delay(at)
        not_before = at + delay if at + delay > self.now else None
        return Decision(
            self._window(at), "claimed", reason, timing, missed=missed, not_before=not_before
        )

    def _window(self, fire_time: datetime) -> Window:
        return Window(
            self.schedule.key, self.series, self.schedule.spec.bucket(fire_time), fire_time
        )


def wake_at(schedule: Schedule, cursor: datetime) -> datetime | None:
    """Return when to look at the schedule next: when its next window after ``cursor`` opens.

    Of excluded windows that is the last of the day, so that a day of them is one row.
    """
    first = schedule.spec.next(cursor)
    if first is None or schedule.exclusions is None:
        return first
    day = schedule.exclusions.day_of(first)
    return first if day.reason is None else schedule.spec.previous(from_seconds(day.end) - _TICK)


def first_sight(schedule: Schedule, now: datetime) -> tuple[datetime, datetime]:
    """Return ``(effective_from, cursor)`` of a definition the ledger has never seen before ``now``.

    An interval owes its current window, a cron waits for its next fire time; ``firstFire``
    overrides both. A moment (``at``) that has passed is never owed.
    """
    at_once = schedule.first_fire == "now" or (
        schedule.first_fire is None and schedule.kind == "interval"
    )
    if not at_once or schedule.kind == "at":
        return now, now
    current = schedule.spec.previous(now)
    return (now, now) if current is None else (current, current - _TICK)
