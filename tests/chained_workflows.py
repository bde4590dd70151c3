"""Plain Temporal workflows whose runs go on as others, in a module the sandbox can import."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from engine import Context, Retry, workflow as ours


@workflow.defn(name="Pieces")
class Pieces:
    """Goes on for ever, as a new run each second; forgets nothing that is not said anew."""

    @workflow.run
    async def run(self, piece: int = 0) -> None:
        await workflow.sleep(timedelta(seconds=1))
        workflow.continue_as_new(piece + 1)


@workflow.defn(name="Renamed")
class Renamed:
    """Continues once as new, with a memo of its own, and stays open."""

    @workflow.run
    async def run(self, piece: int = 0) -> None:
        if not piece:
            workflow.continue_as_new(1, memo={"piece": 1})
        await workflow.sleep(timedelta(hours=1))


@workflow.defn(name="Stubborn")
class Stubborn:
    """Hears the first cancel, and goes on as a new run that has not heard it."""

    @workflow.run
    async def run(self, piece: int = 0) -> None:
        try:
            await workflow.sleep(timedelta(hours=1))
        except asyncio.CancelledError:
            if piece:
                raise
            workflow.continue_as_new(piece + 1)


@workflow.defn(name="Refused")
class Refused:
    """Fails with a detail, which a codec encodes."""

    @workflow.run
    async def run(self, piece: int = 0) -> None:
        raise ApplicationError("no money", "on account 4711")


@ours(name="hapless", retry=Retry(max_attempts=9, initial_interval=600))
class Hapless:
    """Fails at once, and is tried again much later."""

    async def run(self, ctx: Context) -> None:
        raise RuntimeError("no luck")
