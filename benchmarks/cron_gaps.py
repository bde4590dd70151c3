"""The slowest single call next to a gap of the local clock, in milliseconds."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from types import FrameType
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

from benchmarks.cron_rows import row, seconds
from benchmarks.report import Row
from benchmarks.spread import median
from engine.schedules import Cron
from engine.schedules.timing.zones import zone, zone_names

EXPRESSIONS = ("30 2 * * *", "*/5 * * * *", "0 0 29 2 *")
GAPS = (
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
)
SAMPLES = 5
AWAY = [timedelta(minutes=minutes) for minutes in (-61, -1, 0, 1, 29, 61)]
PATIENCE = 3
"""Seconds after which a rival's call is ended; what it would have taken is not known."""

_FROM, _TO = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (1975, 2038))
_AROUND = (-1, 0, 1)


def rows(*, quick: bool) -> list[Row]:
    """Return a row for each named gap, and one for every gap of every zone (ours alone)."""
    found: list[Row] = []
    for name, turn in GAPS[:1] if quick else GAPS:
        ours, *rivals = (_slowest(calls, name, turn) for calls in (_ours, _croniter, _cronsim))
        found.append(row(f"slowest call at the gap of {turn:%Y}, {name}", "ms", ours, rivals, 3))
    gaps = list(_every_gap(zone_names()[:: 40 if quick else 1]))
    slowest = max(_slowest_of_ours(name, turn) for name, turn in gaps)
    every = f"slowest call at any of {len(gaps):,} gaps of all zones"
    found.append(row(every, "ms", slowest, [], 3))
    return found


Call = Callable[[datetime], object]


def _ours(expression: str, name: str) -> tuple[Call, Call]:
    cron = Cron(expression, timezone=name)
    return cron.next, cron.previous


def _croniter(expression: str, name: str) -> tuple[Call, Call]:
    local = ZoneInfo(name)

    def forwards(at: datetime) -> object:
        return croniter(expression, at.astimezone(local)).get_next(datetime)

    def backwards(at: datetime) -> object:
        return croniter(expression, at.astimezone(local)).get_prev(datetime)

    return forwards, backwards


def _cronsim(expression: str, name: str) -> tuple[Call, Call]:
    local = ZoneInfo(name)

    def forwards(at: datetime) -> object:
        return next(CronSim(expression, at.astimezone(local)))

    def backwards(at: datetime) -> object:
        return next(CronSim(expression, at.astimezone(local), reverse=True))

    return forwards, backwards


def _slowest(calls: Callable[[str, str], tuple[Call, Call]], name: str, turn: datetime) -> float:
    """Return milliseconds; infinite when a call was ended.

    The slowest of many calls is soon one that the machine held up, hence the median of samples.
    """
    return median(
        max(
            _milliseconds(call, turn + away)
            for expression in EXPRESSIONS
            for call in calls(expression, name)
            for away in AWAY
        )
        for _ in range(SAMPLES)
    )


def _milliseconds(call: Call, at: datetime) -> float:
    def ended(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(PATIENCE)
    try:
        return seconds(partial(call, at)) * 1e3
    except TimeoutError:
        return float("inf")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _every_gap(names: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    for name in names:
        rules = zone(name)
        offsets = zip(rules.starts[1:], rules.offsets, rules.offsets[1:], strict=False)
        for start, before, after in offsets:
            if _FROM <= start < _TO and after > before:
                yield name, start


def _slowest_of_ours(name: str, turn: int) -> float:
    slowest = 0.0
    for expression in EXPRESSIONS:
        for call in _ours(expression, name):
            for away in _AROUND:
                at = datetime.fromtimestamp(turn + away, UTC)
                slowest = max(slowest, seconds(partial(call, at)) * 1e3)
    return slowest
