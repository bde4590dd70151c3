"""Inputs and results are pydantic models wherever ``sched`` runs the worker."""

from __future__ import annotations

import pytest

from tests.acceptance.fleet import Books, Fleet
from tests.acceptance.home import Home
from tests.servers import shared_folder
from tests.waiting import eventually

CODE = """
from __future__ import annotations

from decimal import Decimal

from temporalio.workflow import unsafe

from engine import Context, step, workflow

with unsafe.imports_passed_through():
    from pydantic import BaseModel


class Order(BaseModel):
    price: Decimal
    more: dict[str, object] = {}


@step
async def double(order: Order) -> Order:
    return Order(price=order.price * 2, more=order.more)


@workflow
class Sell:
    async def run(self, ctx: Context, order: Order) -> Order:
        doubled = await ctx.step(double, order)
        if doubled != Order(price=Decimal("2.50"), more={"for": "Ana"}):
            raise AssertionError(repr(doubled))
        return doubled
"""
SCHEDULES = """
schedules:
  - {key: sell, workflow: sell, everyMs: 1000, input: {price: "1.25", more: {for: Ana}}}
"""


async def test_a_worker_reads_and_writes_models(fleet: Fleet, books: Books):
    (fleet.folder / "selling.py").write_text(CODE)
    await fleet.start(SCHEDULES, SCHED_IMPORTS="selling")

    async def closed() -> list[tuple[str, str | None]]:
        rows = await books.fires()
        return [(row["status"], row["error"]) for row in rows if row["closed_at"]]

    assert set(await eventually(closed, timeout=60)) == {("completed", None)}


@pytest.mark.prove
async def test_sched_up_reads_and_writes_models():
    with shared_folder() as folder:
        home = Home(folder, example=False)
        (folder / "selling.py").write_text(CODE)
        home.schedules.write_text(SCHEDULES)
        await home.up("--import", "selling")

        async def closed() -> list[tuple[object, object]]:
            return [(e["status"], e["error"]) for e in await home.fires() if e["closedAt"]]

        try:
            assert set(await eventually(closed, timeout=90)) == {("completed", None)}
        finally:
            assert await home.stop() == 0
