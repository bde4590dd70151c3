"""An edit of parcels.py that runs under way do not survive: the parcel leaves first."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

from engine import Context
from tests.fundamentals.samples.parcels import Order, give_back, send_parcel, take_money


@workflow.defn(name="parcels@1")
class ParcelsEdited:
    @workflow.run
    async def run(self, order: Order) -> str:
        ctx = Context()
        parcel = await ctx.step(send_parcel, order)
        await ctx.step(take_money, order, compensate=give_back)
        await ctx.wait_for("packed", timeout=timedelta(hours=4))
        return parcel


@workflow.defn(name="parcels@1")
class ParcelsThatDoNotWait:
    @workflow.run
    async def run(self, order: Order) -> str:
        ctx = Context()
        await ctx.step(take_money, order, compensate=give_back)
        return await ctx.step(send_parcel, order)


@workflow.defn(name="parcels@1")
class ParcelsThatEndSooner:
    @workflow.run
    async def run(self, order: Order) -> str:
        ctx = Context()
        await ctx.step(take_money, order, compensate=give_back)
        await ctx.wait_for("packed", timeout=timedelta(hours=4))
        return "sent by somebody else"
