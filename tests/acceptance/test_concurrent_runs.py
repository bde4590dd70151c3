"""``maxConcurrentRuns`` on real servers: worker processes, one of them killed."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client

from engine.ledger import Ledger
from engine.service import ScheduleService
from tests.acceptance.fleet import Fleet
from tests.waiting import eventually

FILE = """
defaults: {overlap: allow}
schedules:
  - {key: k, workflow: gated, everyMs: 86400000, maxConcurrentRuns: 2}
"""


@pytest.fixture
async def ledger(client: Client, database_url: str) -> AsyncIterator[Ledger]:
    opened = await Ledger.connect(database_url, namespace=client.namespace)
    yield opened
    await opened.close()


@pytest.mark.prove
async def test_a_third_run_waits_for_a_place_and_gets_it_though_its_worker_is_killed_meanwhile(
    fleet: Fleet, client: Client, ledger: Ledger
):
    fleet.environment["SCHED_IMPORTS"] = "tests.operated_workflows"
    first = await fleet.start(FILE)

    async def statuses() -> dict[str, str]:
        fires = await ledger.fires(key="k")
        return {fire.workflow_id: fire.status for fire in fires if fire.status != "skipped"}

    async def until(*wanted: str) -> dict[str, str]:
        async def so() -> dict[str, str]:
            found = await statuses()
            assert sorted(found.values()) == sorted(wanted), found
            return found

        return await eventually(so, timeout=60, every=0.2)

    (window,) = await until("started")
    ops = ScheduleService(ledger, actor="ops")
    ids = [(await ops.trigger("k", request_id=name)).fire.workflow_id for name in ("a", "b", "c")]
    assert await until("started", "started", "queued", "queued")
    assert (await statuses())[ids[0]] == "started", "first come, first started"
    first.send(signal.SIGKILL)
    await first.gone()
    await client.get_workflow_handle(window).signal("go")  # nobody is there to see it end
    await fleet.start(FILE)
    found = await until("completed", "started", "started", "queued")
    assert (found[window], found[ids[1]], found[ids[2]]) == ("completed", "started", "queued")
    for run in ids[:2]:
        await client.get_workflow_handle(run).signal("go")
    found = await until("completed", "completed", "completed", "started")
    assert found[ids[2]] == "started"
