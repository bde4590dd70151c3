"""A ledger in virtual time, and the few moves that tests make on it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import pytest_asyncio
from pytest_asyncio import is_async_test

from engine.embedded import PostgresServer
from engine.ledger import Ledger
from engine.ledger.fires import Claim
from engine.ledger.records import ActionRow, Serving
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from engine.schedules.planner.planner import plan
from engine.testing import FrozenClock
from engine.testing.virtual_ledger import VirtualLedger, virtual_database
from tests.postgres import OtherPostgres
from tests.reasons import code_of_sentence

NOW = datetime(2026, 2, 26, 10, 20, 30, 400_000, UTC)
"""When each test begins; its replica was announced a little earlier.

No whole second, so that no window opens at that very moment.
"""
LEASE, SHORTLY = timedelta(seconds=30), timedelta(milliseconds=100)
T = TypeVar("T")


class Bench:
    """A ledger with the few moves that tests make.

    Args:
        ledger: the ledger.
        clock: what alone lets time pass in it; None if that is the real time.
    """

    def __init__(self, ledger: Ledger, clock: FrozenClock | None = None) -> None:
        self.ledger, self._clock = ledger, clock
        self.serving = Serving("replica-a", "default", "sched", frozenset({"noop@1"}))
        self.other = Serving("replica-b", "default", "sched", frozenset({"noop@1"}))

    def now(self) -> datetime:
        """Return the time of the ledger."""
        return self._clock.now() if self._clock else datetime.now(UTC)

    def wait(self, by: timedelta = SHORTLY) -> None:
        """Let time pass. Without it everything happens at one moment, to the microsecond."""
        assert self._clock is not None
        self._clock.advance(by)

    async def until(
        self, condition: Callable[[], Awaitable[T]], *, every: timedelta = SHORTLY, most: int = 100
    ) -> T:
        """Let time pass until the condition is true; returns its value.

        Args:
            condition: is asked after each step of time.
            every: a step of time.
            most: how many steps may pass.
        """
        for _ in range(most):
            if value := await condition():
                return value
            self.wait(every)
        raise AssertionError(f"it was not so after {most} times {every}")

    async def actions(self, **filters) -> list[ActionRow]:
        """Return what operators did, the newest first: not what files have declared."""
        rows = await self.ledger.actions(**filters)
        return [row for row in rows if row.verb != "apply"]

    async def declare(self, text: str, **options):
        file = load_schedules(text)
        return await apply(self.ledger, file, by="test", **options)

    async def announce(
        self,
        serving: Serving | None = None,
        retention=timedelta(days=1),
        heartbeat=timedelta(seconds=10),
    ) -> None:
        await self.ledger.announce(
            serving or self.serving, engine="0", tzdata="0", retention=retention,
            heartbeat=heartbeat,
        )  # fmt: skip

    async def claim(
        self, serving: Serving | None = None, *, limit: int = 100, lease: timedelta = LEASE
    ) -> list[Claim]:
        """Claim whatever is due, as the poller does."""
        serving = serving or self.serving
        async with self.ledger.transaction() as transaction:
            keys = await transaction.lock_due(serving, limit)
            states = await transaction.read(keys)
            now = await transaction.now()
            steps = [plan(state, now) for state in states]
            return await transaction.record(steps, owner=serving.replica, lease=lease)


async def forget_doubts(ledger: Ledger) -> None:
    """Take back what was noted of lost commits: all tests share the database."""
    async with ledger.transaction() as transaction:
        await transaction.connection.execute(
            "UPDATE ledger SET doubted_at = NULL, system = NULL, timeline = NULL"
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these tests in one event loop, because connections belong to their loop."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


async_fixture = partial(pytest_asyncio.fixture, loop_scope="session")
"""A fixture in the event loop of these tests."""


@async_fixture(scope="session")
async def opened(postgres: PostgresServer | OtherPostgres) -> AsyncIterator[VirtualLedger]:
    """The connections of these tests, to one database, in which each has a namespace of its own.

    PostgreSQL reads and plans each statement once for each connection. With connections of its own
    for each test that took most of the time of its servers.
    """
    async with virtual_database(postgres.url_of("postgres")) as url:
        ledger = await VirtualLedger.open(url, FrozenClock(NOW))
        yield ledger
        await ledger.close()


@pytest.fixture
def clock(clock: FrozenClock) -> FrozenClock:
    clock.move_to(NOW - SHORTLY)
    return clock


@async_fixture
async def ledger(opened: VirtualLedger, clock: FrozenClock) -> Ledger:
    opened._connections.clock = clock  # type: ignore[attr-defined] # those of a virtual ledger
    return Ledger(opened._connections, f"test-{uuid.uuid4().hex}")


@async_fixture
async def bench(ledger: Ledger, clock: FrozenClock) -> AsyncIterator[Bench]:
    made = Bench(ledger, clock)
    await made.announce()
    clock.move_to(NOW)
    yield made
    for fire in await ledger.fires(limit=1000):
        assert fire.reason_code == code_of_sentence(fire.reason)
        assert (fire.reason is None) == (fire.reason_code is None), f"no code for: {fire.reason}"
