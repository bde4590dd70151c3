"""``@workflow(timeout=, retry=)``: they hold for the runs that a schedule starts, too."""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import Worker

from engine.ledger import PostgresLedger
from engine.ledger.fires import Fire
from engine.runtime import SchedulePlugin, Settings
from engine.schedules import load_schedules
from tests.fundamentals.samples import ruled
from tests.waiting import eventually

SOON = Settings(track=timedelta(milliseconds=200), tick=timedelta(milliseconds=200))


async def the_fire(client: Client, database_url: str, schedule: str) -> Fire:
    """Let the current window of a schedule run to its end; returns all that the ledger has."""
    plugin = SchedulePlugin(
        load_schedules(f"schedules: [{{key: k, everyMs: 86400000, {schedule}}}]"),
        database_url=database_url, settings=SOON,
    )  # fmt: skip
    ledger = await PostgresLedger.connect(database_url, namespace=client.namespace)

    async def closed() -> list[Fire]:
        fires = await ledger.fires()
        return fires if fires and fires[0].closed_at else []

    async with Worker(client, task_queue="sched", workflows=ruled.ALL, plugins=[plugin]):
        (fire,) = await eventually(closed, timeout=30)
    await ledger.close()
    return fire


async def test_a_run_that_is_begun_again_is_one_fire_which_completes(client, database_url):
    fire = await the_fire(client, database_url, "workflow: third-time-lucky")
    assert (fire.status, fire.error) == ("completed", None)
    last = client.get_workflow_handle(fire.workflow_id)
    assert (await last.describe()).run_id == fire.run_id
    assert await last.result() == 3


async def test_a_run_that_takes_too_long_is_timed_out(client, database_url):
    fire = await the_fire(client, database_url, "workflow: too-slow")
    assert fire.status == "timed_out"


async def test_a_run_that_continues_as_new_is_one_fire_which_closes_with_the_last(
    client, database_url
):
    fire = await the_fire(client, database_url, "workflow: goes-on, input: 3")
    assert fire.status == "completed"
    runs = [run async for run in client.list_workflows(f'WorkflowId = "{fire.workflow_id}"')]
    assert len(runs) <= 3, "no run of the window was started but the first"


async def test_an_external_type_has_no_rules_of_ours(client, database_url):
    fire = await the_fire(
        client, database_url, "workflow: third-time-lucky@1, external: true, taskQueue: sched"
    )
    assert (fire.status, fire.error) == ("failed", "ValueError: attempt 1 had no luck")
