"""The way to the ledger: everything takes a while, may fail before it is done, or after it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random

import asyncpg

from engine.ledger import Ledger
from engine.ledger.records import Probe, Serving
from engine.testing.virtual_ledger import SCHEMA
from tests.bridge import Course


@dataclass
class Line:
    """What is wrong with the way at present; ``lost`` is a part of 1."""

    chance: Random
    away: bool = False
    lost: float = 0.0
    unsure: float = 0.0
    """A part of 1, of commits alone."""
    seen: Counter[str] = field(default_factory=Counter)

    async def there(self) -> None:
        await self._way()
        if self.away:
            raise asyncpg.ConnectionDoesNotExistError("the ledger is away")

    async def back(self, *, commit: bool) -> None:
        await self._way()
        unsure = commit and self.chance.random() < self.unsure
        self.seen["commit unknown"] += unsure
        if unsure or self.chance.random() < self.lost:
            raise asyncpg.ConnectionDoesNotExistError("the answer was lost")

    async def _way(self) -> None:
        for _ in range(self.chance.choice([1, 1, 2])):
            await asyncio.sleep(0)


class Wire(Ledger):
    """A ledger behind a line, as one process has it.

    Attributes:
        probes: when, by the loop, the last looks at the clock were asked for and answered.
    """

    def __init__(self, course: Course, line: Line) -> None:
        super().__init__(course.pool(line), course.namespace, schema=SCHEMA)
        self.probes: list[tuple[float, float]] = []

    async def probe(self, serving: Serving, **options: timedelta) -> Probe:
        asked = asyncio.get_running_loop().time()
        answer = await super().probe(serving, **options)
        self.probes = [*self.probes[-1:], (asked, asyncio.get_running_loop().time())]
        return answer
