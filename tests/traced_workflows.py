"""A workflow that retries a step, fails in the next one, and undoes the first."""

from __future__ import annotations

import asyncio
import os
import signal

from temporalio import activity

from engine import Context, FatalError, Retry, step, undo, workflow
from engine.runtime import Setup
from tests.waiting import eventually

AT_ONCE = Retry(max_attempts=3, initial_interval=0.1)


@step(retry=AT_ONCE)
async def hold_room() -> None:
    if activity.info().attempt == 1:
        raise RuntimeError("no answer")


@undo
async def free_room() -> None:
    """Undo of ``hold_room``."""


@step(heartbeat=1, retry=AT_ONCE)
async def bill_room(signalled: str) -> None:
    """In its first attempt the worker gets a signal, once the test has left a file."""
    if signalled and activity.info().attempt == 1:
        await eventually(lambda: os.access(os.environ["TRACED_GO_ON"], os.F_OK), timeout=60)
        os.kill(os.getpid(), signal.Signals[signalled])
        await asyncio.sleep(60)
    raise FatalError("no such card")


@workflow(name="traced", version="1")
class Traced:
    async def run(self, ctx: Context, signalled: str) -> None:
        await ctx.step(hold_room, compensate=free_room)
        await ctx.step(bill_room, signalled)


def forgetful() -> Setup:
    """A worker that replays the whole run for each of its tasks."""
    return Setup(max_cached_workflows=0)


@step(queue="narrow")
async def greet_guest(name: str) -> None:
    """A step that runs on the worker of a queue."""


@workflow(name="traced-child", version="1")
class TracedChild:
    async def run(self, ctx: Context, left: int) -> None:
        await ctx.step(greet_guest, f"guest {left}")
        if left:
            await ctx.continue_as_new(self, left - 1)


@workflow(name="traced-family", version="1")
class TracedFamily:
    async def run(self, ctx: Context) -> None:
        await ctx.child(TracedChild, 1)
