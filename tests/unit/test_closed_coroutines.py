"""Runs whose coroutines are closed, because nobody awaits them any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from engine.flow import workflow
from engine.flow.children import all_of


async def _begun(work: Coroutine[Any, Any, Any]) -> None:
    """Let the work run until it waits."""
    work.send(None)
    await asyncio.sleep(0)


async def test_calls_in_parallel_that_are_closed_wait_for_nothing():
    calls = [asyncio.get_running_loop().create_future() for _ in range(2)]
    work = all_of(calls, None)
    await _begun(work)
    work.close()
    for call in calls:
        call.set_result(None)
    await asyncio.sleep(0)


@workflow
class ClosedInTheMiddle:
    async def run(self, ctx) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)


@dataclass
class Executes:
    """As much of the SDK's runtime as a run asks for: which one its event loop executes."""

    run: object

    def workflow_instance(self) -> object:
        return self.run

    def workflow_set_query_handler(self, name: str, handler: object) -> None: ...


async def test_a_run_that_is_closed_undoes_nothing_in_the_name_of_another():
    loop: Any = asyncio.get_running_loop()
    one, other = ClosedInTheMiddle(), ClosedInTheMiddle()
    work = one._temporal_run()  # type: ignore[attr-defined]  # made by @workflow
    loop.__temporal_workflow_runtime = Executes(one)
    await _begun(work)
    loop.__temporal_workflow_runtime = Executes(other)
    with pytest.raises(RuntimeError, match="coroutine ignored GeneratorExit"):
        work.close()
    del loop.__temporal_workflow_runtime
