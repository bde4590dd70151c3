"""Workflows whose promises are asked for outside of the coroutine of ``run``."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import temporalio.workflow
from temporalio.exceptions import ActivityError, WorkflowAlreadyStartedError

from engine.flow import Context, FatalError, Retry, Undo, step, step_info, undo, workflow

DID: list[str] = []
BANK: dict[str, str] = {}
"""What a system did that does each idempotency key once."""
RESULTS: dict[str, Any] = {}
"""What `outside-answer` returns, if not its input."""


@dataclass
class Trip:
    """A value that a run goes on changing."""

    number: int = 0
    stops: list[str] = field(default_factory=list)


@dataclass
class Approval:
    """The value of a signal."""

    by: str


@step(name="outside-answer")
async def answer(what: str) -> int:
    DID.append(f"answer {what}")
    return cast("int", RESULTS.get(what, 7))


@step(name="outside-book")
async def book(trip: Trip) -> Trip:
    DID.append(f"book {trip.number}")
    return trip


@undo(name="outside-cancel")
async def cancel(trip: Trip) -> None:
    DID.append(f"cancel {trip.number}")


@undo(name="outside-return")
async def give_back(undo: Undo[Trip, Trip | None]) -> None:
    result = undo.result
    DID.append(f"return {undo.input.number} {result and result.number}")


@dataclass
class Receipt:
    """A result of a kind that a worker of older code does not know, as after `outside-fail`."""

    kind: str

    def __post_init__(self) -> None:
        """Refuse the kind, as an enum would."""
        if RESULTS.get("older"):
            raise ValueError(f"no kind of receipt: {self.kind}")


@step(name="outside-hold")
async def hold(what: str) -> Receipt:
    return Receipt(what)


@undo(name="outside-release")
async def release(undo: Undo[str, Receipt | None]) -> None:
    DID.append(f"release {undo.result and undo.result.kind}")


@step(name="outside-charge")
async def charge(what: str) -> None:
    DID.append(f"charge {what}")
    BANK.setdefault(step_info().idempotency_key, f"charge {what}")


@undo(name="outside-refund", timeout=20, heartbeat=2)
async def refund(what: str) -> None:
    info = step_info()
    BANK.setdefault(info.idempotency_key, f"refund {what}")
    DID.append(f"refund {info.idempotency_key}")
    if what == "slow" and DID.count(f"refund {info.idempotency_key}") == 1:
        await asyncio.sleep(60)  # its answer takes a while, and the run is terminated meanwhile


@step(name="outside-slow")
async def slow(what: str) -> None:
    DID.append(f"slow {what}")
    await asyncio.sleep(60)


@step(name="outside-fail")
async def fail() -> None:
    RESULTS["older"] = True
    raise FatalError("as planned")


@workflow(name="outside-unread")
class Unread:
    """Takes what a step or a child answers, which may be of another type."""

    async def run(self, ctx: Context, how: str) -> int:
        await ctx.step(charge, how, compensate=refund)
        try:
            return await (ctx.step(answer, how) if how == "step" else ctx.child(Answering, how))
        except Exception:
            DID.append("caught")
            raise


@workflow(name="outside-held")
class Held:
    """Undoes a step whose result a worker of older code cannot read."""

    async def run(self, ctx: Context, what: str) -> None:
        await ctx.step(hold, what, compensate=release)
        await ctx.step(fail)


@workflow(name="outside-answering")
class Answering:
    """A child whose result is of another type than it says."""

    async def run(self, ctx: Context, what: str) -> int:
        return f"a new kind of {what}"  # type: ignore[return-value] # the point


@workflow(name="outside-chain")
class Chain:
    """Carries an undo step into a run whose input cannot be read."""

    async def run(self, ctx: Context, number: int) -> str:
        if not number:
            await ctx.step(charge, "chain", compensate=refund)
            temporalio.workflow.info()  # the next run is given what another version might send
            await ctx._continue(["one"], "carry")
        return "done"


@workflow(name="outside-unfit")
class Unfit:
    """Gives its next run what that could not read."""

    async def run(self, ctx: Context, number: int) -> None:
        await ctx.step(charge, "unfit", compensate=refund)
        await ctx.continue_as_new(self, "one", undo="carry")  # type: ignore[call-overload] # the point


@workflow(name="outside-changed")
class Changed:
    """Changes what it has sent and received, and fails."""

    async def run(self, ctx: Context, how: str) -> None:
        trip = Trip()
        for number in 1, 2, 3:
            trip.number = number
            if how == "result":
                back = await ctx.step(book, trip, compensate=give_back)
                back.number = 99
            elif how == "child":
                await ctx.child(Booked, trip, compensate=cancel)
            elif how == "alone":
                ctx.on_failure(cancel, trip)
            else:
                await ctx.step(book, trip, compensate=cancel)
        trip.number = 4
        await ctx.step(fail)


@workflow(name="outside-booked")
class Booked:
    """A child that gives its input back."""

    async def run(self, ctx: Context, trip: Trip) -> Trip:
        return trip


@workflow(name="outside-ended", compensate_on_terminate=True)
class Ended:
    """Is terminated while it undoes."""

    async def run(self, ctx: Context, what: str) -> None:
        await ctx.step(charge, what, compensate=refund)
        await ctx.step(fail)


@workflow(name="outside-again")
class Again:
    """Undoes a call, and makes it again under the key that it had."""

    async def run(self, ctx: Context, key: str) -> None:
        try:
            async with ctx.saga():
                await ctx.step(charge, "again", compensate=refund, idempotency_key=key)
                await ctx.step(fail)
        except ActivityError:
            await ctx.step(charge, "again", compensate=refund, idempotency_key=key)


@workflow(name="outside-once")
class Once:
    """Makes one call, and one attempt of it."""

    async def run(self, ctx: Context, what: str) -> None:
        await ctx.step(charge, what, idempotency_key="order", retry=Retry(max_attempts=1))


@workflow(name="outside-entity")
class Entity:
    """One for each customer: a run of its own, or a child."""

    async def run(self, ctx: Context, name: str) -> str:
        return await ctx.wait_for("close", str)


@workflow(name="outside-wants")
class Wants:
    """Starts the child of a given id, which may be somebody else's run."""

    async def run(self, ctx: Context, name: str) -> str:
        try:
            return await ctx.child(Entity, name, id=name)
        except WorkflowAlreadyStartedError as error:
            return type(error).__name__


@workflow(name="outside-early")
class Early:
    """Has handlers that may run before ``run``."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    @temporalio.workflow.signal
    async def note(self, what: str) -> None:
        await Context.current().step(charge, what, compensate=refund)
        self.heard.append(what)

    @temporalio.workflow.signal
    async def keep(self, what: str) -> None:
        await self.ctx.step(charge, what, compensate=refund)
        self.heard.append(what)

    @temporalio.workflow.update
    async def add(self, what: str) -> int:
        ctx = Context.current()
        self.heard.append(what)
        return await ctx.step(answer, what)

    async def run(self, ctx: Context, how: str) -> list[str]:
        assert ctx is Context.current()
        self.ctx = ctx
        await temporalio.workflow.wait_condition(lambda: bool(self.heard))
        if how == "fail":
            await ctx.step(fail)
        return self.heard


@workflow(name="outside-hasty")
class Hasty:
    """Returns while its own calls are in progress."""

    async def run(self, ctx: Context, how: str) -> str:
        await ctx.step(charge, how, compensate=refund)
        task: asyncio.Task[Any]
        if how == "step":
            task = asyncio.create_task(ctx.step(slow, how, compensate=refund))
        elif how == "gather":
            try:
                await asyncio.gather(ctx.step(slow, how, compensate=refund), ctx.step(fail))
            except ActivityError:
                return "done"
        else:
            policy: Any = "abandon" if how == "abandon" else "terminate"
            task = asyncio.create_task(ctx.child(Entity, how, parent_close_policy=policy))
        await ctx.sleep(0.01)
        return "done" if not task.done() else "its call has ended"


@workflow(name="outside-asked")
class Asked:
    """Waits for a signal that carries a value, or may carry none."""

    async def run(self, ctx: Context, how: str) -> str:
        if how == "optional":
            return repr(await ctx.wait_for("approval", cast("Any", Approval | None)))
        found = await ctx.wait_for("approval", Approval)
        return found.by


ALL: list[Any] = [
    Unread, Answering, Held, Chain, Unfit, Changed, Booked, Ended, Again, Once, Entity, Wants,
    Early, Hasty, Asked,
]  # fmt: skip
STEPS: list[Any] = [answer, book, cancel, give_back, hold, release, charge, refund, slow, fail]
