"""The background task that builds the indexes which migrations have left for later.

It stands alone because it is no loop: a build waits for other sessions, perhaps for hours, and a
worker that drains ends it at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from engine.errors import LedgerUnavailable
from engine.ledger import Ledger
from engine.runtime.events import logger

_PAUSE = 60.0
"""Seconds between two looks, while another process builds them or the ledger is away."""


@asynccontextmanager
async def building_indexes(ledger: Ledger) -> AsyncIterator[None]:
    """Build what is missing while the block lasts."""
    task = asyncio.create_task(_build(ledger))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _build(ledger: Ledger) -> None:
    while True:
        try:
            if not await ledger.build_indexes():
                return
        except LedgerUnavailable as error:
            logger.debug("indexes are built later: %s", error)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing depends on it
            logger.warning("indexes are missing, `sched migrate` builds them: %s", error)
            return
        await asyncio.sleep(_PAUSE * random.uniform(0.5, 1))
