"""The namespace forgets a run; the ledger does not."""

from __future__ import annotations

import signal
import uuid
from datetime import timedelta

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from tests.acceptance.fleet import Books, Fleet
from tests.sample_workflows import Noop
from tests.servers import register_namespace
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.prove]

RETENTION = timedelta(seconds=4)
FILE = """
schedules:
  - {key: daily, workflow: noop, everyMs: 86400000}
  - {key: pulse, workflow: noop, everyMs: 1000}
"""
QUICK = {"SCHED_LEASE": "800ms", "SCHED_TICK": "200ms"}


@pytest.fixture
async def namespace(temporal) -> str:
    """A namespace that keeps closed runs for four seconds."""
    name = f"forgetful-{uuid.uuid4().hex}"
    await register_namespace(await Client.connect(temporal.address), name, retention=RETENTION)
    return name


async def forgotten(client: Client, workflow_id: str) -> None:
    """Wait until the server knows no such run."""

    async def gone() -> bool:
        try:
            await client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            return error.status == RPCStatusCode.NOT_FOUND
        return False

    await eventually(gone, timeout=60, every=0.2)


async def daily(books: Books):
    return [row for row in await books.fires() if row["key"] == "daily"]


async def test_a_window_that_ran_and_was_forgotten_is_not_started_again(
    fleet: Fleet, books: Books, client: Client
):
    first = await fleet.start(FILE, **QUICK)
    await books.until_fired(["daily", "pulse"], 1, timeout=60)
    (before,) = await daily(books)
    await forgotten(client, before["workflow_id"])
    first.send(signal.SIGTERM)
    assert await first.gone() == 0
    pulses = len(await books.fires())
    await fleet.start(FILE, **QUICK)
    await fleet.start(FILE, **QUICK)
    await books.until_fired(["pulse"], pulses + 5, timeout=60)
    (after,) = await daily(books)
    assert (after["run_id"], after["status"]) == (before["run_id"], "completed")
    await forgotten(client, before["workflow_id"])


async def test_a_start_that_was_never_answered_is_unvouched_once_its_run_may_be_forgotten(
    fleet: Fleet, books: Books, client: Client
):
    only = FILE.partition("  - {key: pulse")[0]
    doomed = await fleet.start(only, SCHED_FAULT="after_start:kill", **QUICK)
    assert await doomed.gone() == -signal.SIGKILL
    async with Worker(client, task_queue="sched", workflows=[Noop]):
        (stuck,) = await daily(books)
        assert stuck["status"] == "starting"
        await client.get_workflow_handle(stuck["workflow_id"]).result()
    await forgotten(client, stuck["workflow_id"])
    survivor = await fleet.start(only, **QUICK)

    async def decided():
        (row,) = await daily(books)
        return row if row["status"] != "starting" else None

    row = await eventually(decided, timeout=60)
    assert row["status"] == "unvouched"
    assert "may have run" in row["reason"]
    await forgotten(client, stuck["workflow_id"])
    survivor.send(signal.SIGTERM)
    assert await survivor.gone() == 0
    assert fleet.logged("SCHEDULE_FIRE_UNVOUCHED")
