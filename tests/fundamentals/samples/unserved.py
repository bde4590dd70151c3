"""Workflows whose worker may lack some of their steps."""

from __future__ import annotations

from engine import Context, step, undo, workflow
from tests.fundamentals.samples import parcels


@step(name="unserved-here")
async def here() -> None: ...


@step(name="unserved-there")
async def there() -> None: ...


@undo(name="unserved-undo")
async def take_back() -> None: ...


class Base:
    async def last(self, ctx: Context) -> None:
        ctx.on_failure(parcels.send_parcel, parcels.Order("A1"))


@workflow(name="calls-unserved", version="1")
class CallsUnserved(Base):
    async def run(self, ctx: Context) -> None:
        await ctx.step(here, compensate=take_back)
        await ctx.step(there, task_queue="elsewhere")
        chosen = here
        await ctx.step(chosen)
