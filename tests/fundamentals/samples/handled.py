"""Workflows with handlers of signals and updates, and waits for signals of a type."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from temporalio import workflow as temporal

from engine import Context, FatalError, Retry, step, undo, workflow

DID: list[str] = []


@step(name="handled-charge")
async def charge(what: str) -> None:
    DID.append(f"charge {what}")


@undo(name="handled-refund", retry=Retry(max_attempts=1))
async def refund(what: str) -> None:
    if what == "kept":
        raise FatalError("the bank keeps it")
    DID.append(f"refund {what}")


@workflow(name="handled")
class Handled:
    """Charges, and waits; handlers may charge too, and may fail."""

    async def run(self, ctx: Context, what: str) -> str:
        self.ctx = ctx
        await ctx.step(charge, what, compensate=refund)
        if what == "patient":
            try:
                await ctx.wait_for("go")
            except asyncio.CancelledError:
                return "swallowed"
        await ctx.wait_for("go")
        return "done"

    @temporal.signal
    async def abort(self, how: str) -> None:
        if how == "step":
            await self.ctx.step(charge, "more", compensate=refund)
        kinds = {"fatal": FatalError, "runtime": RuntimeError, "value": ValueError}
        raise kinds.get(how, FatalError)("told to stop")

    @temporal.signal
    async def slowly(self) -> None:
        await self.ctx.sleep(0.2)
        await self.ctx.step(charge, "late")

    @temporal.update
    async def add(self, how: str) -> str:
        await self.ctx.step(charge, "added", compensate=refund)
        if how == "refused":
            raise FatalError("not this one")
        if how == "bug":
            raise LookupError("a bug")
        return "added"


@workflow(name="handled-adder")
class Adder:
    """Adds the numbers that come as signals, until 0 comes; says what is pending at the start."""

    async def run(self, ctx: Context) -> list[int]:
        found = [await ctx.pending("number")]
        try:
            found.append(await ctx.wait_for("number", int, timeout=0))
        except TimeoutError:
            found.append(-1)
        while number := await ctx.wait_for("number", int):
            found.append(number)
        return found


@workflow(name="handled-loop")
class Loop:
    """Adds three numbers a run, in a chain of runs, until none comes for a while."""

    async def run(self, ctx: Context, total: int = 0) -> int:  # noqa: RET503 - it never returns
        for _ in range(3):
            try:
                total += await ctx.wait_for("number", int, timeout=2)
            except TimeoutError:
                return total
        await ctx.continue_as_new(self, total)


@workflow(name="handled-chain")
class Chain:
    """Charges in each run of a chain of three, of which the last one fails."""

    async def run(self, ctx: Context, given: list[Any]) -> str:
        number, undo = given
        if number == 3:
            raise LookupError("the end of the chain")
        await ctx.step(charge, f"run {number}", compensate=refund)
        await ctx.continue_as_new(self, [number + 1, undo], **({"undo": undo} if undo else {}))


@workflow(name="handled-relay")
class Relay:
    """Continues after its first number, while a handler is at work; then it fails with the sum."""

    async def run(self, ctx: Context, total: int) -> None:
        self.ctx = ctx
        while number := await ctx.wait_for("number", int):
            if not total:
                await ctx.continue_as_new(self, number, undo="carry")
            total += number
        raise LookupError(str(total))

    @temporal.signal
    async def slowly(self) -> None:
        await self.ctx.wait_for("go")
        await self.ctx.step(charge, "late", compensate=refund)


@workflow(name="handled-pivot")
class Pivot:
    """Fails behind a commit, with an undo that no step has."""

    async def run(self, ctx: Context, last: str) -> None:
        await ctx.step(charge, "before", compensate=refund)
        ctx.on_failure(refund, "forgotten")
        ctx.commit()
        await ctx.step(charge, "after", compensate=refund)
        ctx.on_failure(refund, "registered")
        await ctx.step(charge, last, compensate=refund)
        if last == "exit":
            sys.exit(3)
        raise ArithmeticError


ALL = [Handled, Adder, Loop, Chain, Relay, Pivot]
STEPS: list[Callable[..., Any]] = [charge, refund]
