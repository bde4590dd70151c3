"""Counts what became of the windows of each day, for as long as their rows can tell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from engine.ledger.old_fires import DayPart, KeyChores, LongRow
from engine.ledger.upkeep import Upkeep
from engine.runtime.clock import boottime
from engine.runtime.keeping import midnight
from engine.runtime.pacing import Pace
from engine.runtime.repairing import Tended
from engine.schedules.instants import TICK
from engine.schedules.model import Schedule
from engine.schedules.timing import Spec

_DAY = timedelta(days=1)
_DAYS = 366
"""Days of one statement at most."""
_ROW = 10
"""What writing the row of a day costs, in windows."""


async def count_days(
    ledger: Tended, pace: Pace, chores: KeyChores, since: datetime, until: datetime, *, note: bool
) -> AsyncIterator[datetime]:
    """Count the days between two midnights, some at a time; yields how far that has come.

    With ``note`` it is written down that the days up to there have been counted.
    """
    while since < until:
        end, windows = stretch(chores.schedule, since, until, pace.amount)
        begun = boottime()
        async with ledger.upkeep() as upkeep:
            await summarise(upkeep, chores.key, since, end)
            if note:
                await upkeep.done(chores.key, summarised=end)
        pace.took(windows, boottime() - begun)
        yield end
        since = end


def stretch(
    schedule: Schedule | None, since: datetime, until: datetime, windows: int
) -> tuple[datetime, int]:
    """Return up to which midnight so many windows reach, about, and how many these are."""
    if schedule is None:
        return min(until, since + _DAY), windows
    a_day = schedule.spec.count(until - _DAY, until) + _ROW
    days = max(1, min(_DAYS, windows // a_day, (until - since) // _DAY))
    return since + _DAY * days, a_day * days


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
            else min(left, spec.count(max(day, row.fire_time) - TICK, day + _DAY - TICK))
        )
        left -= count
        if count and since <= day < until:
            parts.append(DayPart(row.project, day, count, row.status))
        day += _DAY
    return parts
