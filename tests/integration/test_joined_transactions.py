"""Schedules that are created in a transaction of the application: whole, or not at all."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from engine.errors import (
    EnqueueFailure,
    KeyForeign,
    KeyInUse,
    LedgerError,
    RequestInUse,
    StartInUse,
)
from engine.ledger import Ledger
from engine.ledger.records import Serving
from engine.service import ScheduleService
from engine.testing.virtual_ledger import VirtualLedger, virtual_database
from tests.conformance.conftest import Bench
from tests.waiting import eventually, until_one_waits

HOUR = timedelta(hours=1)
HOOK = {"url": "https://hooks.example.com/a", "secret": "${env:HOOK}"}
TABLES = ("schedules", "definitions", "positions", "actions")
FILE = "schedules: [{key: nightly, workflow: noop, cron: '0 2 * * *'}]"

KILLED = """
import asyncio, os, signal, sys
import asyncpg
from engine.ledger import Ledger
from engine.service import ScheduleService

async def main(url):
    ledger = await Ledger.connect(url, namespace="test")
    service = ScheduleService(ledger, actor="shop")
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        await connection.execute("CREATE TABLE orders (id int)")
        await service.schedule_at("noop", "2031-01-01T00:00:00Z", key="k", connection=connection)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
async def bench(database_url: str) -> AsyncIterator[Bench]:
    ledger = await Ledger.connect(database_url, namespace="test")
    made = Bench(ledger)
    await made.announce()
    yield made
    await ledger.close()


@pytest.fixture
def service(bench: Bench) -> ScheduleService:
    return ScheduleService(bench.ledger, actor="shop")


@pytest.fixture
async def connection(database_url: str, bench: Bench) -> AsyncIterator[asyncpg.Connection]:
    opened = await asyncpg.connect(database_url)
    yield opened
    await opened.close()


def soon() -> datetime:
    return datetime.now(UTC) + HOUR


async def rows_of(connection: asyncpg.Connection, key: str) -> list[int]:
    return [
        await connection.fetchval(f"SELECT count(*) FROM sched.{table} WHERE key = $1", key)
        for table in TABLES
    ]


async def test_a_schedule_exists_if_and_only_if_the_callers_commit_does(bench, service, connection):
    await connection.execute("CREATE TABLE orders (id int)")
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("INSERT INTO orders VALUES (1)")
    await service.schedule_at("noop", soon(), key="k", request_id="r", connection=connection)
    assert await service.get("k") is None
    await transaction.rollback()
    assert await rows_of(connection, "k") == [0, 0, 0, 0]
    async with connection.transaction():
        await connection.execute("INSERT INTO orders VALUES (1)")
        asked = await service.schedule_at(
            "noop", soon(), key="k", request_id="r", connection=connection, owner_id="ann"
        )
    plain = await service.schedule_at("noop", soon(), key="plain", request_id="s")
    assert await rows_of(connection, "k") == await rows_of(connection, "plain") == [1, 1, 1, 1]
    row = await service.get("k")
    assert (row.request_id, row.schedule, row.next_fire_at, row.workflow_type) == (
        "r", asked.schedule, asked.next_fire_at, plain.workflow_type,
    )  # fmt: skip
    action = (await service.actions(key="k"))[0]
    assert (action.verb, action.by, action.after) == ("schedule", "shop", row.schedule.to_json())


async def test_a_process_that_is_killed_after_its_commit_leaves_it_whole(
    bench, service, connection, database_url
):
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, database_url)
    assert await process.wait() == -signal.SIGKILL
    assert await connection.fetchval("SELECT count(*) FROM orders") == 0
    assert await rows_of(connection, "k") == [1, 1, 1, 1]
    assert (await service.cancel("k")).retired


async def test_an_open_transaction_blocks_no_other_request_and_no_apply(
    bench, service, connection, database_url
):
    another = await asyncpg.connect(database_url)
    async with asyncio.timeout(20), connection.transaction():
        # A workflow without a type, for which others raise the epoch.
        await service.schedule_at("unheard-of", soon(), key="k", connection=connection)
        await service.schedule_at("noop", soon(), key="other", request_id="r")
        async with another.transaction():
            await service.schedule_repeat("noop", key="b", everyMs=60_000, connection=another)
        assert (await bench.declare(FILE)).added == ("nightly",)
        await service.schedule_at("unheard-of", soon(), key="third")
        for table in ("ledger", "projects", "schedules"):
            await another.fetch(f"SELECT FROM sched.{table} FOR UPDATE NOWAIT")
    await another.close()
    assert await service.get("k") is not None


async def test_whoever_names_the_same_key_or_request_id_waits_for_the_other(
    bench, service, connection, database_url
):
    another = await asyncpg.connect(database_url)
    for ends in ("rollback", "commit"):
        for name in ("key", "request_id"):
            taken = {name: f"{ends}-{name}".replace("_", "-")}
            first = connection.transaction()
            await first.start()
            await service.schedule_at("noop", soon(), connection=connection, **taken)

            async def second(given: dict[str, str] = taken) -> None:
                async with another.transaction():
                    await service.schedule_at("noop", soon(), connection=another, **given)

            waiting = asyncio.create_task(second())
            await eventually(lambda: _waits(connection, another))
            await getattr(first, ends)()
            if ends == "rollback":
                await waiting
            else:
                with pytest.raises(KeyInUse if name == "key" else RequestInUse):
                    await waiting
    await another.close()


async def _waits(connection: asyncpg.Connection, other: asyncpg.Connection) -> bool:
    pid = other.get_server_pid()
    return bool(await connection.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", pid))


async def test_a_file_that_declares_the_key_meanwhile_is_refused(bench, service, connection):
    transaction = connection.transaction()
    await transaction.start()
    await service.schedule_at("noop", soon(), key="nightly", connection=connection)
    applying = asyncio.create_task(bench.declare(FILE))
    await until_one_waits(connection)
    await transaction.commit()
    with pytest.raises(KeyForeign):
        await applying
    assert (await service.get("nightly")).origin == "api"


@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read", "serializable"])
async def test_settings_and_codecs_of_the_connection_stay_and_do_not_matter(
    service, connection, isolation
):
    await connection.execute(
        "CREATE SCHEMA mine; CREATE TABLE mine.schedules (id int);"
        "CREATE TEMP TABLE ledger (id int);"
        "CREATE FUNCTION mine.clock_timestamp() RETURNS timestamptz LANGUAGE sql"
        " AS $$ SELECT NULL::timestamptz $$;"
        "SET search_path = mine, pg_catalog; SET DateStyle = 'SQL, DMY';"
        "SET TimeZone = 'Asia/Tokyo'; SET IntervalStyle = 'sql_standard';"
        "SET standard_conforming_strings = off"
    )
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(
            kind, schema="pg_catalog", encoder=json.dumps, decoder=json.loads
        )
    for kind in ("timestamptz", "uuid", "text"):
        await connection.set_type_codec(
            kind, schema="pg_catalog", encoder=lambda _: 1 / 0, decoder=lambda _: 1 / 0
        )
    names = ("search_path", "DateStyle", "TimeZone", "transaction_isolation")
    asked = "; ".join(f"SELECT current_setting('{name}')::varchar" for name in names).split("; ")
    async with connection.transaction(isolation=isolation):
        before = [await connection.fetchval(each) for each in asked]
        made = await service.schedule_at(
            "noop", soon(), key="k", connection=connection, input={"text": "\\ ' $1 \N{SNOWMAN}"}
        )
        with pytest.raises(KeyInUse):
            await service.schedule_at("noop", soon(), key="k", connection=connection)
        assert [await connection.fetchval(each) for each in asked] == before
        assert await connection.fetchval("""SELECT '{"a": 1}'::jsonb""") == {"a": 1}
    row = await service.get("k")
    assert (row.schedule, row.next_fire_at) == (made.schedule, made.next_fire_at)
    assert row.schedule.input == {"text": "\\ ' $1 \N{SNOWMAN}"}


async def test_temporary_tables_named_like_ours_are_left_alone(bench, service, connection):
    """Also by the triggers: a path without pg_temp begins with it."""
    names = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'sched'")
    for (name,) in names:
        await connection.execute(f"CREATE TEMP TABLE {name} (id int)")
    await service.declare_hook(**HOOK)
    async with connection.transaction():
        await service.schedule_at("noop", soon(), key="k", connection=connection)
    assert await rows_of(connection, "k") == [1, 1, 1, 1]
    assert await connection.fetchval("SELECT type FROM sched.events WHERE key = 'k'") == "created"
    paths = await connection.fetch(
        "SELECT proname, unnest(proconfig) FROM pg_proc WHERE pronamespace = 'sched'::regnamespace"
    )
    assert len(paths) > 5
    assert {path for _, path in paths} == {"search_path=sched, pg_catalog, pg_temp"}


async def test_a_refusal_does_not_abort_the_transaction_of_the_caller(service, connection):
    await connection.execute("CREATE TABLE orders (id int)")
    await service.schedule_at("noop", soon(), key="taken", request_id="used")
    await connection.execute("BEGIN")  # by hand, where asyncpg makes no savepoints
    await connection.execute("INSERT INTO orders VALUES (1)")
    for refused, given in ((KeyInUse, {"key": "taken"}), (RequestInUse, {"request_id": "used"})):
        with pytest.raises(refused):
            await service.schedule_at("noop", soon(), connection=connection, **given)
    await service.schedule_at("noop", soon(), key="k", request_id="r", connection=connection)
    # Its own rows are not committed, so that only their indexes know of them.
    for refused, given in ((KeyInUse, {"key": "k"}), (RequestInUse, {"request_id": "r"})):
        with pytest.raises(refused):
            await service.schedule_at("noop", soon(), connection=connection, **given)
    await connection.execute("INSERT INTO orders VALUES (2)")
    await connection.execute("COMMIT")
    assert await connection.fetchval("SELECT count(*) FROM orders") == 2
    assert await service.get("k") is not None


async def test_a_moment_that_passes_before_the_commit_is_decided_as_after_an_outage(
    postgres, clock
):
    async with virtual_database(postgres.url_of("postgres")) as url:
        ledger, connection = await VirtualLedger.open(url, clock), await asyncpg.connect(url)
        await decided_late(Bench(ledger, clock), connection)
        await connection.close()
        await ledger.close()


async def decided_late(bench: Bench, connection: asyncpg.Connection) -> None:
    await bench.announce()
    service, moment = ScheduleService(bench.ledger, actor="shop"), bench.now() + HOUR
    async with connection.transaction():
        await service.schedule_at("noop", moment, key="late", connection=connection)
        await service.schedule_at(
            "noop", moment, key="useless", connection=connection,
            grace="1ms", catchUp={"policy": "none"},
        )  # fmt: skip
        bench.wait(HOUR + timedelta(milliseconds=10))
        assert await bench.claim() == []
    assert [claim.key for claim in await bench.claim()] == ["late"]
    (fire,) = await service.fires(key="useless")
    assert fire.status == "expired"


async def test_a_workflow_that_was_announced_meanwhile_is_found_by_the_next_heartbeat(
    bench, service, connection
):
    newer = Serving("replica-b", "default", "sched", frozenset({"noop@1", "brand-new@1"}))
    async with connection.transaction():
        asked = await service.schedule_at("brand-new", soon(), key="k", connection=connection)
        await bench.announce(newer)
        await bench.announce(newer)
    assert "knows brand-new" in asked.waiting
    assert (await service.get("k")).workflow_type is None
    await bench.announce()
    assert (await service.get("k")).workflow_type == "brand-new@1"


async def test_a_connection_that_cannot_be_joined_is_refused(service, connection, postgres):
    with pytest.raises(LedgerError, match="no open transaction"):
        await service.schedule_at("noop", soon(), connection=connection)
    elsewhere = await asyncpg.connect(postgres.url)
    async with elsewhere.transaction():
        with pytest.raises(LedgerError, match="does not reach the ledger"):
            await service.schedule_at("noop", soon(), connection=elsewhere)
        assert await elsewhere.fetchval("SELECT 1") == 1
    await elsewhere.close()
    async with connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        with pytest.raises(LedgerError, match="triggers"):
            await service.schedule_at("noop", soon(), connection=connection)


async def test_a_start_exists_if_and_only_if_the_callers_commit_does(bench, service, connection):
    rolled_back = connection.transaction()
    await rolled_back.start()
    await service.start("noop", {"text": "$1 '"}, id="7", connection=connection)
    await rolled_back.rollback()
    assert await service.fires(key="@noop") == []
    async with connection.transaction():
        done = await service.start("noop", {"text": "$1 '"}, id="7", connection=connection)
        assert (done.new, done.fire, done.waiting) == (True, None, None)
        assert await service.fires(key="@noop") == []
        with pytest.raises(EnqueueFailure, match="its transaction has not committed"):
            await done.result()
        with pytest.raises(StartInUse, match="in the same transaction"):
            await service.start("noop", id="7", connection=connection)
        await connection.execute("SELECT 1")  # it goes on
    (claim,) = await bench.ledger.take_over(bench.serving, limit=9, lease=HOUR)
    assert (claim.workflow_id, claim.arguments) == ("sched:@noop:7", ({"text": "$1 '"},))
    async with connection.transaction():
        again = await service.start("noop", {"text": "$1 '"}, id="7", connection=connection)
        assert (again.new, again.fire.status) == (False, "starting")
        with pytest.raises(StartInUse, match="another input"):
            await service.start("noop", id="7", connection=connection)


async def test_the_same_start_of_two_transactions_waits_for_the_first(bench, service, connection):
    first = connection.transaction()
    await first.start()
    await service.start("noop", id="7", connection=connection)
    second = asyncio.create_task(service.start("noop", id="7"))
    await until_one_waits(connection)
    await first.commit()
    assert not (await second).new


async def test_a_start_of_a_transaction_has_its_options(bench, service, connection):
    async with connection.transaction():
        await service.start(
            "noop", id="7", connection=connection, priority=1, delay=HOUR, tenant_id="acme"
        )
    (fire,) = await service.fires(key="@noop")
    assert fire.fire_time - datetime.now(UTC) > HOUR / 2
    assert await bench.ledger.take_over(bench.serving, limit=9, lease=HOUR) == []
    async with bench.ledger.transaction() as transaction:
        found = await transaction.options_of(fire.workflow_id)
    assert found == {"priority": 1, "metadata": {"tenantId": "acme"}}
