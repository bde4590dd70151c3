"""Bookings that a test holds up, so that a cancel comes while they are made or undone."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from temporalio import workflow as temporal
from temporalio.exceptions import ActivityError

from engine import CompensationFailed, Context, FatalError, Retry, Undo, step, undo, workflow

DID: list[str] = []
GATES: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
"""What lets the bookings, and the undo steps, of a place that is ``held`` go on."""


@step(name="late-book", retry=Retry(max_attempts=1))
async def book(what: str) -> str:
    DID.append(f"book {what}")
    if what.startswith("slow"):
        await GATES[what].wait()
    if what.startswith("full"):
        raise FatalError(f"{what} is full")
    return f"no. {what}"


@undo(name="late-cancel", retry=Retry(max_attempts=1))
async def cancel(undo: Undo[str, str | None]) -> None:
    if "held" in undo.input:
        DID.append(f"cancelling {undo.input}")
        await GATES[undo.input].wait()
    if "stuck" in undo.input:
        raise FatalError(f"{undo.input} cannot be cancelled")
    DID.append(f"cancel {undo.input} ({undo.result})")


@workflow(name="late-trip")
class Trip:
    """Tries one place after the other, as docs/workflows.md shows it."""

    async def run(self, ctx: Context, places: list[str]) -> str:
        await ctx.step(book, "flight", compensate=cancel)
        for place in places:
            try:
                async with ctx.saga():
                    await ctx.step(book, place, compensate=cancel)
            except (ActivityError, CompensationFailed):
                continue
            return place
        raise FatalError("no place")

    @temporal.signal
    async def abort(self) -> None:
        raise FatalError("told to stop")


@workflow(name="late-branch")
class Branch:
    """Tries places in a branch of its own, which it stops when it is told to."""

    async def run(self, ctx: Context, places: list[str]) -> str:
        trip = asyncio.create_task(Trip().run(ctx, places))
        await ctx.wait_for("stop")
        trip.cancel()
        try:
            return await trip
        except asyncio.CancelledError:
            return await ctx.step(book, "home", compensate=cancel)


@workflow(name="late-limit")
class Limit:
    """Gives the first place a second, which passes while its booking is undone."""

    async def run(self, ctx: Context, places: list[str]) -> str:
        try:
            async with asyncio.timeout(1):
                return await Trip().run(ctx, places)
        except TimeoutError:
            return await ctx.step(book, "home", compensate=cancel)


@workflow(name="late-failure")
class Failure:
    """Fails, and could be tried again."""

    async def run(self, ctx: Context, what: str) -> None:
        await ctx.step(book, what, compensate=cancel)
        raise LookupError("as planned")


@workflow(name="late-elsewhere")
class Elsewhere:
    """Books on the workers of another task queue."""

    async def run(self, ctx: Context, task_queue: str) -> str:
        return await ctx.step(book, "slow", compensate=cancel, task_queue=task_queue)


@workflow(name="late-child")
class Child:
    """Books, and waits for ever."""

    async def run(self, ctx: Context, what: str) -> None:
        await ctx.step(book, what, compensate=cancel)
        await ctx.wait_for("never")


@workflow(name="late-parent")
class Parent:
    """Has its child on the workers of another task queue."""

    async def run(self, ctx: Context, what: str) -> None:
        await ctx.child(Child, what, id="child", task_queue="elsewhere", compensate=cancel)


ALL: list[Any] = [Trip, Branch, Limit, Failure, Elsewhere, Child, Parent]
STEPS: list[Any] = [book, cancel]
