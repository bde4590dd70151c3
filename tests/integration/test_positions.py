"""Where a schedule is: positions, and the rows of schedules that stay behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from engine.ledger import Ledger
from engine.ledger.floors import EVER
from engine.ledger.postgres.connections import query
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from engine.schedules.planner.decisions import TIME_RULES, ScheduleState
from engine.schedules.planner.planner import plan

SERVING = Serving("replica-a", "default", "sched", frozenset({"noop@1"}))
LEASE = timedelta(seconds=30)
SECOND = timedelta(seconds=1)


@pytest.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    opened = await Ledger.connect(database_url, namespace="test")
    await announced(opened)
    file = load_schedules("schedules: [{key: k, workflow: noop, everyMs: 1000, grace: 1h}]")
    await apply(opened, file, by="test")
    yield opened
    await opened.close()


@pytest.fixture
async def sql(ledger: Ledger, database_url: str) -> AsyncIterator[asyncpg.Connection]:
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


async def announced(ledger: Ledger) -> None:
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))


async def moves(ledger: Ledger, windows: int = 1) -> ScheduleState:
    """Decide so many windows of those that the schedule owes."""
    async with ledger.transaction() as transaction:
        keys = await transaction.lock_due(SERVING, 100)
        (state,) = await transaction.read(keys)
        step = plan(state, state.cursor + windows * SECOND)
        await transaction.record([step], owner="a", lease=LEASE)
    return await position(ledger)


async def position(ledger: Ledger) -> ScheduleState:
    async with ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
    return state


async def test_a_tick_leaves_the_row_of_the_schedule_behind(ledger, sql):
    before = await sql.fetchval("SELECT cursor FROM schedules")
    assert (await moves(ledger, 2)).cursor == before + 2 * SECOND
    assert await sql.fetchval("SELECT cursor FROM schedules") == before


async def test_who_writes_to_the_row_takes_back_nothing_that_it_lacks(ledger, sql):
    """Of a cursor that is behind, a smaller step forward is no step back."""
    moved = await moves(ledger, 5)
    await sql.execute("UPDATE schedules SET cursor = cursor + interval '2 s', project = 'other'")
    assert (await position(ledger)).cursor == moved.cursor
    assert await sql.fetchval("SELECT project FROM positions") == "other"


async def test_a_cursor_that_somebody_puts_on_is_that_of_the_position(ledger, sql):
    moved = await moves(ledger, 2)
    await sql.execute("UPDATE schedules SET cursor = $1", moved.cursor + 10 * SECOND)
    assert (await position(ledger)).cursor == moved.cursor + 10 * SECOND


async def test_what_another_replica_has_just_moved_is_not_locked_again(ledger, sql, database_url):
    """The lock is had only after the other's commit, and what it moved is not due any more."""
    other = await asyncpg.connect(database_url, server_settings={"search_path": "sched"})
    async with other.transaction():
        begun = await other.cursor(
            query("lock_due"), "test", "default", SERVING.lanes, ["noop@1"], TIME_RULES, 100, EVER,
            [], None, 1,
        )  # fmt: skip
        await moves(ledger)
        assert await begun.fetch(100) == []
    await other.close()
