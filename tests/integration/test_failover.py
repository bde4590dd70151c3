"""The database fails over: the ledger is found where writes are taken, and goes on there."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

import engine.embedded.postgres
from engine.embedded import PostgresServer
from engine.errors import LedgerUnavailable
from engine.ledger import Ledger
from engine.runtime import SchedulePlugin
from engine.runtime.events import Alert, Degraded, Event, Recovered
from engine.schedules import load_schedules
from engine.service import ScheduleService
from tests.sample_workflows import Noop
from tests.servers import shared_folder
from tests.waiting import eventually

PULSE = "schedules: [{key: pulse, workflow: noop, everyMs: 1000}]"


def both(first: PostgresServer, second: PostgresServer) -> str:
    """One address of two servers; the one that takes writes is used."""
    place = f"127.0.0.1:{first.port}"
    hosts = first.url.replace(place, f"{place},127.0.0.1:{second.port}")
    return f"{hosts}?target_session_attrs=read-write"


@pytest.fixture
async def primary() -> AsyncIterator[PostgresServer]:
    with shared_folder() as folder:
        server = PostgresServer(folder / "first")
        await server.start()
        yield server
        await server.stop()


@pytest.fixture
async def successor(primary: PostgresServer) -> AsyncIterator[PostgresServer]:
    """A second server; its port is known, and nobody answers there yet."""
    server = PostgresServer(primary.data_dir.parent / "second")
    await server.start()
    await server.stop()
    yield server
    await server.stop()


async def fires(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM sched.fires"))
    except asyncpg.UndefinedTableError:  # not migrated yet
        return 0
    finally:
        await connection.close()


async def make_read_only(url: str, *, only: bool) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("SET default_transaction_read_only = off")
    word = "on" if only else "off"
    await connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {word}")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()


@pytest.mark.prove
async def test_a_worker_goes_on_at_the_server_that_took_over(client, primary, successor):
    told: list[Event] = []
    url = both(primary, successor)
    plugin = SchedulePlugin(load_schedules(PULSE), database_url=url, on_event=told.append)
    async with Worker(client, task_queue="sched", workflows=[Noop], plugins=[plugin]):

        async def begun() -> bool:
            return await fires(primary.url) >= 3

        await eventually(begun, timeout=30, every=0.2)
        os.kill(primary.pid, signal.SIGKILL)
        await primary.stop()
        # A takeover faster than a tick would hide the outage from the poller.
        await eventually(lambda: Degraded in of_poller(told))
        before = await take_over(primary, successor)

        async def goes_on() -> bool:
            return await fires(successor_url(primary, successor)) >= before + 3

        await eventually(goes_on, timeout=40, every=0.2)
        await eventually(lambda: Recovered("poller") in told)
    assert of_poller(told) == [Degraded, Recovered]
    # No loop tells it twice.
    degraded = [event.loop for event in told if isinstance(event, Degraded)]
    assert len({*degraded}) == len(degraded)


def of_poller(told: list[Event]) -> list[type[Event]]:
    """What was reported about the poller's outage, in order."""
    return [
        type(event)
        for event in told
        if isinstance(event, Degraded | Recovered) and event.loop == "poller"
    ]


def successor_url(primary: PostgresServer, successor: PostgresServer) -> str:
    return primary.url.replace(f":{primary.port}/", f":{successor.port}/")


async def take_over(primary: PostgresServer, successor: PostgresServer) -> int:
    """Let the second server go on from the first one's files, as a standby would."""

    def copy() -> None:
        shutil.rmtree(successor.data_dir)
        # With owners: PostgreSQL runs as another user when a test runs as root.
        subprocess.run(["cp", "-a", primary.data_dir, successor.data_dir], check=True)

    await asyncio.to_thread(copy)
    await successor.start()
    return await fires(successor_url(primary, successor))


def family(pid: int) -> list[int]:
    """A server and its children; each backend has a session of its own."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


async def as_of_now(primary: PostgresServer, successor: PostgresServer) -> None:
    """Give the second server what the first one has at this instant, as a standby would."""

    def copy() -> None:
        shutil.rmtree(successor.data_dir)
        for pid in family(primary.pid):
            os.kill(pid, signal.SIGSTOP)
        try:
            subprocess.run(["cp", "-a", primary.data_dir, successor.data_dir], check=True)
        finally:
            for pid in family(primary.pid):
                os.kill(pid, signal.SIGCONT)

    await asyncio.to_thread(copy)


def crashed(_: PostgresServer) -> None:
    """A copy, such as a restored snapshot, goes on where the primary was: on its timeline."""


def promoted(successor: PostgresServer) -> None:
    """A standby that is promoted begins a timeline of its own."""
    home = next(path.parent for path in successor.data_dir.rglob("postgresql.auto.conf"))
    with (home / "postgresql.auto.conf").open("a") as settings:
        settings.write("restore_command = 'false'\n")
    (home / "recovery.signal").touch()


@pytest.fixture
def archiving(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the servers write can be replayed by a standby."""
    monkeypatch.setitem(engine.embedded.postgres._SETTINGS, "wal_level", "replica")


@pytest.mark.prove
@pytest.mark.parametrize(
    ("become", "sign"),
    [
        (crashed, "transactions that this replica has seen are missing"),
        (promoted, "timeline 2 has replaced 1"),
    ],
)
async def test_after_a_failover_that_lost_commits_every_run_is_booked_and_none_is_doubled(
    archiving, client, primary, successor, become: Callable[[PostgresServer], None], sign: str
):
    """It is noticed, and what has run is looked up, however young the windows are."""
    told: list[Event] = []
    plugin = SchedulePlugin(
        load_schedules(PULSE), database_url=both(primary, successor), on_event=told.append
    )
    async with Worker(client, task_queue="sched", workflows=[Noop], plugins=[plugin]):

        async def begun(count: int = 3) -> bool:
            return await fires(primary.url) >= count

        await eventually(begun, timeout=30, every=0.2)
        await as_of_now(primary, successor)
        become(successor)
        kept = await fires(primary.url)
        await ask_for_a_run(primary, client.namespace)
        await eventually(lambda: begun(kept + 5), timeout=30, every=0.2)
        await eventually(lambda: has_run(client, "sched:pulse:manual:by-hand"), timeout=30)
        os.kill(primary.pid, signal.SIGKILL)
        await primary.stop()
        await successor.start()
        url = successor_url(primary, successor)
        after = await fires(url)
        assert after <= kept, "the last commits are gone"
        # Runs that are found are rows, too: those may come before the poller's first look.
        await eventually(lambda: "SCHEDULE_COMMITS_LOST" in map(code_of, told), timeout=60)
        since = await fires(url)

        async def goes_on() -> bool:
            return await fires(url) >= since + 8

        await eventually(goes_on, timeout=60, every=0.2)
    alerts = [event for event in told if isinstance(event, Alert)]
    (noticed,) = [alert.text for alert in alerts if alert.code == "SCHEDULE_COMMITS_LOST"]
    assert sign in noticed
    found = {alert.text.split()[0] for alert in alerts if alert.code == "SCHEDULE_RUN_FOUND"}
    assert "sched:pulse:manual:by-hand" in found, "a trigger that was lost"
    assert len(found) >= 4, "windows younger than grace were looked up before they were decided"
    ran = [run.id async for run in client.list_workflows('WorkflowId STARTS_WITH "sched:pulse:"')]
    assert len(ran) == len(set(ran)), "no window ran twice"
    ledger = await Ledger.connect(url, namespace=client.namespace)
    booked = {fire.workflow_id: fire.status for fire in await ledger.fires(limit=1000)}
    await ledger.close()
    assert {booked.get(run) for run in ran} <= {"started", "completed"}
    windows = sorted(int(run.rpartition(":")[2]) for run in ran if ":manual:" not in run)
    assert windows == list(range(windows[0], windows[-1] + 1)), "and none was left out"


def code_of(event: Event) -> str | None:
    return event.code if isinstance(event, Alert) else None


async def ask_for_a_run(server: PostgresServer, namespace: str) -> None:
    ledger = await Ledger.connect(server.url, namespace=namespace)
    await ScheduleService(ledger, actor="test").trigger("pulse", request_id="by-hand")
    await ledger.close()


async def has_run(client: Client, workflow_id: str) -> bool:
    try:
        run = await client.get_workflow_handle(workflow_id).describe()
    except RPCError:
        return False
    return run.close_time is not None


@pytest.mark.prove
async def test_a_primary_that_became_a_standby_is_waited_for_and_said_once(client, primary):
    told: list[Event] = []
    plugin = SchedulePlugin(load_schedules(PULSE), database_url=primary.url, on_event=told.append)
    async with Worker(client, task_queue="sched", workflows=[Noop], plugins=[plugin]):

        async def some(more: int = 3) -> bool:
            return await fires(primary.url) >= more

        await eventually(some, timeout=30, every=0.2)
        await make_read_only(primary.url_of("sched"), only=True)
        await eventually(
            lambda: [e for e in told if isinstance(e, Degraded) and e.loop == "poller"]
        )
        held_at = await fires(primary.url)
        await make_read_only(primary.url_of("sched"), only=False)
        await eventually(lambda: Recovered("poller") in told)
        await eventually(lambda: some(held_at + 3))
    (held,) = [e for e in told if isinstance(e, Degraded) and e.loop == "poller"]
    assert "read-only" in (held.reason or "")


async def test_no_log_and_no_error_shows_the_password(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = urlsplit(database_url)
    password = place.password
    assert password
    away = database_url.replace(f":{place.port}/", ":1/")
    hosts = away.replace("127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2")
    wrong = database_url.replace(password, f"{password}-wrong")
    with caplog.at_level(logging.DEBUG):
        for url in (away, f"{hosts}?target_session_attrs=read-write", wrong):
            with pytest.raises(LedgerUnavailable) as raised:
                await Ledger.connect(url)
            assert password not in f"{raised.value} {raised.value.__cause__}"
    assert password not in caplog.text


async def test_deadlocks_serialization_failures_shutdowns_and_standbys_are_waited_for(
    database_url: str,
) -> None:
    """They are the one error after which a loop tries again, with a pause that grows."""
    ledger = await Ledger.connect(database_url)
    for error in ("40P01", "40001", "57P01", "25006"):
        with pytest.raises(LedgerUnavailable):
            await ledger._connections.fetch(
                f"DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{error}'; END $$"
            )
    assert (await ledger.hold_duty("tracker", "a", timedelta(seconds=1))) is not None
    await ledger.close()
