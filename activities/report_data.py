"""What happened on one local day: the first step of ``daily-report``.

It reads ``sched.fire_history``, the documented view of the ledger, and returns counts. They
become part of the run's history, so their size does not grow with the number of fires.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import asyncpg
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.database import database
from engine import Retry, given, step
from engine.schedules import Cron

OUTCOMES = {
    "completed": ("completed",),
    "under way": ("claimed", "queued", "starting", "started"),
    "skipped": ("skipped", "expired"),
    "failed": ("failed", "timed_out", "cancelled", "terminated"),
    "never started": ("rejected", "unvouched"),
}
"""The ledger's statuses in five words, in the order in which the chart stacks them."""

MOST_SCHEDULES = 200
MOST_PROBLEMS = 50
_OUTCOME_OF = {status: outcome for outcome, all_ in OUTCOMES.items() for status in all_}

# A row may stand for many windows (`windows`, `last_fire_time`), also of other days: of those the
# ones that lie in an hour are counted, as evenly as they were spread.
_COUNTED = """
WITH rows AS (
    SELECT key, status, windows, fire_time, last_fire_time,
           greatest(extract(epoch FROM last_fire_time - fire_time) / greatest(windows - 1, 1),
                    0.001) AS apart
    FROM fire_history
    WHERE namespace = $1 AND fire_time < $3
      AND (fire_time >= $2 OR windows > 1 AND last_fire_time >= $2)
), hours AS (
    SELECT n AS hour, $2::timestamptz + n * interval '1 hour' AS opens,
           least($2::timestamptz + (n + 1) * interval '1 hour', $3::timestamptz) AS closes
    FROM generate_series(0, ceil(extract(epoch FROM $3::timestamptz - $2) / 3600)::integer - 1) n
)
SELECT hour, key, status, sum(
           least(windows, ceil(extract(epoch FROM closes - fire_time) / apart))
           - greatest(0, ceil(extract(epoch FROM opens - fire_time) / apart)))::bigint AS windows
FROM hours JOIN rows ON fire_time < closes AND last_fire_time >= opens
GROUP BY hour, key, status
"""

# A window that had opened before its schedule was known, or while no worker was there, says nothing
# about how punctual the engine is.
_LAGS = """
SELECT key, percentile_cont(0.5) WITHIN GROUP (ORDER BY lag_ms) FILTER (WHERE own) AS median_ms,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY lag_ms) FILTER (WHERE own) AS p95_ms,
       count(*) FILTER (WHERE NOT own) AS not_own
FROM (SELECT *, reason IS DISTINCT FROM 'first sight'
                AND timing IS DISTINCT FROM 'caught_up' AS own FROM fire_history) AS judged
WHERE namespace = $1 AND fire_time >= $2 AND fire_time < $3 AND lag_ms IS NOT NULL
GROUP BY key
"""

_PROBLEMS = """
SELECT key, status, left(coalesce(error, reason, ''), 300) AS why, count(*) AS times,
       max(fire_time) AS last, (array_agg(workflow_id ORDER BY fire_time DESC))[1] AS workflow_id
FROM fire_history
WHERE namespace = $1 AND fire_time >= $2 AND fire_time < $3
  AND status IN ('failed', 'timed_out', 'rejected', 'unvouched')
GROUP BY key, status, why ORDER BY last DESC, key LIMIT $4
"""


@dataclass
class DayWanted:
    """The local day of ``at`` in ``timezone``, or the one before it."""

    at: datetime
    timezone: str
    before: bool = True


@dataclass
class Hour:
    label: str
    counts: dict[str, int]


@dataclass
class ScheduleDay:
    key: str
    counts: dict[str, int]
    median_ms: float | None
    p95_ms: float | None


@dataclass
class Problem:
    """What went wrong in the same way, ``times`` times; when and in which run it did last."""

    key: str
    status: str
    why: str
    times: int
    last: datetime
    workflow_id: str


@dataclass
class Day:
    """One local day, from ``start`` up to ``end``; ``as_of`` is when the ledger was read.

    ``lags_left_out`` counts the runs of a first sight or a catch-up: they are in no lag.
    """

    date: str
    timezone: str
    start: datetime
    end: datetime
    as_of: datetime
    hours: list[Hour]
    counts: dict[str, int]
    schedules: list[ScheduleDay]
    schedules_left_out: int
    problems: list[Problem]
    lags_left_out: int = 0


def borders(wanted: DayWanted) -> tuple[datetime, datetime]:
    """Return when a local day begins and ends, in UTC: 23, 24 or 25 hours apart."""
    # Subtracting 24 hours would be wrong twice a year, and some zones change their clocks at
    # midnight. The engine's own midnights know all that.
    midnights = Cron("0 0 * * *", timezone=wanted.timezone)
    start = midnights.previous(wanted.at)
    if wanted.before and start:
        start = midnights.previous(start - timedelta(seconds=1))
    end = start and midnights.next(start)
    if not start or not end:
        raise ApplicationError(f"there is no day before {wanted.at}", non_retryable=True)
    return start, end


@step(timeout=120, retry=Retry(max_attempts=5))
async def gather_day(wanted: DayWanted, *, pool: asyncpg.Pool = given(database)) -> Day:
    """Count the windows of one local day in the ledger, per hour and per schedule."""
    start, end = borders(wanted)
    namespace = activity.info().namespace
    async with pool.acquire() as ledger, ledger.transaction(isolation="repeatable_read"):
        # The view's schema is `sched` unless SCHED_SCHEMA says otherwise.
        schema = os.environ.get("SCHED_SCHEMA", "sched")
        await ledger.execute("SELECT set_config('search_path', quote_ident($1), true)", schema)
        try:
            counted = await ledger.fetch(_COUNTED, namespace, start, end)
        except asyncpg.UndefinedTableError:
            raise ApplicationError(
                f"this database has no ledger in schema {schema!r}: start the worker with "
                "SCHED_DATABASE_URL, as `sched up` does",
                non_retryable=True,
            ) from None
        lags = {row["key"]: row for row in await ledger.fetch(_LAGS, namespace, start, end)}
        problems = await ledger.fetch(_PROBLEMS, namespace, start, end, MOST_PROBLEMS)
        as_of = await ledger.fetchval("SELECT now()")
    zone = ZoneInfo(wanted.timezone)
    schedules = [
        ScheduleDay(key, counts, *(lags[key][1:3] if key in lags else (None, None)))
        for key, counts in _summed(counted, by="key").items()
    ]
    schedules.sort(key=lambda day: (-_bad(day.counts), -sum(day.counts.values()), day.key))
    by_hour = _summed(counted, by="hour")
    hours = range(-((start - end) // timedelta(hours=1)))
    return Day(
        date=f"{start.astimezone(zone):%Y-%m-%d}",
        timezone=wanted.timezone,
        start=start,
        end=end,
        as_of=as_of,
        hours=[
            Hour(f"{(start + n * timedelta(hours=1)).astimezone(zone):%H:%M}", by_hour.get(n, {}))
            for n in hours
        ],
        counts=_total(by_hour.values()),
        schedules=schedules[:MOST_SCHEDULES],
        schedules_left_out=len(schedules[MOST_SCHEDULES:]),
        problems=[Problem(**row) for row in problems],
        lags_left_out=sum(row["not_own"] for row in lags.values()),
    )


def _summed(counted: Iterable[asyncpg.Record], *, by: str) -> dict[Any, dict[str, int]]:
    """Return how many windows had each outcome, per value of one column."""
    sums: dict[Any, Counter[str]] = {}
    for row in counted:
        if row["windows"]:
            sums.setdefault(row[by], Counter())[_OUTCOME_OF[row["status"]]] += row["windows"]
    return {value: dict(sum_) for value, sum_ in sums.items()}


def _total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


def _bad(counts: dict[str, int]) -> int:
    return counts.get("failed", 0) + counts.get("never started", 0)
