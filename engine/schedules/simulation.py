"""Simulation of a schedule file between two instants: the planner under a virtual clock."""

from __future__ import annotations

import heapq
import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final, Literal, get_args

from engine.schedules.model import Schedule
from engine.schedules.planner import (
    ALL_READ,
    Decision,
    OpenFire,
    Pause,
    ScheduleState,
    first_sight,
    plan,
)
from engine.schedules.rules import Trait, fields_with
from engine.schedules.terms import MINUTE_MS, TICK, Window, code_of, epoch_ms, from_ms

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
        counts: the windows by outcome; zeros are left out.
        first_sight: runs of a window that opened before the start, owed to a new schedule.
        follows: its windows wait for other schedules for an unknown time, and are counted as if
            they did not wait.
        overlap_unknown: its runs may overlap with unknown effect, and are counted as with
            ``overlap: allow``.
    """

    key: str
    counts: Mapping[WindowOutcome, int]
    first_sight: int
    overlap_unknown: bool = False
    follows: bool = False

    @property
    def windows(self) -> int:
        """Number of fire times in the simulated time."""
        return sum(self.counts.values())


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
        return ScheduleTotals("all", self.totals, sum(each.first_sight for each in self.schedules))

    @property
    def most_starts_in_a_minute(self) -> int:
        """The most runs that start in one minute."""
        return max(self.starts, default=0)

    def minute(self, index: int) -> datetime:
        """Return the minute that ``starts[index]`` counts."""
        return self.first + index * timedelta(minutes=1)


# --- one schedule under a virtual clock ---
# Schedules are independent of each other. The planner decides their windows, at the instants at
# which a ledger would ask it. Where no outage and no older run can touch windows, it is asked for
# several at once, and told to be patient: each starts as it opens, however long ago that was.

_AT_ONCE: Final = 50
"""Windows of a patient plan: they are in memory for each schedule whose runs have a length."""
LONGEST: Final = timedelta(days=366)
"""Longest simulated time: half a million minutes."""
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_OUTCOME_OF: Final[Mapping[str | None, WindowOutcome]] = {
    **{name: name for name in OUTCOMES},
    "overlap": "overlapped",
    "queue_full": "overlapped",
}
"""Outcomes of windows without a run, by the codes of their reasons."""


class Timeline:
    """Simulation of one schedule in ``start <= t < end``.

    Args:
        schedule: in force all the time; it waits for no other schedule. With an ``overlap`` other
            than ``allow``, the length of its runs is known, and there are no outages.
        start: the first instant.
        end: the first instant after the simulated time.
        outages: ascending, disjoint, and within the simulated time.
        length: how long its runs take; None if it is not known.

    Attributes:
        copies: how many schedules it stands for.
        counts: windows by outcome, when all ``runs`` are read.
        first_sight: runs of a window that opened before the start.
    """

    def __init__(
        self,
        schedule: Schedule,
        start: datetime,
        end: datetime,
        outages: tuple[Outage, ...],
        length: timedelta | None = None,
    ) -> None:
        self.copies, self.first_sight, self.length = 0, 0, length
        self.counts: Counter[WindowOutcome] = Counter()
        self._schedule, self._outages = schedule, outages
        self._start, self._last, self._took = start, end - TICK, length or timedelta(0)
        self._in_line = schedule.overlap != "allow"
        self._patient = schedule.model_copy(update={"grace": LONGEST})
        self._open: dict[int, tuple[Window, datetime, datetime]] = {}  # with start and end
        self._waiting: deque[Window] = deque()

    @property
    def started(self) -> int:
        """How many windows have a run, which may wait for a place."""
        return self.first_sight + sum(self.counts[name] for name in OUTCOMES[:4])

    def runs(self, *, new: bool) -> Iterator[tuple[int, int]]:
        """Yield start and end of its runs in order, in ms since the epoch; ``new``: by first sight.

        ``spread`` or the rate of a catch-up may move a start past the end.
        """
        schedule, seen = self._schedule, self._start - TICK
        since, cursor = first_sight(schedule, self._start) if new else (seen, seen)
        if since >= self._start:
            since = cursor = seen  # a window that opens right at the start is an ordinary one
        state = ScheduleState.of(schedule, cursor, effective_from=since)
        if schedule.paused:
            state = replace(state, pause=Pause(seen))
        due: datetime | None = seen
        while due is not None and due <= self._last:
            yield from self._begun(due)
            calm = self._calm(due) if due >= self._start and not state.hold else None
            state, due = self._plan(state, calm or self._awake(due), patient=calm is not None)
        self._plan(state, self._last)  # a hold, or a day off that goes on
        yield from self._begun(_NEVER)

    def _outage(self, at: datetime) -> Outage | None:
        """Return the outage around ``at``, else the next one."""
        return next((each for each in self._outages if at < each.end), None)

    def _awake(self, at: datetime) -> datetime:
        """Return the end of the outage around ``at``, else ``at`` itself."""
        outage = self._outage(at)
        return outage.end if outage and outage.begin <= at else at

    def _calm(self, at: datetime) -> datetime | None:
        """Return until when nothing is in the way of windows from ``at`` on; None if it may be."""
        outage = self._outage(at)
        until = outage.begin - TICK if outage else self._last
        return until if until >= at and not self._in_line else None

    def _begun(self, until: datetime) -> Iterator[tuple[int, int]]:
        """Yield the runs that have begun, or in a line ended, by then."""
        found = []
        for number, (_, begin, end) in [*self._open.items()]:
            if (end if self._in_line else begin) <= until:
                found.append((epoch_ms(begin), epoch_ms(end)))
                del self._open[number]
        yield from sorted(found)

    def _plan(
        self, state: ScheduleState, now: datetime, *, patient: bool = False
    ) -> tuple[ScheduleState, datetime | None]:
        """Carry out what the planner decides; return the new state, and when to plan again.

        ``patient``: every window up to ``now`` starts as it opened.
        """
        # A plan gives places to the first in line only, and counts the others.
        front = [*islice(self._waiting, self._schedule.max_concurrent_runs)]
        unread = ALL_READ._replace(waiting=len(self._waiting) - len(front))
        fires = tuple(_fire(window, "queued") for window in front)
        if self._in_line:
            fires = (*(_fire(window, "started") for window, _, _ in self._open.values()), *fires)
        schedule = self._patient if patient else self._schedule
        asked = replace(state, schedule=schedule, open_fires=fires, unread=unread)
        decided = plan(asked, now, limit=_AT_ONCE)
        for move in decided.moves:
            if move.to == "start":
                window = self._waiting.popleft()
                self.counts["queued"] -= 1
                self._start_run(window, now, "queued" if window.fire_time < now else "on_time")
            else:  # a run that is stopped ends at once
                window, begin, _ = self._open[move.fire.fire_id]
                self._open[window.bucket] = window, begin, now
        for decision in decided.decisions:
            self._record(decision, None if patient else now)
        places = [end for _, _, end in self._open.values()] if self._waiting else []
        due = min(filter(None, (decided.next_fire_at, *places)), default=None)
        return replace(state, cursor=decided.cursor, started=self.started), due

    def _record(self, decision: Decision, now: datetime | None) -> None:
        window = decision.window
        if decision.verdict == "claimed":
            self._start_run(window, decision.not_before or now, decision.timing or "on_time")
        elif decision.verdict == "queued":
            self._waiting.append(window)
            self.counts["queued"] += 1
        elif window.fire_time >= self._start:
            self.counts[_OUTCOME_OF[code_of(decision.reason)]] += decision.windows

    def _start_run(self, window: Window, at: datetime | None, outcome: WindowOutcome) -> None:
        """Start a run at ``at``, or as its window says, or at the end of the outage around it."""
        meant = window.fire_time + self._schedule.delay(window.fire_time)
        begin = self._awake(max(at or meant, self._start))
        self._open[window.bucket] = window, begin, begin + self._took
        if window.fire_time < self._start:
            self.first_sight += 1
        elif outcome == "on_time" and begin - meant > self._schedule.grace:
            self.counts["late"] += 1
        else:
            self.counts[outcome] += 1


def _fire(window: Window, status: Literal["queued", "started"]) -> OpenFire:
    """Return the fire of a window; a run is open as long as it is known."""
    name = window.workflow_id(suffixed=False)
    return OpenFire(window.bucket, name, status, window.fire_time, _NEVER)


# --- simulation ---

_LOOKED_AT: Final = 1000
"""Runs between two calls of a ``watch``."""


def simulate(
    schedules: Iterable[Schedule],
    start: datetime,
    end: datetime,
    *,
    outages: Iterable[Outage] = (),
    durations: Mapping[str, timedelta] | None = None,
    new: bool = False,
    watch: Callable[[], None] | None = None,
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
        watch: called again and again; what it raises ends the simulation.

    Raises:
        ValueError: the times do not fit together; the message says what to write instead.
    """
    gaps = _checked(start, end, outages)
    timelines: dict[tuple[str, timedelta | None], Timeline] = {}
    mine = []
    watch = watch or (lambda: None)
    for schedule in schedules:
        watch()
        length = (durations or {}).get(schedule.key)
        in_line = schedule.overlap != "allow" and length is not None and not gaps
        shape = _shape(schedule, in_line=in_line)
        if (shape, length) not in timelines:
            declared = Schedule.from_json(json.loads(shape))
            timelines[shape, length] = Timeline(declared, start, end, gaps, length)
        mine.append((schedule, in_line, timelines[shape, length]))
        timelines[shape, length].copies += 1
    first = epoch_ms(start) // MINUTE_MS
    minutes = range(first, (epoch_ms(end) - 1) // MINUTE_MS + 1)
    starts, most_open = _load(timelines.values(), minutes, watch, new=new)
    return Simulation(
        start=start,
        end=end,
        outages=gaps,
        schedules=tuple(
            ScheduleTotals(
                schedule.key,
                {name: found.counts[name] for name in OUTCOMES if found.counts[name]},
                found.first_sight,
                found.started > 0 and schedule.overlap != "allow" and not in_line,
                found.started > 0 and bool(schedule.follows),
            )
            for schedule, in_line, found in mine
        ),
        first=from_ms(first * MINUTE_MS),
        starts=[starts[minute] for minute in minutes],
        most_open=[most_open[minute] for minute in minutes] if durations else (),
    )


def _shape(schedule: Schedule, *, in_line: bool) -> str:
    """Return, as JSON, what of a schedule is simulated: shared by those that start together."""
    simulated = fields_with(Schedule, Trait.STARTS)
    simulated += fields_with(Schedule, Trait.LINE) if in_line else ()
    given = {name: value for name, value in schedule.to_json().items() if name in simulated}
    if not (schedule.spread or "H" in (schedule.cron or "").upper()):
        given["key"] = "k"  # which has no effect
        given.pop("was", None)
    return json.dumps({**given, "workflow": "w"})


def _watched(
    runs: Iterator[tuple[int, int]], watch: Callable[[], None]
) -> Iterator[tuple[int, int]]:
    """Yield the runs, and watch what they cost."""
    while some := [*islice(runs, _LOOKED_AT)]:
        watch()
        yield from some


def _load(
    timelines: Collection[Timeline], minutes: range, watch: Callable[[], None], *, new: bool
) -> tuple[Counter[int], Counter[int]]:
    """Simulate schedules; return the starts in each minute, and the most runs open at once.

    It holds only open runs in memory. A run is closed at the instant of its end.
    """
    starts, most_open = Counter[int](), Counter[int]()
    for each in timelines:
        if each.length is None:
            runs = _watched(each.runs(new=new), watch)
            begun = Counter(begin // MINUTE_MS for begin, _ in runs)
            for minute, count in begun.items():
                starts[minute] += count * each.copies
    level, ends = 0, list[tuple[int, int]]()
    known = (_copied(each, new=new) for each in timelines if each.length is not None)
    # A minute begins with the runs that are still open, as if one of no length started then.
    begins = ((minute * MINUTE_MS, minute * MINUTE_MS, 0) for minute in minutes)
    for begin, end, count in heapq.merge(begins, *known):
        minute = begin // MINUTE_MS
        starts[minute] += count
        while ends and ends[0][0] <= begin:
            level -= heapq.heappop(ends)[1]
        if end > begin:
            heapq.heappush(ends, (end, count))
            level += count
        most_open[minute] = max(most_open[minute], level)
    return starts, most_open


def _copied(timeline: Timeline, *, new: bool) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and number of simultaneous runs, in order and in ms."""
    return ((begin, end, timeline.copies) for begin, end in timeline.runs(new=new))


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
