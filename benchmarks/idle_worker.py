"""An idle ``sched worker`` beside a plain Temporal worker: CPU, memory, and coming up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from datetime import UTC, datetime

from benchmarks.arena import Arena, connected
from benchmarks.children import bare_workers, cpu_seconds, replicas, resident_mebibytes
from benchmarks.report import Row
from tests.waiting import eventually

_SETTLED = 2.0
"""Percent of a core in a worker that has come up and has looked after every schedule once."""
_SETTLING = 600.0
_WATCHED, _WATCHED_QUICK = 30.0, 10.0
_COMING_UP = 300.0
_FIRST = "SELECT started_at FROM fires WHERE key = 'due'"
_SESSIONS = """
SELECT pid FROM pg_stat_activity
WHERE application_name = 'sched-engine' AND datname = current_database()
"""


async def measure_worker(place: Arena, *, quick: bool) -> Row:
    """Run one of each on a filled ledger whose schedule ``due`` is due."""
    watched = _WATCHED_QUICK if quick else _WATCHED
    nowhere = place.folder / "there-is-no-file.yaml"
    async with bare_workers(place, 1) as (plain,), connected(place.database_url) as connection:
        begin = datetime.now(UTC)
        async with replicas(place, 1, nowhere) as (engine,):

            async def first_run() -> datetime | None:
                started: datetime | None = await connection.fetchval(_FIRST)
                return started

            first = await eventually(first_run, timeout=_COMING_UP)
            assert first is not None
            await eventually(lambda: _settled(engine.pid), timeout=_SETTLING, every=0)
            settled_at = datetime.now(UTC)
            sessions = [row["pid"] for row in await connection.fetch(_SESSIONS)]
            watched_pids = {
                "sched worker": [engine.pid], "plain worker": [plain.process.pid],
                "PostgreSQL": sessions,
            }  # fmt: skip
            shares = await _shares(watched_pids, watched)
            own, other = resident_mebibytes(engine.pid), resident_mebibytes(plain.process.pid)
    return {
        **{f"{name} CPU %": round(share, 2) for name, share in shares.items()},
        "engine's share CPU %": round(shares["sched worker"] - shares["plain worker"], 2),
        "sched worker MiB": round(own),
        "plain worker MiB": round(other),
        "first run after s": round((first - begin).total_seconds(), 2),
        "settled after s": round((settled_at - begin).total_seconds()),
    }


async def _settled(pid: int) -> bool:
    return (await _shares({"worker": [pid]}, 5.0))["worker"] < _SETTLED


async def _shares(pids: dict[str, list[int]], seconds: float) -> dict[str, float]:
    """Percent of one core that each group of processes uses over some seconds."""
    before = {name: _cpu(group) for name, group in pids.items()}
    begin = time.monotonic()
    await asyncio.sleep(seconds)
    length = time.monotonic() - begin
    return {name: (_cpu(group) - before[name]) / length * 100 for name, group in pids.items()}


def _cpu(pids: Iterable[int]) -> float:
    return sum(cpu_seconds(pid) for pid in pids)
