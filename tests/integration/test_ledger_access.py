"""Who may use the ledger, and what a database that does not fit is told."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
from asyncpg.transaction import Transaction

from engine.errors import LedgerError, LedgerTimeout, LedgerTooNew, LedgerUnavailable, ScheduleError
from engine.ledger import Ledger
from engine.ledger.postgres.connections import Connections
from engine.ledger.postgres.schema import migrations
from engine.service import ScheduleService

PAGE = Path(__file__).parents[2] / "docs/deploy.md"


@pytest.fixture
async def connection(database_url):
    ledger = await Ledger.connect(database_url)
    await ledger.close()
    opened = await asyncpg.connect(database_url)
    yield opened
    await opened.close()


async def test_a_role_without_create_uses_a_ledger_that_is_up_to_date(connection, database_url):
    name = "worker_" + database_url.rpartition("_")[2]
    await connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    try:
        await connection.execute(f"GRANT USAGE ON SCHEMA sched TO {name}")
        *_, grants = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
        await connection.execute(grants.replace("sched_worker", name))
        scheme, _, place = database_url.partition("://")
        address = f"{scheme}://{name}:secret@{place.partition('@')[2]}"
        ledger = await Ledger.connect(address)
        assert await ledger.schedules() == []
        await ledger.close()
        await connection.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA sched FROM {name}")
        with pytest.raises(LedgerError, match=r"refuses: permission denied .* `sched docs ledger`"):
            await Ledger.connect(address)
    finally:
        await connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


async def test_a_ledger_of_a_newer_version_is_left_alone(connection, database_url):
    await connection.execute("INSERT INTO sched.migrations VALUES (9999, '', NULL, '{}')")
    with pytest.raises(LedgerTooNew, match="version 9999"):
        await Ledger.connect(database_url)


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


async def test_replicas_that_start_at_once_migrate_once(empty_database_url):
    ledgers = await asyncio.gather(*(Ledger.connect(empty_database_url) for _ in range(5)))
    every = tuple(each.version for each in migrations())
    assert sorted(ledger.migrated for ledger in ledgers) == [(), (), (), (), every]
    for ledger in ledgers:
        await ledger.close()


async def test_a_database_that_does_not_answer_is_one_clear_error():
    with pytest.raises(LedgerUnavailable, match="cannot be reached"):
        await Ledger.connect("postgresql://nobody@127.0.0.1:1/none")


@pytest.fixture
async def connections(database_url):
    opened = await Connections.open(database_url, schema="public", most=2)
    yield opened
    await opened.close()


async def take_a_second(connections: Connections, setting: str) -> None:
    """Work for longer than one of the server's limits lets, which is a moment here."""
    async with connections.transaction() as transaction:
        for value in ("0", "20ms"):  # one that runs already is not set anew
            await transaction.execute(f"SET LOCAL {setting} = '{value}'")
        await transaction.execute("SELECT pg_sleep(1)")


@pytest.mark.parametrize("setting", ["transaction_timeout", "statement_timeout"])
async def test_what_the_server_ends_is_told_as_what_it_is(connections, setting):
    with pytest.raises(LedgerTimeout, match=f"{setting.replace('_', ' ')}$") as raised:
        await take_a_second(connections, setting)
    assert "cannot be reached" not in str(raised.value)


async def stand_still(connections: Connections) -> None:
    async with connections.transaction() as transaction:
        await transaction.execute("SET LOCAL idle_in_transaction_session_timeout = '20ms'")
        time.sleep(0.1)  # noqa: ASYNC251 - a process that stands still is what is meant
        await transaction.execute("SELECT 1")


async def test_a_process_that_let_a_transaction_wait_is_told_so(connections):
    with pytest.raises(LedgerTimeout, match="this process let a transaction wait"):
        await stand_still(connections)


async def lose_the_connection(connections: Connections) -> None:
    async with connections.transaction() as other, connections.transaction() as transaction:
        lost = asyncio.Event()
        transaction.add_termination_listener(lambda *_: lost.set())
        await other.execute("SELECT pg_terminate_backend($1)", transaction.get_server_pid())
        await lost.wait()
        await transaction.execute("SELECT 1")


async def test_a_connection_that_broke_meanwhile_is_told_without_the_drivers_words(connections):
    with pytest.raises(LedgerUnavailable, match="closed between two statements"):
        await lose_the_connection(connections)


async def meet_odd_bytes(connections: Connections, pids: list[int]) -> None:
    async with connections.transaction() as transaction:
        pids.append(transaction.get_server_pid())
        raise asyncpg.InternalClientError("got result for unknown protocol state 11")


async def test_bytes_that_the_driver_does_not_understand_are_a_lost_connection(connections):
    """The driver would go on with it, and nobody can say what its next answer belongs to."""
    pids: list[int] = []
    with pytest.raises(LedgerUnavailable, match="cannot be reached"):
        await meet_odd_bytes(connections, pids)
    (row,) = await connections.fetch("SELECT pg_backend_pid() AS pid")
    assert row["pid"] not in pids


async def commit_nothing(connections: Connections) -> None:
    async with connections.transaction():
        pass


async def test_a_commit_without_an_answer_is_told_without_the_drivers_words(
    connections, monkeypatch
):
    async def odd(_: object) -> None:
        text = "cannot switch to state 15; another operation (2) is in progress"
        raise asyncpg.InternalClientError(text)

    monkeypatch.setattr(Transaction, "commit", odd)
    text = "no answer confirmed a commit: a connection broke off in the middle of an answer"
    with pytest.raises(LedgerUnavailable, match=text):
        await commit_nothing(connections)


@pytest.mark.parametrize("text", ["a\0b", "half a \ud83d"])
async def test_a_text_that_no_database_keeps_is_refused_with_a_sentence(shared_database_url, text):
    name = f"text-{uuid4().hex}"
    ledger = await Ledger.connect(shared_database_url, namespace=name, connections=2)
    service = ScheduleService(ledger, actor="ann")
    await service.schedule_repeat("noop", key="k", everyMs=60_000)
    for asked in (
        service.pause("k", reason=text),
        service.list(workflow=text),
        service.get(text),
        service.schedule_repeat("noop", key="l", everyMs=60_000, reason=text),
    ):
        with pytest.raises(
            ScheduleError, match=r"a NUL or half a character|has the character U\+0000"
        ):
            await asked
    assert (await service.schedule("k")).state == "active"
    assert await service.get("l") is None
    await ledger.close()
