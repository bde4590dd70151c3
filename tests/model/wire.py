"""The way to the ledger: everything takes a while, may fail before it is done, or after it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from engine.errors import CommitUnknown, LedgerUnavailable
from engine.ledger import MemoryLedger

_LOCKED = frozenset({"probe", "unknown_runs", "open_runs", "fires", "hold_duty"})
"""What the memory does without a lock, and what a database would answer from commits alone."""


@dataclass
class Line:
    """What is wrong with the way at present; ``lost`` is a part of 1."""

    chance: Random
    away: bool = False
    lost: float = 0.0

    async def there(self) -> None:
        await self.way()
        if self.away:
            raise LedgerUnavailable("the ledger is away")

    async def back(self, error: type[LedgerUnavailable] = LedgerUnavailable) -> None:
        await self.way()
        if self.chance.random() < self.lost:
            raise error("the answer was lost")

    async def way(self) -> None:
        for _ in range(self.chance.choice([1, 1, 2])):
            await asyncio.sleep(0)


class Wire:
    """A ledger behind a line. ``written`` is called after whatever may have changed it."""

    def __init__(self, ledger: MemoryLedger, line: Line, written: Callable[[], None]) -> None:
        self._ledger, self._line, self._written = ledger, line, written
        self.remembers = ledger.remembers

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._ledger, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **named: Any) -> Any:
            await self._line.there()
            if name in _LOCKED:
                async with self._ledger._lock:
                    answer = await method(*args, **named)
            else:
                answer = await method(*args, **named)
            self._written()
            await self._line.back()
            return answer

        return call

    @asynccontextmanager
    async def transaction(self, *, long: bool = False) -> AsyncIterator[Statements]:
        await self._line.there()
        async with self._ledger.transaction(long=long) as transaction:
            yield Statements(transaction, self._line)
            await self._line.there()
        self._written()
        await self._line.back(CommitUnknown)


class Statements:
    """A transaction behind a line: time passes between two statements."""

    def __init__(self, transaction: Any, line: Line) -> None:
        self._transaction, self._line = transaction, line

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._transaction, name)

        async def call(*args: Any, **named: Any) -> Any:
            await self._line.there()
            return await method(*args, **named)

        return call
