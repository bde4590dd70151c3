"""Which field a misspelt one was meant to be."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from engine.schedules.nodes import MAX_NAME

_CLOSE_ENOUGH = 0.7
_SHORTEST = 3

# What the same thing is called elsewhere.
_ELSEWHERE = {
    "id": "key", "name": "key",
    "every": "everyMs", "interval": "everyMs", "offset": "offsetMs",
    "crontab": "cron", "expression": "cron", "pattern": "cron",
    "schedule": "cron", "scheduleinterval": "cron",
    "tz": "timezone", "zone": "timezone", "runat": "at",
    "startdate": "start", "starttime": "start", "enddate": "end", "endtime": "end",
    "active": "enabled", "disabled": "enabled", "suspend": "enabled", "suspended": "enabled",
    "concurrencypolicy": "overlap", "jitter": "spread", "calendar": "exclude",
    "maxactiveruns": "maxConcurrentRuns", "maxinstances": "maxConcurrentRuns",
    "maxconcurrency": "maxConcurrentRuns", "concurrency": "maxConcurrentRuns",
    "args": "input", "payload": "input", "data": "input", "queue": "taskQueue",
    "jobs": "schedules", "tasks": "schedules",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The field that was meant; ``certain`` when only its spelling differs."""

    name: str
    certain: bool


def nearest(name: str, allowed: Collection[str]) -> Suggestion | None:
    """Return the field of ``allowed`` that ``name`` was meant to be, if any is near."""
    return _nearest(_bare(name), tuple(allowed))


@lru_cache(maxsize=1024)
def _nearest(bare: str, allowed: tuple[str, ...]) -> Suggestion | None:
    by_bare = {_bare(known): known for known in allowed}
    if bare in by_bare:
        return Suggestion(by_bare[bare], certain=True)
    elsewhere = _ELSEWHERE.get(bare)
    if elsewhere in allowed:
        return Suggestion(elsewhere, certain=False)
    # ``at`` resembles half of all short words.
    long = [known for known in by_bare if len(known) >= _SHORTEST]
    close = get_close_matches(bare, long, n=1, cutoff=_CLOSE_ENOUGH)
    return Suggestion(by_bare[close[0]], certain=False) if close else None


def _bare(name: str) -> str:
    """Reduce a name to its letters, so that ``every_ms`` and ``everyMs`` are the same."""
    return "".join(sign for sign in name[:MAX_NAME].lower() if sign.isalnum())
