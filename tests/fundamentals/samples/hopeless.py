"""Steps that can never succeed, and steps without a retry rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from temporalio import activity

from engine import FOREVER, Context, Retry, step, undo, workflow

CALLS: Counter[str] = Counter()


@undo(name="hopeless-large", retry=FOREVER)
async def large() -> str:
    CALLS["large"] += 1
    return "x" * 3_000_000


@step(name="hopeless-strange", retry=FOREVER)
async def strange() -> object:
    CALLS["strange"] += 1
    return object()


@step(name="hopeless-number", retry=FOREVER)
async def number(value: int) -> None:
    CALLS["number"] += 1


@undo(name="hopeless-away", retry=Retry(initial_interval=0.01, backoff=1))
async def away() -> None:
    CALLS["away"] += 1
    raise ConnectionError("away")


@step(name="hopeless-listed", retry=Retry(intervals=[0.01, 0.01]))
async def listed() -> None:
    CALLS["listed"] += 1
    raise ConnectionError("away")


@step(name="hopeless-plain")
async def plain() -> None:
    """Has no rule of its own."""


@undo(name="hopeless-undone")
async def undone() -> None:
    CALLS["undone"] += 1


@workflow(name="hopeless")
class Hopeless:
    """Makes one step of the given kind."""

    async def run(self, ctx: Context, kind: str) -> object:
        if kind in {"its result", "next input"}:
            await ctx.step(plain, compensate=undone)
            if kind == "next input":
                await ctx.continue_as_new(self, object(), undo="carry")  # type: ignore[call-overload] # the point
            return object()
        if kind == "large undo":
            await ctx.step(plain, compensate=large)
            await ctx.continue_as_new(self, "fails", undo="carry")
        if kind == "fails":
            raise LookupError("undo it")
        if kind == "undo":
            await ctx.step(plain, compensate=away)
            raise LookupError("undo it")
        if kind == "another undo":
            await ctx.step(text, "no number", compensate=number)  # type: ignore[call-overload] # the point
            raise LookupError("undo it")
        if kind == "elsewhere":
            await ctx.step(there, compensate=back_there, task_queue="hopeless-elsewhere")
            raise LookupError("undo it")
        if kind == "deadline":
            await ctx.step(away, retry=FOREVER, deadline=1.5)
        if kind == "number":
            await ctx.step(number, "no number")  # type: ignore[misc] # the point
        steps: dict[str, Any] = {"large": large, "strange": strange, "away": away, "listed": listed}
        return await ctx.step(steps.get(kind, plain))


@step(name="hopeless-there")
async def there() -> None:
    CALLS[activity.info().task_queue] += 1


@undo(name="hopeless-back-there")
async def back_there() -> None:
    CALLS[activity.info().task_queue] += 1


@step(name="hopeless-text")
async def text(value: str) -> None:
    """Takes a text."""


ALL = [Hopeless]
STEPS: list[Callable[..., Any]] = [large, strange, number, away, listed, plain, undone, text]
