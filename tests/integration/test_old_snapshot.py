"""A transaction that somebody forgot makes no tick slower: pages are counted, never time."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from engine.ledger import Ledger, floors
from engine.ledger.fires import Claim, Evidence, Outcome
from engine.ledger.postgres.connections import Connections, query
from engine.ledger.postgres.rows import Statements
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from engine.schedules.planner.planner import plan

SERVING = Serving("replica-a", "default", "sched", frozenset({"noop@1"}))
KEYS = 8
MOVES = 250
"""Windows of each key: far more pages of dead rows than a tick may touch."""
FEW = 40
"""Pages of eight keys more or less: an index that has grown by a level, rows that lie elsewhere."""
LEASE = timedelta(seconds=30)
SECOND = timedelta(seconds=1)
OF_A_TICK = (
    "probe", "take_over", "lock_due", "read_schedules", "insert_fires", "move_cursors", "settle",
    "record_evidence", "renew", "open_runs",
)  # fmt: skip


@pytest.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    opened = await Ledger.connect(database_url, namespace="test")
    await opened.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
    lines = "".join(
        f"  - {{key: k{number}, workflow: noop, everyMs: 1000}}\n" for number in range(KEYS)
    )
    await apply(opened, load_schedules(f"schedules:\n{lines}"), by="test")
    yield opened
    await opened.close()


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    opened = await asyncpg.connect(database_url, server_settings={"search_path": "sched"})
    yield opened
    await opened.close()


class Asked(dict[str, tuple[object, ...]]):
    """The arguments that each query was sent with last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        run, fetch = Statements.run, Connections.fetch

        async def ran(statements: Statements, name: str, *arguments: object):
            self[name] = ("test", *arguments)
            return await run(statements, name, *arguments)

        async def fetched(connections: Connections, text: str, *arguments: object):
            self.update({name: arguments for name in OF_A_TICK if text == query(name)})
            return await fetch(connections, text, *arguments)

        monkeypatch.setattr(Statements, "run", ran)
        monkeypatch.setattr(Connections, "fetch", fetched)

    async def pages(self, connection: asyncpg.Connection) -> dict[str, int]:
        """How many pages each statement of a tick visits, sent as it was sent last."""
        found = {}
        for name in OF_A_TICK:
            text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query(name)}"
            transaction = connection.transaction()
            await transaction.start()
            (row,) = await connection.fetch(text, *self[name])
            await transaction.rollback()
            plan = json.loads(row[0])[0]["Plan"]
            found[name] = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return found


async def move(ledger: Ledger, times: int) -> None:
    """Let each key fire so often, as a poller does, and let the runs begin and end."""
    for _ in range(times):
        await ledger.probe(SERVING, ahead=SECOND)
        async with ledger.transaction() as transaction:
            keys = await transaction.lock_due(SERVING, 100)
            states = await transaction.read(keys)
            steps = [plan(state, state.cursor + SECOND) for state in states]
            claims = await transaction.record(steps, owner=SERVING.replica, lease=LEASE)
        await ledger.take_over(SERVING, limit=100, lease=LEASE)
        await ledger.renew(claims, LEASE)
        await ledger.open_runs(8, started_before=datetime.now(UTC))
        await ran(ledger, claims)


async def ran(ledger: Ledger, claims: list[Claim]) -> None:
    now = datetime.now(UTC)
    await ledger.settle([
        Outcome(each.fire_id, each.token, "started", "on_time", run_id="r", started_at=now)
        for each in claims
    ])  # fmt: skip
    await ledger.record_evidence([
        Evidence(each.workflow_id, "r", now, "completed", now) for each in claims
    ])  # fmt: skip


async def long_ago(connection: asyncpg.Connection) -> None:
    """Let the schedules owe what they are to fire in this test."""
    await connection.execute("ALTER TABLE schedules DISABLE TRIGGER cursor_moves_forward")
    await connection.execute(
        "UPDATE schedules SET cursor = cursor - interval '1 day',"
        " effective_from = effective_from - interval '2 days',"
        " next_fire_at = next_fire_at - interval '1 day'"
    )
    await connection.execute("ALTER TABLE schedules ENABLE TRIGGER cursor_moves_forward")


async def test_beside_an_old_snapshot_a_tick_visits_as_few_pages_as_without(
    ledger, connection, database_url, monkeypatch
):
    # What was written within these seconds is walked again, which is as much at any time.
    monkeypatch.setattr(floors, "_OPEN", timedelta(0))
    for table in ("schedules", "positions", "fires"):
        # Autovacuum comes at its own time, and would make it other pages in each run.
        await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
    await long_ago(connection)
    asked = Asked(monkeypatch)
    await move(ledger, 10)
    before = await asked.pages(connection)
    forgotten = await asyncpg.connect(database_url)
    async with forgotten.transaction(isolation="repeatable_read"):
        await forgotten.fetch("SELECT 1 FROM sched.schedules")
        await move(ledger, MOVES // 2)
        # Now it is known that a key has one row.
        await connection.execute("ANALYZE positions, schedules, fires")
        await move(ledger, MOVES // 2)
        assert await connection.fetchval("SELECT count(*) FROM fires") >= KEYS * MOVES
        after = await asked.pages(connection)
    await forgotten.close()
    assert {name: pages for name, pages in after.items() if pages > before[name] + FEW} == {}


async def test_a_schedule_that_was_written_below_the_floor_is_found_again(ledger, connection):
    await ledger.probe(SERVING)
    await ledger.probe(SERVING)
    # As a commit that took longer than a tick may.
    await connection.execute(
        "UPDATE positions SET due_at = due_at - interval '1 h' WHERE key = 'k3'"
    )
    await connection.execute(
        "UPDATE positions SET due_at = due_at + interval '1 h' WHERE key <> 'k3'"
    )
    assert (await ledger.probe(SERVING)).due_at > datetime.now(UTC)
    ledger._look_at = -math.inf
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=None)
    assert (await ledger.probe(SERVING)).due_at < datetime.now(UTC)


async def test_what_an_apply_makes_due_below_the_floor_is_found_at_the_second_look(
    ledger, connection
):
    await ledger.probe(SERVING)
    await connection.execute("UPDATE positions SET due_at = due_at - interval '1 h'")
    await connection.execute("UPDATE ledger SET epoch = epoch + 1")
    await ledger.probe(SERVING)
    assert (await ledger.probe(SERVING)).due_at < datetime.now(UTC) - timedelta(minutes=59)
