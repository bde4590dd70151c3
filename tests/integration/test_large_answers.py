"""A process that is stopped while a large answer is on its way to it holds nobody up for long."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from tests.postgres import NEWEST, OtherPostgres, programs_of
from tests.servers import shared_folder
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
STOPS = """
import asyncio, os, signal, sys
from engine.errors import LedgerUnavailable
from engine.ledger.postgres.connections import Connections

async def main():
    connections = await Connections.open(sys.argv[1], schema="public", most=1)
    try:
        async with connections.transaction() as transaction:
            await transaction.execute("SELECT * FROM held FOR UPDATE")
            large = await transaction.prepare(
                "SELECT repeat('x', 1000) FROM generate_series(1, 50000)")
            answer = asyncio.create_task(large.fetch())
            await asyncio.sleep(0)  # it is asked for now
            os.kill(os.getpid(), signal.SIGSTOP)
            await answer
    except LedgerUnavailable:
        print("cut")

asyncio.run(main())
"""


@pytest.fixture(
    params=[*(pytest.param(each, marks=pytest.mark.prove) for each in (15, 16)), NEWEST]
)
async def database(request: pytest.FixtureRequest, empty_database_url: str) -> AsyncIterator[str]:
    """A database with one row, on a server of each version."""
    if request.param == NEWEST:
        yield await held(empty_database_url)
        return
    programs = programs_of(request.param)
    if programs is None:
        pytest.skip(f"no PostgreSQL {request.param} here")
    with shared_folder() as folder:
        server = OtherPostgres(folder / "pg", programs)
        await server.start()
        try:
            yield await held(server.url_of("postgres"))
        finally:
            await server.stop()


async def held(url: str) -> str:
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE held AS SELECT 1 AS row")
    await connection.close()
    return url


async def test_a_row_is_free_again_though_its_holder_was_stopped_in_a_large_answer(database):
    stopped = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STOPS, database, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        stat = Path(f"/proc/{stopped.pid}/stat")
        await eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", timeout=30)
        other = await asyncpg.connect(database)
        waits = "SELECT true FROM pg_stat_activity WHERE wait_event = 'ClientWrite' "
        waits += "AND datname = current_database()"
        await eventually(lambda: other.fetchval(waits))
        async with asyncio.timeout(10):
            await other.execute("SELECT * FROM held FOR UPDATE")
        await other.close()
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
        try:
            async with asyncio.timeout(60):
                said, _ = await stopped.communicate()
        except TimeoutError:
            stopped.kill()
            raise
    assert said == b"cut\n", "and the one that was stopped knows that it has lost it"
