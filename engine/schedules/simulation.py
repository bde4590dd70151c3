"""Simulation of a schedule file between two instants."""

from __future__ import annotations

import heapq
import json
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, pairwise
from typing import Final, Literal

from engine.schedules.model import Schedule
from engine.schedules.planner.decisions import Decision
from engine.schedules.planner.planner import first_sight, plan
from engine.schedules.policies import STOPS, Overlap
from engine.schedules.units import MINUTE_MS, TICK, epoch_ms, from_ms

# --- outages and results ---
# What a simulation is told and says: outages, and what became of each window.

Outcome = Literal[
    "on_time", "late", "caught_up", "queued",
    "overlapped", "coalesced", "excluded", "expired", "disabled", "paused",
]  # fmt: skip
OUTCOMES: Final[tuple[Outcome, ...]] = (
    "on_time", "late", "caught_up", "queued",
    "overlapped", "coalesced", "excluded", "expired", "disabled", "paused",
)  # fmt: skip
"""What becomes of a window; the first four have a run."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Nothing is looked at and nothing starts in ``begin <= t < end``."""

    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Fate:
    """Totals of one schedule's windows.

    Attributes:
        key: the schedule's key.
        windows: how many fire times lie in the simulated time.
        counts: how many of them ended how; together they are ``windows``.
        first_sight: runs of a window that was open before, owed to a new schedule.
        follows: its windows wait for other schedules, and for how long is not known here: they
            are counted as if they did not.
        overlap_unknown: its runs may be in each other's way, and how is not known here: they
            are counted as with ``overlap: allow``.
    """

    key: str
    windows: int
    counts: Mapping[Outcome, int]
    first_sight: int = 0
    overlap_unknown: bool = False
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Simulation:
    """Simulated windows of a file in ``start <= t < end``.

    Attributes:
        outages: in the order of time, and apart.
        fates: one per schedule, in the file's order.
        first: the UTC minute that ``starts`` and ``most_open`` begin with.
        starts: runs that start, per minute.
        most_open: runs open at once, at most, per minute; empty where no duration is known.
    """

    start: datetime
    end: datetime
    outages: tuple[Outage, ...]
    fates: tuple[Fate, ...]
    first: datetime
    starts: Sequence[int]
    most_open: Sequence[int]

    @property
    def totals(self) -> dict[Outcome, int]:
        """Number of windows by outcome, over all schedules; zeros are left out."""
        sums = {name: sum(fate.counts.get(name, 0) for fate in self.fates) for name in OUTCOMES}
        return {name: count for name, count in sums.items() if count}

    @property
    def total(self) -> Fate:
        """Totals of the windows of all schedules, as one called ``all``."""
        return Fate(
            "all", sum(fate.windows for fate in self.fates), self.totals,
            sum(fate.first_sight for fate in self.fates),
        )  # fmt: skip

    def minute(self, index: int) -> datetime:
        """Return the minute that ``starts[index]`` counts."""
        return self.first + index * timedelta(minutes=1)


# --- queue of waiting runs ---
# Runs of one schedule that wait for each other, by ``overlap``, where each takes the same time.
#
# For `simulate`, which is told how long runs take; the planner asks the ledger instead.


@dataclass(slots=True)
class Line:
    """Instants and durations are in milliseconds; a run has ended in the instant at its end.

    A run that is cancelled ends at once. With a policy that cancels there is one place.
    """

    policy: Overlap
    places: int
    duration: int
    most_queued: int
    queued: int = 0
    skipped: int = 0
    _waiting: deque[int] = field(default_factory=deque)

    def runs(self, windows: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yield when each run begins, and when it ends, in the order of time.

        Args:
            windows: in that order too, each its fire time and when its run may start.
        """
        running: deque[tuple[int, int]] = deque()  # at most so many as there are places
        for fire_time, moment in windows:
            begin, full = moment, len(running) == self.places
            if full and running[0][1] > fire_time:
                if self.policy in STOPS:
                    begun, end = running.pop()
                    running.append((begun, max(begun, min(end, fire_time))))
                elif self._may_wait(fire_time, running[0][1]):
                    begin = running[0][1]
                else:
                    self.skipped += 1
                    continue
            if full:
                yield running.popleft()
            running.append((begin, begin + self.duration))
        yield from running

    def _may_wait(self, fire_time: int, ends: int) -> bool:
        """Let a window wait until a place is free and its turn, if there is room for it."""
        while self._waiting and self._waiting[0] <= fire_time:
            self._waiting.popleft()
        room = {"skip": 0, "queue": self.most_queued}.get(self.policy, 1)
        if len(self._waiting) >= room:
            return False
        self.queued += 1
        self._waiting.append(ends)
        return True


# --- one schedule under a virtual clock ---
# One schedule's life between two moments, under a virtual clock.
#
# It lives by itself, as in the ledger: while somebody looks, each window is decided at its fire
# time; during an outage nobody looks, and at its end `plan` decides what is owed. Outside outages
# that has one outcome, so windows are counted there instead of being planned one by one.

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


# --- open runs per minute ---
# How many runs are open at once, minute by minute, while their starts pass by in order.


class OpenRuns:
    """The most runs open at one instant of each minute; remembers those open, and no others.

    Args:
        first: the first minute, in minutes since the epoch.
        minutes: how many are counted.
    """

    def __init__(self, first: int, minutes: int) -> None:
        self._first, self._most = first, [0] * minutes
        self._level = self._reached = 0
        self._ends: list[tuple[int, int]] = []

    def start(self, at: int, length: int, count: int = 1) -> None:
        """Open ``count`` runs at ``at`` for ``length``, both in ms; never before an earlier call's.

        A run has ended in the instant at its end, so that one of no length is never open.
        """
        if not length:
            return
        self._end_all(at)
        self._pass(at)
        self._level += count
        heapq.heappush(self._ends, (at + length, count))

    def finish(self) -> list[int]:
        """Return the most of each minute."""
        self._end_all((self._first + len(self._most)) * MINUTE_MS)
        for minute in range(self._reached, len(self._most)):
            self._most[minute] = max(self._most[minute], self._level)
        return self._most

    def _end_all(self, until: int) -> None:
        while self._ends and self._ends[0][0] <= until:
            end, count = heapq.heappop(self._ends)
            self._pass(end)
            self._level -= count

    def _pass(self, at: int) -> None:
        """Until just before this instant the level was as it is."""
        last = min((at - 1) // MINUTE_MS - self._first, len(self._most) - 1)
        for minute in range(self._reached, last + 1):
            self._most[minute] = max(self._most[minute], self._level)
        self._reached = max(self._reached, at // MINUTE_MS - self._first)


# --- simulation ---
# What a file of schedules would do between two moments: the planner under a virtual clock.

LONGEST: Final = timedelta(days=366)
"""The longest time that is simulated: half a million minutes."""

_NO_MATTER: Final = (
    "key", "workflow", "input", "taskQueue", "external", "expect", "description", "metadata",
)  # fmt: skip
"""The fields that change nothing about when runs start."""


def simulate(
    schedules: Iterable[Schedule],
    start: datetime,
    end: datetime,
    *,
    outages: Iterable[Outage] = (),
    durations: Mapping[str, timedelta] | None = None,
    new: bool = False,
) -> Simulation:
    """Return what ``schedules`` do from ``start`` until before ``end``.

    Memory grows with the minutes, and with the runs that are open at once, not with the runs.

    Args:
        schedules: what is in force all the time; a disabled or paused one stays so.
        start: the first instant.
        end: the first instant that is not simulated any more.
        outages: when nothing is looked at. Each ends before ``end``, so that what it owes is
            decided within the time.
        durations: how long runs take, by key; a key without one is left out of ``most_open``, and
            what its runs do to each other is not known.
        new: the ledger has never seen these schedules, so that first sight owes a window.

    Raises:
        ValueError: the times do not fit together; the message says what to write instead.
    """
    gaps = _checked(start, end, outages)
    listed = list(schedules)
    lengths = {key: length // _MILLISECOND for key, length in (durations or {}).items()}
    herds = []
    for places in _alike(listed, lengths):
        known = Counter(lengths[key] for key in (listed[n].key for n in places) if key in lengths)
        herds.append(_Group(places, Life(listed[places[0]], start, end, gaps), known))
    first = epoch_ms(start) // MINUTE_MS
    minutes = (epoch_ms(end) - 1) // MINUTE_MS - first + 1
    starts, most_open = _load(herds, first, minutes, new=new)
    fates = {n: herd.life.fate(listed[n].key) for herd in herds for n in herd.places}
    return Simulation(
        start=start, end=end, outages=gaps,
        fates=tuple(fates[n] for n in range(len(listed))),
        first=from_ms(first * MINUTE_MS), starts=starts, most_open=most_open if durations else (),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Group:
    """Schedules that start at the same instants: one life, which counts for each of them.

    Attributes:
        places: where they stand in the file.
        life: that of any one.
        lengths: how long their runs take, in ms, and for how many of them; not all are known.
    """

    places: Sequence[int]
    life: Life
    lengths: Mapping[int, int]


def _load(
    herds: Sequence[_Group], first: int, minutes: int, *, new: bool
) -> tuple[list[int], list[int]]:
    """Live all lives; return the starts, and the most open runs, of each minute from ``first``."""
    starts, open_runs = [0] * minutes, OpenRuns(first, minutes)
    for herd in herds:
        if not herd.lengths:
            for minute, count in Counter(at // MINUTE_MS for at in herd.life.live(new=new)).items():
                if minute - first < minutes:
                    starts[minute - first] += count * len(herd.places)
    for at, herd, lengths in _together([herd for herd in herds if herd.lengths], new=new):
        if at // MINUTE_MS - first < minutes:
            starts[at // MINUTE_MS - first] += len(herd.places)
        for length, count in lengths.items():
            open_runs.start(at, length, count)
    return starts, open_runs.finish()


def _together(
    herds: Sequence[_Group], *, new: bool
) -> Iterator[tuple[int, _Group, Mapping[int, int]]]:
    """Return the starts of all herds in the order of time: what is open at once is seen so.

    With each how long its runs are open, in ms, and how many of them are known to be.
    """

    def told(number: int) -> Iterator[tuple[int, int, int]]:
        herd = herds[number]
        if not herd.life.can_line_up():
            return ((at, number, -1) for at in herd.life.live(new=new))
        (length,) = herd.lengths  # those of different ones are of different herds
        runs = herd.life.in_line(length, new=new)
        return ((begin, number, end - begin) for begin, end in runs)

    for at, number, length in heapq.merge(*map(told, range(len(herds)))):
        herd = herds[number]
        yield at, herd, herd.lengths if length < 0 else {length: len(herd.places)}


def _checked(start: datetime, end: datetime, outages: Iterable[Outage]) -> tuple[Outage, ...]:
    """Return the outages in the order of time, those that touch as one."""
    if epoch_ms(end) <= epoch_ms(start):
        raise ValueError("the end is not after the start; write the earlier moment first")
    if end - start > LONGEST:
        raise ValueError(f"that is longer than {LONGEST.days} days; simulate a part of it")
    found: list[Outage] = []
    for outage in sorted(outages, key=lambda each: each.begin):
        between = f"the outage {outage.begin.isoformat()} to {outage.end.isoformat()}"
        if outage.end <= outage.begin:
            raise ValueError(f"{between} ends before it begins; write the earlier moment first")
        if outage.begin < start or outage.end >= end:
            raise ValueError(
                f"{between} does not begin and end within the simulated time; move the start "
                "before it, or the end behind it, to see what is owed afterwards"
            )
        if found and outage.begin <= found[-1].end:
            found[-1] = Outage(found[-1].begin, max(found[-1].end, outage.end))
        else:
            found.append(outage)
    return tuple(found)


def _alike(schedules: Sequence[Schedule], lengths: Mapping[str, int]) -> Iterable[list[int]]:
    """Return the places of schedules that start at the same instants, together: one life each."""
    groups: dict[str, list[int]] = {}
    for index, schedule in enumerate(schedules):
        dump = schedule.to_json()
        by_key = schedule.spread or "H" in (schedule.cron or "").upper()
        said = {name: value for name, value in dump.items() if name not in _NO_MATTER}
        length = lengths.get(schedule.key) if schedule.overlap != "allow" else None
        shape = json.dumps([said, length, schedule.key if by_key else ""], sort_keys=True)
        groups.setdefault(shape, []).append(index)
    return groups.values()
