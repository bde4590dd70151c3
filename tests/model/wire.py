"""The way to the ledger: everything takes a while, may fail before it is done, or after it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from engine.errors import CommitUnknown, LedgerUnavailable
from engine.ledger import MemoryLedger
from tests.model.account import Account

_SHOWN = frozenset({"settle", "renew"})
"""What changes a claim, and only that of whoever shows its token."""
_LOCKED = frozenset({"probe", "unknown_runs", "open_runs", "fires", "hold_duty", "release_duty",
                     "first_run", "in_the_way"})  # fmt: skip
"""What the memory does without a lock, and what a database would answer from commits alone."""


@dataclass
class Line:
    """What is wrong with the way at present; ``lost`` is a part of 1."""

    chance: Random
    away: bool = False
    lost: float = 0.0
    unsure: float = 0.0
    """A part of 1, of commits alone."""

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
    """A ledger behind a line. The account looks after whatever may have changed it.

    Attributes:
        probes: when, by the loop, the last looks at the clock were asked for and answered.
    """

    def __init__(self, ledger: MemoryLedger, line: Line, account: Account) -> None:
        self._ledger, self._line, self._account = ledger, line, account
        self.remembers = ledger.remembers
        self.probes: list[tuple[float, float]] = []

    def __getattr__(self, name: str) -> Any:
        method, lock = getattr(self._ledger, name), self._ledger._lock
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **named: Any) -> Any:
            asked = asyncio.get_running_loop().time()
            await self._line.there()
            if name in _LOCKED:
                async with lock:
                    answer = await method(*args, **named)
            elif name in _SHOWN and not (lock.locked() or lock._waiters):
                answer = await self._shown(method, args[0], *args[1:], **named)
            else:
                answer = await method(*args, **named)
            self._account.look()
            await self._line.back()
            if name == "probe":
                self.probes = [*self.probes[-1:], (asked, asyncio.get_running_loop().time())]
            return answer

        return call

    async def _shown(self, method: Any, items: Sequence[Any], *args: Any, **named: Any) -> Any:
        """Call what changes claims: one that has another token by now must stay as it is."""
        fires = self._ledger._tables.fires
        before = {item.fire_id: fires.get(item.fire_id) for item in items}
        answer = await method(items, *args, **named)  # the lock is free: nobody comes in between
        shown = {item.token for item in items}
        for number, was in before.items():
            if was and was.token not in shown and fires.get(number) is not was:
                self._account.broken(f"{method.__name__} changed {was.workflow_id} of another")
        return answer

    @asynccontextmanager
    async def transaction(self, *, long: bool = False) -> AsyncIterator[Statements]:
        await self._line.there()
        async with self._ledger.transaction(long=long) as transaction:
            self._account.begun()
            yield Statements(transaction, self._line)
            await self._line.there()
        self._account.look()
        if self._line.chance.random() < self._line.unsure:
            self._account.seen["commit unknown"] += 1
            raise CommitUnknown("the answer was lost")
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
