"""Who looks for closed runs: a replica that reaches Temporal, and that stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from engine.ledger import Ledger
from engine.runtime import SchedulePlugin, Settings
from engine.schedules import load_schedules
from tests.links import link_to
from tests.sample_workflows import Noop
from tests.waiting import eventually

FILE = load_schedules("schedules: [{key: k, workflow: noop, everyMs: 1000}]")
SETTINGS = Settings(track=timedelta(seconds=1))
HOLDER = (
    "SELECT holder FROM sched.duties WHERE duty = 'tracker:1' AND expires_at > clock_timestamp()"
)


@pytest.fixture
async def database(database_url) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


def replica(client: Client, database_url: str) -> Worker:
    plugin = SchedulePlugin(FILE, database_url=database_url, settings=SETTINGS)
    return Worker(client, task_queue="sched", workflows=[Noop], plugins=[plugin])


async def holder(database: asyncpg.Connection, *others: str) -> str:
    """Who has the duty, once it is none of the others."""

    async def found() -> str:
        with suppress(asyncpg.UndefinedTableError):
            name = await database.fetchval(HOLDER)
            return "" if name is None or name in others else str(name)
        return ""

    return await eventually(found, timeout=30)


async def test_another_has_the_duty_within_three_seconds_of_a_drain(
    client, temporal, database_url, database
):
    second = await Client.connect(temporal.address, namespace=client.namespace)
    async with AsyncExitStack() as stays:
        async with replica(client, database_url):
            first = await holder(database)
            await stays.enter_async_context(replica(second, database_url))

            async def both() -> bool:
                count: int = await database.fetchval("SELECT count(*) FROM sched.replicas")
                return count == 2

            await eventually(both)
            leaves = asyncio.get_running_loop().time()
        await holder(database, first)
        assert asyncio.get_running_loop().time() - leaves < 3


async def test_closes_go_on_when_the_replica_that_looks_for_them_loses_temporal(
    client, temporal, database_url, database, namespace
):
    async with link_to(temporal.port) as link, AsyncExitStack() as stays:
        cut_off = await Client.connect(link.way(temporal.address), namespace=namespace)
        await stays.enter_async_context(replica(cut_off, database_url))
        first = await holder(database)
        await stays.enter_async_context(replica(client, database_url))
        stays.enter_context(link.harmed("cut"))  # until then; its worker leaves in good order
        cut_at = datetime.now(UTC)
        await holder(database, first)
        ledger = await Ledger.connect(database_url, namespace=namespace)
        stays.push_async_callback(ledger.close)

        async def closes() -> bool:
            fires = await ledger.fires(key="k", status="completed", limit=100)
            return len([fire for fire in fires if fire.closed_at and fire.closed_at > cut_at]) > 4

        await eventually(closes, timeout=30)
        assert await database.fetchval(HOLDER) != first
