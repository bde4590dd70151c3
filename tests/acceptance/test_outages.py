"""A server is killed for eight seconds under a fleet that has five windows to start each second.

While other tests run, a server with its runs on disk starts fifteen a second.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest
from temporalio.client import Client

from engine.embedded import PostgresServer, TemporalServer
from engine.schedules import load_schedules
from tests.acceptance.fleet import Books, Fleet
from tests.servers import FAST_AND_FORGETFUL, Temporal, shared_folder
from tests.waiting import eventually

pytestmark = pytest.mark.slow

AWAY = 8.0
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO sched ")
KEYS = [f"k{n}" for n in range(5)]
FILE = "schedules:\n" + "\n".join(
    f"  - {{key: {key}, workflow: noop, everyMs: 1000, offsetMs: {n * 180}}}"
    for n, key in enumerate(KEYS)
)

AWAY_LINE = "WARNING sched paused: %s unreachable at %s (retrying): "
BACK_LINE = "INFO sched resumed: %s answers again at %s after "
BUSY_MACHINE = "TMPRL1104"  # the SDK warns that a workflow task took more than 5 s


@pytest.fixture
async def temporal_on_disk() -> AsyncIterator[TemporalServer]:
    """A Temporal server that keeps its runs when it is killed."""
    with shared_folder() as folder:
        server = TemporalServer(folder / "temporal", dynamic_config=FAST_AND_FORGETFUL)
        await server.start()
        yield server
        await server.stop()


@pytest.fixture
async def own_postgres() -> AsyncIterator[PostgresServer]:
    """A PostgreSQL server that no other test uses."""
    with shared_folder() as folder:
        server = PostgresServer(folder / "pg")
        await server.start()
        yield server
        await server.stop()


@asynccontextmanager
async def opened_books(url: str, client: Client) -> AsyncIterator[Books]:
    connection = await asyncpg.connect(url)
    yield Books(connection, client)
    await connection.close()


async def killed_for_a_while(server: PostgresServer | TemporalServer) -> None:
    os.kill(server.pid, signal.SIGKILL)
    back_at = time.monotonic() + AWAY
    await server.stop()  # lets go of its folder
    await eventually(lambda: time.monotonic() > back_at, timeout=AWAY + 10)
    await server.start()


def counted(fleet: Fleet, text: str) -> list[int]:
    """How often each replica has logged it."""
    return [replica.log.read_text().count(text) for replica in fleet.replicas]


def assert_an_operator_reads_two_lines(fleet: Fleet, server: str, place: str) -> None:
    """Of each worker: one line when the server went, one when it came back, and no other alarm."""
    for replica in fleet.replicas:
        text = replica.log.read_text()
        assert "\x1b" not in text, "colours in a file"
        lines = [line for line in text.splitlines() if " INFO sched sched:" not in line]
        told = [line for line in lines if "unreachable" in line or "answers again" in line]
        others = [line for line in lines if line not in told and BUSY_MACHINE not in line]
        loud = [line for line in others if not LOG_LINE.match(line)]
        assert not loud, (replica.log.name, loud)
        went, back, *again = told
        assert BUSY_MACHINE in text or not again, (
            "a worker that stands still for seconds may lose a connection"
        )
        assert AWAY_LINE % (server, place) in went
        assert BACK_LINE % (server, place) in back
        assert AWAY - 5 <= int(back.split()[-2]) <= AWAY + 30, "seconds that it was away"


def assert_a_program_reads_two_lines(fleet: Fleet, place: str) -> None:
    """The same as JSON: every line is an object, and two of each worker are about the server."""
    for replica in fleet.replicas:
        text = replica.log.read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        away = [line for line in lines if line["event"].startswith("server_")]
        assert [line["event"] for line in away[:2]] == ["server_away", "server_back"]
        assert BUSY_MACHINE in text or len(away) == 2
        assert {(line["server"], line["place"]) for line in away} == {("ledger", place)}
        assert AWAY - 5 <= away[1]["duration_ms"] / 1000 <= AWAY + 30
        others = [
            line for line in lines if line not in away and BUSY_MACHINE not in line["message"]
        ]
        loud = [line for line in others if line["level"] != "INFO"]
        assert not loud, (replica.log.name, loud)
        started = next(line for line in lines if line["event"] == "run_started")
        assert started["workflow_id"] == f"sched:{started['schedule']}:{started['bucket']}"
        assert started["replica"].count(":") == 2


async def goes_on_with_every_window(fleet: Fleet, books: Books) -> None:
    """What opened before and while the server was away, and a little later, is all there."""
    returned_at = datetime.now(UTC)
    await books.until_fired(KEYS, 3, since=returned_at, timeout=60)
    await books.until_settled(returned_at, timeout=120)
    for replica in fleet.replicas:
        replica.send(signal.SIGTERM)
    for replica in fleet.replicas:
        assert await replica.gone() == 0
    # Only now: a server with its runs on disk, that has just come back, is busy enough.
    await books.agree(load_schedules(FILE), until=returned_at)


@pytest.mark.prove
async def test_no_window_is_lost_or_doubled_while_temporal_is_away(
    tmp_path: Path, temporal_on_disk: TemporalServer, database_url: str
) -> None:
    server = temporal_on_disk
    client = await Client.connect(server.address)
    async with (
        Fleet(
            tmp_path, address=server.address, namespace="default", database_url=database_url
        ) as fleet,
        opened_books(database_url, client) as books,
    ):
        for _ in range(3):
            await fleet.start(FILE, SCHED_LEASE="5s")
        await books.until_fired(KEYS, 3, timeout=60)
        await fleet.until_started_some()
        await killed_for_a_while(server)
        # Each asks again in its own time; the others do its work meanwhile.
        back = BACK_LINE % ("Temporal", server.address)
        await eventually(lambda: all(counted(fleet, back)), timeout=60)
        await goes_on_with_every_window(fleet, books)
        # Said once, however many windows met it.
        assert_an_operator_reads_two_lines(fleet, "Temporal", server.address)
        assert not any(counted(fleet, "starting: ")), "a line for each window"
        # The cursors stood still: most was claimed when it could be sent, and sent once.
        rows = await books.fires()
        assert sum(row["attempts"] > 1 for row in rows) < AWAY * len(KEYS) / 2


@pytest.mark.prove
async def test_no_window_is_lost_or_doubled_while_postgresql_is_away(
    tmp_path: Path, own_postgres: PostgresServer, temporal: Temporal, client: Client
) -> None:
    server = own_postgres
    async with Fleet(
        tmp_path, address=temporal.address, namespace=client.namespace, database_url=server.url
    ) as fleet:
        for _ in range(2):
            await fleet.start(FILE, SCHED_LEASE="5s", SCHED_LOG_FORMAT="json")
        async with opened_books(server.url, client) as books:
            await books.until_fired(KEYS, 3, timeout=60)
            await fleet.until_started_some()
        await killed_for_a_while(server)
        async with opened_books(server.url, client) as books:
            # Each asks again in its own time; the others do its work meanwhile.
            await eventually(lambda: all(counted(fleet, '"server_back"')), timeout=60)
            await goes_on_with_every_window(fleet, books)
        assert_a_program_reads_two_lines(fleet, f"127.0.0.1:{server.port}")


@pytest.mark.prove
async def test_a_server_that_falls_silent_is_taken_for_away_and_its_late_starts_are_no_doubles(
    tmp_path: Path, temporal_on_disk: TemporalServer, database_url: str
) -> None:
    server = temporal_on_disk
    client = await Client.connect(server.address)
    async with (
        Fleet(
            tmp_path, address=server.address, namespace="default", database_url=database_url
        ) as fleet,
        opened_books(database_url, client) as books,
    ):
        await fleet.start(FILE, SCHED_LEASE="5s", SCHED_RPC_TIMEOUT="2s")
        await books.until_fired(KEYS, 3, timeout=60)
        await fleet.until_started_some()
        os.kill(server.pid, signal.SIGSTOP)
        try:
            away = AWAY_LINE % ("Temporal", server.address)
            await eventually(lambda: fleet.logged(away))
            decided = len(await books.fires())
            held_until = time.monotonic() + 3
            await eventually(lambda: time.monotonic() > held_until)
            assert len(await books.fires()) == decided, "claimed what could not be sent"
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await goes_on_with_every_window(fleet, books)
