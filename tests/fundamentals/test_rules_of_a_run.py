"""``@workflow(timeout=, retry=)``, and ``retry:`` and ``timeout:`` of a schedule, which precede."""

from __future__ import annotations

from datetime import datetime, timedelta

from temporalio.client import Client
from temporalio.worker import Worker

from engine import Retry
from engine.flow import RunOptions, WorkflowDefinition
from engine.ledger import Ledger
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
    ledger = await Ledger.connect(database_url, namespace=client.namespace)

    async def closed() -> list[Fire]:
        fires = await ledger.fires()
        return fires if fires and fires[0].closed_at else []

    async with Worker(
        client, task_queue="sched", workflows=ruled.ALL, activities=[ruled.its_priority],
        plugins=[plugin],
    ):  # fmt: skip
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


async def test_the_waits_that_a_schedule_lists_are_those_between_the_tries(client, database_url):
    """Seeds 000 and 003: retryPolicy per job, retry_intervals; the run knows its fire."""
    metadata = "{ownerId: ann, tenantId: acme, correlationId: c-1, n: 7}"
    fire = await the_fire(
        client, database_url,
        "workflow: no-luck-yet, retry: {intervals: [1s, 3s]}, topic: orders.paid,"
        f" priority: 2, metadata: {metadata}",
    )  # fmt: skip
    assert fire.status == "completed"
    *facts, fired_at = await client.get_workflow_handle(fire.workflow_id).result()
    assert facts == ["orders.paid", "ann", "acme", "c-1", 7, 3, 2, 2]
    runs = sorted(
        [run async for run in client.list_workflows(f'WorkflowId = "{fire.workflow_id}"')],
        key=lambda run: run.start_time,
    )
    ends = [run.close_time for run in runs]
    assert len(ends) == 3
    begun = datetime.fromisoformat(fired_at)
    assert timedelta(seconds=2.9) < begun - ends[1] < timedelta(seconds=4)
    assert timedelta(seconds=0.9) < ends[1] - ends[0] < timedelta(seconds=2)


async def test_the_rules_of_a_schedule_hold_for_external_types_too(client, database_url):
    """Seed 004: max_retries and timeout_seconds per schedule."""
    external = "external: true, taskQueue: sched"
    fire = await the_fire(
        client, database_url,
        f"workflow: third-time-lucky@1, {external}, retry: {{attempts: 2, initial: 1s}}",
    )  # fmt: skip
    assert (fire.status, fire.error) == ("failed", "ValueError: attempt 2 had no luck")


async def test_the_timeout_of_a_schedule_ends_its_run(client, database_url):
    fire = await the_fire(
        client, database_url, "workflow: too-slow@1, timeout: {run: 2s}, retry: {attempts: 1}"
    )
    assert fire.status == "timed_out"
    assert fire.duration_ms is not None
    assert fire.duration_ms > 1900


def test_what_a_schedule_does_not_say_stays_as_the_class_has_it():
    options = RunOptions.of(
        WorkflowDefinition(
            "n", "1", object, accepts_input=False, requires_input=False,
            timeout=timedelta(hours=1), compensate_on_terminate=True,
            retry=Retry(max_attempts=9, give_up_on=["Spoilt"]),
        )
    )  # fmt: skip
    own = options.overridden(timeout=timedelta(seconds=1), retry=Retry(max_attempts=2))
    assert own.retry is not None
    assert (own.timeout, own.retry.maximum_attempts) == (timedelta(seconds=1), 2)
    assert own.retry.non_retryable_error_types == ["Spoilt", "TemporalTimeout:StartToClose"]
    assert own.compensate_on_terminate
    assert options.overridden(timeout=None, retry=None) == options
    listed = options.overridden(timeout=None, retry=Retry(intervals=[1, 30, 2])).retry
    assert listed is not None
    assert (listed.maximum_attempts, listed.maximum_interval) == (4, timedelta(seconds=30))
