"""What a cancel of the run does not interrupt."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

R = TypeVar("R")


async def to_the_end(work: Coroutine[Any, Any, R]) -> R:
    """Wait until the work has ended, and return what it returned, however often it is cancelled.

    A cancel of the run arrives in the task that waits here; the work goes on in one of its own.
    """
    working = asyncio.create_task(work)
    while not working.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(working)
    return await working
