"""A workflow before and after an edit that does not fit runs under way."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import temporalio.workflow

from engine import Context, workflow


@workflow(name="unlucky", version="1")
class Unlucky:
    """Fails like any Python code does."""

    async def run(self, ctx: Context) -> None:
        raise ValueError("no luck today")


@workflow(name="edited", version="1")
class Before:
    """Sleeps, and waits for a word."""

    def __init__(self) -> None:
        self._go = False

    @temporalio.workflow.signal
    def go(self) -> None:
        self._go = True

    async def run(self, ctx: Context) -> str:
        sleeping = asyncio.ensure_future(temporalio.workflow.sleep(timedelta(hours=1)))
        await temporalio.workflow.wait_condition(lambda: self._go)
        sleeping.cancel()
        return "done"


@temporalio.workflow.defn(name="edited@1")
class After:
    """The same Temporal type, edited: it sleeps no more."""

    @temporalio.workflow.signal
    def go(self) -> None:
        """Hear the word."""

    @temporalio.workflow.run
    async def run(self) -> str:
        return "too early"
