"""Workflows that are trees, and the steps that they call: run by a worker of its own process.

``python -m tests.programs.program ADDRESS NAMESPACE DATABASE`` serves them until it is killed; with
``older`` behind it, as a worker does that was deployed before a step got a new kind of result.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio import workflow as temporal
from temporalio.exceptions import WorkflowAlreadyStartedError

from engine import Context, FatalError, Retry, Undo, step, step_info, undo, workflow

with temporal.unsafe.imports_passed_through():
    import asyncpg
    from temporalio.client import Client
    from temporalio.worker import Worker

    from engine.runtime import SchedulePlugin
    from tests.programs.deployed import KINDS, NEWER

QUEUE = "programs"
TABLE = """
CREATE TABLE effects (
    key text PRIMARY KEY, run text NOT NULL, label text NOT NULL, undone boolean NOT NULL,
    workflow text
);
CREATE TABLE undos (key text PRIMARY KEY, undoes text NOT NULL, label text NOT NULL)
"""
AGAIN = Retry(max_attempts=50, initial_interval=0.1, backoff=1)  # a busy machine misses heartbeats


@dataclass(repr=False)
class Node:
    """A part of a program.

    Attributes:
        do: step, fail, wait, commit, parallel, saga, child, foreign.
        label: what a step books; several steps may book the same.
        undo: whether a step or child has an undo step.
        failures: how many attempts of a step fail after their effect.
        fatal: whether the step fails for good, after its effect.
        caught: whether the error of a part is handled.
        at_once: whether the undo steps of a part run at once.
        parts: of ``parallel``: lists of nodes; of others, one list.
    """

    do: str
    label: str = ""
    undo: bool = False
    failures: int = 0
    fatal: bool = False
    caught: bool = False
    at_once: bool = False
    parts: list[list[Node]] = field(default_factory=list)

    def __repr__(self) -> str:
        """Return it as short as possible: hypothesis writes hundreds of them."""
        marks = [each for each in ("undo", "fatal", "caught", "at_once") if getattr(self, each)]
        words = [self.do, self.label, *marks, "again" * self.failures, str(self.parts or "")]
        return f"<{' '.join(filter(None, words))}>"


@dataclass
class Booking:
    """The input of a step."""

    program: str
    label: str
    failures: int
    fatal: bool


@dataclass
class Receipt:
    """The result of a step, of a kind that a worker of an older deploy does not know."""

    key: str
    kind: str = "booked"

    def __post_init__(self) -> None:
        """Refuse an unknown kind, as an enum would."""
        if self.kind not in KINDS:
            raise ValueError(f"no kind of booking: {self.kind}")


@dataclass
class Work:
    """The input of a program: its name, and what it does."""

    program: str
    nodes: list[Node]


class Books:
    """The table of effects."""

    pool: asyncpg.Pool | None = None

    async def write(self, statement: str, *values: object) -> None:
        """Run one statement."""
        assert self.pool is not None
        await self.pool.execute(statement, *values)


BOOKS = Books()
_UNDO = """
INSERT INTO effects VALUES ($1, $2, $3, true, NULL) ON CONFLICT (key) DO UPDATE SET undone = true
"""
_UNDO_KEY = "INSERT INTO undos VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING"


@step(name="program-book", retry=AGAIN, heartbeat=1)
async def book(booking: Booking) -> Receipt:
    info = step_info()
    await BOOKS.write(
        "INSERT INTO effects VALUES ($1, $2, $3, false, $4) ON CONFLICT (key) DO NOTHING",
        info.idempotency_key, booking.program, booking.label, info.workflow_id,
    )  # fmt: skip
    await asyncio.sleep(0.05)
    if booking.fatal:
        raise FatalError(f"{booking.label} is fatal")
    if info.attempt <= booking.failures:
        raise ConnectionError(f"attempt {info.attempt} of {booking.label}")
    return Receipt(info.idempotency_key, "held" if NEWER and booking.label == "c" else "booked")


@undo(name="program-cancel", heartbeat=1)
async def cancel(undo: Undo[Booking, Receipt | None]) -> None:
    key = step_info().undoes
    assert key, "an undo step does not know what it undoes"
    seen = undo.result.key if undo.result else key
    assert seen == key, "an undo step sees the result of another step"
    await BOOKS.write(_UNDO_KEY, step_info().idempotency_key, key, undo.input.label)
    await BOOKS.write(_UNDO, key, undo.input.program, undo.input.label)


@undo(name="program-cancel-child", heartbeat=1)
async def cancel_child(undo: Undo[Work, list[str] | None]) -> None:
    child = (step_info().undoes or "").partition("/")[2]
    # Its result is None if it was ended from outside, and lacks the parts whose errors it handled.
    # All that it and its children did is undone, because a reset makes an undone child again.
    await BOOKS.write(
        "UPDATE effects SET undone = true WHERE key = ANY($1) OR strpos(workflow, $2) > 0",
        undo.result or [], child,
    )  # fmt: skip


@workflow(name="program", compensate_on_terminate=True)
class Program:
    """Does what its input says, and returns the keys of what stands."""

    async def run(self, ctx: Context, work: Work) -> list[str]:
        return await _run(ctx, work, work.nodes)

    @temporal.signal(name="early")
    async def early(self, booking: Booking) -> None:
        """Book something in a handler that is called before ``run``."""
        await Context.current().step(book, booking, compensate=cancel)


async def _run(ctx: Context, work: Work, nodes: list[Node]) -> list[str]:
    keys: list[str] = []
    for node in nodes:
        keys += await _DO[node.do](ctx, work, node)
    return keys


async def _step(ctx: Context, work: Work, node: Node) -> list[str]:
    booking = Booking(work.program, node.label, node.failures, node.fatal)
    try:
        receipt = await ctx.step(book, booking, compensate=cancel if node.undo else None)
        return [receipt.key]
    finally:
        booking.label = "changed since"


async def _child(ctx: Context, work: Work, node: Node) -> list[str]:
    given = Work(work.program, node.parts[0])
    keys = await ctx.child(Program, given, compensate=cancel_child if node.undo else None)
    return list(keys)


async def _foreign(ctx: Context, work: Work, node: Node) -> list[str]:
    """Try to start a child under an id that somebody else's open run has."""
    with suppress(WorkflowAlreadyStartedError):
        await ctx.child(Program, Work(work.program, []), id=foreign_id(work.program))
    return []


def foreign_id(program: str) -> str:
    return f"foreign-{program}"


async def _parallel(ctx: Context, work: Work, node: Node) -> list[str]:
    found = await ctx.parallel([_run(ctx, work, part) for part in node.parts])
    return [key for keys in found for key in keys]


async def _saga(ctx: Context, work: Work, node: Node) -> list[str]:
    try:
        async with ctx.saga(parallel=node.at_once):
            return await _run(ctx, work, node.parts[0])
    except Exception:
        if not node.caught:
            raise
    return []


async def _fail(ctx: Context, work: Work, node: Node) -> list[str]:
    raise FatalError("the program fails here")


async def _wait(ctx: Context, work: Work, node: Node) -> list[str]:
    await ctx.wait_for("go")
    return []


async def _commit(ctx: Context, work: Work, node: Node) -> list[str]:
    ctx.commit()
    return []


_DO: dict[str, Any] = {
    "step": _step, "child": _child, "parallel": _parallel, "saga": _saga, "fail": _fail,
    "wait": _wait, "commit": _commit, "foreign": _foreign,
}  # fmt: skip


async def serve(address: str, namespace: str, database: str, *_: str) -> None:
    """Serve programs until the process is killed."""
    BOOKS.pool = await asyncpg.create_pool(database, min_size=1, max_size=4)
    plugin = SchedulePlugin(None, database_url=database)
    client = await Client.connect(address, namespace=namespace, plugins=[plugin])
    worker = Worker(
        client, task_queue=QUEUE, workflows=[Program], activities=[book, cancel, cancel_child],
        graceful_shutdown_timeout=timedelta(0),
    )  # fmt: skip
    await worker.run()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
