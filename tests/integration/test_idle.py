"""What an idle replica costs: counted, never timed."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import cast

import asyncpg
import pytest
from temporalio.client import Client

from engine.ledger import Ledger
from engine.ledger.floors import EVER
from engine.ledger.postgres.connections import query
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.dispatcher import Dispatcher
from engine.runtime.dispatch.starter import Starter
from engine.runtime.settings import Settings
from engine.runtime.tick.poller import Poller
from engine.schedules import load_schedules
from engine.schedules.planner.decisions import TIME_RULES
from tests.blind import BLIND
from tests.waiting import eventually

SERVING = Serving("idle", "default", "sched", frozenset({"noop@1"}))
TICKS = 40


class NoTemporal:
    """Stands where the client would be; an idle tick must not even look at it."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"an idle tick used the client's {name}")


def idle_poller(ledger: Ledger) -> Poller:
    clock, settings = LedgerClock(), Settings()
    starter = Starter(cast("Client", NoTemporal()), clock, settings)
    dispatcher = Dispatcher(ledger, starter, clock, settings, on_event=print)
    return Poller(ledger, dispatcher, clock, SERVING, settings, **BLIND)


async def statements(postgres, database_url: str, ticks: int) -> int:
    """How many statements a replica with so many idle ticks cost, as the server counted them.

    Every autocommit statement is one transaction. Backends report when they end at the latest.
    """
    watcher = await asyncpg.connect(postgres.url)
    name = database_url.rpartition("/")[2]

    async def count() -> int:
        found: int = await watcher.fetchval(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1", name
        )
        return found

    async def nobody_is_left() -> bool:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1"
        return bool(await watcher.fetchval(query, name) == 0)

    await eventually(nobody_is_left)
    before = await count()
    ledger = await Ledger.connect(database_url, namespace="test", connections=1)
    poller = idle_poller(ledger)
    for _ in range(ticks):
        tick = await poller.tick()
        assert tick.claims == ()
    await ledger.close()
    await eventually(nobody_is_left)
    after = await count()
    await watcher.close()
    return after - before


async def test_an_idle_tick_is_one_statement_and_no_temporal_call(database_url, postgres):
    ledger = await Ledger.connect(database_url, namespace="test")
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
    file = load_schedules('schedules: [{key: yearly, workflow: noop, cron: "0 0 1 1 *"}]')
    await apply(ledger, file, by="test")
    await ledger.close()

    async def fewest(ticks: int) -> int:
        # The server's own housekeeping (autovacuum) can only add to the count.
        return min([await statements(postgres, database_url, ticks) for _ in range(3)])

    assert await fewest(1 + TICKS) == await fewest(1) + TICKS


@pytest.fixture
async def crowded(database_url):
    """A ledger of 20,000 schedules, 50 of them due and the others in an hour or later."""
    ledger = await Ledger.connect(database_url, namespace="test")
    connection = await asyncpg.connect(database_url, server_settings={"search_path": "sched"})
    await connection.execute(
        """
        INSERT INTO schedules (namespace, key, project, definition_version, digest, series,
                               suffixed, effective_from, cursor, next_fire_at, workflow,
                               workflow_type, task_queue, external, grace, enabled)
        SELECT 'test', 'k' || n, 'default', 1, '', 1, false, now(), now(),
               now() + (n - 50) * interval '1 second'
               + CASE WHEN n > 50 THEN interval '1 hour' ELSE '0' END,
               'noop', 'noop@1', 'sched', n % 2 = 0,
               '60s', true
        FROM generate_series(1, 20000) AS n
        """
    )
    await connection.execute("ANALYZE schedules, positions")
    yield connection
    await connection.close()
    await ledger.close()


def nodes(plan: dict) -> list[dict]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in nodes(child))]


INDEXES = {
    "probe": {"positions_due", "schedules_pkey", "schedules_following"},
    "lock_due": {"positions_due", "schedules_pkey"},
}
TABLES = {"schedules", "positions"}


@pytest.mark.parametrize("name", INDEXES)
async def test_what_a_tick_asks_uses_the_index_however_many_schedules_there_are(crowded, name):
    arguments = ["test", "default", SERVING.lanes, list(SERVING.types), TIME_RULES]
    more: list[object] = (
        [EVER] * 3 + [timedelta(seconds=1), 1] if name == "probe" else [200, EVER, [], None, 1]
    )
    text = f"EXPLAIN (ANALYZE, FORMAT JSON) {query(name)}"
    (row,) = await crowded.fetch(text, *arguments, *more)
    found = nodes(json.loads(row[0])[0]["Plan"])
    scans = [node for node in found if node.get("Relation Name") in TABLES]
    assert scans
    assert {node.get("Index Name") for node in scans} == INDEXES[name]
    read = sum(
        node["Actual Rows"] * node["Actual Loops"] + node.get("Rows Removed by Filter", 0)
        for node in scans
    )
    assert read <= (4 if name == "probe" else 120)
