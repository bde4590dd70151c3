"""Simulation of a schedule file between two instants: the planner under a virtual clock."""

from __future__ import annotations

import heapq
import json
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain, islice, pairwise
from typing import Final, Literal, get_args

from engine.schedules.model import Schedule
from engine.schedules.planner import Decision, ScheduleState, first_sight, plan
from engine.schedules.terms import MINUTE_MS, STOPS, TICK, Overlap, epoch_ms, from_ms

# --- outages and results ---

WindowOutcome = Literal[
    "on_time",
    "late",
    "caught_up",
    "queued",
    "overlapped",
    "coalesced",
    "excluded",
    "expired",
    "disabled",
    "paused",
]
OUTCOMES: Final[tuple[WindowOutcome, ...]] = get_args(WindowOutcome)
"""Outcomes of a window; the first four have a run."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Period ``begin <= t < end`` in which nothing is planned or started."""

    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class ScheduleTotals:
    """Totals of one schedule's windows.

    Attributes:
        key: the schedule's key.
        windows: how many fire times lie in the simulated time.
        counts: the windows by outcome; the sum is ``windows``.
        first_sight: runs of a window that opened before the start, owed to a new schedule.
        follows: its windows wait for other schedules for an unknown time, and are counted as if
            they did not wait.
        overlap_unknown: its runs may overlap with unknown effect, and are counted as with
            ``overlap: allow``.
    """

    key: str
    windows: int
    counts: Mapping[WindowOutcome, int]
    first_sight: int = 0
    overlap_unknown: bool = False
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Simulation:
    """Simulated windows of a file in ``start <= t < end``.

    Attributes:
        outages: ascending and disjoint.
        schedules: one per schedule, in the file's order.
        first: the UTC minute that ``starts`` and ``most_open`` begin with.
        starts: the number of runs started, per minute.
        most_open: the most runs open at once, per minute; empty where no duration is known.
    """

    start: datetime
    end: datetime
    outages: tuple[Outage, ...]
    schedules: tuple[ScheduleTotals, ...]
    first: datetime
    starts: Sequence[int]
    most_open: Sequence[int]

    @property
    def totals(self) -> dict[WindowOutcome, int]:
        """Number of windows by outcome, over all schedules; zeros are left out."""
        sums = {name: sum(each.counts.get(name, 0) for each in self.schedules) for name in OUTCOMES}
        return {name: count for name, count in sums.items() if count}

    @property
    def total(self) -> ScheduleTotals:
        """Totals of all schedules, under the key ``all``."""
        return ScheduleTotals(
            "all",
            sum(each.windows for each in self.schedules),
            self.totals,
            sum(each.first_sight for each in self.schedules),
        )

    def minute(self, index: int) -> datetime:
        """Return the minute that ``starts[index]`` counts."""
        return self.first + index * timedelta(minutes=1)


# --- queue of waiting runs ---
# Only for `simulate`, which is given the duration of runs; the planner reads open runs from the
# ledger instead.


@dataclass(slots=True)
class WaitingLine:
    """Runs of one schedule under ``overlap``, all of the same duration. Times are in milliseconds.

    A run is closed at the instant of its end, and a cancelled run ends at once. A policy that
    stops runs has one place. ``limit`` is how many windows may start or wait, skipped ones left
    out; ``ended`` is the fire time of the last of them, once it is reached.
    """

    policy: Overlap
    places: int
    duration: int
    most_queued: int
    limit: int | None = None
    ended: int | None = None
    queued: int = 0
    skipped: int = 0
    _waiting: deque[int] = field(default_factory=deque)

    def runs(self, windows: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each run, in ascending order.

        Args:
            windows: the fire time and earliest start of each window, in ascending order.
        """
        running: deque[tuple[int, int]] = deque()  # at most ``places``
        taken = 0
        for fire_time, moment in windows:
            begin, full = moment, len(running) == self.places
            if full and running[0][1] > fire_time:
                if self.policy in STOPS:
                    begun, end = running.pop()
                    running.append((begun, max(begun, min(end, fire_time))))
                elif self._enqueue(fire_time, running[0][1]):
                    begin = running[0][1]
                else:
                    self.skipped += 1
                    continue
            if full:
                yield running.popleft()
            running.append((begin, begin + self.duration))
            taken += 1
            if taken == self.limit:
                self.ended = fire_time
                break
        yield from running

    def _enqueue(self, fire_time: int, ends: int) -> bool:
        """Queue a window until its turn at a place, and return whether there is room for it."""
        while self._waiting and self._waiting[0] <= fire_time:
            self._waiting.popleft()
        room = {"skip": 0, "queue": self.most_queued}.get(self.policy, 1)
        if len(self._waiting) >= room:
            return False
        self.queued += 1
        self._waiting.append(ends)
        return True


# --- one schedule under a virtual clock ---
# Schedules are independent of each other. Outside outages each window is decided at its fire time,
# with one possible outcome, so windows are counted there instead of being planned one by one. At
# the end of an outage `plan` decides the owed windows. A ``limit`` counts starts, not windows, so
# that only the simulation finds where it ends the schedule.

_MILLISECOND: Final = timedelta(milliseconds=1)
_TOGETHER: Final = frozenset({"overlap", "maxConcurrentRuns", "after", "needs"})
"""Fields about the effect of runs on each other."""

_WITH_A_RUN: Final[tuple[WindowOutcome, ...]] = ("on_time", "late", "caught_up")


class Timeline:
    """Simulation of one schedule in ``start <= t < end``.

    Args:
        schedule: in force all the time.
        start: the first instant.
        end: the first instant after the simulated time.
        outages: ascending, disjoint, and within the simulated time.
    """

    def __init__(
        self, schedule: Schedule, start: datetime, end: datetime, outages: tuple[Outage, ...]
    ) -> None:
        self._overlap, self._places = schedule.overlap, schedule.max_concurrent_runs
        self._follows = bool(schedule.follows)
        if schedule.overlap != "allow" or schedule.follows:
            # Overlap depends on how long runs take; see `runs`. So does the start of a window
            # that waits for other schedules, whose runs are unknown here.
            schedule = Schedule.from_json(
                {name: value for name, value in schedule.to_json().items() if name not in _TOGETHER}
            )
        if schedule.mode == "shadow":  # simulated is what it would start
            schedule = schedule.model_copy(update={"mode": "live", "shadow_until": None})
        self._schedule = schedule
        self._start, self._end = start, end
        self._outages = outages
        self._limit, self._started = schedule.limit, 0
        self._first_sight: list[int] = []  # starts in ms
        self._lined_up = False
        self._counts: Counter[WindowOutcome] = Counter()
        self._waiting: list[int] = []  # heap of later starts in ms, such as those after an outage

    @property
    def _room(self) -> int | None:
        """How many more windows may start; None without a limit."""
        return None if self._limit is None else self._limit - self._started

    def _count_starts(self, count: int, cursor: datetime) -> None:
        """Count windows that start; the last one that may ends the simulated time at ``cursor``.

        Windows up to ``cursor`` are decided.
        """
        self._started += count
        if self._room == 0:
            self._end = cursor + TICK

    def totals(self, key: str) -> ScheduleTotals:
        """Return the totals under this key; call it after ``starts`` or ``runs``."""
        may_overlap = self._overlap != "allow" and not self._lined_up
        runs = sum(self._counts[name] for name in _WITH_A_RUN) + len(self._first_sight)
        return ScheduleTotals(
            key,
            self._windows,
            dict(self._counts),
            len(self._first_sight),
            overlap_unknown=may_overlap and runs > 0,
            follows=self._follows and runs > 0,
        )

    def runs(self, duration: int, *, new: bool) -> Iterator[tuple[int, int]]:
        """Yield start and end of runs of this duration, in order and in ms.

        Call it instead of `starts`. Overlap is simulated unless there are outages.
        """
        if self._overlap == "allow" or self._outages:
            yield from ((at, at + duration) for at in self.starts(new=new))
            return
        if new and not self._held:
            self._start_first_sight()
        declared = self._schedule
        line = WaitingLine(
            self._overlap, self._places, duration, declared.max_queued, declared.limit
        )
        yield from line.runs(chain(((at, at) for at in self._first_sight), self._moments()))
        self._limit = None  # the line has counted, without the windows that it skips
        if line.ended is not None:
            self._end = min(self._end, from_ms(line.ended) + TICK)
        deque(self.starts(new=False), maxlen=0)  # counts the outcomes without overlap
        self._counts["on_time"] -= line.queued + line.skipped
        self._counts["queued"] += line.queued
        self._counts["overlapped"] += line.skipped
        self._lined_up = True

    def _moments(self) -> Iterator[tuple[int, int]]:
        """Yield the fire time of each window that may start, and the start of its run, in ms."""
        declared = self._schedule
        if self._held:
            return
        for at in declared.starts(self._start - TICK, self._end - TICK):
            yield epoch_ms(at), epoch_ms(at + declared.delay(at))

    @property
    def _held(self) -> bool:
        return not self._schedule.enabled or self._schedule.paused

    @property
    def _windows(self) -> int:
        return self._schedule.spec.count(self._start - TICK, self._end - TICK)

    def starts(self, *, new: bool) -> Iterator[int]:
        """Yield the starts of its runs, in order, in ms since the epoch; ``new``: by first sight.

        ``spread`` or the rate of a catch-up may move a start past the end.
        """
        if self._held:  # skips excluded windows too
            self._counts["paused" if self._schedule.enabled else "disabled"] += self._windows
            return
        if new:
            self._start_first_sight()
        cursor = self._start - TICK
        for outage in self._outages:
            yield from self._watch(cursor, outage.begin - TICK)
            cursor = self._catch_up(max(cursor, outage.begin - TICK), outage.end)
        yield from self._watch(cursor, self._end - TICK)
        yield from sorted(self._waiting)

    def _start_first_sight(self) -> None:
        """Start the window that opened before ``start``, if first sight owes it."""
        seen = self._start - TICK
        effective_from, cursor = first_sight(self._schedule, self._start)
        if effective_from >= self._start:
            return  # a window that opens right at the start is an ordinary one
        state = ScheduleState.of(self._schedule, cursor, effective_from=effective_from)
        decided = plan(state, seen)
        for decision in decided.decisions:
            if decision.verdict == "claimed":
                self._count_starts(1, seen)
                began = self._begin(max(decision.not_before or seen, self._start))
                self._first_sight.append(epoch_ms(began))

    def _watch(self, after: datetime, until: datetime) -> Iterator[int]:
        """Decide the windows in ``(after, until]``, each at its fire time."""
        spec, excluded = self._schedule.spec, self._schedule.exclusions
        if until <= after or self._room == 0:
            return
        if excluded is None:
            yield from self._start_all(after, until)
            return
        for begin, end, reason in excluded.divide(after, until):
            if self._room == 0:
                return
            if reason is None:
                yield from self._start_all(begin, end)
            elif count := spec.count(begin, end):
                self._counts["excluded"] += count

    def _start_all(self, after: datetime, until: datetime) -> Iterator[int]:
        """Start the windows in ``(after, until]``, as the planner does at each fire time."""
        spec = self._schedule.spec
        if (room := self._room) is not None:
            until = next(islice(spec.fires(after, until), room - 1, None), until)
        oldest, newest = spec.next(after), spec.previous(until)
        if oldest is None or newest is None or oldest > until:
            return
        count = spec.count(after, until)
        self._count_starts(count, newest)
        self._counts["on_time"] += count - 1
        for at in self._on_time(oldest, newest):
            while self._waiting and self._waiting[0] <= at:
                yield heapq.heappop(self._waiting)
            yield at
        # Even with spread a run starts before the next window: only the last can meet an outage.
        self._claim(newest, newest + self._schedule.delay(newest))

    def _on_time(self, oldest: datetime, newest: datetime) -> Iterable[int]:
        """Return the starts of the runs of ``oldest <= fire time < newest``, in ms."""
        schedule, every = self._schedule, self._schedule.every_ms
        if every is not None:
            shift = schedule.delay(oldest) // _MILLISECOND
            return range(epoch_ms(oldest) + shift, epoch_ms(newest) + shift, every)
        if schedule.spread:
            return map(epoch_ms, self._spread(oldest, newest))
        return map(epoch_ms, schedule.spec.fires(oldest - TICK, newest - TICK))

    def _spread(self, oldest: datetime, newest: datetime) -> Iterator[datetime]:
        """Yield a cron's fire times in ``oldest <= t < newest``, each plus its delay."""
        spread, whole = self._schedule.spread, None
        for fire_time, following in pairwise(self._schedule.spec.fires(oldest - TICK, newest)):
            if following - fire_time < spread:
                delay = self._schedule.delay(fire_time)
            else:  # constant; computing it each time would search for the next window again
                delay = whole = whole or self._schedule.delay(fire_time)
            yield fire_time + delay

    def _catch_up(self, cursor: datetime, now: datetime) -> datetime:
        """Plan the windows owed at the end of an outage, and return the new cursor."""
        due = self._room != 0
        while due:
            state = replace(ScheduleState.of(self._schedule, cursor), started=self._started)
            decided = plan(state, now)
            for decision in decided.decisions:
                self._record(decision, now)
            due = decided.next_fire_at is not None and decided.next_fire_at <= now
            cursor = decided.cursor
            self._count_starts(sum(each.verdict == "claimed" for each in decided.decisions), cursor)
        return cursor

    def _record(self, decision: Decision, now: datetime) -> None:
        if decision.verdict == "claimed":
            caught_up = decision.timing == "caught_up"
            at = decision.not_before or now
            self._claim(decision.window.fire_time, at, caught_up=caught_up)
        elif decision.verdict == "expired":
            self._counts["expired"] += decision.windows
        else:
            self._counts["excluded" if decision.excluded else "coalesced"] += decision.windows

    def _claim(self, fire_time: datetime, at: datetime, *, caught_up: bool = False) -> None:
        """Start one window's run at ``at``, or at the end of the outage around ``at``."""
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


class OpenRuns:
    """Most runs open at one instant of each minute; it holds only open runs in memory.

    Args:
        first: the first minute, in minutes since the epoch.
        minutes: the number of minutes.
    """

    def __init__(self, first: int, minutes: int) -> None:
        self._first, self._most = first, [0] * minutes
        self._level = self._reached = 0
        self._ends: list[tuple[int, int]] = []

    def start(self, at: int, length: int, count: int = 1) -> None:
        """Open ``count`` runs at ``at`` for ``length``, both in ms; ``at`` never decreases.

        A run is closed at the instant of its end, so a run of length zero is never open.
        """
        if not length:
            return
        self._end_all(at)
        self._pass(at)
        self._level += count
        heapq.heappush(self._ends, (at + length, count))

    def finish(self) -> list[int]:
        """Return the most open runs of each minute."""
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
        """Record the current level for the time until just before ``at``."""
        last = min((at - 1) // MINUTE_MS - self._first, len(self._most) - 1)
        for minute in range(self._reached, last + 1):
            self._most[minute] = max(self._most[minute], self._level)
        self._reached = max(self._reached, at // MINUTE_MS - self._first)


# --- simulation ---

LONGEST: Final = timedelta(days=366)
"""Longest simulated time: half a million minutes."""

_NO_MATTER: Final = (
    "key",
    "workflow",
    "input",
    "taskQueue",
    "external",
    "expect",
    "description",
    "metadata",
    "topic",
    "tags",
    "searchAttributes",
    "memo",
    "retry",
    "timeout",
    "priority",
    "retention",
    "alert",
    "onDead",
)
"""Fields without effect on when runs start."""


def simulate(
    schedules: Iterable[Schedule],
    start: datetime,
    end: datetime,
    *,
    outages: Iterable[Outage] = (),
    durations: Mapping[str, timedelta] | None = None,
    new: bool = False,
) -> Simulation:
    """Simulate ``schedules`` in ``start <= t < end``.

    Memory grows with the minutes and with the runs open at once, not with the number of runs.

    Args:
        schedules: in force all the time; a disabled or paused one stays so.
        start: the first instant.
        end: the first instant after the simulated time.
        outages: when nothing is planned. Each ends before ``end``, so that the windows it owes
            are decided within the simulated time.
        durations: how long runs take, by key; a key without one is left out of ``most_open``, and
            its overlap is unknown.
        new: the ledger has never seen these schedules, so that first sight may owe a window.

    Raises:
        ValueError: the times do not fit together; the message says what to write instead.
    """
    gaps = _checked(start, end, outages)
    listed = list(schedules)
    lengths = {key: length // _MILLISECOND for key, length in (durations or {}).items()}
    groups = [
        _Group(places, Timeline(listed[places[0]], start, end, gaps), length)
        for length, places in _alike(listed, lengths)
    ]
    first = epoch_ms(start) // MINUTE_MS
    minutes = (epoch_ms(end) - 1) // MINUTE_MS - first + 1
    starts, most_open = _load(groups, first, minutes, new=new)
    totals = {n: group.timeline.totals(listed[n].key) for group in groups for n in group.places}
    return Simulation(
        start=start,
        end=end,
        outages=gaps,
        schedules=tuple(totals[n] for n in range(len(listed))),
        first=from_ms(first * MINUTE_MS),
        starts=starts,
        most_open=most_open if durations else (),
    )


@dataclass(frozen=True, slots=True)
class _Group:
    """Schedules that start at the same instants and share one simulation.

    Attributes:
        places: their positions in the file.
        timeline: the simulation of any one of them.
        length: the duration of their runs in ms, if known.
    """

    places: Sequence[int]
    timeline: Timeline
    length: int | None


def _load(
    groups: Sequence[_Group], first: int, minutes: int, *, new: bool
) -> tuple[list[int], list[int]]:
    """Simulate all groups; return starts and most open runs of each minute from ``first``."""
    starts, open_runs = [0] * minutes, OpenRuns(first, minutes)
    for group in groups:
        if group.length is None:
            minutely = Counter(at // MINUTE_MS for at in group.timeline.starts(new=new))
            for minute, count in minutely.items():
                if minute - first < minutes:
                    starts[minute - first] += count * len(group.places)
    for begin, end, count in heapq.merge(*(_runs(group, new=new) for group in groups)):
        if begin // MINUTE_MS - first < minutes:
            starts[begin // MINUTE_MS - first] += count
        open_runs.start(begin, end - begin, count)
    return starts, open_runs.finish()


def _runs(group: _Group, *, new: bool) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and number of simultaneous runs of known duration, in order and in ms."""
    if group.length is not None:
        for begin, end in group.timeline.runs(group.length, new=new):
            yield begin, end, len(group.places)


def _checked(start: datetime, end: datetime, outages: Iterable[Outage]) -> tuple[Outage, ...]:
    """Return the outages in ascending order; those that touch or overlap are merged."""
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


def _alike(
    schedules: Sequence[Schedule], lengths: Mapping[str, int]
) -> Iterable[tuple[int | None, list[int]]]:
    """Group schedules that start at the same instants: duration of the runs, and positions."""
    groups: dict[tuple[int | None, str], list[int]] = {}
    for index, schedule in enumerate(schedules):
        by_key = schedule.spread or "H" in (schedule.cron or "").upper()
        shape = {
            name: value for name, value in schedule.to_json().items() if name not in _NO_MATTER
        }
        text = json.dumps([shape, schedule.key if by_key else ""], sort_keys=True)
        groups.setdefault((lengths.get(schedule.key), text), []).append(index)
    return ((length, places) for (length, _), places in groups.items())
