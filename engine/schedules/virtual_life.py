"""One schedule's life between two moments, under a virtual clock.

It lives by itself, as in the ledger: while somebody looks, each window is decided at its fire
time; during an outage nobody looks, and at its end `plan` decides what is owed. Outside outages
that has one outcome, so windows are counted there instead of being planned one by one.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import chain, pairwise
from typing import Final

from engine.schedules.decisions import Decision
from engine.schedules.instants import TICK, epoch_ms
from engine.schedules.line import Line
from engine.schedules.model import Schedule
from engine.schedules.planner import first_sight, plan
from engine.schedules.simulated import Fate, Outage, Outcome

_MILLISECOND: Final = timedelta(milliseconds=1)
_TOGETHER: Final = frozenset({"overlap", "maxConcurrentRuns", "after", "needs"})
"""The fields about what runs do to each other."""

_WITH_A_RUN: Final[tuple[Outcome, ...]] = ("on_time", "late", "caught_up")


class Life:
    """One schedule in ``start <= t < end``.

    Args:
        schedule: in force all the time.
        start: the first instant.
        end: the first instant that is not lived any more.
        outages: in the order of time, and apart; each within the time.
    """

    def __init__(
        self, schedule: Schedule, start: datetime, end: datetime, outages: tuple[Outage, ...]
    ) -> None:
        self._overlap, self._places = schedule.overlap, schedule.max_concurrent_runs
        self._follows = bool(schedule.follows)
        if schedule.overlap != "allow" or schedule.follows:
            # What a run is in the way of depends on how long it takes; see `in_line`. And so does
            # when one starts that waits for other schedules, about which nothing is known here.
            schedule = Schedule.from_json(
                {name: value for name, value in schedule.to_json().items() if name not in _TOGETHER}
            )
        self._schedule, self._start, self._end = schedule, start, end
        self._outages = outages
        self._first_sight: list[int] = []  # when these start, in ms
        self._lined_up = False
        self._counts: Counter[Outcome] = Counter()
        self._waiting: list[int] = []  # starts to come, those at an outage's end and later: a heap

    def fate(self, key: str) -> Fate:
        """Return what became of the windows, after ``live``, under this key."""
        may_overlap = self._overlap != "allow" and not self._lined_up
        runs = sum(self._counts[name] for name in _WITH_A_RUN) + len(self._first_sight)
        return Fate(
            key, self._windows, dict(self._counts), len(self._first_sight),
            overlap_unknown=may_overlap and runs > 0, follows=self._follows and runs > 0,
        )  # fmt: skip

    def can_line_up(self) -> bool:
        """Whether runs get in each other's way, and only their duration is to be known."""
        return self._overlap != "allow" and not self._outages

    def in_line(self, duration: int, *, new: bool) -> Iterator[tuple[int, int]]:
        """Yield when runs of this duration begin and end, in order; all in ms. Instead of `live`.

        They are in each other's way as ``overlap`` says.
        """
        for _ in self.live(new=new):  # counts what becomes of the windows, were they alone
            pass
        line = Line(self._overlap, self._places, duration, self._schedule.max_queued)
        yield from line.runs(chain(((at, at) for at in self._first_sight), self._moments()))
        self._counts["on_time"] -= line.queued + line.skipped
        self._counts["queued"] += line.queued
        self._counts["overlapped"] += line.skipped
        self._lined_up = True

    def _moments(self) -> Iterator[tuple[int, int]]:
        """Yield each window that may start, and when its run would."""
        declared = self._schedule
        if not declared.enabled or declared.paused:
            return
        for at in declared.starts(self._start - TICK, self._end - TICK):
            yield epoch_ms(at), epoch_ms(at + declared.delay(at))

    @property
    def _windows(self) -> int:
        return self._schedule.spec.count(self._start - TICK, self._end - TICK)

    def live(self, *, new: bool) -> Iterator[int]:
        """Yield when its runs start, in order, in ms since the epoch; ``new``: by first sight.

        A run may start behind the end, where ``spread`` or the pace of a catch-up say so.
        """
        if not self._schedule.enabled or self._schedule.paused:  # skipped whole, excluded or not
            self._counts["paused" if self._schedule.enabled else "disabled"] += self._windows
            return
        if new:
            self._be_seen()
        cursor = self._start - TICK
        for outage in self._outages:
            yield from self._watch(cursor, outage.begin - TICK)
            cursor = self._return(max(cursor, outage.begin - TICK), outage.end)
        yield from self._watch(cursor, self._end - TICK)
        yield from sorted(self._waiting)

    def _be_seen(self) -> None:
        """Start what first sight owes: a window that opened before ``start``."""
        seen = self._start - TICK
        effective_from, cursor = first_sight(self._schedule, self._start)
        if effective_from >= self._start:
            return  # the window that opens right now is one like any other
        decided = plan(
            self._schedule, series=1, effective_from=effective_from, cursor=cursor, now=seen
        )
        for decision in decided.decisions:
            if decision.verdict == "claimed":
                began = self._begin(max(decision.not_before or seen, self._start))
                self._first_sight.append(epoch_ms(began))

    def _watch(self, after: datetime, until: datetime) -> Iterator[int]:
        """Decide the windows in ``(after, until]``, each at its fire time."""
        spec, excluded = self._schedule.spec, self._schedule.exclusions
        if until <= after:
            return
        if excluded is None:
            yield from self._start_all(after, until)
            return
        for begin, end, reason in excluded.divide(after, until):
            if reason is None:
                yield from self._start_all(begin, end)
            elif count := spec.count(begin, end):
                self._counts["excluded"] += count

    def _start_all(self, after: datetime, until: datetime) -> Iterator[int]:
        """Start the windows in ``(after, until]``: the planner does so at each fire time."""
        spec = self._schedule.spec
        oldest, newest = spec.next(after), spec.previous(until)
        if oldest is None or newest is None or oldest > until:
            return
        self._counts["on_time"] += spec.count(after, until) - 1
        for at in self._on_time(oldest, newest):
            while self._waiting and self._waiting[0] <= at:
                yield heapq.heappop(self._waiting)
            yield at
        # With spread a run starts before the next window, so only the last can meet an outage.
        self._claim(newest, newest + self._schedule.delay(newest))

    def _on_time(self, oldest: datetime, newest: datetime) -> Iterable[int]:
        """Return when the runs of ``oldest <= fire time < newest`` start."""
        schedule, every = self._schedule, self._schedule.every_ms
        if every is not None:
            shift = schedule.delay(oldest) // _MILLISECOND
            return range(epoch_ms(oldest) + shift, epoch_ms(newest) + shift, every)
        if schedule.spread:
            return map(epoch_ms, self._spread(oldest, newest))
        return map(epoch_ms, schedule.spec.fires(oldest - TICK, newest - TICK))

    def _spread(self, oldest: datetime, newest: datetime) -> Iterator[datetime]:
        """Yield a cron's fire times from ``oldest`` until before ``newest``, each by its delay."""
        spread, whole = self._schedule.spread, None
        for fire_time, following in pairwise(self._schedule.spec.fires(oldest - TICK, newest)):
            if following - fire_time < spread:
                delay = self._schedule.delay(fire_time)
            else:  # the same for all of them, and to ask each time would cost a second look
                delay = whole = whole or self._schedule.delay(fire_time)
            yield fire_time + delay

    def _return(self, cursor: datetime, now: datetime) -> datetime:
        """Plan what is owed at the end of an outage, and return the new cursor."""
        due = True
        while due:
            decided = plan(self._schedule, series=1, effective_from=cursor, cursor=cursor, now=now)
            for decision in decided.decisions:
                self._book(decision, now)
            due = decided.next is not None and decided.next <= now
            cursor = decided.cursor
        return cursor

    def _book(self, decision: Decision, now: datetime) -> None:
        if decision.verdict == "claimed":
            caught_up = decision.timing == "caught_up"
            at = decision.not_before or now
            self._claim(decision.window.fire_time, at, caught_up=caught_up)
        elif decision.verdict == "expired":
            self._counts["expired"] += decision.windows
        else:
            excluded = (decision.reason or "").startswith("excluded")
            self._counts["excluded" if excluded else "coalesced"] += decision.windows

    def _claim(self, fire_time: datetime, at: datetime, *, caught_up: bool = False) -> None:
        """Start one window's run at ``at``, or when the outage around that moment ends."""
        began = self._begin(at)
        meant = fire_time + self._schedule.delay(fire_time)
        late = began - meant > self._schedule.grace
        self._counts["caught_up" if caught_up else "late" if late else "on_time"] += 1

    def _begin(self, at: datetime) -> datetime:
        index = bisect_right(self._outages, at, key=lambda outage: outage.begin) - 1
        if index >= 0:
            at = max(at, self._outages[index].end)
        heapq.heappush(self._waiting, epoch_ms(at))
        return at
