"""The application under attack: workflows of every kind, and steps that note what they did.

A step appends to a file of its process, and not to a database: a note is there once it was
written, whichever server is away and however the process ends. Its times are those of the
machine's own clock (CLOCK_BOOTTIME), which all processes share.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

from temporalio import activity, workflow as temporal

with temporal.unsafe.imports_passed_through():
    from engine import Context, Retry, step, step_info, workflow
    from tests.nemesis.notes import NOTES


def share(number: int) -> float:
    """A number from 0 to 1 that looks drawn, and is always the same for this one."""
    return number * 2654435761 % 2**32 / 2**32


def between(spans: dict[str, float], number: int) -> float:
    return spans["least"] + share(number) * (spans["most"] - spans["least"])


def _note(event: str, queue: str | None) -> None:
    info = activity.info()
    line = {
        "event": event,
        "at": time.clock_gettime(time.CLOCK_BOOTTIME),
        "pid": os.getpid(),
        "step": info.activity_type,
        "queue": queue,
        "workflow_id": info.workflow_id,
        "run_id": info.workflow_run_id,
        "place": info.activity_id,
        "attempt": info.attempt,
        "effect": step_info().idempotency_key,
    }
    with open(os.path.join(os.environ[NOTES], f"{os.getpid()}.jsonl"), "ab", buffering=0) as file:  # noqa: PTH118, PTH123 - pathlib is not needed in the sandbox
        file.write(json.dumps(line).encode() + b"\n")


async def _lasts(seconds: float, queue: str | None = None) -> None:
    _note("begins", queue)
    try:
        await asyncio.sleep(seconds)
    finally:
        _note("ends", queue)


@step(heartbeat=4, timeout=30)
async def effect(number: int) -> int:
    """Has its effect; every eleventh call fails once before."""
    if number % 11 == 0 and activity.info().attempt == 1:
        raise RuntimeError("the first attempt of this call fails")
    await _lasts(0.01)
    return number


@step(queue="narrow", heartbeat=4, timeout=30)
async def narrow(number: int) -> None:
    await _lasts(0.5 + share(number), "narrow")


@workflow(name="effects", version="1")
class Effects:
    """Has so many effects, one after another."""

    async def run(self, ctx: Context, given: dict[str, Any]) -> None:
        for number in range(given.get("steps", 1)):
            await ctx.step(effect, ctx.fire.bucket + number)


@workflow(name="lasts", version="1")
class Lasts:
    """Stays open for a while."""

    async def run(self, ctx: Context, given: dict[str, Any]) -> None:
        await ctx.sleep(between(given, ctx.fire.bucket))
        await ctx.step(effect, 1)


@workflow(name="fails", version="1")
class Fails:
    """Fails in one window of so many."""

    async def run(self, ctx: Context, given: dict[str, Any]) -> None:
        await ctx.step(effect, 1)
        if ctx.fire.bucket % given["of"] == 0:
            raise ValueError("it is this window's turn to fail")


@workflow(name="retries", version="1", retry=Retry(max_attempts=3, initial_interval=1))
class Retries:
    """Begins again up to twice; in one window of four that is not enough."""

    async def run(self, ctx: Context, given: dict[str, Any]) -> None:
        await ctx.step(effect, 1)
        if temporal.info().attempt <= ctx.fire.bucket % 4:
            raise ValueError("not at this attempt")


@workflow(name="continues", version="1")
class Continues:
    """Continues as new a few times, or for ever, with or without a memo of its own."""

    async def run(self, ctx: Context, given: dict[str, Any]) -> None:
        await ctx.sleep(given["seconds"])
        await ctx.step(effect, 1)
        link = given.get("link", 1)
        if link == given.get("links"):
            return
        memo = {"link": link} if given.get("memo") else None
        temporal.continue_as_new({**given, "link": link + 1}, memo=memo)


@workflow(name="has-children", version="1")
class HasChildren:
    """Waits for two children."""

    async def run(self, ctx: Context, given: dict[str, Any]) -> None:
        for number in range(2):
            await ctx.child(Child, {"number": number})


@workflow(name="child", version="1")
class Child:
    async def run(self, ctx: Context, given: dict[str, Any]) -> None:
        await ctx.step(effect, given["number"] + 1)


@workflow(name="deaf", version="1")
class Deaf:
    """Stays open longer than its interval, and goes on for a while after it was cancelled."""

    async def run(self, ctx: Context, given: dict[str, Any]) -> None:
        try:
            await ctx.sleep(given["seconds"])
        except asyncio.CancelledError:
            deaf = 12.0 if ctx.fire.bucket % 4 == 0 else 1.5
            await asyncio.shield(asyncio.create_task(temporal.sleep(deaf)))
            raise


@workflow(name="queued", version="1")
class Queued:
    """Has steps that wait for places which all runs share."""

    async def run(self, ctx: Context, given: dict[str, Any]) -> None:
        await ctx.parallel([ctx.step(narrow, ctx.fire.bucket + n) for n in range(given["steps"])])


@workflow(name="hears", version="1")
class Hears:
    """Is told of what ended badly."""

    async def run(self, ctx: Context, letter: dict[str, Any]) -> str:
        await ctx.step(effect, 1)
        return f"{letter['workflow_id']} {letter['status']}"
