"""Replicas of before positions work on the same ledger: their queries, verbatim, beside ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from engine.ledger import PostgresLedger
from engine.ledger.floors import EVER
from engine.ledger.postgres.connections import query
from engine.ledger.postgres.transaction import PostgresTransaction
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from engine.schedules.planner.decisions import TIME_RULES, Plan, ScheduleState
from engine.schedules.planner.planner import plan

SERVING = Serving("replica-a", "default", "sched", frozenset({"noop@1"}))
OLDER = Serving("replica-o", "default", "sched", frozenset({"noop@1"}))
LEASE = timedelta(seconds=30)
SECOND = timedelta(seconds=1)
BEHIND = "SELECT count(*) FROM schedules s JOIN positions p USING (key) WHERE s.cursor < p.cursor"
QUERIES = Path(__file__).parent / "queries_before_positions"


def older_query(name: str) -> str:
    return (QUERIES / f"{name}.sql").read_text(encoding="utf-8")


class OlderTransaction:
    """A tick as replicas of before make it; what is not of positions is ours."""

    def __init__(self, transaction: PostgresTransaction) -> None:
        self.ours = transaction

    async def ask(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        return await self.ours.connection.fetch(older_query(name), "test", *arguments)

    async def lock_due(self) -> list[str]:
        types = list(OLDER.types)
        rows = await self.ask("lock_due", OLDER.project, OLDER.lanes, types, TIME_RULES, 100)
        return [row["key"] for row in rows]

    async def cursors(self, keys: Sequence[str]) -> dict[str, tuple[Any, ...]]:
        rows = await self.ask("read_schedules", keys, False)
        return {row["key"]: (row["cursor"], tuple(row["known"] or ()), row["ran"]) for row in rows}

    async def record(self, steps: Sequence[Plan]) -> None:
        for step in steps:
            await self.ours.note_ahead(step)
        moved = [(s.state.key, s.cursor, s.next_fire_at, s.max_bucket, s.reading, s.resumed)
                 for s in steps]  # fmt: skip
        await self.ask("move_cursors", TIME_RULES, *map(list, zip(*moved, strict=True)))


@pytest.fixture
async def ledger(database_url: str) -> AsyncIterator[PostgresLedger]:
    opened = await PostgresLedger.connect(database_url, namespace="test")
    await announced(opened)
    file = load_schedules("schedules: [{key: k, workflow: noop, everyMs: 1000, grace: 1h}]")
    await apply(opened, file, by="test")
    yield opened
    await opened.close()


@pytest.fixture
async def sql(ledger: PostgresLedger, database_url: str) -> AsyncIterator[asyncpg.Connection]:
    opened = await asyncpg.connect(database_url, server_settings={"search_path": "sched"})
    # It owes the windows of some minutes.
    await opened.execute("ALTER TABLE schedules DISABLE TRIGGER cursor_moves_forward")
    await opened.execute(
        "UPDATE schedules SET cursor = date_trunc('second', cursor) - interval '5 min',"
        " next_fire_at = now(), effective_from = effective_from - interval '1 day'"
    )
    await opened.execute("ALTER TABLE schedules ENABLE TRIGGER cursor_moves_forward")
    yield opened
    await opened.close()


async def announced(ledger: PostgresLedger) -> None:
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))


async def older_announced(sql: asyncpg.Connection) -> None:
    await sql.fetch(
        older_query("announce_replica"), "test", OLDER.replica, "default", "sched", ["noop@1"],
        "0", "0",
    )  # fmt: skip


def some(state: ScheduleState, windows: int) -> Plan:
    """Decide so many windows of those that a schedule owes."""
    return plan(state, state.cursor + windows * SECOND)


async def newer_moves(ledger: PostgresLedger, windows: int = 1) -> ScheduleState:
    async with ledger.transaction() as transaction:
        keys = await transaction.lock_due(SERVING, 100)
        (state,) = await transaction.read(keys)
        await transaction.record([some(state, windows)], owner="a", lease=LEASE)
    return await position(ledger)


async def older_moves(ledger: PostgresLedger, windows: int) -> tuple[Any, ...]:
    """Let an older replica decide so much beyond the cursor it sees; returns what it saw."""
    async with ledger.transaction() as transaction:
        older = OlderTransaction(transaction)
        (key,) = await older.lock_due()
        seen = (await older.cursors([key]))[key]
        cursor, known, ran = seen
        (state,) = await transaction.read([key])
        state = _as_seen(state, cursor, dict(zip(known, ran or (), strict=True)))
        await older.record([some(state, windows)])
    return seen


def _as_seen(
    state: ScheduleState, cursor: datetime, known: Mapping[datetime, bool]
) -> ScheduleState:
    return replace(state, cursor=cursor, known=known)


async def position(ledger: PostgresLedger) -> ScheduleState:
    async with ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
    return state


async def test_what_an_older_replica_moves_ours_see(ledger, sql):
    before = await position(ledger)
    await older_moves(ledger, 3)
    after = await position(ledger)
    assert after.cursor == before.cursor + 3 * SECOND
    assert (await newer_moves(ledger)).cursor == before.cursor + 4 * SECOND
    assert await sql.fetchval("SELECT count(*) FROM fires") == 4


async def test_what_ours_move_an_older_replica_decides_no_second_time(ledger, sql):
    before = await position(ledger)
    for _ in range(5):
        await newer_moves(ledger)
    assert await sql.fetchval("SELECT cursor FROM schedules") == before.cursor
    fires = await sql.fetch("SELECT * FROM fires ORDER BY id")
    cursor, known, _ = await older_moves(ledger, 5)
    assert cursor == before.cursor
    assert len(known) == 5
    assert await sql.fetch("SELECT * FROM fires ORDER BY id") == fires
    assert await sql.fetchval("SELECT cursor FROM schedules") == before.cursor + 5 * SECOND
    assert (await position(ledger)).cursor == before.cursor + 5 * SECOND


async def test_an_older_replica_that_is_behind_takes_nothing_back(ledger, sql):
    before = await position(ledger)
    for _ in range(5):
        await newer_moves(ledger)
    await older_moves(ledger, 2)
    assert await sql.fetchval("SELECT cursor FROM schedules") == before.cursor + 2 * SECOND
    assert (await position(ledger)).cursor == before.cursor + 5 * SECOND
    assert (await newer_moves(ledger)).cursor == before.cursor + 6 * SECOND
    assert await sql.fetchval("SELECT count(*) FROM fires") == 6


async def test_windows_that_share_a_row_are_written_where_older_replicas_read(ledger, sql):
    await sql.execute("UPDATE definitions SET definition = definition - 'grace'")
    async with ledger.transaction() as transaction:
        keys = await transaction.lock_due(SERVING, 100)
        (state,) = await transaction.read(keys)
        step = plan(state, await transaction.now())
        assert any(each.windows > 1 for each in step.decisions)
        await transaction.record([step], owner="a", lease=LEASE)
    assert await sql.fetchval("SELECT cursor FROM schedules") == step.cursor


async def test_beside_an_older_replica_every_move_is_written_where_it_reads(ledger, sql):
    await newer_moves(ledger)
    await newer_moves(ledger)
    assert await sql.fetchval(BEHIND) == 1
    await older_announced(sql)
    await announced(ledger)
    assert await sql.fetchval(BEHIND) == 0
    await newer_moves(ledger)
    assert await sql.fetchval(BEHIND) == 0


async def test_what_is_behind_for_minutes_is_written_where_older_replicas_read(ledger, sql):
    await newer_moves(ledger)
    assert await sql.fetchval(BEHIND) == 1
    assert await ledger.write_through() == 0
    await sql.execute("UPDATE positions SET behind_since = behind_since - interval '6 min'")
    assert await ledger.write_through() == 1
    assert await sql.fetchval(BEHIND) == 0
    # What a tick writes there is no move of its own.
    assert await sql.fetchval("SELECT count(*) FROM positions") == 1
    await newer_moves(ledger)
    await sql.execute("UPDATE positions SET behind_since = behind_since - interval '6 min'")
    await newer_moves(ledger)
    assert await sql.fetchval(BEHIND) == 0


async def test_what_another_replica_has_just_moved_is_not_locked_again(ledger, sql, database_url):
    """The lock is had only after the other's commit, and what it moved is not due any more."""
    other = await asyncpg.connect(database_url, server_settings={"search_path": "sched"})
    async with other.transaction():
        begun = await other.cursor(
            query("lock_due"), "test", "default", SERVING.lanes, ["noop@1"], TIME_RULES, 100, EVER,
            [], None,
        )  # fmt: skip
        await newer_moves(ledger)
        assert await begun.fetch(100) == []
    await other.close()
