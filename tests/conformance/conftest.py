"""Both ledgers, behind one fixture: every promise here is kept by either."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from engine.ledger import Ledger, MemoryLedger, PostgresLedger
from engine.ledger.fires import Claim
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
        self, serving: Serving | None = None, retention=timedelta(days=1), heartbeat=None
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


@pytest.fixture(params=["memory", "postgres"])
def address(request: pytest.FixtureRequest) -> str | None:
    """Where the ledger is; the memory variant starts no server.

    Each test has a namespace of its own in one database, which costs a third of a copy.
    """
    return request.getfixturevalue("shared_database_url") if request.param == "postgres" else None


@pytest.fixture
async def ledger(address: str | None) -> AsyncIterator[Ledger]:
    if address is None:
        yield MemoryLedger(identity=uuid.uuid4(), remembers=True)
        return
    opened = await PostgresLedger.connect(address, namespace=f"test-{uuid.uuid4().hex}")
    yield opened
    await opened.close()


@pytest.fixture
async def bench(ledger: Ledger) -> AsyncIterator[Bench]:
    made = Bench(ledger)
    await made.announce()
    yield made
    for fire in await ledger.fires(limit=1000):
        assert fire.reason_code == code_of_sentence(fire.reason)
        assert (fire.reason is None) == (fire.reason_code is None), f"no code for: {fire.reason}"
