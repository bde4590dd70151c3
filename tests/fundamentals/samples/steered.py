"""A workflow for tests that act on an open run: it is asked, updated, signalled and cancelled."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow as temporal

from engine import Context, FatalError, step, step_info, undo, workflow

PAID: dict[str, int] = {}
"""The amounts that the bank has taken, by idempotency key."""
DID: list[str] = []


@step(name="steered-reserve")
async def reserve(order: str) -> None:
    DID.append(f"reserve {order}")


@undo(name="steered-release")
async def release(order: str) -> None:
    DID.append(f"release {order}")


@step(name="steered-pay")
async def pay(cents: int) -> int:
    DID.append(f"pay {cents}")
    return PAID.setdefault(step_info().idempotency_key, cents)


@step(name="steered-pay-carelessly")
async def pay_carelessly(cents: int) -> int:
    PAID[f"payment {len(PAID)}"] = cents
    return cents


@workflow(name="haggled", version="1")
class Haggled:
    def __init__(self) -> None:
        self._price = 100

    async def run(self, ctx: Context, order: str) -> int:
        await ctx.step(reserve, order, compensate=release)
        await ctx.wait_for("agreed", timeout=timedelta(days=2))
        return await ctx.step(pay_carelessly if order == "careless" else pay, self._price)

    @temporal.query
    def price(self) -> int:
        return self._price

    @temporal.update
    async def offer(self, price: int) -> int:
        if price < 0:
            raise FatalError("a gift?")
        self._price = price
        return price
