"""A saga that is ended from outside, and undone by a run of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import activity

from engine import Context, FatalError, Retry, step, step_info, undo, workflow

EFFECTS: list[str] = []
UNDOES: list[str | None] = []
PATIENT = Retry(initial_interval=0.1, max_interval=1)


@dataclass
class Order:
    """What is ordered, and where the run waits, or what goes wrong."""

    item: str
    waits_in: str = "between"


@step(name="undone-reserve", heartbeat=1, retry=PATIENT)
async def reserve(order: Order) -> None:
    EFFECTS.append(f"reserve {order.item}")


@undo(name="undone-release", heartbeat=1, retry=PATIENT)
async def release(order: Order) -> None:
    EFFECTS.append(f"release {order.item}")
    UNDOES.append(step_info().undoes)


@step(name="undone-charge", heartbeat=1, retry=PATIENT)
async def charge(order: Order) -> None:
    EFFECTS.append(f"charge {order.item}")
    if order.waits_in == "charge":
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            EFFECTS.append("charge heard of the end")
            raise
    if order.waits_in == "refund":
        raise FatalError("no such card")


@undo(name="undone-refund", heartbeat=1, retry=PATIENT)
async def refund() -> None:
    undoes, attempt = step_info().undoes, activity.info().attempt
    EFFECTS.append("refund")
    UNDOES.append(undoes)
    if "the bank is away" in EFFECTS:
        raise FatalError("the bank is away")
    assert attempt == 1


@undo(heartbeat=1, retry=PATIENT)
async def forget(order: Order) -> None:
    EFFECTS.append(f"forget {order.item}")
    if order.waits_in == "refund" and EFFECTS.count(f"forget {order.item}") == 1:
        EFFECTS.append("forget waits")
        await asyncio.Event().wait()


async def ordered(ctx: Context, order: Order) -> None:
    await ctx.step(reserve, order, compensate=release)
    if order.waits_in == "refund":
        await ctx.step(reserve, order, compensate=forget)
    await ctx.step(charge, order, compensate=refund)
    await ctx.sleep(timedelta(hours=1))


@undo(heartbeat=1, retry=PATIENT, queue="desk")
async def call_off(order: Order) -> None:
    EFFECTS.append(f"call off {order.item}")


@workflow(name="at-the-desk", compensate_on_terminate=True)
class AtTheDesk:
    async def run(self, ctx: Context, order: Order) -> None:
        await ctx.step(reserve, order, compensate=call_off)
        await ctx.step(charge, order, compensate=refund)
        await ctx.sleep(timedelta(hours=1))


@workflow(name="ordered", compensate_on_terminate=True)
class Ordered:
    async def run(self, ctx: Context, order: Order) -> None:
        await ordered(ctx, order)


@workflow(name="committed", compensate_on_terminate=True)
class Committed:
    async def run(self, ctx: Context, order: Order) -> None:
        await ctx.step(reserve, order, compensate=release)
        ctx.commit()
        await ctx.step(charge, order, compensate=refund)
        await ctx.sleep(timedelta(hours=1))


@workflow(name="hurried", compensate_on_terminate=True, timeout=2, retry=Retry(max_attempts=3))
class Hurried:
    async def run(self, ctx: Context, order: Order) -> None:
        await ordered(ctx, order)


@workflow(name="left-alone")
class LeftAlone:
    async def run(self, ctx: Context, order: Order) -> None:
        await ordered(ctx, order)


ALL = [AtTheDesk, Ordered, Committed, Hurried, LeftAlone]
STEPS: list[Callable[..., Any]] = [reserve, release, charge, refund, forget, call_off]
