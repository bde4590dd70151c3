"""The cron evaluator beside croniter and cronsim: calls, gaps, a hundred thousand, and memory.

cronsim has no call that starts at a moment: each of its questions makes an object, as its users
must.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

from benchmarks import cron_crowd, cron_gaps
from benchmarks.cron_rows import row, seconds
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
SAMPLES = 15


async def run(*, quick: bool = False) -> Measured:
    """Measure all four; the samples of the contestants alternate."""
    rows = [each for case in CASES for each in _calls(*case, 1 if quick else SAMPLES)]
    rows += cron_gaps.rows(quick=quick)
    rows += cron_crowd.rows(quick=quick)
    return Measured("cron", rows)


def _calls(expression: str, timezone: str, samples: int) -> list[Row]:
    zone = ZoneInfo(timezone)
    ours = Cron(expression, timezone=timezone)
    rival = croniter(expression, MOMENTS[0].astimezone(zone))
    local = [moment.astimezone(zone) for moment in MOMENTS]
    rows: list[Row] = []
    for call, method in (("next", "get_next"), ("previous", "get_prev")):
        mine, other, third = [], [], []
        for _ in range(samples):
            mine.append(_microseconds(getattr(ours, call), MOMENTS))
            other.append(_microseconds(partial(_ask, rival, method), local))
            third.append(_microseconds(partial(_step, expression, call == "previous"), local))
        what = f"{call}, `{expression}` {timezone}"
        rows.append(row(what, "µs", median(mine), [median(other), median(third)], 2))
    return rows


def _ask(rival: croniter, method: str, moment: datetime) -> object:
    rival.set_current(moment, force=True)
    return getattr(rival, method)(datetime)


def _step(expression: str, reverse: bool, moment: datetime) -> object:  # noqa: FBT001 - as cronsim names it
    return next(CronSim(expression, moment, reverse=reverse))


def _microseconds(call: Callable[[datetime], object], moments: list[datetime]) -> float:
    def all_of_them() -> None:
        for moment in moments:
            call(moment)

    return seconds(all_of_them) / len(moments) * 1e6
