"""The workflows of test_together.py and test_waiting_runs.py."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pydantic
import temporalio.workflow
from temporalio import activity
from temporalio.exceptions import ChildWorkflowError

from engine import Context, FatalError, Retry, step, undo, workflow

BEGUN: list[str] = []
"""What began, in order; the test and its steps share a process."""


class Approval(pydantic.BaseModel):
    by: str
    amount: int = 0


@dataclass
class Work:
    parts: list[str] = field(default_factory=list)
    limit: int | None = None


@dataclass
class Busy:
    now: int = 0
    most: int = 0


BUSY = Busy()


@step(timeout=30, retry=Retry(max_attempts=1))
async def do(part: str) -> str:
    BEGUN.append(part)
    BUSY.now += 1
    BUSY.most = max(BUSY.most, BUSY.now)
    try:
        if part == "fails":
            raise LookupError("no such part")
        if part == "waits" or (part == "waits once" and BEGUN.count(part) == 1):
            await asyncio.Event().wait()
        await asyncio.sleep(0.02)  # so that others may begin meanwhile
    finally:
        if activity.is_cancelled():
            BEGUN.append(f"{part} stopped")
        BUSY.now -= 1
    return part.upper()


@undo(name="undo")
async def undo_part(part: str) -> None:
    BEGUN.append(f"undo {part}")


@workflow
class Parallel:
    async def run(self, ctx: Context, work: Work) -> list[str]:
        steps = [ctx.step(do, each, compensate=undo_part) for each in work.parts]
        return await ctx.parallel(steps, limit=work.limit)


@workflow
class Part:
    async def run(self, ctx: Context, part: str) -> str:
        return await ctx.step(do, part, compensate=undo_part)


@workflow
class Whole:
    """Children beside each other, each a run of its own."""

    async def run(self, ctx: Context, work: Work) -> list[str]:
        return await ctx.parallel([ctx.child(Part, each) for each in work.parts])


@workflow
class OneByOne:
    async def run(self, ctx: Context, work: Work) -> list[str]:
        return [await ctx.child(Part, each) for each in work.parts]


@step(timeout=30, retry=Retry(max_attempts=1))
async def fail_once_begun(part: str) -> None:
    while part not in BEGUN:  # noqa: ASYNC110 - a list has no signal
        await asyncio.sleep(0.01)
    raise LookupError("no such part")


@undo(retry=Retry(max_attempts=1))
async def undo_nothing(part: str) -> None:
    raise RuntimeError(f"{part} is stuck")


@workflow
class Stuck:
    async def run(self, ctx: Context) -> None:
        await ctx.step(do, "waits", compensate=undo_nothing)


@workflow
class EndsAllTheSame:
    async def run(self, ctx: Context) -> str:
        try:
            await ctx.step(do, "waits")
        except asyncio.CancelledError:
            return "done all the same"
        return "never"


@workflow
class Parent:
    """A run that would go on without its child, or gives it a while only."""

    async def run(self, ctx: Context, how: str) -> Any:
        if how == "gather":
            return await asyncio.gather(
                ctx.child(Part, "waits"), ctx.step(fail_once_begun, "waits", compensate=undo_part)
            )
        if how == "patience":
            try:
                async with asyncio.timeout(0.5):
                    await ctx.child(Part, "waits")
            except TimeoutError:
                return "nobody waited"
        child: Any = {"part": Part, "stuck": Stuck, "ends": EndsAllTheSame}[how]
        try:
            await (ctx.child(child, "waits") if child is Part else ctx.child(child))
        except ChildWorkflowError:
            ctx.log.info("going on without it")
        return await ctx.step(do, "after")


@workflow(retry=Retry(max_attempts=3, initial_interval=0.01))
class BeginsAgain:
    async def run(self, ctx: Context, ends: str) -> int:
        attempt = temporalio.workflow.info().attempt
        if ends == "fatal":
            raise FatalError(f"attempt {attempt}")
        if attempt < 3:
            raise ConnectionError(f"attempt {attempt}")
        return attempt


class Declined(FatalError): ...


class Broken(LookupError): ...


@step(retry=Retry(max_attempts=2, initial_interval=0.01))
async def decline(why: str) -> None:
    BEGUN.append(why)
    raise Declined(why) if why == "declined" else Broken(why)


@workflow(retry=Retry(max_attempts=3, initial_interval=0.01, give_up_on=[LookupError, "Broken"]))
class GivesUp:
    """Fails in many ways of which none is better the next time."""

    async def run(self, ctx: Context, how: str) -> None:
        attempt = temporalio.workflow.info().attempt
        if how == "raises a subclass":
            raise Broken(f"attempt {attempt}")
        if how == "in a group":
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step(decline, "declined"))
        if how == "in a child":
            await ctx.child(BeginsAgain, "fatal")
        await ctx.step(decline, how)


@workflow(timeout=1)
class TakesTooLong:
    async def run(self, ctx: Context) -> None:
        await ctx.sleep(3600)


@temporalio.workflow.defn(name="PlainChild")
class PlainChild:
    @temporalio.workflow.run
    async def run(self, name: str) -> str:
        return f"plain {name}"


@workflow
class Family:
    """Whatever may be a child: a class of ours, a plain one, a type by name."""

    async def run(self, ctx: Context, of: str) -> Any:
        if of in {"again", "fatal"}:
            return await ctx.child(BeginsAgain, of)
        if of.startswith("gives up: "):
            return await ctx.child(GivesUp, of.removeprefix("gives up: "))
        if of == "too long":
            return await ctx.child(TakesTooLong)
        if of == "no workflow":
            return await ctx.child(Work)  # type: ignore[arg-type]
        if of == "without":
            return await ctx.child(Part)  # type: ignore[arg-type]
        return [
            await ctx.child("part@1", "named", result_type=str),
            await ctx.child("PlainChild", "named"),
        ]


@workflow
class Approved:
    """Waits for two approvals, the second for a while only."""

    async def run(self, ctx: Context, patience: float) -> list[Any]:
        await ctx.sleep(0.01)
        first = await ctx.wait_for("approve", Approval)
        said = await ctx.wait_for("anything")
        try:
            second = await ctx.wait_for("approve", Approval, timeout=patience)
        except TimeoutError:
            return [first.by, said, "nobody"]
        return [first.by, said, second.by]


@workflow
class Twice:
    """Two branches wait for signals of one name."""

    async def run(self, ctx: Context) -> list[Any]:
        return await ctx.parallel([ctx.wait_for("go on"), ctx.wait_for("go on")])


@workflow
class HandledTwice:
    @temporalio.workflow.signal
    def approve(self) -> None: ...

    async def run(self, ctx: Context) -> None:
        await ctx.wait_for("approve")


@workflow
class Calendar:
    """Chance, ids and time, as a run sees them."""

    async def run(self, ctx: Context) -> list[Any]:
        drawn = [ctx.random().random(), str(ctx.uuid())]
        begin = ctx.now()
        await ctx.sleep(timedelta(seconds=1))
        await ctx.sleep(0)
        await ctx.sleep_until(begin + timedelta(seconds=2))
        await ctx.sleep_until(datetime(2001, 1, 1, tzinfo=UTC))
        slept = (ctx.now() - begin).total_seconds()
        ctx.progress(1, 3, "one of three")
        await ctx.wait_for("go on")
        ctx.progress(3, 3)
        return [*drawn, slept]


@workflow
class Naive:
    async def run(self, ctx: Context) -> None:
        await ctx.sleep_until(datetime(2027, 1, 1))  # noqa: DTZ001 - what is refused


@workflow
class Impatient:
    """Waits for a signal that does not come, and does not expect that."""

    async def run(self, ctx: Context) -> None:
        await ctx.wait_for("approve", timeout=0.05)


@workflow
class ForgetsToAwait:
    async def run(self, ctx: Context, awaited: list[str]) -> None:
        for part in awaited:
            await ctx.step(do, part, compensate=undo_part)
        ctx.step(do, "forgotten")  # type: ignore[unused-coroutine] # mypy sees it as well


ALL: list[Any] = [
    Parallel, Part, Whole, BeginsAgain, TakesTooLong, PlainChild, Family, Approved, HandledTwice,
    Calendar, Naive, Impatient, ForgetsToAwait, Parent, Stuck, EndsAllTheSame, Twice, GivesUp,
    OneByOne,
]  # fmt: skip
STEPS: list[Any] = [do, undo_part, undo_nothing, fail_once_begun, decline]
