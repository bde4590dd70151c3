"""The workflow of docs/testing.md: money is taken, a warehouse says when, a parcel leaves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from engine import Context, Retry, step, undo, workflow


@dataclass
class Order:
    id: str
    cents: int = 1000


@dataclass
class Receipt:
    number: str


@undo(timeout=10, retry=Retry(max_attempts=4, intervals=[60, 300, 900]))
async def take_money(order: Order) -> Receipt:
    return Receipt(f"paid-{order.id}")


@undo
async def give_back(order: Order) -> None:
    pass


@step(retry=Retry(max_attempts=3))
def send_parcel(order: Order) -> str:
    return f"parcel-{order.id}"


@workflow(name="parcels", version="1")
class Parcels:
    async def run(self, ctx: Context, order: Order) -> str:
        await ctx.step(take_money, order, compensate=give_back)
        await ctx.wait_for("packed", timeout=timedelta(hours=4))
        return await ctx.step(send_parcel, order)
