"""Connections whose other end has fallen silent, as after a firewall forgot them: nobody waits on.

Stopped backends stand for the silence; the database itself still takes new connections.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import asyncpg
import pytest
from temporalio.worker import Worker

from engine.api import app
from engine.ledger import Ledger
from engine.runtime import SchedulePlugin
from engine.schedules import load_schedules
from tests.rest import rest_api
from tests.sample_workflows import Noop
from tests.waiting import eventually

PULSE = "schedules: [{key: pulse, workflow: noop, everyMs: 1000}]"
OURS = """
SELECT pid, state FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'sched-engine'
"""


class Silence:
    """Stops the backends of one database's ledger connections, and lets them go on."""

    def __init__(self, database: asyncpg.Connection) -> None:
        self.database = database
        self.stopped: set[int] = set()

    async def falls(self) -> int:
        """Stop them all, between two transactions: a stopped one must hold no lock.

        Returns how many connections are dead now.
        """

        async def all_idle() -> bool:
            pids = {row["pid"] for row in await self.database.fetch(OURS)}
            self._send(signal.SIGSTOP, pids)
            self.stopped = pids
            after = await self.database.fetch(OURS)
            if pids and {(row["pid"], row["state"]) for row in after} == {
                (pid, "idle") for pid in pids
            }:
                return True
            self.ends()
            return False

        await eventually(all_idle)
        return len(self.stopped)

    def ends(self) -> None:
        """Let them go on; harmless when nothing is stopped."""
        self._send(signal.SIGCONT, self.stopped)
        self.stopped = set()

    @staticmethod
    def _send(number: signal.Signals, pids: set[int]) -> None:
        for pid in pids:
            os.kill(pid, number)


@pytest.fixture
async def silence(database_url: str) -> AsyncIterator[Silence]:
    connection = await asyncpg.connect(database_url, server_settings={"search_path": "sched"})
    made = Silence(connection)
    yield made
    made.ends()  # or the server could not drop the database, nor stop
    await connection.close()


async def test_a_replica_decides_its_next_window_over_new_connections(
    client, database_url, silence
):
    plugin = SchedulePlugin(load_schedules(PULSE), database_url=database_url)
    async with Worker(client, task_queue="sched", workflows=[Noop], plugins=[plugin]):

        async def decided(since: object = None):
            """How many windows; none while the replica has not made the table yet."""
            known = await silence.database.fetchval("SELECT to_regclass('fires')")
            count = "SELECT count(*) FROM fires WHERE $1::timestamptz IS NULL OR decided_at > $1"
            return await silence.database.fetchval(count, since) if known else 0

        async def goes_on():
            return await decided(fell_at)

        async def has_begun():
            return await decided() >= 3

        await eventually(has_begun, timeout=30)
        assert await silence.falls() >= 1
        fell_at = await silence.database.fetchval("SELECT clock_timestamp()")
        await eventually(goes_on, timeout=15)
        assert silence.stopped, "the dead connections were not dead"


async def test_a_ledger_closes_within_ten_seconds_over_dead_connections(database_url, silence):
    ledger = await Ledger.connect(database_url)
    await asyncio.gather(*(ledger.fires() for _ in range(3)))
    assert await silence.falls() >= 1
    async with asyncio.timeout(10):
        await ledger.close()


async def test_readiness_waits_for_no_dead_connection(
    database_url, silence, monkeypatch: pytest.MonkeyPatch
):
    ended: list[BaseException | str] = []
    identity = Ledger.identity

    async def noted(ledger: Ledger) -> str:
        try:
            ended.append(found := await identity(ledger))
        except BaseException as error:
            ended.append(error)
            raise
        return found

    monkeypatch.setattr(Ledger, "identity", noted)
    monkeypatch.setattr(app, "_PATIENCE", 0.02)
    async with rest_api(database_url) as api, api.client() as client:
        assert await silence.falls() >= 1
        assert (await client.get("/readyz")).status_code == 503
        assert not ended, "the answer did not wait until the connection was given up"
        silence.ends()
        await eventually(lambda: ended)
        assert (await client.get("/readyz")).status_code == 200
