"""Both ledgers, behind one fixture: every promise here is kept by either."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from pytest_asyncio import is_async_test

from engine.ledger import Ledger, MemoryLedger, PostgresLedger
from engine.ledger.fires import Claim
from engine.ledger.postgres.connections import Connections
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from engine.schedules.planner.planner import plan
from tests.reasons import code_of_sentence

LEASE = timedelta(seconds=30)


class Bench:
    """A ledger with the few moves that tests make."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.serving = Serving("replica-a", "default", "sched", frozenset({"noop@1"}))
        self.other = Serving("replica-b", "default", "sched", frozenset({"noop@1"}))

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these tests in one event loop, because connections belong to their loop."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


async_fixture = partial(pytest_asyncio.fixture, loop_scope="session")
"""A fixture in the event loop of these tests."""


@async_fixture(scope="session")
async def connections(shared_database_url: str) -> AsyncIterator[Connections]:
    """Connections to the one database of these tests, in which each has a namespace of its own.

    PostgreSQL reads and plans each statement once for each connection. With connections of its own
    for each test that took most of the time of its servers.
    """
    opened = await Connections.open(shared_database_url, schema="sched", most=5)
    yield opened
    await opened.close()


@pytest.fixture(params=["memory", "postgres"])
def address(request: pytest.FixtureRequest) -> str | None:
    """Where the ledger is; the memory variant starts no server."""
    return request.getfixturevalue("shared_database_url") if request.param == "postgres" else None


@pytest.fixture
def pool(request: pytest.FixtureRequest, address: str | None) -> Connections | None:
    return request.getfixturevalue("connections") if address else None


@async_fixture
async def ledger(pool: Connections | None) -> Ledger:
    if pool is None:
        return MemoryLedger(identity=uuid.uuid4(), remembers=True)
    return PostgresLedger(pool, f"test-{uuid.uuid4().hex}")


@async_fixture
async def bench(ledger: Ledger) -> AsyncIterator[Bench]:
    made = Bench(ledger)
    await made.announce()
    yield made
    for fire in await ledger.fires(limit=1000):
        assert fire.reason_code == code_of_sentence(fire.reason)
        assert (fire.reason is None) == (fire.reason_code is None), f"no code for: {fire.reason}"
