"""``@workflow(timeout=, retry=)``, and ``retry:`` and ``timeout:`` of a schedule, which precede."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest_asyncio
from temporalio.client import Client

from engine import Retry
from engine.flow import RunOptions, WorkflowDefinition
from engine.ledger import Ledger
from engine.ledger.fires import Fire
from engine.runtime import SchedulePlugin, Settings
from engine.runtime.events import Closed, Event
from engine.schedules import load_schedules
from tests.fundamentals.replays import CACHED
from tests.fundamentals.samples import ruled
from tests.fundamentals.shared_worker import shared_worker
from tests.waiting import eventually

SOON = Settings(track=timedelta(milliseconds=200), tick=timedelta(milliseconds=200))


EXTERNAL = "external: true, taskQueue: sched"
METADATA = "{ownerId: ann, tenantId: acme, correlationId: c-1, n: 7}"
RULED = {
    "lucky": "workflow: third-time-lucky",
    "slow": "workflow: too-slow",
    "goes-on": "workflow: goes-on, input: 3",
    "without-rules": f"workflow: third-time-lucky@1, {EXTERNAL}",
    "listed": "workflow: no-luck-yet, retry: {intervals: [1s, 3s]}, topic: orders.paid,"
    f" priority: 2, metadata: {METADATA}",
    "twice": f"workflow: third-time-lucky@1, {EXTERNAL}, retry: {{attempts: 2, initial: 1s}}",
    "two-seconds": "workflow: too-slow@1, timeout: {run: 2s}, retry: {attempts: 1}",
}
"""One schedule of each test: a worker runs the current window of all of them beside each other."""


seen_by_metrics: list[Event] = []


def all_of_them(database_url: str) -> SchedulePlugin:
    schedules = [f"{{key: {key}, everyMs: 86400000, {rest}}}" for key, rest in RULED.items()]
    file = load_schedules(f"schedules: [{', '.join(schedules)}]")
    return SchedulePlugin(
        file, database_url=database_url, settings=SOON, on_event=seen_by_metrics.append
    )


worker = shared_worker(
    "sched", ruled.ALL, [ruled.its_priority], plugin=all_of_them, cached=CACHED[:1]
)


@pytest_asyncio.fixture(loop_scope="module")
async def ledger(served: Client, shared_database_url: str) -> AsyncIterator[Ledger]:
    opened = await Ledger.connect(shared_database_url, namespace=served.namespace)
    yield opened
    await opened.close()


async def the_fire(ledger: Ledger, key: str) -> Fire:
    """Wait for the end of the window of a schedule; returns all that the ledger has."""

    async def closed() -> list[Fire]:
        fires = await ledger.fires(key=key)
        return fires if fires and fires[0].closed_at else []

    (fire,) = await eventually(closed, timeout=30, every=0.1)
    return fire


async def test_a_run_that_is_begun_again_is_one_fire_which_completes(served, ledger):
    fire = await the_fire(ledger, "lucky")
    assert (fire.status, fire.error) == ("completed", None)
    last = served.get_workflow_handle(fire.workflow_id)
    assert (await last.describe()).run_id == fire.run_id
    assert await last.result() == 3


async def test_a_run_that_takes_too_long_is_timed_out(served, ledger):
    fire = await the_fire(ledger, "slow")
    assert fire.status == "timed_out"


async def test_a_run_that_continues_as_new_is_one_fire_which_closes_with_the_last(served, ledger):
    fire = await the_fire(ledger, "goes-on")
    assert fire.status == "completed"
    runs = [run async for run in served.list_workflows(f'WorkflowId = "{fire.workflow_id}"')]
    assert len(runs) <= 3, "no run of the window was started but the first"


async def test_an_external_type_has_no_rules_of_ours(served, ledger):
    fire = await the_fire(ledger, "without-rules")
    assert (fire.status, fire.error) == ("failed", "ValueError: attempt 1 had no luck")


async def test_the_waits_that_a_schedule_lists_are_those_between_the_tries(served, ledger):
    """Seeds 000 and 003: retryPolicy per job, retry_intervals; the run knows its fire."""
    fire = await the_fire(ledger, "listed")
    assert fire.status == "completed"
    *facts, fired_at = await served.get_workflow_handle(fire.workflow_id).result()
    assert facts == ["orders.paid", "ann", "acme", "c-1", 7, 3, 2, 2]
    runs = sorted(
        [run async for run in served.list_workflows(f'WorkflowId = "{fire.workflow_id}"')],
        key=lambda run: run.start_time,
    )
    ends = [run.close_time for run in runs]
    assert len(ends) == 3
    begun = datetime.fromisoformat(fired_at)
    assert timedelta(seconds=2.9) < begun - ends[1] < timedelta(seconds=4)
    assert timedelta(seconds=0.9) < ends[1] - ends[0] < timedelta(seconds=2)


async def test_the_rules_of_a_schedule_hold_for_external_types_too(served, ledger):
    """Seed 004: max_retries and timeout_seconds per schedule."""
    fire = await the_fire(ledger, "twice")
    assert (fire.status, fire.error) == ("failed", "ValueError: attempt 2 had no luck")


async def test_the_timeout_of_a_schedule_ends_its_run(served, ledger):
    fire = await the_fire(ledger, "two-seconds")
    assert fire.status == "timed_out"
    assert fire.duration_ms is not None
    assert fire.duration_ms > 1900
    timeouts = {
        event.evidence.workflow_id: event.evidence.timeout
        for event in seen_by_metrics
        if isinstance(event, Closed)
    }
    assert timeouts[fire.workflow_id] == 2.0


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
