"""What a file of schedules would do between two moments: the planner under a virtual clock."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from engine.schedules.instants import MINUTE_MS, epoch_ms, from_ms
from engine.schedules.model import Schedule
from engine.schedules.open_runs import OpenRuns
from engine.schedules.simulated import Outage, Simulation
from engine.schedules.virtual_life import Life

LONGEST: Final = timedelta(days=366)
"""The longest time that is simulated: half a million minutes."""

_MILLISECOND: Final = timedelta(milliseconds=1)
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
        herds.append(_Herd(places, Life(listed[places[0]], start, end, gaps), known))
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
class _Herd:
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
    herds: Sequence[_Herd], first: int, minutes: int, *, new: bool
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
    herds: Sequence[_Herd], *, new: bool
) -> Iterator[tuple[int, _Herd, Mapping[int, int]]]:
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
