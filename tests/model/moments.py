"""What an entry of a file means, without any of the engine: plain steps over the clock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

EPOCH = datetime.fromtimestamp(0, UTC)
MILLISECOND = timedelta(milliseconds=1)
MINUTE = timedelta(minutes=1)
TICK = timedelta(microseconds=1)
CRONS = {
    "* * * * *": lambda at: at is not None,
    "*/5 * * * *": lambda at: at.minute % 5 == 0,
    "30 */2 * * *": lambda at: at.minute == 30 and at.hour % 2 == 0,
    "0 10 * * *": lambda at: (at.hour, at.minute) == (10, 0),
    "0 10 * * MON-FRI": lambda at: (at.hour, at.minute) == (10, 0) and at.weekday() < 5,
}


def windows(entry: dict[str, Any], after: datetime, until: datetime) -> list[datetime]:
    """Return the fire times of one entry of a file in ``after < t <= until``."""
    if "everyMs" in entry:
        every, offset = entry["everyMs"], entry.get("offsetMs", 0)
        first = ((after - EPOCH) // MILLISECOND - offset) // every - 1
        last = ((until - EPOCH) // MILLISECOND - offset) // every + 1
        moments: Iterable[datetime] = (
            EPOCH + (n * every + offset) * MILLISECOND for n in range(first, last + 1)
        )
    elif "at" in entry:
        moments = [datetime.fromisoformat(entry["at"])]
    else:
        moments = _of_cron(entry, after, until)
    return [moment for moment in moments if after < moment <= until]


def _of_cron(entry: dict[str, Any], after: datetime, until: datetime) -> Any:
    day = after.replace(hour=0, minute=0, second=0, microsecond=0)
    while day <= until:
        yield from _day(entry["cron"], entry.get("timezone", "UTC"), day)
        day += timedelta(days=1)


@cache
def _day(cron: str, timezone: str, day: datetime) -> list[datetime]:
    zone, matches = ZoneInfo(timezone), CRONS[cron]
    minutes = (day + n * MINUTE for n in range(24 * 60))
    return [moment for moment in minutes if matches(moment.astimezone(zone))]


def policy_of(entry: dict[str, Any]) -> str:
    """Return what an entry says of a window that comes while its runs are open."""
    said: str = entry.get("overlap", "queue" if "maxConcurrentRuns" in entry else "allow")
    return said


def is_excluded(entry: dict[str, Any], moment: datetime) -> bool:
    """Whether an entry that leaves out weekdays or stretches leaves this moment out."""
    for name in entry.get("exclude", ()):
        if ".." in name:
            begin, end = (datetime.fromisoformat(part) for part in name.split(".."))
            if begin <= moment < end:
                return True
        else:
            local = moment.astimezone(ZoneInfo(entry.get("timezone", "UTC")))
            if f"{local:%a}".upper() == name:
                return True
    return False
