"""Addresses of databases: which can be used, and that an error never shows a password."""

from __future__ import annotations

import pytest

from engine.cli.app import run
from engine.errors import LedgerError, LedgerUnavailable
from engine.ledger import Ledger
from engine.ledger.postgres.address import checked_address
from engine.runtime import SchedulePlugin

SECRET = "Geheim"  # noqa: S105 - no password of anything


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://localhost/sched",
        "postgres://user@localhost",
        "postgresql://user:secret@db.example.com:5432/sched?sslmode=require",
        "postgresql://user:p%2Fa%23b%3Fc%5Bd@localhost/sched",
        "postgresql://user:with@sign@localhost/sched",
        "postgresql://user:secret@one:5432,two:5433/sched?target_session_attrs=read-write",
        "postgresql://user:secret@[::1]:5432/sched",
        "postgresql:///sched?host=/var/run/postgresql",
        "postgresql://localhost/sched?user=me@corp",
    ],
)
def test_an_address_that_a_driver_understands_is_taken_as_it_is(address: str):
    assert checked_address(address) == address


@pytest.mark.parametrize("sign", ["/", "#", "?", "["])
@pytest.mark.parametrize("before", ["", "12", "Ge"])
def test_a_password_that_ends_the_address_early_is_not_shown(sign: str, before: str):
    address = f"postgresql://user:{before}{sign}{SECRET}@localhost/sched"
    with pytest.raises(LedgerError, match="in a password %2F for /") as raised:
        checked_address(address)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    "address",
    [
        "mysql://user:Geheim@localhost/sched",
        "host=localhost password=Geheim",
        "Geheim",
        "postgresql:Geheim",
        "postgresql://user:secret@localhost:Geheim/sched",
        "postgresql://user:secret@localhost:99999/sched",
        "postgresql://user:Geheim\udc80@localhost/sched",
        "postgresql://user:secret@localhost/sched?Geheim",
    ],
)
def test_what_is_no_address_of_postgresql_is_one_sentence(address: str):
    with pytest.raises(LedgerError, match=r"SCHED_DATABASE_URL .*; write postgresql://") as raised:
        checked_address(address)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("command", [["list"], ["worker"], ["up"], ["migrate"]])
def test_a_command_ends_at_once_where_the_address_is_none(
    command: list[str], monkeypatch, capsys, tmp_path
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schedules.yaml").write_text(
        "schedules: [{key: a, workflow: noop, everyMs: 60000}]"
    )
    monkeypatch.setenv("SCHED_DATABASE_URL", f"postgresql://user:pa/{SECRET}@localhost/sched")
    assert run(command) == 2
    shown = capsys.readouterr()
    assert len(shown.err.splitlines()) == 1
    assert shown.err.startswith(
        "sched: SCHEDULE_LEDGER_ERROR: SCHED_DATABASE_URL cannot be divided"
    )
    assert SECRET not in shown.out + shown.err


def test_a_plugin_refuses_such_an_address_where_it_is_made():
    with pytest.raises(LedgerError, match="begins with mysql://"):
        SchedulePlugin(None, database_url="mysql://localhost/sched")


async def test_a_host_without_an_address_is_named_and_no_password():
    with pytest.raises(LedgerUnavailable) as told:
        await Ledger.connect(f"postgresql://me:{SECRET}@ledger.invalid:5433/sched")
    assert told.value.message.startswith("the host of ledger.invalid:5433 has no address: ")
    assert told.value.hint == "check SCHED_DATABASE_URL, and DNS"
    assert SECRET not in str(told.value)
