"""A workflow that an application starts itself, each order once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity

from engine import Context, FatalError, Retry, step, step_info, undo, workflow

CHARGED: list[tuple[str, int]] = []
HELD: list[str] = []


@dataclass
class Order:
    """What is charged; nothing can be charged below zero."""

    id: str
    cents: int


@step(name="started-charge", heartbeat=1)
async def charge(order: Order) -> int:
    if order.cents < 0:
        raise FatalError(f"{order.cents} cannot be charged")
    CHARGED.append((order.id, order.cents))
    return order.cents


@undo(name="started-give-back", heartbeat=1)
async def give_back(order: Order) -> None:
    CHARGED.append((order.id, -order.cents))
    HELD.append(str(step_info().workflow_id))


@workflow(timeout=timedelta(hours=1), retry=Retry(max_attempts=2, initial_interval=1))
class FulfilOrder:
    async def run(self, ctx: Context, order: Order) -> str:
        cents = await ctx.step(charge, order)
        return f"{order.id}: {cents}, {ctx.fire.key}, {ctx.fire.timing}, {ctx.fire.data_from}"


@workflow(compensate_on_terminate=True)
class HoldOrder:
    async def run(self, ctx: Context, order: Order) -> None:
        await ctx.step(charge, order, compensate=give_back)
        await ctx.wait_for("shipped")


PACKED = asyncio.Event()


@step(name="started-pack", heartbeat=10)
async def pack(order: Order) -> None:
    activity.heartbeat("boxes", order.cents)
    await PACKED.wait()


@workflow
class PackOrder:
    async def run(self, ctx: Context, order: Order) -> None:
        await ctx.step(pack, order)


ALL = [FulfilOrder, HoldOrder, PackOrder]
STEPS = [charge, give_back, pack]
