"""What is asked for by hand starts at once, and without hints a tick later."""

from __future__ import annotations

import time

import asyncpg
import pytest
from temporalio.worker import Worker

from engine.errors import LedgerError
from engine.ledger import Ledger
from engine.runtime import SchedulePlugin
from engine.schedules import load_schedules
from engine.service import ScheduleService
from tests.sample_workflows import Noop
from tests.waiting import eventually

YEARLY = 'schedules: [{key: yearly, workflow: noop, cron: "0 0 1 1 *"}]'
LISTENERS = "FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
LONG = 120.0
"""Seconds of a tick for which no test waits."""


@pytest.fixture
async def ledger(client, database_url):
    opened = await Ledger.connect(database_url, namespace=client.namespace)
    yield opened
    await opened.close()


@pytest.fixture
async def watcher(database_url):
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


def worker(client, database_url):
    plugin = SchedulePlugin(load_schedules(YEARLY), database_url=database_url)
    return Worker(client, task_queue="sched", workflows=[Noop], plugins=[plugin])


async def started(ledger, name: str) -> float:
    """Ask for a run; returns how many seconds it took to start."""
    asked = time.monotonic()
    await ScheduleService(ledger, actor="test").trigger("yearly", request_id=name)

    async def there() -> bool:
        fire = await ledger.fire(f"sched:yearly:manual:{name}")
        return fire is not None and fire.run_id is not None

    await eventually(there, timeout=30)
    return time.monotonic() - asked


async def test_a_run_that_is_asked_for_does_not_wait_for_the_tick(
    client, database_url, ledger, watcher, monkeypatch
):
    monkeypatch.setenv("SCHED_TICK", f"{LONG:.0f}s")
    async with worker(client, database_url):
        await eventually(lambda: watcher.fetchval(f"SELECT count(*) {LISTENERS}"))
        assert await started(ledger, "first") < LONG / 2
        assert await watcher.fetchval(f"SELECT count(pg_terminate_backend(pid)) {LISTENERS}") == 1
        assert await started(ledger, "while-nobody-listened") < LONG / 2
        await eventually(lambda: watcher.fetchval(f"SELECT count(*) {LISTENERS}"))
        assert await started(ledger, "again") < LONG / 2
    await eventually(lambda: nobody(watcher))


async def nobody(watcher) -> bool:
    return bool(await watcher.fetchval(f"SELECT count(*) {LISTENERS}") == 0)


async def test_where_nothing_can_be_heard_a_tick_is_waited_for(
    client, database_url, ledger, monkeypatch, caplog
):
    async def deaf(*_: object) -> None:
        raise LedgerError("LISTEN is not supported")

    monkeypatch.setattr(Ledger, "listen", deaf)
    async with worker(client, database_url):
        await eventually(ledger.schedules)
        assert await started(ledger, "deaf") < 30
    assert "LISTEN" not in caplog.text, "nobody has to do anything about it"
