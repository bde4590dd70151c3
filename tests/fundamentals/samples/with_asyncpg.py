"""A workflow and a step in one module that imports asyncpg, without a word to the sandbox."""

from __future__ import annotations

import os

import asyncpg

from engine import Context, step, workflow


@step
async def ask_database() -> int:
    connection = await asyncpg.connect(os.environ["SCHED_DATABASE_URL"])
    try:
        found: int = await connection.fetchval("SELECT 42")
        return found
    finally:
        await connection.close()


@workflow
class AsksDatabase:
    async def run(self, ctx: Context) -> int:
        return await ctx.step(ask_database)
