"""Starts by applications where something is lost: a caller, a row, a commit."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import CancelledError
from temporalio.worker import Worker

from engine import FireInfo, Retry
from engine.errors import EnqueueFailure, RunEnded, SettingsInvalid, StartInUse
from engine.ledger import Ledger, Start
from engine.runtime import SchedulePlugin, Settings
from engine.runtime.events import Alert
from engine.service import ScheduleService
from tests.integration.old_rows import SERVING, Past
from tests.sample_workflows import Cart, Noop, Order, Sleeps, Total, Totals
from tests.waiting import eventually

SOON = Settings(track=timedelta(milliseconds=200), tick=timedelta(milliseconds=200))
CALLER = """
import asyncio, os, signal, sys
from engine.ledger.postgres.schedule_statements import ScheduleStatements
from engine.service import ScheduleService

async def die(_):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    ScheduleStatements.notify = die  # what a start does once its row is committed
    async with ScheduleService.connect(
        sys.argv[1], namespace=sys.argv[2], schema="sched", actor="shop"
    ) as service:
        await service.start("noop", {"a": "1"}, id="7")

asyncio.run(main())
"""


@pytest.fixture
async def ledger(client, database_url) -> AsyncIterator[Ledger]:
    opened = await Ledger.connect(database_url, namespace=client.namespace)
    yield opened
    await opened.close()


@pytest.fixture
def service(ledger) -> ScheduleService:
    return ScheduleService(ledger, actor="shop")


@pytest.fixture
async def sql(database_url) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    await connection.execute("SET search_path TO sched")
    yield connection
    await connection.close()


def replica(client, database_url, told=None) -> Worker:
    plugin = SchedulePlugin(
        None, database_url=database_url, settings=SOON, on_event=told.append if told else None
    )
    return Worker(
        client, task_queue="sched", workflows=[Noop, Sleeps, Totals, Cart], plugins=[plugin]
    )


async def announce(ledger) -> None:
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))


async def status_of(service, workflow_id: str, status: str):
    async def found():
        fire = await service.fire(workflow_id)
        return fire if fire and fire.status == status else None

    return await eventually(found, timeout=30)


async def test_a_start_whose_caller_dies_behind_its_row_runs_once(
    client, database_url, ledger, service
):
    await announce(ledger)
    caller = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", CALLER, database_url, client.namespace],
        env={**os.environ},
        check=False,
    )
    assert caller.returncode == -signal.SIGKILL
    async with replica(client, database_url):
        fire = await status_of(service, "sched:@noop:7", "completed")
        again = await service.start("noop", {"a": "1"}, id="7", wait=20)
    assert (again.new, again.fire.run_id) == (False, fire.run_id)
    runs = [run.id async for run in client.list_workflows()]
    assert runs == ["sched:@noop:7"]


async def test_starts_of_other_ids_share_no_lock(ledger, service, sql):
    """Not even while one start stays uncommitted, and another command holds the row they share."""
    await announce(ledger)
    await service.start("noop", id="0")
    first = Start(
        workflow="noop", start_id="1", digest="", requested="noop", project="default",
        task_queue="sched", requested_by="shop",
    )  # fmt: skip
    async with ledger.transaction() as transaction, sql.transaction():
        fire = first.fire("sched:@noop:1", "noop@1", await transaction.now(), ())
        assert await transaction.start(first, fire)
        await sql.execute("SELECT FROM schedules WHERE key = '@noop' FOR UPDATE")
        async with asyncio.timeout(20):
            assert (await service.start("noop", id="2")).new
        same = asyncio.create_task(service.start("noop", id="1"))
        assert not (await asyncio.wait([same], timeout=0.3))[0], "the same id waits for the first"
    with pytest.raises(StartInUse):
        await same


async def test_an_id_stays_used_when_its_row_has_left_the_ledger(
    client, database_url, ledger, service, sql, tmp_path
):
    async with replica(client, database_url):
        await eventually(service.served)
        for number in "12":
            await service.start("noop", {"a": "1"}, id=number, wait=20)
            await status_of(service, f"sched:@noop:{number}", "completed")
    await sql.execute(
        "UPDATE fires SET fire_time = fire_time - interval '3 years', decided_at = now() - interval"
        " '3 years', last_fire_time = last_fire_time - interval '3 years', closed_at = now() -"
        " interval '3 years' WHERE workflow_id = 'sched:@noop:1'"
    )
    archive = tmp_path / "archive"
    archive.mkdir()
    past = Past(ledger, database_url, archive, client.namespace)
    await sql.execute("DELETE FROM duties")  # of the replica's janitor
    await past.round()
    assert [row["workflow_id"] for row in await past.rows()] == ["sched:@noop:2"]
    assert [line["workflow_id"] for line in past.lines()] == ["sched:@noop:1"]
    again = await service.start("noop", {"a": "1"}, id="1", wait=20)
    assert (again.new, again.fire, again.workflow_id) == (False, None, "sched:@noop:1")
    with pytest.raises(StartInUse):
        await service.start("noop", {"a": "2"}, id="1")
    async with ledger.transaction() as transaction:  # as of a start that looked before it was there
        fire = again.start.fire(again.workflow_id, "noop@1", await transaction.now(), ())
        assert not await transaction.start(again.start, fire)
    # The janitor leaves alone what lies behind a cursor; this one never moves.
    assert await sql.fetchval(
        "SELECT cursor > now() + interval '50 years' FROM schedules WHERE key = '@noop'"
    )
    assert [row["workflow_id"] for row in await past.rows()] == ["sched:@noop:2"]


async def test_a_start_whose_commit_was_lost_finds_its_run_when_it_is_asked_for_again(
    client, database_url, ledger, service, sql
):
    told: list[object] = [None]
    async with replica(client, database_url, told):
        await eventually(service.served)
        first = await service.start("sleeps", id="7", wait=20)
        await sql.execute("DELETE FROM fires")
        await sql.execute("DELETE FROM starts")
        again = await service.start("sleeps", id="7", wait=20)
        assert again.fire.run_id == first.fire.run_id
        assert again.fire.status == "started"
        await sql.execute("DELETE FROM fires")
        await sql.execute("DELETE FROM starts")
        await client.get_workflow_handle(first.workflow_id).cancel()

        def alert() -> list[str]:
            return [event.text for event in told if isinstance(event, Alert)]

        (text,) = await eventually(alert, timeout=30)
        assert "start it again with the same id and input" in text
        again = await service.start("sleeps", id="7", wait=20)
        # A worker reports the end of a run before the server has closed it.
        fire = await status_of(service, again.workflow_id, "cancelled")
    assert fire.run_id == first.fire.run_id


@pytest.fixture
async def shop(client, database_url, ledger) -> AsyncIterator[ScheduleService]:
    """A service beside a worker, whose client is that of the application."""
    async with replica(client, database_url):
        service = ScheduleService(ledger, actor="shop", client=client)
        await eventually(service.served)
        yield service


async def test_a_handle_gives_the_result_in_the_type_of_the_class(shop):
    started = await shop.start(Totals, Order(3), id="7")
    assert await started.result() == Total(6)
    assert await (await shop.start(Totals, Order(3), id="7")).result() == Total(6), "again"
    assert await (await shop.start("totals", {"count": 3}, id="7")).result() == {"cents": 6}


async def test_one_run_of_a_cart_gets_what_is_sent_to_it_and_is_started_once(shop, client):
    await shop.signal_or_start(Cart, id="c1", signal="add", value="pen")
    cart = await shop.signal_or_start(Cart, id="c1", signal="add", value="ink")
    assert await shop.update_or_start(Cart, id="c1", update=Cart.price, value=2) == 4
    assert await cart.query(Cart.items) == ["pen", "ink"]
    await cart.signal("pay")
    assert await cart.result() == ["pen", "ink"]
    assert [run.id async for run in client.list_workflows()] == ["sched:@cart:c1"]
    for call in (
        cart.signal("add", "late"),
        shop.signal_or_start(Cart, id="c1", signal="add", value="late"),
        shop.update_or_start(Cart, id="c1", update=Cart.price, value=2),
    ):
        with pytest.raises(RunEnded, match="sched:@cart:c1 has ended; an id is one run for ever"):
            await call


async def test_a_run_is_cancelled_by_its_handle_and_its_failure_names_the_cause(shop):
    started = await shop.start(Cart, id="c2", wait=20)
    await started.cancel(reason="customer left")
    with pytest.raises(WorkflowFailureError) as failed:
        await started.result()
    assert isinstance(failed.value.cause, CancelledError)


async def test_a_call_to_a_run_that_does_not_begin_says_what_is_missing(ledger, client):
    await announce(ledger)
    service = ScheduleService(ledger, actor="shop", client=client)
    started = await service.start("noop", id="1", project="nobody")
    with pytest.raises(EnqueueFailure, match="no worker lives that serves project nobody"):
        await started.handle(wait=0)
    with pytest.raises(EnqueueFailure, match="no worker lives"):
        await service.signal_or_start("noop", id="1", signal="x", project="nobody", wait=0)


async def test_a_client_of_another_namespace_is_refused(ledger, client, database_url):
    await announce(ledger)
    other = Client(client.service_client, namespace="elsewhere")
    async with replica(client, database_url):
        service = ScheduleService(ledger, actor="shop", client=other)
        started = await service.start("noop", id="1", wait=20)
        with pytest.raises(SettingsInvalid, match="is of namespace elsewhere"):
            await started.result()


async def test_without_a_client_the_service_connects_as_the_environment_says(
    ledger, client, database_url, monkeypatch
):
    monkeypatch.setenv("TEMPORAL_ADDRESS", client.service_client.config.target_host)
    async with replica(client, database_url):
        service = ScheduleService(ledger, actor="shop")
        await eventually(service.served)
        assert await (await service.start(Totals, Order(2), id="1")).result() == Total(4)


async def test_what_a_start_says_of_its_run_is_what_temporal_has(shop, client):
    started = await shop.start(
        Sleeps, id="p", wait=20, priority=2, fairness="acme", timeout=timedelta(hours=1),
        retry=Retry(max_attempts=4), memo={"order": 7}, tenant_id="acme",
    )  # fmt: skip
    run = await (await started.handle()).describe()
    config, info = run.raw_description.execution_config, run.raw_description.workflow_execution_info
    assert config.workflow_run_timeout.seconds == 3600
    assert (info.priority.priority_key, info.priority.fairness_key) == (2, "acme")
    assert (await run.memo())["order"] == 7
    assert FireInfo.from_memo((await run.memo())["sched"]).tenant_id == "acme"
    await started.cancel(terminate=True)
