"""Migrations that a running fleet survives."""

from __future__ import annotations

import asyncio
import logging
import time

import asyncpg
import pytest
from temporalio.client import Client

from engine.errors import LedgerError, LedgerTooNew, LedgerUnavailable
from engine.ledger import Ledger
from engine.ledger.postgres.connections import Connections
from engine.ledger.postgres.schema import (
    Migration,
    build_indexes,
    migrate,
    migrations,
    read_applied,
)
from engine.runtime.settings import Settings
from engine.runtime.watch.watch import WatchProcess
from tests.waiting import eventually

KNOWN = migrations()
NEWEST = KNOWN[-1].version
COLUMN = "ALTER TABLE fires ADD COLUMN more text;\n"
INDEX = "CREATE INDEX CONCURRENTLY fires_more ON fires (more);\n"


def one_more(text: str, *, beside: int | None = NEWEST) -> list[Migration]:
    """What the next release would carry."""
    header = "" if beside is None else f"-- beside: {beside}\n"
    return [*KNOWN, Migration.of(NEWEST + 1, header + text)]


@pytest.fixture
def database_url(empty_database_url: str) -> str:
    return empty_database_url


@pytest.fixture
async def ledger(database_url):
    opened = await Ledger.connect(database_url, namespace="test")
    yield opened
    await opened.close()


@pytest.fixture
async def connections(ledger, database_url):
    opened = await Connections.open(database_url, schema="sched", most=3)
    yield opened
    await opened.close()


@pytest.fixture
async def session(database_url):
    """Somebody with ``psql``."""
    opened = await asyncpg.connect(
        database_url, server_settings={"search_path": "sched", "application_name": "a dump"}
    )
    yield opened
    await opened.close()


async def columns(session, table: str = "fires") -> set[str]:
    rows = await session.fetch(
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_schema = 'sched' AND table_name = $1",
        table,
    )
    return {row["column_name"] for row in rows}


async def is_valid(connections, index: str = "fires_more") -> bool | None:
    rows = await connections.fetch(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)", index
    )
    return rows[0]["indisvalid"] if rows else None


# Which code may work


async def test_code_starts_beside_a_newer_migration_that_says_so(connections, database_url):
    assert await migrate(connections, known=one_more(COLUMN)) == [NEWEST + 1]
    again = await Ledger.connect(database_url)
    assert again.migrated == ()
    await again.close()


@pytest.mark.parametrize("beside", [None, NEWEST + 1])
async def test_code_older_than_a_migration_allows_is_refused(connections, database_url, beside):
    await migrate(connections, known=one_more(COLUMN, beside=beside))
    with pytest.raises(LedgerTooNew, match=f"version {NEWEST + 1}"):
        await Ledger.connect(database_url)


UNRELEASED = r"the schema sched has the ledger of an unreleased version of sched-engine"


async def test_a_ledger_of_an_earlier_commit_is_refused(database_url, session):
    """The first one recorded its migrations in a table of this shape."""
    await session.execute(
        "CREATE SCHEMA sched; CREATE TABLE sched.migrations (version integer PRIMARY KEY,"
        " applied_at timestamptz NOT NULL DEFAULT clock_timestamp(), beside integer,"
        " steps integer[], filled_from bigint);"
        " INSERT INTO sched.migrations SELECT generate_series(1, 40)"
    )
    with pytest.raises(LedgerError, match=UNRELEASED) as raised:
        await Ledger.connect(database_url)
    assert "SCHED_SCHEMA" in (raised.value.hint or "")
    assert await session.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'sched'") == 1


async def test_a_ledger_whose_migration_was_edited_since_is_refused(connections, database_url):
    await connections.fetch("UPDATE migrations SET digest = 'of another text' WHERE version = 1")
    with pytest.raises(LedgerError, match=UNRELEASED):
        await Ledger.connect(database_url)
    with pytest.raises(LedgerError, match=UNRELEASED):
        await migrate(connections, known=one_more(COLUMN))


async def test_a_watch_ends_where_the_ledger_is_refused(connections, database_url):
    await connections.fetch("UPDATE migrations SET digest = 'of another text' WHERE version = 1")

    async def never() -> Client:
        raise AssertionError("it asked Temporal")

    watch = WatchProcess(
        database_url,
        Settings(),
        namespace="test",
        schema="sched",
        connect=never,
        on_event=lambda _: None,
    )
    with pytest.raises(LedgerError, match=UNRELEASED):
        await watch.run()


async def test_a_new_ledger_is_like_one_that_was_upgraded(connections, session, database_url):
    more = one_more(COLUMN + "-- step\n" + INDEX)
    assert await migrate(connections, known=more) == [NEWEST + 1]
    assert await build_indexes(connections, "sched", known=more) == []
    upgraded = await schema_of(session)
    await session.execute("DROP SCHEMA sched CASCADE")
    assert await migrate(connections, known=more) == [each.version for each in more]
    assert await schema_of(session) == upgraded


async def schema_of(session) -> set[str]:
    """Every column, index, constraint and trigger of the schema, in no order."""
    rows = await session.fetch(
        """
        SELECT 'column ' || table_name || '.' || column_name || ' ' || data_type
               || coalesce(' ' || column_default, '') || ' ' || is_nullable AS said
        FROM information_schema.columns WHERE table_schema = 'sched'
        UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'sched'
        UNION ALL SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'sched'::regnamespace
        UNION ALL SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c
        ON c.oid = t.tgrelid WHERE c.relnamespace = 'sched'::regnamespace AND NOT tgisinternal
        UNION ALL SELECT viewname || definition FROM pg_views WHERE schemaname = 'sched'
        """
    )
    return {row["said"] for row in rows}


# Locks


async def test_a_migration_asks_for_a_second_at_a_time_while_ticks_go_on_beside_a_reader(
    connections, session, database_url, caplog
):
    caplog.set_level(logging.WARNING, "sched")
    reading = session.transaction()
    await reading.start()
    await session.fetch("SELECT 1 FROM fires")
    task = asyncio.create_task(migrate(connections, known=one_more(COLUMN)))
    tick = await asyncpg.connect(database_url, server_settings={"search_path": "sched"})
    waits: list[float] = []

    async def refused_twice() -> bool:
        begun = time.monotonic()
        await tick.execute("INSERT INTO event_heads SELECT 'n', 1 WHERE false")
        await tick.fetch("SELECT id FROM fires WHERE namespace = 'n' LIMIT 1")
        waits.append(time.monotonic() - begun)
        return sum(wait > 0.3 for wait in waits) >= 2

    await eventually(refused_twice, timeout=30)
    assert max(waits) < 1.5, "a tick stood behind the migration for longer than it may wait"
    assert min(waits) < 0.1
    assert not task.done()
    pid = session.get_server_pid()
    told = [record.message for record in caplog.records if "waits for" in record.message]
    assert len(told) == 1
    assert told[0].startswith(f"a migration waits for session {pid} (a dump, ")
    await reading.rollback()
    assert await task == [NEWEST + 1]
    await tick.close()


async def test_a_migration_that_cannot_get_its_lock_names_the_session_and_does_nothing(
    connections, session
):
    async with session.transaction():
        await session.fetch("SELECT 1 FROM fires")
        with pytest.raises(LedgerUnavailable, match=rf"session {session.get_server_pid()} \(a du"):
            await migrate(connections, known=one_more(COLUMN), patience=2)
    assert "more" not in await columns(session)


async def test_replicas_that_migrate_at_once_do_each_step_once(connections, database_url, session):
    text = (
        "CREATE TABLE one (x int);\n-- step\n" + COLUMN + "-- step\nINSERT INTO one VALUES (1);\n"
    )
    opened = [await Connections.open(database_url, schema="sched", most=2) for _ in range(5)]
    done = await asyncio.gather(*(migrate(each, known=one_more(text)) for each in opened))
    assert sorted(done) == [[], [], [], [], [NEWEST + 1]]
    assert await session.fetchval("SELECT count(*) FROM one") == 1
    for each in opened:
        await each.close()


# Broken off


async def test_a_migration_that_was_broken_off_goes_on_where_it_was(connections, session):
    more = one_more("CREATE TABLE one (x int);\n-- step\nALTER TABLE other ADD x int;\n")
    with pytest.raises(asyncpg.UndefinedTableError):
        await migrate(connections, known=more)
    applied = (await read_applied(connections, "sched") or {})[NEWEST + 1]
    assert applied.steps == frozenset({0})
    await session.execute("CREATE TABLE other ()")
    assert await migrate(connections, known=more) == [NEWEST + 1]
    assert await columns(session, "other") == {"x"}


async def test_an_index_whose_build_was_broken_off_is_built_again(connections, session):
    more = one_more(COLUMN + "-- step\n" + INDEX)
    await migrate(connections, known=more)
    await session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM schedules")
    left = await build_indexes(connections, "sched", known=more, patience=0.5)
    assert left == ["fires_more"]
    assert await is_valid(connections) is False
    await session.execute("ROLLBACK")
    assert await build_indexes(connections, "sched", known=more) == []
    assert await is_valid(connections)
    assert await build_indexes(connections, "sched", known=more) == []


async def test_an_index_is_dropped_beside_those_who_write(connections):
    more = one_more("DROP INDEX CONCURRENTLY fires_recent;\n")
    assert await migrate(connections, known=more) == [NEWEST + 1]
    assert await is_valid(connections, "fires_recent")
    assert await build_indexes(connections, "sched", known=more) == []
    assert await is_valid(connections, "fires_recent") is None


# Indexes and old snapshots


async def test_workers_start_and_write_while_an_index_waits_for_a_dump(
    connections, session, database_url, caplog
):
    caplog.set_level(logging.WARNING, "sched")
    more = one_more(COLUMN + "-- step\n" + INDEX)
    await session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM schedules")
    assert await migrate(connections, known=more) == [NEWEST + 1], "it waited for the dump"
    build = asyncio.create_task(build_indexes(connections, "sched", known=more))
    pid = session.get_server_pid()
    said = f"the index fires_more of migration {NEWEST + 1:04} waits for session {pid} (a dump"
    await eventually(lambda: any(each.message.startswith(said) for each in caplog.records))
    beside = await Ledger.connect(database_url, namespace="test")
    async with beside.transaction() as transaction:
        await transaction.connection.execute("UPDATE fires SET more = 'x' WHERE false")
    other = await Connections.open(database_url, schema="sched", most=1)
    assert await build_indexes(other, "sched", known=more) == ["fires_more"], "two build it"
    await other.close()
    await beside.close()
    assert not build.done()
    await session.execute("ROLLBACK")
    assert await build == []
    assert await is_valid(connections)
