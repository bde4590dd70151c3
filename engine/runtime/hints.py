"""Ends a loop's wait early when somebody has changed something. A hint, and nothing more.

Whatever is lost here (the connection, a pooler that does not pass notifications on) costs the rest
of one tick, because the loop looks by itself then.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from engine.ledger import Ledger
from engine.runtime.events import logger

_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=1), timedelta(minutes=1)


@asynccontextmanager
async def hearing(ledger: Ledger, wake: Callable[[], None]) -> AsyncIterator[None]:
    """Call ``wake`` for as long as the block lasts, whenever the ledger has news."""
    task = asyncio.create_task(_hear(ledger, wake))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _hear(ledger: Ledger, wake: Callable[[], None]) -> None:
    pause = _FIRST_PAUSE
    while True:
        begun = asyncio.get_running_loop().time()
        try:
            await ledger.hear(wake)
        except Exception as error:  # noqa: BLE001 - whatever it is, the ticks go on without
            logger.debug("no hints: %s", error)
        lasted = timedelta(seconds=asyncio.get_running_loop().time() - begun)
        pause = _FIRST_PAUSE if lasted > _LONGEST_PAUSE else min(pause * 2, _LONGEST_PAUSE)
        await asyncio.sleep(pause.total_seconds() * random.uniform(0.5, 1))
