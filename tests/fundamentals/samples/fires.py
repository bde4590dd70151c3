"""The workflows of test_fire_of_a_run.py (see samples/workflows.py for why they are here)."""

from __future__ import annotations

from engine import Context, workflow


@workflow(name="tells-its-fire")
class TellsItsFire:
    async def run(self, ctx: Context) -> list[str]:
        return [ctx.fire.key, ctx.fire.timing, ctx.fire.local_time.isoformat()]


@workflow(name="works-by-hand-too")
class WorksByHandToo:
    async def run(self, ctx: Context) -> str:
        return ctx.fire.key if ctx.scheduled else "by hand"


ALL = [TellsItsFire, WorksByHandToo]
