"""Counts what became of the windows of each day, for as long as their rows can tell."""

from __future__ import annotations

from datetime import datetime, timedelta

from engine.ledger.old_fires import DayPart, LongRow
from engine.ledger.upkeep import Upkeep
from engine.runtime.keeping import midnight
from engine.schedules.model import Schedule
from engine.schedules.timing import Spec

_DAY = timedelta(days=1)
_TICK = timedelta(microseconds=1)
_WINDOWS = 20_000
"""Windows of one statement, about."""
_DAYS = 366
"""Days of one statement at most."""


def stretch(schedule: Schedule | None, since: datetime, until: datetime) -> datetime:
    """Return up to where one statement may count from ``since`` on: a midnight."""
    if schedule is None or until - since <= _DAY:
        return min(until, since + _DAY)
    a_day = max(1, schedule.spec.count(until - _DAY, until))
    return min(until, since + _DAY * max(1, min(_DAYS, _WINDOWS // a_day)))


async def summarise(upkeep: Upkeep, key: str, since: datetime, until: datetime) -> None:
    """Count the days from one midnight to another."""
    parts = []
    for row in await upkeep.over_days(key, since, until):
        definition = await upkeep.definition(key, row.definition_version)
        parts += parts_of(row, definition.spec, since, until)
    await upkeep.summarise(key, since, until, parts)


def parts_of(row: LongRow, spec: Spec, since: datetime, until: datetime) -> list[DayPart]:
    """Return how many windows of a long row each day between two midnights has.

    Where the rules of time have changed since it was written, the last day takes what differs, so
    that no window is counted twice or not at all.
    """
    parts, left, day = [], row.windows, midnight(row.fire_time)
    while day <= row.last_fire_time:
        last = day + _DAY > row.last_fire_time
        count = (
            left
            if last
            else min(left, spec.count(max(day, row.fire_time) - _TICK, day + _DAY - _TICK))
        )
        left -= count
        if count and since <= day < until:
            parts.append(DayPart(row.project, day, count, row.status))
        day += _DAY
    return parts
