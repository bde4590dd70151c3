"""Several things at once, in a way that replays alike."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Sequence
from typing import Any

import temporalio.workflow


async def all_of(things: Sequence[Awaitable[Any]], limit: int | None) -> list[Any]:
    """Return what they return, in their order, with at most ``limit`` under way.

    The first failure cancels those under way, waits for them, begins none of the others and is
    raised. (``asyncio.TaskGroup`` cancels in the order of a set, which a replay need not repeat.)

    Raises:
        ValueError: ``limit`` is below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is at least 1; got {limit!r}")
    gate = asyncio.Semaphore(limit or max(len(things), 1))

    async def in_turn(thing: Awaitable[Any]) -> Any:
        try:
            async with gate:
                return await thing
        finally:
            if inspect.iscoroutine(thing):
                thing.close()  # one that never got its turn would be complained about

    tasks = [asyncio.ensure_future(in_turn(thing)) for thing in things]
    if not tasks:
        return []
    try:
        await temporalio.workflow.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failed = [task for task in tasks if task.done() and _failed(task)]
    finally:
        for task in tasks:
            task.cancel()
        # The cancel of the run itself must not leave them behind either.
        results = await asyncio.gather(*tasks, return_exceptions=True)
    if failed:
        failed[0].result()
    return results


def _failed(task: asyncio.Future[Any]) -> bool:
    return task.cancelled() or task.exception() is not None
