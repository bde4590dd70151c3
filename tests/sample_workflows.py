"""Workflows for tests, in a module that the sandbox can import by itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import temporalio.workflow

from engine import Context, workflow
from tests.sample_noop import Noop

__all__ = ["Noop"]


@workflow
class Warns:
    async def run(self, ctx: Context) -> None:
        ctx.log.warning("stock is low")


@workflow(name="fails", version="1")
class Fails:
    """Fails with a sentence of its own."""

    async def run(self, ctx: Context) -> None:
        raise ValueError(f"no luck for {ctx.fire.key}")


@workflow(name="sleeps", version="1")
class Sleeps:
    """Stays open until it is ended from outside."""

    async def run(self, ctx: Context) -> None:
        await temporalio.workflow.sleep(timedelta(hours=1))


@temporalio.workflow.defn(name="PlainWorkflow")
class Plain:
    """An ordinary Temporal workflow that knows nothing of the scheduler."""

    @temporalio.workflow.run
    async def run(self, name: str = "nobody") -> str:
        return f"hello {name}"


@workflow(name="rests", version="1")
class Rests:
    """Stays open for so many seconds."""

    async def run(self, ctx: Context, seconds: float) -> None:
        await temporalio.workflow.sleep(seconds)


@workflow(name="tidies", version="1")
class Tidies:
    """Stays open until it is cancelled, and then takes so many seconds to tidy up."""

    async def run(self, ctx: Context, seconds: float) -> None:
        try:
            await temporalio.workflow.sleep(timedelta(hours=1))
        finally:
            await asyncio.shield(asyncio.create_task(temporalio.workflow.sleep(seconds)))


@workflow(name="hears", version="1")
class Hears:
    """Is told of what ended badly, and says of which window."""

    async def run(self, ctx: Context, letter: dict[str, Any]) -> str:
        return f"{letter['workflow_id']} {letter['status']}"


@dataclass
class Order:
    count: int


@dataclass
class Total:
    cents: int


@workflow(name="totals", version="1")
class Totals:
    async def run(self, ctx: Context, order: Order) -> Total:
        return Total(2 * order.count)


@workflow(name="cart", version="1")
class Cart:
    """One run for each cart; it ends when the cart is paid."""

    def __init__(self) -> None:
        self._items: list[str] = []

    async def run(self, ctx: Context) -> list[str]:
        await ctx.wait_for("pay")
        return self._items

    @temporalio.workflow.signal
    def add(self, item: str) -> None:
        self._items.append(item)

    @temporalio.workflow.query
    def items(self) -> list[str]:
        return self._items

    @temporalio.workflow.update
    async def price(self, each: int) -> int:
        return each * len(self._items)
