"""The steps of test_sagas.py: each leaves a line in a journal in PostgreSQL."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from temporalio.exceptions import ApplicationError

from engine import Retry, step, undo
from tests.fundamentals.samples.stored import STORED
from tests.waiting import eventually

TABLE = "CREATE TABLE IF NOT EXISTS journal (id serial PRIMARY KEY, line text NOT NULL)"


@dataclass
class Order:
    """What to do, and at which step what goes wrong."""

    number: int = 7
    fails_at: str = ""
    waits_at: str = ""
    undo_fails_at: str = ""
    undo_waits_at: str = ""
    fails_after: str = ""


async def write(line: str) -> None:
    await STORED.pool.execute("INSERT INTO journal (line) VALUES ($1)", line)


async def lines() -> list[str]:
    return [row["line"] for row in await STORED.pool.fetch("SELECT * FROM journal ORDER BY id")]


async def act(name: str, order: Order) -> None:
    if order.fails_at == name and order.fails_after:
        await eventually(partial(_written, order.fails_after))
    await write(name)
    if order.waits_at == name:
        try:
            await asyncio.Event().wait()
        finally:
            # What a cancelled step still does on its way out happens before any undo.
            await write(f"{name} stopped")
    if order.fails_at == name:
        raise ApplicationError(f"{name} failed for order {order.number}", non_retryable=True)


async def take_back(name: str, order: Order) -> None:
    if order.undo_fails_at == name:
        await write(f"cannot {name}")
        raise ApplicationError(f"{name} failed, too", non_retryable=True)
    if order.undo_waits_at == name:
        await write(f"{name} begins")
        await eventually(partial(_written, "go on"))
    await write(name)


async def _written(line: str) -> bool:
    return line in await lines()


@step
async def reserve(order: Order) -> str:
    await act("reserve", order)
    return f"reservation {order.number}"


@undo
async def release(order: Order) -> None:
    await take_back("release", order)


@step
async def charge(order: Order) -> None:
    await act("charge", order)


@undo
async def refund(order: Order) -> None:
    await take_back("refund", order)


@step
async def notify(order: Order) -> None:
    await act("notify", order)


@undo
async def retract() -> None:
    """Undo ``notify``: an undo may do without the input."""
    await write("retract")


@step
async def stubborn(order: Order) -> None:
    """Hear of a cancel, and finish all the same."""
    await write("stubborn")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await write("stubborn finished")


@undo(retry=Retry(max_attempts=3, initial_interval=0.01))
async def flaky_undo(order: Order) -> None:
    """Succeed with the third attempt."""
    await write("try")
    if (await lines()).count("try") < 3:
        raise ConnectionError("not yet")


SYNC_STEP_RUNS = threading.Event()


@step(heartbeat=2)
def sync_wait() -> None:
    """Wait in a thread of the pool until cancelled."""
    SYNC_STEP_RUNS.set()
    while True:
        threading.Event().wait(0.02)


ALL: list[Callable[..., Any]] = [
    reserve, release, charge, refund, notify, retract, stubborn, flaky_undo, sync_wait,
]  # fmt: skip
