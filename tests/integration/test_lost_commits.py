"""The connection breaks at COMMIT: what was committed is sent, what was not is decided again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Literal, cast
from urllib.parse import urlsplit

import asyncpg
import pytest

from engine.errors import CommitUnknown
from engine.ledger import Ledger
from engine.ledger.fires import Claim
from engine.ledger.records import Serving
from engine.runtime import Poller, Settings
from engine.runtime.apply.apply import apply
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.dispatcher import Dispatcher
from engine.schedules import load_schedules
from tests.blind import BLIND
from tests.links import accepting

DAILY = "schedules: [{key: daily, workflow: noop, everyMs: 86400000}]"
SERVING = Serving("one", "default", "sched", frozenset({"noop@1"}))
OTHER = Serving("other", "default", "sched", frozenset({"noop@1"}))
LEASE = timedelta(seconds=30)

Cut = Literal["before", "after"]


class Line:
    """A line to PostgreSQL that can be cut once, before a COMMIT arrives or before its answer."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.cut: Cut | None = None

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection(self.host, self.port)
        back = asyncio.create_task(self._copy(answers, writer))
        try:
            while data := await reader.read(65536):
                if b"COMMIT;" in data and self.cut:
                    if self.cut == "after":
                        back.cancel()
                        await asyncio.wait([back])
                        server.write(data)
                        while b"COMMIT\0" not in await answers.read(65536):
                            pass
                    self.cut = None
                    break
                server.write(data)
                await server.drain()
        finally:
            back.cancel()
            for end in (server, writer):
                end.transport.abort()

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.close()  # the server has hung up, and the client waits for that


@asynccontextmanager
async def line_to(url: str) -> AsyncIterator[tuple[Line, str]]:
    """A line, and the address at its other end."""
    place = urlsplit(url)
    assert place.hostname
    assert place.port
    line = Line(place.hostname, place.port)
    async with accepting(line.carry) as port:
        yield line, url.replace(f":{place.port}/", f":{port}/")


class Outbox:
    """Stands where the dispatcher would be, and keeps what it is given."""

    room = room_for_late = 50
    breaker = SimpleNamespace(holds=False)

    def __init__(self) -> None:
        self.given: list[Claim] = []

    def room_of(self, share: str, late: bool) -> int:  # noqa: FBT001 - as the dispatcher's
        return self.room

    def send(self, claims: Sequence[Claim], lease_ends: float) -> list[asyncio.Task[None]]:
        self.given += claims
        return []


class Bench:
    def __init__(self, line: Line, ledger: Ledger) -> None:
        self.line, self.ledger, self.outbox = line, ledger, Outbox()
        settings, outbox = Settings(lease=LEASE), cast("Dispatcher", self.outbox)
        self.poller = Poller(ledger, outbox, LedgerClock(), SERVING, settings, **BLIND)

    async def tick_whose_commit_is_cut(self, cut: Cut) -> None:
        line = self.line
        line.cut = cut
        with pytest.raises(CommitUnknown):
            await self.poller.tick()
        assert self.line.cut is None, "nothing was cut"
        assert self.outbox.given == [], "sent without knowing"


@pytest.fixture
async def bench(database_url: str) -> AsyncIterator[Bench]:
    async with line_to(database_url) as (line, url):
        ledger = await Ledger.connect(url)
        await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
        await apply(ledger, load_schedules(DAILY), by="test")
        yield Bench(line, ledger)
        await ledger.close()


async def test_a_claim_whose_commit_arrived_is_sent_by_its_owner(bench):
    await bench.tick_whose_commit_is_cut("after")
    (fire,) = await bench.ledger.fires()
    assert fire.status == "starting"
    tick = await bench.poller.tick()
    assert tick.claims == (), "decided twice"
    (claim,) = bench.outbox.given
    assert (claim.workflow_id, claim.attempts) == (fire.workflow_id, 1)
    assert await bench.ledger.renew([claim], LEASE) == {claim.fire_id}, "sent by another token"


async def test_a_claim_whose_commit_did_not_arrive_is_decided_again(bench):
    await bench.tick_whose_commit_is_cut("before")
    assert await bench.ledger.fires() == []
    tick = await bench.poller.tick()
    assert list(tick.claims) == bench.outbox.given
    assert len(bench.outbox.given) == 1
    await bench.poller.tick()
    assert len(bench.outbox.given) == 1, "the lost claim was sent as well"


async def test_a_claim_that_another_replica_took_over_meanwhile_is_not_sent(bench, database_url):
    await bench.tick_whose_commit_is_cut("after")
    connection = await asyncpg.connect(database_url)
    await connection.execute("UPDATE sched.fires SET lease_until = clock_timestamp()")
    await connection.close()
    assert len(await bench.ledger.take_over(OTHER, limit=9, lease=LEASE)) == 1
    await bench.poller.tick()
    assert bench.outbox.given == []
