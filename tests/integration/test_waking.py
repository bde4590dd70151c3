"""What it costs to find the keys whose queue waits for nothing: counted, never timed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

import engine.ledger.postgres.ledger
from engine.errors import LedgerTimeout
from engine.ledger import Ledger, Transaction
from engine.ledger.fires import Claim, Evidence, Outcome
from engine.ledger.postgres.connections import query
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from engine.schedules.planner.decisions import FAILED
from engine.schedules.planner.planner import plan
from engine.service import ScheduleService
from tests.waiting import until_one_waits

SCHEDULES, KEYS, OPEN, WAITING, PLACES = 2000, 1000, 600, 4000, 500
CLOSED = 20_000


@pytest.fixture
async def crowded(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """Keys with a run open and three that wait, one with very many of both, and most with none."""
    ledger = await Ledger.connect(database_url, namespace="test")
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


@dataclass
class Line:
    """A key whose one place is taken, with a window that waits for it, and due to be planned."""

    ledger: Ledger
    claim: Claim
    now: datetime

    @asynccontextmanager
    async def planned_without_the_close(self) -> AsyncIterator[Transaction]:
        """A plan that takes the run for open, which has closed by the time it is recorded."""
        async with self.ledger.transaction() as transaction:
            (state,) = await transaction.read(await transaction.lock_due(SERVING, 10))
            step = plan(state, await transaction.now())
            name = self.claim.workflow_id
            closed = Evidence(name, "run", self.now, "completed", self.now)
            assert await self.ledger.record_evidence([closed]) == [name]
            yield transaction
            await transaction.record([step])

    async def is_due(self) -> bool:
        async with self.ledger.transaction() as transaction:
            return await transaction.lock_due(SERVING, 10) == ["k"]


@pytest.fixture
async def line(database_url: str) -> AsyncIterator[Line]:
    ledger = await Ledger.connect(database_url, namespace="test")
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
    await apply(ledger, load_schedules(FILE), by="test")
    async with ledger.transaction() as transaction:
        (state,) = await transaction.read(await transaction.lock_due(SERVING, 10))
        (claim,) = await transaction.record(
            [plan(state, await transaction.now())], owner="replica", lease=timedelta(seconds=30)
        )
    now = datetime.now(UTC)
    begun = Outcome(claim.fire_id, claim.token, "started", "on_time", "run", started_at=now)
    await ledger.settle([begun])
    await ScheduleService(ledger, actor="test").trigger("k", request_id="r")
    await ledger.make_due(["k"])
    yield Line(ledger, claim, now)
    await ledger.close()


async def test_a_wake_beside_a_plan_that_did_not_see_the_close_is_not_lost(line: Line):
    async with line.planned_without_the_close() as transaction:
        waking = asyncio.create_task(line.ledger.wake())
        await until_one_waits(transaction.connection)
    assert await waking == ["k"]
    assert await line.is_due(), "it is planned once more"


async def test_nor_is_one_that_locks_the_key_when_that_plan_has_just_committed(
    line: Line, database_url: str, monkeypatch: pytest.MonkeyPatch
):
    stops = query("wake").replace(
        "WHERE s.namespace = $1 ORDER BY s.key",
        "WHERE s.namespace = $1 AND pg_advisory_xact_lock_shared(7)::text = '' ORDER BY s.key",
    )  # fmt: skip
    assert stops != query("wake")
    monkeypatch.setattr(
        engine.ledger.postgres.ledger, "query",
        lambda name: stops if name == "wake" else query(name),
    )  # fmt: skip
    gate = await asyncpg.connect(database_url)
    async with line.planned_without_the_close():
        await gate.execute("SELECT pg_advisory_lock(7)")
        waking = asyncio.create_task(line.ledger.wake())
        await until_one_waits(gate)
    await gate.execute("SELECT pg_advisory_unlock(7)")
    assert await waking == ["k"]
    assert await line.is_due(), "it is planned once more"
    await gate.close()


async def test_a_key_that_is_locked_for_seconds_is_woken_later_and_keeps_no_other_waiting(
    line: Line, database_url: str
):
    await apply(line.ledger, load_schedules(FILE.replace("k,", "other,", 1)), by="test")
    holder = await asyncpg.connect(database_url, server_settings={"search_path": "sched"})
    held = holder.transaction()
    await held.start()
    await holder.execute("SELECT FROM schedules WHERE key = 'k' FOR UPDATE")
    name = line.claim.workflow_id
    await line.ledger.record_evidence([Evidence(name, "run", line.now, "completed", line.now)])
    assert await line.ledger.wake() == []
    with pytest.raises(LedgerTimeout):
        await line.ledger.make_due(["k", "other"])
    soon = await holder.fetchval(
        "SELECT p.next_fire_at <= clock_timestamp() FROM position_of('test', 'other') p"
    )
    assert soon, "the other one was made due"
    await held.rollback()
    await holder.execute(
        "UPDATE schedules SET next_fire_at = now() + interval '1 h' WHERE key = 'k'"
    )
    assert await line.ledger.wake() == ["k"]
    await holder.close()
