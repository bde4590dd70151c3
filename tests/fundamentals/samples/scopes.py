"""Bookings whose undo steps see what was booked, in parts of a run and in children."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import workflow as temporal

from engine import Context, FatalError, Retry, Undo, step, step_info, undo, workflow

with temporal.unsafe.imports_passed_through():  # the test edits what the steps do by it
    from tests.fundamentals.samples.mended import NOW
    from tests.fundamentals.samples.stored import STORED

TABLE = """
CREATE TABLE IF NOT EXISTS bookings (
    key text PRIMARY KEY, what text NOT NULL, cancelled_by text, receipt text,
    n int GENERATED ALWAYS AS IDENTITY
)
"""


@dataclass
class Receipt:
    """What a booking returns."""

    number: str


async def write(statement: str, *values: object) -> None:
    await STORED.pool.execute(statement, *values)


@step(name="scopes-book", retry=Retry(max_attempts=1))
async def book(what: str) -> Receipt:
    await write(
        "INSERT INTO bookings VALUES ($1, $2) ON CONFLICT (key) DO NOTHING",
        step_info().idempotency_key, what,
    )  # fmt: skip
    if what in NOW.lost:
        raise FatalError(f"the answer of {what} is lost")
    return Receipt(f"no. {what}")


@undo(name="scopes-cancel", retry=Retry(max_attempts=1))
async def cancel(undo: Undo[str, Receipt | None]) -> None:
    """Cancel a booking, by its receipt if there is one."""
    if undo.input in NOW.stuck:
        raise FatalError(f"{undo.input} cannot be cancelled")
    receipt = undo.result.number if undo.result else "none"
    info = step_info()
    await write(
        "INSERT INTO bookings VALUES ($1, $2, 'itself', $3) ON CONFLICT (key) DO NOTHING",
        info.idempotency_key, f"cancel {undo.input}", receipt,
    )  # fmt: skip
    await write("UPDATE bookings SET cancelled_by = 'undo' WHERE key = $1", info.undoes)


@undo(name="scopes-cancel-trip", retry=Retry(max_attempts=1))
async def cancel_trip(undo: Undo[str, list[str] | None]) -> None:
    """Cancel what a child has booked."""
    for number in undo.result or ["no. " + undo.input]:
        await write(
            "UPDATE bookings SET cancelled_by = 'parent', receipt = $2 WHERE what = $1"
            " AND cancelled_by IS NULL",
            number.removeprefix("no. "), number,
        )  # fmt: skip


@step(name="scopes-fail", retry=Retry(max_attempts=1))
async def fail(why: str) -> None:
    if NOW.shop_is_mended:
        return
    raise FatalError(why)


async def hold(ctx: Context, what: str, seconds: float) -> str:
    await ctx.step(book, what, compensate=cancel)
    await ctx.sleep(seconds)
    if what == "fully booked":
        raise FatalError(what)
    return what


@workflow(name="scopes-race")
class Race:
    """Holds several things at once, and keeps the one that is certain first."""

    async def run(self, ctx: Context, wanted: dict[str, float]) -> str:
        await ctx.step(book, "flight", compensate=cancel)
        held, all_held = list[str](), asyncio.Event()

        async def together(what: str) -> str:
            found = await hold(ctx, what, 0)
            held.append(found)
            if len(held) == len(wanted):
                all_held.set()
            await all_held.wait()
            return found

        if not any(wanted.values()):
            return await ctx.race(*map(together, wanted))
        return await ctx.race(*(hold(ctx, *each) for each in wanted.items()))


@workflow(name="scopes-patience")
class Patience:
    """Waits for a room, but not for ever."""

    async def run(self, ctx: Context, seconds: float) -> str:
        try:
            async with ctx.saga(timeout=seconds):
                return await hold(ctx, "room", 3600)
        except TimeoutError:
            return "no room"


@workflow(name="scopes-trip")
class Trip:
    """Tries a hotel, and takes the other one if it cannot."""

    async def run(self, ctx: Context, hotels: list[str]) -> str:
        await ctx.step(book, "flight", compensate=cancel)
        for hotel in hotels:
            try:
                async with ctx.saga():
                    await ctx.step(book, "room", compensate=cancel)
                    await ctx.step(book, hotel, compensate=cancel)
                    if hotel != hotels[-1]:
                        await ctx.step(fail, f"{hotel} is full")
            except Exception as error:  # noqa: BLE001 - whatever it is, another hotel is tried
                ctx.log.info("%s", error)
            else:
                return hotel
        raise FatalError("no hotel")


@workflow(name="scopes-fails-later", compensate_on_terminate=True)
class FailsLater:
    """Books in two parts, waits, and fails."""

    async def run(self, ctx: Context, parallel: bool) -> None:  # noqa: FBT001 - an input
        await ctx.step(book, "first", compensate=cancel)
        async with ctx.saga(parallel=parallel):
            await ctx.step(book, "second", compensate=cancel)
            await ctx.child(Child, "child", compensate=cancel_trip)
        await ctx.step(book, "third", compensate=cancel)
        await ctx.wait_for("go")
        await ctx.step(fail, "it failed")


@workflow(name="scopes-child")
class Child:
    """Books, and may fail after that."""

    async def run(self, ctx: Context, what: str) -> list[str]:
        receipt = await ctx.step(book, what, compensate=cancel)
        if what in NOW.first:
            await ctx.wait_for("never")
        return [receipt.number]


@workflow(name="scopes-ended-child")
class EndedChild:
    """Has a child that ends badly, in one of several ways."""

    async def run(self, ctx: Context, seconds: float) -> None:
        limit = timedelta(seconds=seconds) if seconds else None
        await ctx.child(Child, "child", compensate=cancel_trip, timeout=limit)


ALL: list[Any] = [Race, Patience, Trip, FailsLater, Child, EndedChild]
STEPS: list[Any] = [book, cancel, cancel_trip, fail]
