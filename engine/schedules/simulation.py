"""What a file of schedules would do between two moments: the planner under a virtual clock.

Each schedule lives by itself, as in the ledger: while somebody looks, each window is decided at
its fire time; during an outage nobody looks, and at its end `plan` decides what is owed. Outside
outages that has one outcome, so windows are counted there instead of being planned one by one.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, Literal

from engine.schedules.decisions import Overlap
from engine.schedules.instants import epoch_ms, from_ms
from engine.schedules.line import Line
from engine.schedules.model import Schedule
from engine.schedules.planner import Decision, first_sight, plan

Outcome = Literal[
    "on_time", "late", "caught_up", "queued",
    "overlapped", "coalesced", "excluded", "expired", "disabled", "paused",
]  # fmt: skip
OUTCOMES: Final[tuple[Outcome, ...]] = (
    "on_time", "late", "caught_up", "queued",
    "overlapped", "coalesced", "excluded", "expired", "disabled", "paused",
)  # fmt: skip
"""What becomes of a window; the first four have a run."""

LONGEST: Final = timedelta(days=366)
"""The longest time that is simulated: half a million minutes."""

MINUTE_MS: Final = 60_000

_TICK: Final = timedelta(microseconds=1)
_NO_MATTER: Final = (
    "key", "workflow", "input", "taskQueue", "external", "expect", "description", "metadata",
)  # fmt: skip
"""The fields that change nothing about when runs start."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Nothing is looked at and nothing starts in ``begin <= t < end``."""

    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one schedule's windows.

    Attributes:
        key: the schedule's key.
        windows: how many fire times lie in the simulated time.
        counts: how many of them ended how; together they are ``windows``.
        first_sight: runs of a window that was open before, owed to a new schedule.
        overlap_unknown: its runs may be in each other's way, and what becomes of them depends on
            what is not known here; they are counted as with ``overlap: allow``.
    """

    key: str
    windows: int
    counts: Mapping[Outcome, int]
    first_sight: int = 0
    overlap_unknown: bool = False


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a file would do in ``start <= t < end``.

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
        """How many windows of all schedules ended how; what did not happen is left out."""
        sums = {name: sum(fate.counts.get(name, 0) for fate in self.fates) for name in OUTCOMES}
        return {name: count for name, count in sums.items() if count}

    def minute(self, index: int) -> datetime:
        """Return the minute that ``starts[index]`` counts."""
        return self.first + index * timedelta(minutes=1)


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

    Args:
        schedules: what is in force all the time; a disabled or paused one stays so.
        start: the first instant.
        end: the first instant that is not simulated any more.
        outages: when nothing is looked at. Each ends before ``end``, so that what it owes is
            decided within the time.
        durations: how long runs take, by key; a key without one is left out of ``most_open``.
        new: the ledger has never seen these schedules, so that first sight owes a window.

    Raises:
        ValueError: the times do not fit together; the message says what to write instead.
    """
    gaps = _checked(start, end, outages)
    durations = durations or {}
    first = epoch_ms(start) // MINUTE_MS
    starts = [0] * ((epoch_ms(end) - 1) // MINUTE_MS - first + 1)
    opened: Counter[int] = Counter()
    closed: Counter[int] = Counter()
    fates: dict[int, Fate] = {}
    listed = list(schedules)
    for alike in _alike(listed, durations):
        declared = listed[alike[0]]
        length = durations.get(declared.key)
        life = _Life(declared, start, end, gaps)
        life.live(new=new)
        in_line = declared.overlap != "allow" and bool(life.starts)
        if in_line and length is not None and not gaps:
            life.line_up(declared.overlap, length)
            in_line = False
        for minute, count in Counter(at // MINUTE_MS for at in life.starts).items():
            if minute - first < len(starts):
                starts[minute - first] += count * len(alike)
        for index in alike:
            key = listed[index].key
            fates[index] = Fate(key, life.windows, dict(life.counts), life.first_sight, in_line)
            if key in durations:
                milliseconds = durations[key] // timedelta(milliseconds=1)
                opened.update(life.starts)
                closed.update(life.ends or (at + milliseconds for at in life.starts))
    return Simulation(
        start=start, end=end, outages=gaps,
        fates=tuple(fates[index] for index in range(len(listed))),
        first=from_ms(first * MINUTE_MS), starts=starts,
        most_open=_most_open(opened, closed, first, len(starts)) if durations else (),
    )  # fmt: skip


@dataclass
class _Life:
    """One schedule between two moments."""

    schedule: Schedule
    start: datetime
    end: datetime
    outages: tuple[Outage, ...]
    first_sight: int = 0
    counts: Counter[Outcome] = field(default_factory=Counter)
    starts: array[int] = field(default_factory=lambda: array("q"))  # in ms since the epoch
    ends: array[int] = field(default_factory=lambda: array("q"))  # where `line_up` has told

    def __post_init__(self) -> None:
        # What a run is in the way of depends on how long it takes; see `line_up`.
        if self.schedule.overlap != "allow":
            self.schedule = self.schedule.model_copy(update={"overlap": "allow"})

    @property
    def windows(self) -> int:
        return self.schedule.spec.count(self.start - _TICK, self.end - _TICK)

    def live(self, *, new: bool) -> None:
        if not self.schedule.enabled or self.schedule.paused:  # skipped whole, excluded or not
            self.counts["paused" if self.schedule.enabled else "disabled"] += self.windows
            return
        if new:
            self._be_seen()
        cursor = self.start - _TICK
        for outage in self.outages:
            self._watch(cursor, outage.begin - _TICK)
            cursor = self._return(max(cursor, outage.begin - _TICK), outage.end)
        self._watch(cursor, self.end - _TICK)

    def line_up(self, policy: Overlap, duration: timedelta) -> None:
        """Let runs of ``duration`` be in each other's way; there must have been no outage."""
        line = Line(policy, duration // timedelta(milliseconds=1), self.schedule.max_queued)
        line.open((at, at) for at in self.starts[: self.first_sight])
        windows = self.schedule.starts(self.start - _TICK, self.end - _TICK)
        line.open((epoch_ms(at), epoch_ms(at + self.schedule.delay(at))) for at in windows)
        self.counts["on_time"] -= line.queued + line.skipped
        self.counts["queued"] += line.queued
        self.counts["overlapped"] += line.skipped
        self.starts = array("q", (begin for begin, _ in line.runs))
        self.ends = array("q", (end for _, end in line.runs))

    def _be_seen(self) -> None:
        """Start what first sight owes: a window that opened before ``start``."""
        seen = self.start - _TICK
        effective_from, cursor = first_sight(self.schedule, self.start)
        if effective_from >= self.start:
            return  # the window that opens right now is one like any other
        decided = plan(
            self.schedule, series=1, effective_from=effective_from, cursor=cursor, now=seen
        )
        for decision in decided.decisions:
            if decision.verdict == "claimed":
                self.first_sight += 1
                self._begin(max(decision.not_before or seen, self.start))

    def _watch(self, after: datetime, until: datetime) -> None:
        """Decide the windows in ``(after, until]``, each at its fire time."""
        spec, excluded = self.schedule.spec, self.schedule.exclusions
        if until <= after:
            return
        if excluded is None:
            self._start_all(after, until)
            return
        for begin, end, reason in excluded.divide(after, until):
            if reason is None:
                self._start_all(begin, end)
            elif count := spec.count(begin, end):
                self.counts["excluded"] += count

    def _start_all(self, after: datetime, until: datetime) -> None:
        """Start the windows in ``(after, until]``: the planner does so at each fire time."""
        spec, every = self.schedule.spec, self.schedule.every_ms
        oldest, newest = spec.next(after), spec.previous(until)
        if oldest is None or newest is None or oldest > until:
            return
        # With spread a run starts before the next window, so only the last can meet an outage.
        self._claim(newest, newest + self.schedule.delay(newest))
        self.counts["on_time"] += spec.count(after, until) - 1
        if every is not None:
            shift = epoch_ms(oldest + self.schedule.delay(oldest)) - epoch_ms(oldest)
            self.starts.extend(range(epoch_ms(oldest) + shift, epoch_ms(newest) + shift, every))
        elif not self.schedule.spread:
            self.starts.extend(map(epoch_ms, spec.fires(after, newest - _TICK)))
        else:
            self._start_spread(after, newest)

    def _start_spread(self, after: datetime, newest: datetime) -> None:
        """Start a cron's windows after ``after`` and before ``newest``, each by its delay."""
        spread, whole = self.schedule.spread, None
        fires = self.schedule.spec.fires(after, newest)
        for fire_time, following in pairwise(fires):
            if following - fire_time < spread:
                delay = self.schedule.delay(fire_time)
            else:  # the same for all of them, and to ask each time would cost a second look
                delay = whole = whole or self.schedule.delay(fire_time)
            self.starts.append(epoch_ms(fire_time + delay))

    def _return(self, cursor: datetime, now: datetime) -> datetime:
        """Plan what is owed at the end of an outage, and return the new cursor."""
        due = True
        while due:
            decided = plan(self.schedule, series=1, effective_from=cursor, cursor=cursor, now=now)
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
            self.counts["expired"] += decision.windows
        else:
            excluded = (decision.reason or "").startswith("excluded")
            self.counts["excluded" if excluded else "coalesced"] += decision.windows

    def _claim(self, fire_time: datetime, at: datetime, *, caught_up: bool = False) -> None:
        """Start one window's run at ``at``, or when the outage around that moment ends."""
        began = self._begin(at)
        meant = fire_time + self.schedule.delay(fire_time)
        late = began - meant > self.schedule.grace
        self.counts["caught_up" if caught_up else "late" if late else "on_time"] += 1

    def _begin(self, at: datetime) -> datetime:
        index = bisect_right(self.outages, at, key=lambda outage: outage.begin) - 1
        if index >= 0:
            at = max(at, self.outages[index].end)
        self.starts.append(epoch_ms(at))
        return at


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


def _alike(
    schedules: Sequence[Schedule], durations: Mapping[str, timedelta]
) -> Iterable[list[int]]:
    """Return the places of schedules that start at the same instants, together: one life each."""
    groups: dict[str, list[int]] = {}
    for index, schedule in enumerate(schedules):
        dump = schedule.to_json()
        by_key = schedule.spread or "H" in (schedule.cron or "").upper()
        said = {name: value for name, value in dump.items() if name not in _NO_MATTER}
        length = str(durations.get(schedule.key)) if schedule.overlap != "allow" else ""
        shape = json.dumps([said, length, schedule.key if by_key else ""], sort_keys=True)
        groups.setdefault(shape, []).append(index)
    return groups.values()


def _most_open(opened: Counter[int], closed: Counter[int], first: int, minutes: int) -> list[int]:
    """Return the highest number of open runs in each minute; a run ends before its last instant."""
    most = [0] * minutes
    level = reached = 0
    for at in sorted(opened.keys() | closed.keys()):
        # Until just before this instant the level was as it is.
        last = min((at - 1) // MINUTE_MS - first, minutes - 1)
        for minute in range(reached, last + 1):
            most[minute] = max(most[minute], level)
        level += opened[at] - closed[at]
        reached = max(reached, at // MINUTE_MS - first)
    for minute in range(reached, minutes):
        most[minute] = max(most[minute], level)
    return most
