"""Decides what becomes of every due window. Pure: the moment is an argument.

``plan`` enumerates the windows in ``(cursor, now]``, never only the current one: polling the
current bucket loses windows whenever a tick comes late. What it returns is a value; the ledger
writes it and the starter acts on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Literal

from engine.schedules.model import Schedule
from engine.schedules.windows import Window

_TICK = timedelta(microseconds=1)
"""The resolution of instants here and in PostgreSQL."""

FIRST_SIGHT = "first sight"
"""The reason of a window that was open when its schedule was first seen."""

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
        missed: windows a caught-up start stands for besides its own.
        windows: how many windows this decision covers.
        last: the fire time of the last of them.
    """

    window: Window
    verdict: Verdict
    reason: str | None = None
    timing: Literal["on_time", "caught_up"] | None = None
    missed: int = 0
    windows: int = 1
    last: datetime | None = None


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

    The rule: while the oldest undecided window is younger than ``grace``, every window starts;
    beyond it the catch-up policy speaks.
    """
    due = _Due(schedule, series)
    oldest = schedule.spec.next(cursor)
    if oldest is None or oldest > now:
        return Plan((), cursor, oldest)
    edge = now - schedule.grace
    if hold is not None:
        decisions = due.settle(cursor, now, "skipped", hold)
    elif unable is not None:
        decisions = due.settle(cursor, now if final else edge - _TICK, "rejected", unable)
    elif oldest >= edge:
        decisions = due.start_all(cursor, now, None if final else limit)
    elif oldest == effective_from and oldest == schedule.spec.previous(now):
        decisions = due.start_all(cursor, now, 1, FIRST_SIGHT)
    else:
        decisions = due.catch_up_latest(cursor, now)
    if decisions:
        newest = decisions[-1]
        cursor = newest.last or newest.window.fire_time
    return Plan(decisions, cursor, schedule.spec.next(cursor))


@dataclass(frozen=True, slots=True)
class _Due:
    """The due windows of one schedule, and the ways to decide them."""

    schedule: Schedule
    series: int

    def start_all(
        self, after: datetime, until: datetime, limit: int | None, reason: str | None = None
    ) -> tuple[Decision, ...]:
        fires = islice(self.schedule.spec.fires(after, until), limit)
        return tuple(Decision(self._window(at), "claimed", reason, "on_time") for at in fires)

    def catch_up_latest(self, after: datetime, until: datetime) -> tuple[Decision, ...]:
        """One run for the whole outage: the newest window, if the catch-up window reaches it."""
        spec = self.schedule.spec
        too_old = until - self.schedule.catch_up.window
        newest = spec.previous(until)
        if newest is None:  # pragma: no cover - the caller has seen a due window
            return ()
        if newest < too_old:
            return self.settle(after, until, "expired", "older than the catch-up window")
        # Instants have microseconds in PostgreSQL; the window at the very edge still counts.
        edge = max(after, too_old - _TICK)
        expired = self.settle(after, edge, "expired", "older than the catch-up window")
        bucket = spec.bucket(newest)
        coalesced = self.settle(edge, newest - _TICK, "skipped", f"coalesced into {bucket}")
        missed = sum(decision.windows for decision in coalesced)
        start = Decision(
            self._window(newest),
            "claimed",
            reason=f"caught up for {missed} missed windows" if missed else None,
            timing="caught_up",
            missed=missed,
        )
        return (*expired, *coalesced, start)

    def settle(
        self, after: datetime, until: datetime, verdict: Verdict, reason: str
    ) -> tuple[Decision, ...]:
        """One decision for all windows in ``(after, until]``: however many, it is one row."""
        spec = self.schedule.spec
        first = spec.next(after)
        last = spec.previous(until)
        if first is None or last is None or first > until:
            return ()
        windows = spec.count(after, until)
        return (Decision(self._window(first), verdict, reason, windows=windows, last=last),)

    def _window(self, fire_time: datetime) -> Window:
        return Window(
            self.schedule.key, self.series, self.schedule.spec.bucket(fire_time), fire_time
        )


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
