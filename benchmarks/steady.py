"""Steady load: the windows a second of poller, dispatcher and ledger where a start costs nothing.

**Contestants.** *sched-engine*: two replicas in processes of their own (``benchmarks.costless``:
all of a worker with the plugin, but for starts, which it answers itself at once) and 4,000
schedules of one second, a little more than two cores carry beside PostgreSQL.
*floor*: two processes that write the same rows by bare asyncpg, a hundred windows in two commits
(``benchmarks.bare_ledger``). No ledger accounts for a window with less, so the ratio is what
deciding, locking and everything else of a replica cost. A ``COPY`` of finished rows would be
faster, but a ledger that writes only what became of a window loses it in a crash.

**What is measured** in a stretch after warming up: windows whose start was noted, CPU time of the
two processes and of all of PostgreSQL (autovacuum included), and how much larger the table of
fires and its indexes became. ``lag p50`` shows whether the schedules were kept up with.
PostgreSQL writes every commit to the disk. Every contestant has a fresh database: once empty, once
with two million old rows of the same schedules, made by SQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import asyncpg

from benchmarks.arena import Arena, arena, connected, postgres
from benchmarks.children import bare_ledgers, costless_replicas, cpu_seconds, server_cpu_seconds
from benchmarks.crowd import SERVING
from benchmarks.report import Measured, Row
from benchmarks.workflows import TYPE
from engine.embedded import PostgresServer
from engine.ledger import Ledger
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from tests.waiting import eventually

SCHEDULES, REPLICAS = 4_000, 2
OLD, OLD_QUICK = 2_000_000, 200_000
_WARM_UP, _STRETCH, _STRETCH_QUICK = 15.0, 30.0, 10.0
_OLD_ROWS = """
INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time,
                   definition_version, workflow_id, workflow_type, task_queue, run_id, status,
                   timing, replica, attempts, decided_at, starting_at, started_at, closed_at)
SELECT s.namespace, s.project, s.key, s.series, b, at, at, s.definition_version,
       'sched:' || s.key || ':' || b, $3, s.task_queue, gen_random_uuid()::text, 'completed',
       'on_time', 'old', 1, at, at, at, at
FROM generate_series($1::bigint, $2::bigint) AS b, to_timestamp(b) AS at, schedules s
"""
_WINDOWS = """
SELECT count(*) AS windows,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY started_at - fire_time) AS lag
FROM fires WHERE started_at >= $1 AND started_at < $2 AND replica <> 'old'
"""
_SIZE = "SELECT pg_total_relation_size('fires')"


@dataclass(frozen=True, slots=True)
class Carried:
    """What one contestant carried in a stretch: CPU in seconds per 1,000 windows."""

    per_second: float
    processes: float
    server: float
    bytes: float
    lag: timedelta


async def run(*, quick: bool = False) -> Measured:
    """Measure; takes about ten minutes."""
    rows: list[Row] = []
    async with postgres() as server:
        for old in (0, OLD_QUICK if quick else OLD):
            found = {
                who: await sample(server, who, old, _STRETCH_QUICK if quick else _STRETCH)
                for who in ("floor", "sched-engine")
            }
            rows += (_row(who, old, carried, found["floor"]) for who, carried in found.items())
    return Measured("steady", rows)


def _row(who: str, old: int, carried: Carried, floor: Carried) -> Row:
    return {
        "old rows": f"{old:,}",
        "who": who,
        "windows / s": round(carried.per_second),
        "floor /": round(floor.per_second / carried.per_second, 2),
        "processes CPU s / 1,000": round(carried.processes, 3),
        "PostgreSQL CPU s / 1,000": round(carried.server, 3),
        "bytes / window": round(carried.bytes),
        "lag p50 s": "" if who == "floor" else round(carried.lag.total_seconds(), 2),
    }


async def sample(
    server: PostgresServer, who: str, old: int, stretch: float, head: str = "", **environment: str
) -> Carried:
    """Take one sample; ``head`` comes before the schedules of the replicas' file."""
    async with arena(server) as place, connected(place.database_url) as connection:
        await _declare(place.database_url)
        if old:
            newest = int(datetime.now(UTC).timestamp()) - 3600
            oldest = newest - old // SCHEDULES + 1
            await connection.execute(_OLD_ROWS, oldest, newest, TYPE)
            # Not of an empty ledger: what nobody has counted is planned for as if it had rows.
            await connection.execute("VACUUM (ANALYZE)")
        await connection.execute("CHECKPOINT")
        async with _contestant(who, place, head, environment) as processes:
            return await _carried(connection, [each.pid for each in processes], stretch)


def _contestant(
    who: str, place: Arena, head: str, environment: Mapping[str, str]
) -> AbstractAsyncContextManager[list[asyncio.subprocess.Process]]:
    if who == "floor":
        return bare_ledgers(place, REPLICAS)
    file = place.folder / "schedules.yaml"
    file.write_text(head + _file(enabled=True))
    return costless_replicas(place, REPLICAS, file, **environment)


async def _declare(url: str) -> None:
    """Declare the schedules, at rest: what happens until the measurement is not owed."""
    ledger = await Ledger.connect(url)
    try:
        await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
        await apply(ledger, load_schedules(_file(enabled=False)), by="benchmark")
    finally:
        await ledger.close()


def _file(*, enabled: bool) -> str:
    rest = "" if enabled else ", enabled: false"
    keys = (f"steady-{number:05}" for number in range(SCHEDULES))
    entries = [f"  - {{key: {key}, workflow: bare, everyMs: 1000{rest}}}" for key in keys]
    return "\n".join(["schedules:", *entries])


async def _carried(connection: asyncpg.Connection, pids: Sequence[int], stretch: float) -> Carried:
    first = await connection.fetchval("SELECT coalesce(max(id), 0) FROM fires")

    async def busy() -> bool:
        count = "SELECT count(*) FROM fires WHERE id > $1 AND started_at IS NOT NULL"
        return int(await connection.fetchval(count, first)) > SCHEDULES

    await eventually(busy, timeout=120, every=0.5)
    await asyncio.sleep(_WARM_UP)
    before = await _used(connection, pids)
    await asyncio.sleep(stretch)
    after = await _used(connection, pids)
    begin, end = before[0], after[0]
    found = await connection.fetchrow(_WINDOWS, begin, end)
    assert found is not None
    processes, server, size = (
        late - early for early, late in zip(before[1], after[1], strict=True)
    )
    windows = found["windows"]
    return Carried(
        windows / (end - begin).total_seconds(),
        1000 * processes / windows, 1000 * server / windows, size / windows, found["lag"],
    )  # fmt: skip


async def _used(
    connection: asyncpg.Connection, pids: Sequence[int]
) -> tuple[datetime, tuple[float, float, float]]:
    """By when which CPU time of the processes and the server, and how many bytes, were used."""
    own = await connection.fetchval("SELECT pg_backend_pid()")
    processes, server = sum(map(cpu_seconds, pids)), server_cpu_seconds(own)
    size = await connection.fetchval(_SIZE)
    return datetime.now(UTC), (processes, server, float(size))
