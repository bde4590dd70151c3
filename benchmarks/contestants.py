"""Three ways to start N runs at one instant: the engine, native Schedules, and a bare loop."""

from __future__ import annotations

import asyncio
import math
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from benchmarks.arena import Arena, connected
from benchmarks.children import bare_workers, replicas
from benchmarks.native import create_daily
from benchmarks.runs import Herd, read_herd
from tests.waiting import eventually

Contestant = Callable[[Arena, int, int, float], Awaitable[Herd]]
"""Takes the arena, how many runs, how many worker processes, and how generously (1: as a quiet
machine needs) to plan the time for preparing."""

_SETTLED = 2.0
"""Seconds that must be left before the instant when everything has been prepared."""
_READY = """
SELECT (SELECT count(*) FROM schedules WHERE workflow_type IS NOT NULL) >= $1
   AND (SELECT count(*) FROM replicas) >= $2
"""


class NotReadyError(RuntimeError):
    """The instant came too near while everything was being prepared."""


async def engine(
    arena: Arena,
    count: int,
    workers: int,
    lead: float = 1,
    *,
    at_end: Callable[[list[Process]], None] = lambda _: None,
    head: str = "",
    **environment: str,
) -> Herd:
    """Run N cron schedules with one fire time, and ``workers`` replicas as shipped.

    ``at_end`` is called with the processes after the last run; ``head`` comes before the schedules
    of the file; ``environment`` has their settings that are not the default ones.
    """
    due = _instant((6 + 2 * workers + count / 250) * lead)
    file = arena.folder / "schedules.yaml"
    file.write_text(head + _schedule_file(count, due))
    async with replicas(arena, workers, file, **environment) as processes:
        await _declared(arena, count, workers)
        _require_ahead(due)
        herd = await read_herd(arena.client, count, due.timestamp(), closed=not arena.limited)
        at_end(processes)
        return herd


async def native(arena: Arena, count: int, workers: int, lead: float = 1) -> Herd:
    """Run N native Schedules with one fire time, and ``workers`` bare workers.

    The server's default limit of 30 scheduled starts a second and namespace is part of it.
    """
    async with bare_workers(arena, workers):
        due = _instant((5 + count / 20) * lead)
        await create_daily(arena.client, count, due, "bare")
        _require_ahead(due)
        return await read_herd(arena.client, count, due.timestamp(), closed=not arena.limited)


def floor(concurrency: int, pause_ms: int = 0) -> Contestant:
    """Return a bare loop in each worker, so many starts in flight over all of them.

    ``pause_ms``: see ``BareWorker.start_runs``.
    """

    async def run(arena: Arena, count: int, workers: int, _lead: float = 1) -> Herd:
        async with bare_workers(arena, workers) as processes:
            share, each = count // workers, max(concurrency // workers, 1)
            began = await asyncio.gather(
                *(
                    process.start_runs(f"floor-{number}-", share, each, pause_ms)
                    for number, process in enumerate(processes)
                )
            )
            return await read_herd(
                arena.client, share * workers, min(began), closed=not arena.limited
            )

    return run


def _instant(seconds: float) -> datetime:
    """Return the first whole second that is so many seconds ahead."""
    return datetime.fromtimestamp(math.ceil(time.time() + seconds), UTC)


def _require_ahead(due: datetime) -> None:
    left = due.timestamp() - time.time()
    if left < _SETTLED:
        raise NotReadyError(f"everything was ready only {left:.1f} s before the instant")


def _schedule_file(count: int, due: datetime) -> str:
    cron = f"{due.second} {due.minute} {due.hour} * * *"
    lines = [f'  - {{key: herd-{n:05}, workflow: bare, cron: "{cron}"}}' for n in range(count)]
    return "\n".join(["schedules:", *lines])


async def _declared(arena: Arena, count: int, workers: int) -> None:
    """Wait until every replica has announced itself and every schedule is in the ledger."""
    async with connected(arena.database_url) as connection:

        async def migrated() -> bool:
            return bool(await connection.fetchval("SELECT to_regclass('sched.replicas')"))

        async def declared() -> bool:
            return bool(await connection.fetchval(_READY, count, workers))

        await eventually(migrated, timeout=60, every=0.1)
        await eventually(declared, timeout=60, every=0.1)
