"""The arithmetic of windows, without any of the engine: when an entry of a file fires."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

EPOCH = datetime.fromtimestamp(0, UTC)
MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)


def windows(entry: dict[str, Any], after: datetime, until: datetime) -> list[datetime]:
    """Return the fire times of one entry in ``after < t <= until``."""
    moments: Iterable[datetime]
    if "everyMs" in entry:
        moments = _of_interval(entry["everyMs"], entry.get("offsetMs", 0), after, until)
    elif "at" in entry:
        moments = [datetime.fromisoformat(entry["at"])]
    else:
        moments = _of_cron(entry["cron"], after, until)
    return [moment for moment in moments if after < moment <= until]


def _of_interval(every: int, offset: int, after: datetime, until: datetime) -> list[datetime]:
    first = ((after - EPOCH) // MILLISECOND - offset) // every
    last = ((until - EPOCH) // MILLISECOND - offset) // every
    return [EPOCH + (n * every + offset) * MILLISECOND for n in range(first, last + 1)]


def _of_cron(cron: str, after: datetime, until: datetime) -> list[datetime]:
    """Every so many seconds of a minute, or once on the first of January."""
    if cron == "0 0 1 1 *":
        return [datetime(year, 1, 1, tzinfo=UTC) for year in range(after.year, until.year + 1)]
    found = re.fullmatch(r"\*/(\d+) \* \* \* \* \*", cron)
    if not found:
        raise ValueError(f"{cron!r} is not a cron of this plan")
    first = EPOCH + ((after - EPOCH) // SECOND) * SECOND
    seconds = range((until - first) // SECOND + 1)
    moments = (first + number * SECOND for number in seconds)
    return [moment for moment in moments if moment.second % int(found[1]) == 0]


def bucket(entry: dict[str, Any], moment: datetime) -> int:
    """The number of the window that opens at this moment."""
    milliseconds = (moment - EPOCH) // MILLISECOND
    if "everyMs" in entry:
        return int((milliseconds - entry.get("offsetMs", 0)) // entry["everyMs"])
    return milliseconds


def is_excluded(entry: dict[str, Any], moment: datetime) -> bool:
    """Whether one of the entry's stretches holds this moment."""
    for stretch in entry.get("exclude", ()):
        begin, end = (datetime.fromisoformat(part) for part in stretch.split(".."))
        if begin <= moment < end:
            return True
    return False


def places(entry: dict[str, Any]) -> int | None:
    """How many runs of an entry may be open at once; None is any number."""
    most: int | None = entry.get("maxConcurrentRuns")
    if most is None and entry.get("overlap", "allow") != "allow":
        return 1
    return most


def policy(entry: dict[str, Any]) -> str:
    """What an entry says of a window that comes while its runs are open."""
    said: str = entry.get("overlap", "queue" if "maxConcurrentRuns" in entry else "allow")
    return said
