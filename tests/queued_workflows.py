"""Steps in a queue that write into PostgreSQL when they begin and end, and in which process."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from temporalio import activity, workflow as temporal

with temporal.unsafe.imports_passed_through():
    import asyncpg

    from engine import Context, step, workflow

_pools: dict[int, Any] = {}


async def _pool() -> Any:
    loop = asyncio.get_running_loop()
    if id(loop) not in _pools:
        opening = asyncpg.create_pool(os.environ["SCHED_DATABASE_URL"], min_size=1, max_size=6)
        _pools[id(loop)] = asyncio.ensure_future(opening.__aenter__())
    return await _pools[id(loop)]


@step(queue="narrow", heartbeat=4)
async def work(number: int) -> None:
    pool = await _pool()
    attempt = await pool.fetchval(
        "INSERT INTO attempts (number, attempt, pid, began) VALUES ($1, $2, $3, clock_timestamp())"
        " RETURNING id",
        number, activity.info().attempt, os.getpid(),
    )  # fmt: skip
    await asyncio.sleep(0.03)
    await pool.execute("UPDATE attempts SET ended = clock_timestamp() WHERE id = $1", attempt)


@workflow
class Queued:
    async def run(self, ctx: Context, number: int) -> None:
        await ctx.step(work, number, priority=1 if number % 2 else 5)
