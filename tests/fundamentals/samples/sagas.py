"""The workflows of test_sagas.py, whose steps load a database driver."""

from __future__ import annotations

import asyncio
import contextlib

from temporalio.exceptions import ActivityError
from temporalio.workflow import unsafe

from engine import Context, workflow

with unsafe.imports_passed_through():
    from tests.fundamentals.samples.effects import (
        Order,
        charge,
        flaky_undo,
        notify,
        refund,
        release,
        reserve,
        retract,
        stubborn,
        sync_wait,
    )


@workflow(name="fulfil")
class Fulfil:
    """The saga of the README: three steps, each with its undo."""

    async def run(self, ctx: Context, order: Order) -> str:
        reservation = await ctx.step(reserve, order, compensate=release)
        await ctx.step(charge, order, compensate=refund)
        await ctx.step(notify, order, compensate=retract)
        if order.fails_at == "run":
            raise LookupError("the run itself failed")
        if order.waits_at == "run":
            await asyncio.Event().wait()
        return reservation


@workflow(name="copes")
class Copes:
    """A failure that the run copes with undoes nothing."""

    async def run(self, ctx: Context, order: Order) -> str:
        await ctx.step(reserve, order, compensate=release)
        try:
            await ctx.step(charge, order, compensate=refund)
        except ActivityError:
            return "sent without payment"
        return "paid"


@workflow(name="finishes-anyway")
class FinishesAnyway:
    async def run(self, ctx: Context, order: Order) -> None:
        await ctx.step(reserve, order, compensate=release)
        with contextlib.suppress(ActivityError):  # it can do without, but not after a cancel
            await ctx.step(stubborn, order, compensate=refund)
        await ctx.step(notify, order)


@workflow(name="branches")
class Branches:
    """One branch fails while a second is in a step and a third between two."""

    async def run(self, ctx: Context, order: Order) -> None:
        failed = asyncio.Event()

        async def fails() -> None:
            try:
                await ctx.step(charge, order, compensate=refund)
            finally:
                failed.set()

        async def comes_late() -> None:
            await failed.wait()
            await asyncio.sleep(0.01)
            await ctx.step(notify, order)

        await asyncio.gather(ctx.step(reserve, order, compensate=release), fails(), comes_late())


@workflow(name="ships")
class Ships:
    """One branch fails while another is in a step that has no undo of its own."""

    async def run(self, ctx: Context, order: Order) -> None:
        await ctx.step(charge, order, compensate=refund)
        await asyncio.gather(ctx.step(reserve, order), ctx.step(notify, order))


@workflow(name="retried-undo")
class RetriedUndo:
    async def run(self, ctx: Context, order: Order) -> None:
        await ctx.step(reserve, order, compensate=flaky_undo)
        raise LookupError("as planned")


@workflow(name="waits-in-a-thread")
class WaitsInAThread:
    async def run(self, ctx: Context) -> None:
        await ctx.step(sync_wait)


@workflow(name="misuses-undo")
class MisusesUndo:
    async def run(self, ctx: Context, way: str) -> None:
        match way:
            case "not a step":
                await ctx.step(reserve, Order(), compensate=print)  # type: ignore[call-overload]
            case "needs an input":
                await ctx.step(retract, compensate=release)  # type: ignore[arg-type]


ALL = [Fulfil, Copes, FinishesAnyway, Branches, Ships, RetriedUndo, WaitsInAThread, MisusesUndo]
