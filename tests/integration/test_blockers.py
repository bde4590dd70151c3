"""A session whose lock blocks an apply or a migration is named."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator

import asyncpg
import pytest

from engine.cli.app import run
from engine.errors import LedgerTimeout, LedgerUnavailable
from engine.ledger import Ledger
from engine.ledger.postgres import blockers, connections, ledger, schema
from engine.ledger.postgres.connections import Connections
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules

FILE = "schedules: [{key: pulse, workflow: noop, everyMs: 1000}]"
ADVISORY = "SELECT pg_advisory_lock(hashtextextended('sched-engine {}', 0))"
LOCKS = {
    "its advisory lock": ADVISORY.format("apply default"),
    "a lock of the first table": "BEGIN; LOCK TABLE sched.projects",
    "a lock of a table that it writes later": "BEGIN; LOCK TABLE sched.schedules IN SHARE MODE",
}


@pytest.fixture
async def holder(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """Somebody with ``psql``."""
    opened = await asyncpg.connect(database_url, server_settings={"application_name": "a console"})
    yield opened
    await opened.close()


def is_named(holder: asyncpg.Connection, text: str) -> bool:
    """Whether a text has pid, application name, role and age of the session."""
    pid = holder.get_server_pid()
    return bool(re.search(rf"session {pid} \(a console, role \w+, [\w ,]+ for \d+ s\)", text))


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
async def test_an_apply_names_the_session_that_holds(
    database_url, holder, lock, monkeypatch, caplog
):
    caplog.set_level(logging.WARNING, "sched")
    monkeypatch.setattr(ledger, "ORDINARY", 0.0)
    monkeypatch.setattr(blockers, "_EVERY", 0.05)
    short = connections._LIFTED.replace("'30s'", "'3s'")
    assert short != connections._LIFTED
    monkeypatch.setattr(connections, "_LIFTED", short)
    opened = await Ledger.connect(database_url)
    await holder.execute(lock)
    with pytest.raises(LedgerTimeout, match="holds; end that session") as raised:
        await apply(opened, load_schedules(FILE), by="test")
    assert is_named(holder, str(raised.value))
    (logged,) = (each.message for each in caplog.records if " waits for " in each.message)
    assert is_named(holder, logged)
    await holder.execute("ROLLBACK; SELECT pg_advisory_unlock_all()")
    assert (await apply(opened, load_schedules(FILE), by="test")).added == ("pulse",)
    await opened.close()


async def test_a_short_wait_is_not_logged(database_url, holder, caplog, monkeypatch):
    """As when two applies take turns."""
    caplog.set_level(logging.WARNING, "sched")
    monkeypatch.setattr(blockers, "_EVERY", 0.01)
    opened = await Ledger.connect(database_url)
    await holder.execute("BEGIN; LOCK TABLE sched.projects")
    async with opened.transaction(long=True) as transaction:
        await transaction.connection.execute("SET LOCAL lock_timeout = '500ms'")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await transaction.lock_project("default")
        await transaction.connection.execute("ROLLBACK; BEGIN")
    assert not caplog.records
    await opened.close()


async def test_a_migration_names_the_session_that_holds_its_advisory_lock(
    empty_database_url, caplog, monkeypatch
):
    caplog.set_level(logging.WARNING, "sched")
    monkeypatch.setattr(schema, "ORDINARY", 0.0)
    holder = await asyncpg.connect(
        empty_database_url, server_settings={"application_name": "a console"}
    )
    await holder.execute(ADVISORY.format("migrations sched"))
    opened = await Connections.open(empty_database_url, schema="sched", most=2)
    with pytest.raises(LedgerUnavailable, match="holds; wait for the other migration") as raised:
        await schema.migrate(opened, patience=0.5)
    assert is_named(holder, str(raised.value))
    (logged,) = (each.message for each in caplog.records)
    assert logged.startswith("a migration waits for ")
    assert is_named(holder, logged)
    await holder.close()
    assert await schema.migrate(opened)
    await opened.close()


def test_a_command_shows_whose_lock_it_waits_for_and_no_other_line(monkeypatch, capsys):
    root = logging.getLogger()
    for name in ("sched.waits", "sched"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.WARNING)
    assert run(["check", "nothing.yaml"]) == 2
    blockers.logger.warning("a migration waits for session 7")
    logging.getLogger("sched").error("something else")
    assert "sched: a migration waits for session 7\n" in capsys.readouterr().err
    assert "something else" not in capsys.readouterr().err
