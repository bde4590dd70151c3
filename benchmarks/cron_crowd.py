"""A hundred thousand schedules: built and asked once for their previous fire, and their memory."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice, product
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

from benchmarks.cron_rows import row, seconds
from benchmarks.report import Row
from benchmarks.spread import median
from engine.schedules import Cron

COUNT = 100_000
SHARE = 23
"""The rivals get every so manieth schedule, and their time is multiplied by it. A prime, so that
they get all minutes and hours."""
SHARED = 200
"""Different expressions among the schedules whose memory is measured."""
SAMPLES = 3
NOW = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
ZONES = ("UTC", "America/New_York", "Europe/Berlin", "Asia/Tokyo")

_DAYS = ("*", "1", "1-15", "20", "15")
_WEEKDAYS = ("*", "MON", "MON-FRI", "0,6", "1-4", "TUE,THU", "5", "2", "6", "2-4", "FRI,SAT",
             "1,3,5", "4", "0", "2-3")  # fmt: skip

Declared = tuple[str, str, str]
"""Expression, zone and key."""
Ask = Callable[[Declared], object]


def rows(*, quick: bool) -> list[Row]:
    """Return a row of seconds and one of bytes."""
    count = COUNT // 20 if quick else COUNT
    return [_build_and_sweep(count, 1 if quick else SAMPLES), _memory(count)]


def _different(count: int) -> list[Declared]:
    fields = product(_DAYS, _WEEKDAYS, range(24), range(60))
    return [
        (f"{minute} {hour} {day} * {weekday}", ZONES[n % len(ZONES)], f"key-{n}")
        for n, (day, weekday, hour, minute) in enumerate(islice(fields, count))
    ]


def _build_and_sweep(count: int, samples: int) -> Row:
    declared = _different(count)
    few = declared[::SHARE]
    mine, other, third = [], [], []
    for _ in range(samples):
        mine.append(_seconds(_ours, Cron.previous, declared))
        other.append(_seconds(_croniter, lambda rival, _: rival.get_prev(datetime), few) * SHARE)
        third.append(_seconds(_cronsim, lambda rival, _: next(rival), few) * SHARE)
    what = f"{count:,} different schedules built and asked for their previous fire"
    return row(what, "s", median(mine), [median(other), median(third)], 2)


def _seconds(
    build: Callable[[Declared], object],
    ask: Callable[..., object],
    declared: Sequence[Declared],
) -> float:
    def build_and_ask() -> None:
        for one in [build(one) for one in declared]:
            ask(one, NOW)

    gc.collect()
    return seconds(build_and_ask)


def _ours(one: Declared) -> Cron:
    expression, timezone, key = one
    return Cron(expression, timezone=timezone, key=key)


_LOCAL = {name: NOW.astimezone(ZoneInfo(name)) for name in ZONES}


def _croniter(one: Declared) -> croniter:
    return croniter(one[0], _LOCAL[one[1]])


def _cronsim(one: Declared) -> CronSim:
    return CronSim(one[0], _LOCAL[one[1]], reverse=True)


def _memory(count: int) -> Row:
    shared = [one[0] for one in _different(count)[:: count // SHARED]]
    declared = [(shared[n % SHARED], ZONES[n % len(ZONES)], f"key-{n}") for n in range(count)]
    ours = _bytes_each(_ours, declared)
    others = [_bytes_each(build, declared[::SHARE]) for build in (_croniter, _cronsim)]
    what = f"memory of one of {count:,} schedules of {SHARED} expressions, without its text"
    return row(what, "bytes", ours, others, 0)


def _bytes_each(build: Callable[[Declared], object], declared: Iterable[Declared]) -> float:
    """Return what building allocates for each; texts and keys exist already."""
    declared = list(declared)
    gc.collect()
    tracemalloc.start()
    built = [build(one) for one in declared]
    allocated, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return allocated / len(built)
