"""Who may use the ledger, and what a database that does not fit is told."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from engine.errors import LedgerError, LedgerTooNew, LedgerUnavailable
from engine.ledger import PostgresLedger
from engine.ledger.migrate import migrations


@pytest.fixture
async def connection(database_url):
    ledger = await PostgresLedger.connect(database_url)
    await ledger.close()
    opened = await asyncpg.connect(database_url)
    yield opened
    await opened.close()


async def test_a_role_without_create_uses_a_ledger_that_is_up_to_date(connection, database_url):
    name = "worker_" + database_url.rpartition("_")[2]
    await connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    try:
        await connection.execute(f"GRANT USAGE ON SCHEMA sched TO {name}")
        tables = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA sched"
        await connection.execute(f"GRANT {tables} TO {name}")
        scheme, _, place = database_url.partition("://")
        address = f"{scheme}://{name}:secret@{place.partition('@')[2]}"
        ledger = await PostgresLedger.connect(address)
        assert await ledger.schedules() == []
        await ledger.close()
        await connection.execute(f"REVOKE {tables} FROM {name}")
        with pytest.raises(LedgerError, match=r"refuses: permission denied .* docs/ledger.md"):
            await PostgresLedger.connect(address)
    finally:
        await connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


async def test_a_ledger_of_a_newer_version_is_left_alone(connection, database_url):
    await connection.execute("INSERT INTO sched.migrations (version) VALUES (9999)")
    with pytest.raises(LedgerTooNew, match="version 9999"):
        await PostgresLedger.connect(database_url)


async def test_the_history_cannot_be_written_through_its_view(connection):
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError):
        await connection.execute("DELETE FROM sched.fire_history")


async def test_a_cursor_never_goes_back(connection):
    await connection.execute(
        """
        INSERT INTO sched.schedules (namespace, key, project, definition_version, digest, series,
            suffixed, effective_from, cursor, workflow, task_queue, external, grace, enabled)
        VALUES ('n', 'k', 'p', 1, '', 1, false, now(), now(), 'w', 'q', false, '60s', true)
        """
    )
    await connection.execute("UPDATE sched.schedules SET cursor = cursor + interval '1 second'")
    with pytest.raises(asyncpg.RaiseError, match="would go back"):
        await connection.execute("UPDATE sched.schedules SET cursor = cursor - interval '1 second'")


async def test_replicas_that_start_at_once_migrate_once(database_url):
    ledgers = await asyncio.gather(*(PostgresLedger.connect(database_url) for _ in range(5)))
    every = tuple(version for version, _ in migrations())
    assert sorted(ledger.migrated for ledger in ledgers) == [(), (), (), (), every]
    for ledger in ledgers:
        await ledger.close()


async def test_a_database_that_does_not_answer_is_one_clear_error():
    with pytest.raises(LedgerUnavailable, match="cannot be reached"):
        await PostgresLedger.connect("postgresql://nobody@127.0.0.1:1/none")
