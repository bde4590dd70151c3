"""The steps and the workflow of test_heartbeats.py."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import activity

from engine import Context, Retry, as_step, step, workflow


@step
async def quick() -> None: ...


@step(heartbeat=5)
def patient() -> None: ...


@step(heartbeat=None)
async def silent() -> None: ...


@step
async def hurried() -> None: ...


@activity.defn
async def plain() -> None: ...


@step(heartbeat=1, retry=Retry(max_attempts=2, initial_interval=0.01))
async def reads_pages() -> str:
    """Come to page 7, take longer than a heartbeat, fail, and go on from there."""
    if activity.info().attempt == 1:
        activity.heartbeat("page", 7)
        await asyncio.sleep(2)
        raise ConnectionError("lost")
    return " ".join(map(str, activity.info().heartbeat_details))


@workflow(name="beats")
class Beats:
    async def run(self, ctx: Context) -> None:
        for each in (quick, patient, silent):
            await ctx.step(each)
        await ctx.step(as_step(plain))
        await ctx.step(hurried, heartbeat=2)


@workflow(name="reads")
class Reads:
    async def run(self, ctx: Context) -> str:
        return await ctx.step(reads_pages)


WORKFLOWS = [Beats, Reads]
STEPS: list[Any] = [quick, patient, silent, plain, hurried, reads_pages]
