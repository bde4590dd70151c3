"""Chains of runs that carry their undo steps over, with a retry rule."""

from __future__ import annotations

from typing import Any

from temporalio import workflow as temporal

from engine import Context, FatalError, Retry, step, step_info, undo, workflow

DID: list[str] = []
KEYS: list[str] = []
"""The idempotency keys of the undo steps."""


@step(name="carried-note")
async def note(what: str) -> None:
    DID.append(what)


@step(name="carried-charge")
async def charge(what: str) -> None:
    DID.append(f"charge {what}")


@undo(name="carried-refund", retry=Retry(initial_interval=0.1, max_attempts=None))
async def refund(what: str) -> None:
    KEYS.append(step_info().idempotency_key)
    if what == "never":
        raise LookupError("the bank is away")
    DID.append(f"refund {what}")


@step(name="carried-ship", retry=Retry(max_attempts=1))
async def ship(what: str) -> None:
    DID.append(f"ship {what}")
    raise LookupError("the lorry is away")


@workflow(name="carried-order")
class Order:
    """Charges in its first run, and fails in each try of the second one but the last."""

    async def run(self, ctx: Context, given: list[str]) -> None:
        way, part = given
        if part == "charge":
            if way != "nothing to undo":
                await ctx.step(charge, "a book", compensate=refund)
            await ctx.continue_as_new(self, [way, "ship"], undo="carry")
        attempt = temporal.info().attempt
        await ctx.step(note, f"try {attempt}")
        if way == "committed" and attempt == 1:
            ctx.commit()
        if way == "a step fails":
            await ctx.step(ship, "a book")
        if way == "a child is cancelled":
            await ctx.child(Waits, id="child")
        if attempt < 3:
            raise ArithmeticError(way)


@workflow(name="carried-waits")
class Waits:
    async def run(self, ctx: Context) -> None:
        await ctx.wait_for("never")


@workflow(name="carried-alone")
class Alone:
    """Carries an undo that belongs to no step over, and fails."""

    async def run(self, ctx: Context, what: str) -> None:
        if not what:
            raise FatalError("as planned")
        ctx.on_failure(refund, what, idempotency_key=f"key of {what}", deadline=2)
        await ctx.continue_as_new(self, "", undo="carry")


ALL: list[Any] = [Order, Waits, Alone]
STEPS: list[Any] = [note, charge, refund, ship]
