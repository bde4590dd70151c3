"""A step that waits in a queue, for test_testing_kit.py."""

from __future__ import annotations

from datetime import timedelta

from engine import Context, step, workflow


@step(queue="stamps")
async def stamp(letter: str) -> str:
    return f"{letter}, stamped"


@workflow(name="stamped", timeout=timedelta(hours=1))
class Stamped:
    async def run(self, ctx: Context, letter: str) -> str:
        if letter == "slow":
            await ctx.sleep(timedelta(hours=2))
        return await ctx.step(stamp, letter)


@workflow(name="testing-kit-waits-often")
class WaitsOften:
    async def run(self, ctx: Context) -> None:
        for _ in range(60):
            await ctx.sleep(3600)
