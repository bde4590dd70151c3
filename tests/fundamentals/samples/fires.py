"""The workflows of test_fire_of_a_run.py (see samples/workflows.py for why they are here)."""

from __future__ import annotations

from typing import Any

from engine import Context, Retry, workflow


@workflow(name="tells-its-fire")
class TellsItsFire:
    async def run(self, ctx: Context) -> list[str]:
        return [ctx.fire.key, ctx.fire.timing, ctx.fire.local_time.isoformat()]


@workflow(name="works-by-hand-too")
class WorksByHandToo:
    async def run(self, ctx: Context) -> str:
        return ctx.fire.key if ctx.scheduled else "by hand"


@workflow(name="has-a-child-of-its-window")
class HasAChildOfItsWindow:
    async def run(self, ctx: Context) -> list[Any]:
        return await ctx.child(KnowsWhose, retry=Retry(max_attempts=2))


@workflow(name="knows-whose")
class KnowsWhose:
    async def run(self, ctx: Context) -> list[Any]:
        if ctx.fire.attempt == 1:
            raise LookupError("once")
        return [ctx.fire.key, ctx.fire.tenant_id, ctx.fire.attempt, ctx.fire.retry_intervals]


ALL = [TellsItsFire, WorksByHandToo, HasAChildOfItsWindow, KnowsWhose]
