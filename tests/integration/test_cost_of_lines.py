"""What a long line costs those who do not wait in it: pages that are read, never seconds."""

from __future__ import annotations

import json
from datetime import timedelta

import asyncpg
import pytest

from engine.ledger import Ledger
from engine.ledger.postgres.connections import query
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from engine.schedules.planner.decisions import FAILED, READ_AHEAD

SERVING = Serving("replica", "default", "sched", frozenset({"noop@1"}))
FILE = """
schedules:
  - {key: busy, workflow: noop, everyMs: 1000, overlap: queue, maxQueued: 100000, firstFire: next}
  - {key: parent, workflow: noop, everyMs: 1000, firstFire: next}
  - {key: child, workflow: noop, firstFire: next, after: {schedule: parent}}
"""
WAITING = """
INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time,
                   definition_version, workflow_id, workflow_type, task_queue, status, awaits)
SELECT 'test', 'default', $1, 1, b, to_timestamp(b), to_timestamp(b), 1,
       'sched:' || $1 || ':' || b, 'noop@1', 'sched', 'queued', $3::jsonb
FROM generate_series(1000000000, 1000000000 + $2::int - 1) AS b
"""
AWAITS = '{"rules": [{"parent": "parent", "when": "success", "window": "same"}]}'
MANY = 5000


@pytest.fixture
async def ledger(database_url):
    opened = await Ledger.connect(database_url, namespace="test")
    await opened.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
    await apply(opened, load_schedules(FILE), by="test")
    yield opened
    await opened.close()


@pytest.fixture
async def connection(database_url, ledger):
    opened = await asyncpg.connect(
        database_url, server_settings={"search_path": "sched", "jit": "off"}
    )
    yield opened
    await opened.close()


async def pages(connection: asyncpg.Connection, name: str, *arguments: object) -> int:
    """How many pages a statement touches; what it writes is taken back."""
    transaction = connection.transaction()
    await transaction.start()
    explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query(name)}"
    text = await connection.fetchval(explained, "test", *arguments)
    await transaction.rollback()
    plan = json.loads(text)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.parametrize(("key", "awaits"), [("busy", None), ("child", AWAITS)])
async def test_a_plan_and_a_wake_cost_the_same_however_many_windows_wait(connection, key, awaits):
    plan = ("read_schedules", [key], False, READ_AHEAD, 0.5, 1)
    wake = ("wake", sorted(FAILED), 200, 0.5, 5000)
    await connection.execute(WAITING, key, 500, awaits)
    await connection.execute("VACUUM ANALYZE")
    few = [await pages(connection, *plan), await pages(connection, *wake)]
    await connection.execute("DELETE FROM fires")
    await connection.execute(WAITING, key, MANY, awaits)
    await connection.execute(query("fold_lines"), "test", [key])
    await connection.execute("VACUUM ANALYZE")
    many = [await pages(connection, *plan), await pages(connection, *wake)]
    assert many[0] <= 2 * few[0]
    assert many[1] <= 2 * few[1]


async def test_what_waits_is_counted_as_it_comes_and_goes(connection, ledger):
    async def counted(key: str) -> tuple[int, int]:
        async with ledger.transaction() as transaction:
            (state,) = await transaction.read([key])
        read = sum(fire.status == "queued" for fire in state.open_fires)
        return read, state.unread.waiting + state.unread.pending

    await connection.execute(WAITING, "busy", 500, None)
    await connection.execute(WAITING, "child", 500, AWAITS)
    assert await counted("busy") == (1 + READ_AHEAD, 500 - 1 - READ_AHEAD)
    read, rest = await counted("child")
    assert read + rest == 500
    await connection.execute("DELETE FROM fires WHERE key = 'busy' AND bucket % 2 = 0")
    await connection.execute(
        "UPDATE fires SET status = 'skipped', awaits = NULL WHERE key = 'child' AND bucket % 2 = 0"
    )
    await connection.execute(
        "UPDATE fires SET awaits = NULL WHERE key = 'child' AND bucket % 4 = 1"
    )
    assert sum(await counted("busy")) == 250
    assert sum(await counted("child")) == 250


async def test_who_waits_behind_a_window_that_ended_is_let_go_at_once_beside_long_lines(
    connection, ledger
):
    crowd = [f"c{number:02}" for number in range(40)]
    chained = "\n".join(
        f"  - {{key: {key}, workflow: noop, firstFire: next, after: {{schedule: parent}}}}"
        for key in crowd
    )
    await apply(ledger, load_schedules(FILE + chained), by="test")
    to_come = WAITING.replace("1000000000", "4000000000")
    for key in crowd:
        await connection.execute(to_come, key, 150, AWAITS)  # of all more than are looked at
    for key, waits_for in (("parent", None), ("child", AWAITS)):
        await connection.execute(WAITING, key, 1, waits_for)
    await connection.execute(
        "UPDATE fires SET status = 'completed', run_id = 'run', started_at = now(),"
        " closed_at = now() WHERE key = 'parent'"
    )
    await connection.execute("UPDATE schedules SET next_fire_at = now() + interval '1 h'")
    for place in (0.1, 0.3, 0.5, 0.7, 0.9):  # by which it is drawn who is asked about first
        transaction = connection.transaction()
        await transaction.start()
        rows = await connection.fetch(query("wake"), "test", sorted(FAILED), 200, place, 5000)
        await transaction.rollback()
        assert [row["key"] for row in rows if not row["locked"]] == ["child"]
