"""Workflows with steps that take their time, in a module the sandbox can import by itself."""

from __future__ import annotations

import asyncio

from temporalio import activity

from engine import Context, step, workflow

SECONDS = 3


@step
async def takes_its_time() -> str:
    await asyncio.sleep(SECONDS)
    return "done"


@step
async def takes_a_moment() -> None:
    """A timer of the workflow would take a second: the server rounds it up."""
    await asyncio.sleep(0.05)


@step(heartbeat=2)
async def outlives_its_first_worker() -> int:
    """Never end in the first attempt."""
    attempt = activity.info().attempt
    if attempt == 1:
        await asyncio.Event().wait()
    return attempt


@workflow(name="slow", version="1")
class Slow:
    """Ends with its only step."""

    async def run(self, ctx: Context) -> str:
        return await ctx.step(takes_its_time)


@workflow(name="short", version="1")
class Short:
    """Ends after 50 ms."""

    async def run(self, ctx: Context) -> None:
        await ctx.step(takes_a_moment)


@workflow(name="orphaned", version="1")
class Orphaned:
    """Ends with the second attempt of its only step."""

    async def run(self, ctx: Context) -> int:
        return await ctx.step(outlives_its_first_worker)
