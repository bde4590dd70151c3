"""The cron evaluator beside croniter: microseconds per call, and how often ours fits into one."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

from croniter import croniter

from benchmarks.report import Measured, Row
from benchmarks.spread import median
from engine.schedules import Cron

CASES = (
    ("*/5 * * * *", "UTC"),
    ("0 2 * * *", "America/Sao_Paulo"),
    ("30 1 * * MON-FRI", "America/New_York"),
    ("0 9 1 * *", "Europe/Berlin"),
)
MOMENTS = [datetime(2026, 11, 21, tzinfo=UTC) + timedelta(hours=7 * n) for n in range(200)]
SAMPLES = 5


async def run(*, quick: bool = False) -> Measured:
    """Measure ``next`` and ``previous``; the samples of the two alternate."""
    rows: list[Row] = []
    for expression, timezone in CASES:
        ours = Cron(expression, timezone=timezone)
        zone = ZoneInfo(timezone)
        rival = croniter(expression, MOMENTS[0].astimezone(zone))
        local = [moment.astimezone(zone) for moment in MOMENTS]
        for call, method in (("next", "get_next"), ("previous", "get_prev")):
            mine, other = [], []
            for _ in range(1 if quick else SAMPLES):
                mine.append(_microseconds(getattr(ours, call), MOMENTS))
                other.append(_microseconds(partial(_ask, rival, method), local))
            fast, slow = median(mine), median(other)
            rows.append(
                {
                    "expression": f"`{expression}` {timezone}",
                    "call": call,
                    "sched-engine µs": round(fast, 2),
                    "croniter µs": round(slow, 1),
                    "ratio": round(slow / fast, 1),
                }
            )
    return Measured("cron", rows)


def _ask(rival: croniter, method: str, moment: datetime) -> object:
    rival.set_current(moment, force=True)
    return getattr(rival, method)(datetime)


def _microseconds(call: Callable[[datetime], object], moments: list[datetime]) -> float:
    begin = time.perf_counter()
    for moment in moments:
        call(moment)
    return (time.perf_counter() - begin) / len(moments) * 1e6
