"""What it costs to find the keys whose queue waits for nothing: counted, never timed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from engine.ledger import PostgresLedger
from engine.ledger.fire_records import Evidence, Outcome
from engine.ledger.replica_records import Serving
from engine.ledger.sql import query
from engine.runtime.declare import apply
from engine.runtime.planning import planned
from engine.schedules import load_schedules
from engine.schedules.awaiting import FAILED
from engine.service import ScheduleService
from tests.waiting import eventually

SCHEDULES, KEYS, OPEN, WAITING, PLACES = 10_000, 1000, 600, 4000, 500
CLOSED = 50_000


@pytest.fixture
async def crowded(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """Keys with a run open and three that wait, one with very many of both, and most with none."""
    ledger = await PostgresLedger.connect(database_url, namespace="test")
    connection = await asyncpg.connect(database_url, server_settings={"search_path": "sched"})
    await connection.execute(
        f"""
        INSERT INTO schedules (namespace, key, project, definition_version, digest, series,
                               suffixed, effective_from, cursor, next_fire_at, workflow,
                               workflow_type, task_queue, external, grace, enabled)
        SELECT 'test', 'k' || n, 'default', 1, '', 1, false, now(), now(),
               now() + interval '1 hour', 'noop', 'noop@1', 'sched', false, '60s', true
        FROM generate_series(0, {SCHEDULES}) AS n;
        INSERT INTO definitions (namespace, project, key, version, digest, definition, series,
                                 effective_from, applied_at, applied_by)
        SELECT namespace, project, key, 1, '',
               CASE key WHEN 'k0' THEN '{{"overlap": "queue", "maxConcurrentRuns": {PLACES}}}'
                        ELSE '{{"overlap": "queue"}}' END::jsonb, 1, now(), now(), 'test'
        FROM schedules;
        INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time,
                           definition_version, workflow_id, workflow_type, task_queue, status,
                           run_id, started_at, closed_at)
        SELECT 'test', 'default', key, 1, n, 'epoch'::timestamptz + n * interval '1 s',
               'epoch'::timestamptz + n * interval '1 s', 1, key || ':' || n, 'noop@1', 'sched',
               status, CASE status WHEN 'queued' THEN NULL ELSE 'run' END,
               CASE status WHEN 'queued' THEN NULL ELSE now() END,
               CASE status WHEN 'completed' THEN now() END
        FROM (SELECT 'k' || k AS key, n, CASE n WHEN 0 THEN 'started' ELSE 'queued' END AS status
              FROM generate_series(1, {KEYS}) k, generate_series(0, 3) n
              UNION ALL
              SELECT 'k0', n, CASE WHEN n < {OPEN} THEN 'started' ELSE 'queued' END
              FROM generate_series(0, {OPEN + WAITING - 1}) n
              UNION ALL
              SELECT 'k' || n % {KEYS}, 1000000 + n, 'completed'
              FROM generate_series(1, {CLOSED}) n) AS f;
        ANALYZE schedules; ANALYZE definitions; ANALYZE fires;
        """
    )
    yield connection
    await connection.close()
    await ledger.close()


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in nodes(child))]


async def test_each_key_that_waits_is_asked_about_once_and_no_further_than_to_its_limit(
    crowded: asyncpg.Connection,
):
    (row,) = await crowded.fetch(
        f"EXPLAIN (ANALYZE, FORMAT JSON) {query('wake')}", "test", sorted(FAILED), 200, 0.5, 5000
    )
    plan = json.loads(row[0])[0]
    found = nodes(plan["Plan"])
    scans = [
        node
        for node in found
        if node.get("Relation Name") == "fires" and "Scan" in node["Node Type"]
    ]
    assert scans
    read = sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in scans
    )
    # Of each key that waits the runs up to its limit, and nothing of what waits.
    assert read <= KEYS + PLACES + 100, scans
    assert not [node for node in scans if node["Node Type"] == "Seq Scan"], scans
    counts = [node for node in scans if node.get("Index Name") == "fires_running"]
    assert 0 < sum(node["Actual Loops"] for node in counts) <= KEYS + 1, "only of keys that wait"


SERVING = Serving("replica", "default", "sched", frozenset({"noop@1"}))
FILE = "schedules: [{key: k, workflow: noop, everyMs: 3600000, overlap: queue}]"


async def test_a_wake_beside_a_plan_that_did_not_see_the_close_is_not_lost(database_url):
    ledger = await PostgresLedger.connect(database_url, namespace="test")
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
    await apply(ledger, load_schedules(FILE), by="test")
    async with ledger.transaction() as transaction:
        (state,) = await transaction.read(await transaction.lock_due(SERVING, 10))
        (claim,) = await transaction.record(
            [planned(state, await transaction.now())], owner="replica", lease=timedelta(seconds=30)
        )
    now = datetime.now(UTC)
    begun = Outcome(claim.fire_id, claim.token, "started", "on_time", "run", started_at=now)
    await ledger.settle([begun])
    await ScheduleService(ledger, actor="test").trigger("k", request_id="r")
    await ledger.make_due(["k"])
    async with ledger.transaction() as transaction:
        (state,) = await transaction.read(await transaction.lock_due(SERVING, 10))
        step = planned(state, await transaction.now())  # the run is open, as far as it knows
        closed = Evidence(claim.workflow_id, "run", now, "completed", now)
        assert await ledger.witness([closed]) == [claim.workflow_id]
        waking = asyncio.create_task(ledger.wake())

        async def waits() -> bool:
            asked = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            return bool(await transaction.connection.fetchval(asked))

        await eventually(waits)
        await transaction.record([step])
    assert await waking == ["k"]
    async with ledger.transaction() as transaction:
        assert await transaction.lock_due(SERVING, 10) == ["k"], "it is planned once more"
    await ledger.close()
