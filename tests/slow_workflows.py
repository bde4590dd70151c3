"""A workflow with a step that takes its time, in a module that the sandbox can import by itself."""

from __future__ import annotations

import asyncio

from engine import Context, step, workflow

SECONDS = 3


@step
async def takes_its_time() -> str:
    await asyncio.sleep(SECONDS)
    return "done"


@workflow(name="slow", version="1")
class Slow:
    """Ends with its only step."""

    async def run(self, ctx: Context) -> str:
        return await ctx.step(takes_its_time)
