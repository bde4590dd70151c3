"""Workflows for operators to act on, in a module that the sandbox can import by itself."""

from __future__ import annotations

from datetime import timedelta

import temporalio.workflow

from engine import Context, step, undo, workflow


@step
async def book() -> str:
    return "reserved"


@undo
async def unbook() -> str:
    return "released"


@workflow(name="echo", version="1")
class Echo:
    """Returns what it was given."""

    async def run(self, ctx: Context, payload: dict[str, str] | None = None) -> object:
        return payload


@workflow(name="brief", version="1")
class Brief:
    """Stays open for a moment, so that two of them would overlap."""

    async def run(self, ctx: Context) -> None:
        await temporalio.workflow.sleep(timedelta(milliseconds=200))


@workflow(name="reserves", version="1")
class Reserves:
    """Reserves, stays open, and releases when it is cancelled."""

    async def run(self, ctx: Context) -> None:
        await ctx.step(book, compensate=unbook)
        await temporalio.workflow.sleep(timedelta(hours=1))


@workflow(name="gated", version="1")
class Gated:
    """Stays open until somebody says go."""

    async def run(self, ctx: Context) -> None:
        await ctx.wait_for("go")
