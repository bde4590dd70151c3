"""Payments that are booked by their keys, and whose runs are reset."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from temporalio import workflow as temporal

from engine import Context, FatalError, step, step_info, undo, workflow

with temporal.unsafe.imports_passed_through():  # the test edits the code of runs by it
    from tests.fundamentals.samples.mended import NOW
    from tests.fundamentals.samples.stored import STORED

TABLE = """
CREATE TABLE IF NOT EXISTS payments (key text PRIMARY KEY, customer text NOT NULL, refunded_by text)
"""


async def _write(statement: str, *values: object) -> None:
    await STORED.pool.execute(statement, *values)


@step(name="resets-authorise")
async def authorise(customer: str) -> str:
    await asyncio.sleep(NOW.seconds.get(customer, 0))
    return customer


@step(name="resets-capture")
async def capture(customer: str) -> None:
    NOW.charged.append(customer)
    await _write(
        "INSERT INTO payments VALUES ($1, $2) ON CONFLICT (key) DO NOTHING",
        step_info().idempotency_key, customer,
    )  # fmt: skip


@undo(name="resets-refund")
async def refund() -> None:
    info = step_info()
    await _write(
        "UPDATE payments SET refunded_by = coalesce(refunded_by, $1) WHERE key = $2",
        info.idempotency_key, info.undoes,
    )  # fmt: skip


@step(name="resets-ship")
async def ship(customer: str) -> str:
    if not NOW.shop_is_mended:
        raise FatalError(f"nothing goes to {customer}")
    return f"shipped to {customer}"


@workflow(name="resets-pay")
class Pay:
    """Two steps for each customer; the order of the second ones is that of the faster firsts."""

    async def run(self, ctx: Context, customers: list[str]) -> str:
        for customer in NOW.first:  # mended code has a call more
            await ctx.step(capture, customer, compensate=refund)

        async def one(customer: str) -> None:
            await ctx.step(authorise, customer)
            await ctx.step(capture, customer, compensate=refund)

        await ctx.parallel([one(customer) for customer in customers])
        return "paid"


@workflow(name="resets-family")
class Family:
    """Children, the payments of whose children come after each other."""

    async def run(self, ctx: Context, customers: list[str]) -> str:
        async def one(customer: str) -> None:
            await ctx.step(authorise, customer)
            await ctx.child(Member, [customer, f"{customer}'s child"])

        await ctx.parallel([one(customer) for customer in customers])
        return "paid"


@workflow(name="resets-member")
class Member:
    """Pays, and has the rest pay as its own child."""

    async def run(self, ctx: Context, customers: list[str]) -> None:
        await ctx.step(capture, customers[0], compensate=refund)
        if customers[1:]:
            await ctx.child(Member, customers[1:])


@workflow(name="resets-order")
class Order:
    """A saga that fails at its second step, until the shop is mended."""

    async def run(self, ctx: Context, customer: str) -> str:
        await ctx.step(capture, customer, compensate=refund)
        if NOW.seconds.get("in code"):
            raise LookupError("a bug of the run itself")
        return await ctx.step(ship, customer)


@workflow(name="resets-forgiving")
class Forgiving:
    """Handles the error of a step, and goes on."""

    async def run(self, ctx: Context, customer: str) -> str:
        for each in [*NOW.first, customer]:
            try:
                await ctx.step(capture, each)
            except Exception as error:  # noqa: BLE001 - the point of this workflow
                ctx.log.info("%s", error)
        return "went on"


@dataclass
class Receipt:
    """The result of a child."""

    text: str


@undo(name="resets-forget")
async def forget(customer: str) -> None:
    NOW.lost.add(step_info().workflow_id or customer)


@workflow(name="resets-guardian")
class Guardian:
    """Waits for one child, and has an undo step for it."""

    async def run(self, ctx: Context, policy: Literal["abandon", "terminate"]) -> str:
        receipt = await ctx.child(Ward, "ann", parent_close_policy=policy, compensate=forget)
        return receipt.text


@workflow(name="resets-ward")
class Ward:
    """Pays when it is told to, and ships."""

    async def run(self, ctx: Context, customer: str) -> Receipt:
        await ctx.wait_for("go")
        await ctx.step(capture, customer, compensate=refund)
        return Receipt(await ctx.step(ship, customer))


ALL = [Pay, Family, Member, Order, Forgiving, Guardian, Ward]
STEPS: list[Callable[..., Any]] = [authorise, capture, refund, ship, forget]
