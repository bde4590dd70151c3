"""The smallest scheduled workflow: one quick step, so that a newcomer sees life at once."""

from __future__ import annotations

from temporalio.workflow import unsafe

from engine import Context, workflow

with unsafe.imports_passed_through():
    from activities.example_data import Beat, record_beat


@workflow(name="heartbeat", version="1")
class Heartbeat:
    async def run(self, ctx: Context) -> int:
        if ctx.scheduled:
            return await ctx.step(record_beat, Beat(ctx.fire.key, ctx.fire.fire_time))
        return await ctx.step(record_beat, Beat("by hand", ctx.now()))
