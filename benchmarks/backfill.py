"""The pace of a backfill: windows laid a second on its first day, its second and its third.

`sched backfill` asks for three days of one-second windows of a schedule: 259,200 runs. A dev
server would take half an hour to start them, and its pace would be what is measured; so the two
workers answer starts themselves, at once (``benchmarks.costless``), and the runs end after a few
seconds. Everything else is real: the command, the ledger, the tick, and the claims and outcomes of
the same windows, which are started while later ones are laid.

A window is laid when it has its row. The rows of each day are counted every other second; a day's
pace is its rows over the time from its first to its last. What is not laid after so many minutes
is not waited for: a day that was not finished has the pace it had until then.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import asyncpg

from benchmarks.arena import Arena, arena, connected, postgres
from benchmarks.children import costless_replicas
from benchmarks.costless import closing_runs
from benchmarks.report import Measured, Row
from benchmarks.troubles import request_backfill
from tests.waiting import eventually

REPLICAS, DAYS = 2, 3
_DAY, _DAY_QUICK = 86_400, 3_600
_MOST, _MOST_QUICK = 20 * 60.0, 120.0
_EVERY = 2.0
_FILE = "schedules: [{key: long, workflow: bare, everyMs: 1000}]"
_LAID = """
SELECT floor(extract(epoch FROM fire_time - $1) / $2)::int AS day, count(*) AS windows
FROM fires WHERE key = 'long' AND fire_time >= $4 AND fire_time < $3 GROUP BY 1
"""
"""From a day on: what is complete is not counted again, or counting would slow the later days."""


async def run(*, quick: bool = False) -> Measured:
    """Measure; takes twenty minutes at most."""
    day, most = (_DAY_QUICK, _MOST_QUICK) if quick else (_DAY, _MOST)
    async with postgres() as server, arena(server) as place:
        file = place.folder / "schedules.yaml"
        file.write_text(_FILE)
        async with (
            costless_replicas(place, REPLICAS, file),
            connected(place.database_url) as connection,
        ):
            await _until_fired(connection)
            async with closing_runs(place.database_url):
                paces = await _paces(place, connection, day, most)
    first = paces[0][1]
    rows: list[Row] = [
        {
            "day": number + 1,
            "windows": f"{windows:,}",
            "laid / s": round(pace),
            "/ first day": round(pace / first, 2) if first else "",
        }
        for number, (windows, pace) in enumerate(paces)
    ]
    return Measured("backfill", rows)


async def _until_fired(connection: asyncpg.Connection) -> None:
    async def migrated() -> bool:
        return bool(await connection.fetchval("SELECT to_regclass('sched.fires')"))

    async def fired() -> bool:
        return bool(await connection.fetchval("SELECT count(*) FROM fires WHERE run_id <> ''"))

    await eventually(migrated, timeout=60, every=0.1)
    await eventually(fired, timeout=60, every=0.1)


async def _paces(
    place: Arena, connection: asyncpg.Connection, day: int, most: float
) -> list[tuple[int, float]]:
    """Windows that were laid of each day, and how many a second."""
    end = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)
    begin = end - timedelta(seconds=DAYS * day)
    seen: list[tuple[float, dict[int, int]]] = []
    # The last moment of the command is included, that of the count is not.
    until = end - timedelta(seconds=1)
    async with request_backfill(place, "long", begin, until):
        began, laid = time.monotonic(), dict[int, int]()
        while sum(laid.values()) < DAYS * day and time.monotonic() - began < most:
            complete = [number for number, count in laid.items() if count == day]
            since = begin + timedelta(seconds=day) * min({*range(DAYS)} - {*complete})
            rows = await connection.fetch(_LAID, begin, float(day), end, since)
            laid = dict.fromkeys(complete, day)
            laid |= {row["day"]: row["windows"] for row in rows}
            seen.append((time.monotonic(), laid))
            await asyncio.sleep(_EVERY)
    return [_pace([(at, laid.get(number, 0)) for at, laid in seen]) for number in range(DAYS)]


def _pace(counts: list[tuple[float, int]]) -> tuple[int, float]:
    """How many there are at last, and how many came a second from the first to the last."""
    last = counts[-1][1]
    began = max((at for at, count in counts if count == 0), default=counts[0][0])
    ended = min(at for at, count in counts if count == last)
    return last, last / (ended - began) if ended > began else 0.0
