"""The schedules under attack, as entries of a file: every policy, kind and relation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

Entry = dict[str, Any]

QUEUES: Final = {"narrow": {"concurrency": 3}}
ENDLESS: Final = ("cancels-endless", "terminates")
"""Their runs never end by themselves."""

EDITED: Final = ("plain", "skips", "queue", "queue-three", "catch-all", "catch-latest", "steps")
"""Keys whose interval is edited."""

EDITS: Final = (1, 1.5, 0.75)
"""By what an edit may multiply the first interval of a key."""

REMOVED: Final = ("plain", "queue-one", "catch-latest", "skips-three", "cancels")
"""What a file may lack for a while."""

CHAINS: Final = ("report", "other", "on-success", "on-failure", "always", "both")


def _every(key: str, milliseconds: int, workflow: str, given: Any, **more: Any) -> Entry:
    return {"key": key, "workflow": workflow, "everyMs": milliseconds, "input": given, **more}


def entries(begin: datetime, pace: float = 1.0) -> dict[str, Entry]:
    """Return the entries by key.

    Args:
        begin: days off are some stretches after it.
        pace: how much longer all intervals and runs are, for machines with little to spare.
    """
    return {entry["key"]: _paced(entry, pace) for entry in _entries(begin)}


def _paced(entry: Entry, pace: float) -> Entry:
    """Return the entry with its times so much longer; a cron fires in whole seconds."""
    times = {"seconds", "least", "most"}
    given = {name: each * pace if name in times else each for name, each in entry["input"].items()}
    if "cron" in entry:
        seconds = entry["cron"].removeprefix("*/").partition(" ")[0]
        return {**entry, "input": given, "cron": f"*/{round(int(seconds) * pace)} * * * * *"}
    return {**entry, "input": given, "everyMs": round(entry["everyMs"] * pace)}


def _entries(begin: datetime) -> list[Entry]:
    quick, short = {"steps": 1}, {"least": 0.3, "most": 2.5}
    endless = {"seconds": 1.0}
    cron = {"workflow": "effects", "input": quick, "timezone": "UTC"}
    return [
        _every("plain", 2000, "effects", {"steps": 2}),
        _every("fails", 3000, "fails", {"of": 3}, onDead="hears"),
        _every("retries", 5000, "retries", {}),
        _every("children", 6000, "has-children", {}),
        _every("continues", 4000, "continues", {"seconds": 0.5, "links": 3}),
        _every(
            "continues-memo", 3000, "continues", {"seconds": 1.0, "links": 4, "memo": True},
            overlap="skip",
        ),
        _every("skips", 1000, "lasts", short, overlap="skip"),
        _every(
            "skips-three", 1000, "lasts", {"least": 1, "most": 5}, overlap="skip",
            maxConcurrentRuns=3,
        ),
        _every("queue", 2000, "lasts", short, overlap="queue", maxQueued=10),
        _every("queue-three", 2000, "lasts", {"least": 0.5, "most": 5}, maxConcurrentRuns=3),
        _every("queue-one", 2000, "lasts", {"least": 0.5, "most": 4}, overlap="queue_one"),
        _every(
            "cancels", 4000, "deaf", {"seconds": 7}, overlap="cancel_previous", cancelGrace="5s"
        ),
        _every(
            "cancels-endless", 6000, "continues", endless, overlap="cancel_previous",
            cancelGrace="5s",
        ),
        _every("terminates", 5000, "continues", endless, overlap="terminate_previous"),
        {"key": "cron", "cron": "*/3 * * * * *", **cron, "grace": "5s"},
        {"key": "excluded", "cron": "*/2 * * * * *", **cron, "exclude": _stretches(begin)},
        _every(
            "catch-all", 2000, "effects", quick, grace="4s",
            catchUp={"policy": "all", "max": 8, "rate": "5/1s", "pause": "all"},
        ),
        _every("catch-none", 2000, "effects", quick, grace="3s", catchUp={"policy": "none"}),
        _every(
            "catch-latest", 2000, "effects", quick, grace="4s",
            catchUp={"policy": "latest", "pause": "latest"},
        ),
        _every("report", 5000, "fails", {"of": 3}),
        _every("other", 5000, "lasts", {"least": 0.2, "most": 2}),
        _follower("on-success", after={"schedule": "report"}),
        _follower("on-failure", after={"schedule": "report", "when": "failure"}),
        _follower("always", after={"schedule": "report", "when": "always", "window": "latest"}),
        _follower("both", needs=["on-success", "other"]),
        _every("steps", 2000, "queued", {"steps": 2}),
    ]  # fmt: skip


def _follower(key: str, **relation: Any) -> Entry:
    return {"key": key, "workflow": "effects", "everyMs": 5000, "input": {"steps": 1}, **relation}


def _stretches(begin: datetime) -> list[str]:
    """Twelve seconds off in each minute, for an hour."""
    moments = [begin.replace(second=20, microsecond=0) + timedelta(minutes=n) for n in range(60)]
    return [
        f"{at:%Y-%m-%dT%H:%M:%SZ}..{at + timedelta(seconds=12):%Y-%m-%dT%H:%M:%SZ}"
        for at in moments
    ]


def text(file: Mapping[str, Entry]) -> str:
    """Return the file that has these entries."""
    return json.dumps({"queues": QUEUES, "schedules": [*file.values()]}, indent=1)


def at_rest(file: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the same schedules with a next window that nobody waits for."""
    resting = {}
    for key, entry in file.items():
        when = {"cron": "0 0 1 1 *"} if "cron" in entry else {"everyMs": 86_400_000 * 30}
        resting[key] = {**entry, **when}
    return resting
