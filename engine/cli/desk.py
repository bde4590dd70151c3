"""One service for everything that ``sched up`` asks of its ledger besides the replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Self

from engine.runtime import database
from engine.service import ScheduleService


class Desk:
    """Opens the service when it is first asked for, so that a ledger may be away at the start."""

    def __init__(self, database_url: str, namespace: str) -> None:
        self._url, self._namespace = database_url, namespace
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._service: ScheduleService | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def service(self) -> AsyncIterator[ScheduleService]:
        """Yield the service.

        Raises:
            LedgerUnavailable: when the database cannot be reached; ask again later.
        """
        async with self._opening:
            if self._service is None:
                self._service = await self._stack.enter_async_context(
                    ScheduleService.connect(
                        self._url,
                        namespace=self._namespace,
                        schema=database.schema(),
                        actor="sched up",
                    )
                )
        yield self._service
