"""Load of a week: windows that have opened and windows to come, by the hour.

10,000 schedules may have millions of windows in a week, so they are counted beside the requests,
in slices, and a page shows what is counted so far.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from engine.errors import EngineError
from engine.page.charts import DAYS, HOUR, HOURS, WeekMap, week_map
from engine.schedules import TICK, Schedule
from engine.service import Filters, ScheduleService, Status

logger = logging.getLogger("sched")

_ROWS_AN_HOUR: Final = 20_000
"""The most rows of the ledger that are read of each hour."""
_SLICE: Final = 0.005
"""Seconds that a count keeps other requests waiting."""
_AT_ONCE: Final = 500
_WALKED: Final = 200
"""Windows of a schedule that are counted one by one; of more, each hour is counted."""
_FRESH: Final = 60.0
"""Seconds after which a week is counted again, when it is asked for."""
_KEPT: Final = 16
_PATIENCE: Final = 0.12
"""Seconds that a request waits for a count, before it shows what there is."""


@dataclass
class CountedWeek:
    """Counts of a week, as far as they have come.

    Attributes:
        past: windows that have opened, by hour and status.
        coming: windows to come, by hour.
        schedules: how many schedules were counted.
        done: whether all is counted.
        error: why counting ended early, if it did.
    """

    past: dict[datetime, Counter[Status]] = field(default_factory=dict)
    coming: Counter[datetime] = field(default_factory=Counter)
    schedules: int = 0
    done: bool = False
    error: str | None = None


@dataclass
class _Job:
    counts: CountedWeek
    task: asyncio.Task[None]
    began: float
    before: CountedWeek | None = None


class WeekLoads:
    """Counts of weeks, kept for a while.

    Args:
        service: reads the ledger.
    """

    def __init__(self, service: ScheduleService) -> None:
        self._service = service
        self._jobs: OrderedDict[tuple[datetime, tuple[str, ...]], _Job] = OrderedDict()

    async def week(
        self, monday: datetime, keys: tuple[str, ...], now: datetime
    ) -> tuple[WeekMap, CountedWeek]:
        """Return the map of a week, for schedules whose key is like one of these.

        While it is counted again, the counts before are shown.
        """
        place = monday, keys
        job = self._jobs.get(place)
        if job is None or (job.task.done() and time.monotonic() - job.began > _FRESH):
            counts = CountedWeek()
            task = asyncio.create_task(self._count(counts, monday, keys, now))
            before = job.counts if job is not None and job.counts.done else None
            job = self._jobs[place] = _Job(counts, task, time.monotonic(), before)
        self._jobs.move_to_end(place)
        while len(self._jobs) > _KEPT:
            _, old = self._jobs.popitem(last=False)
            old.task.cancel()
        await asyncio.wait([job.task], timeout=_PATIENCE)
        shown = job.counts if job.counts.done or job.before is None else job.before
        return week_map(monday, shown.past, shown.coming), shown

    async def _count(
        self, counts: CountedWeek, monday: datetime, keys: tuple[str, ...], now: datetime
    ) -> None:
        try:
            await self._count_past(counts, monday, keys, now)
            await self._count_coming(counts, monday, keys, now)
        except EngineError as error:
            logger.warning("the windows of a week cannot be counted: %s", error)
            counts.error = error.title  # its text may name what is not the visitor's
        counts.done = counts.error is None

    async def _count_past(
        self, counts: CountedWeek, monday: datetime, keys: Sequence[str], now: datetime
    ) -> None:
        for number in range(DAYS * HOURS):
            begin = monday + number * HOUR
            if begin > now:
                return
            found = await self._service.count_windows(
                begin, min(begin + HOUR, now + TICK), keys=keys, most=_ROWS_AN_HOUR
            )
            if found:
                counts.past[begin] = found

    async def _count_coming(
        self, counts: CountedWeek, monday: datetime, keys: tuple[str, ...], now: datetime
    ) -> None:
        end, begin = monday + timedelta(days=DAYS) - TICK, max(monday - TICK, now)
        if end <= begin:
            return
        filters: Filters = {"state": "active", "keys": keys}
        cursor, until = None, time.monotonic() + _SLICE
        while True:
            page = await self._service.list(limit=_AT_ONCE, cursor=cursor, **filters)
            for row in page.schedules:
                last = min(end, row.last_start_at or end)
                for hour, number in coming_by_hour(row.schedule, begin, last):
                    counts.coming[hour] += number
                counts.schedules += 1
                if time.monotonic() > until:
                    await asyncio.sleep(0)
                    until = time.monotonic() + _SLICE
            cursor = page.cursor
            if cursor is None:
                return


def coming_by_hour(
    schedule: Schedule | None, after: datetime, until: datetime
) -> Iterator[tuple[datetime, int]]:
    """Yield how many windows of a schedule start in each hour of ``after < t <= until``.

    Days off of a schedule that fires more than 200 times are not left out.
    """
    if schedule is None:
        return
    spec = schedule.spec
    if spec.count(after, until) <= _WALKED:
        for at in schedule.starts(after, until):
            yield at.replace(minute=0, second=0, microsecond=0), 1
        return
    begin = after.replace(minute=0, second=0, microsecond=0)
    while begin <= until:
        number = spec.count(max(begin - TICK, after), min(begin + HOUR - TICK, until))
        if number:
            yield begin, number
        begin += HOUR
