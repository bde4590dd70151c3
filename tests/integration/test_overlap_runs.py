"""Overlap policies on real servers: runs that last longer than the way to the next window."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from temporalio.worker import Worker

from engine.flow.fire import MEMO_KEY, FireInfo
from engine.ledger import Ledger
from engine.runtime import SchedulePlugin
from engine.runtime.events import Alert
from engine.schedules import load_schedules
from engine.service import ScheduleService
from tests.sample_workflows import Noop, Rests, Sleeps, Tidies
from tests.waiting import eventually

WORKFLOWS = [Rests, Noop, Sleeps, Tidies]
CLOSED = {"completed", "cancelled", "terminated"}


@pytest.fixture
async def ledger(client, database_url):
    opened = await Ledger.connect(database_url, namespace=client.namespace)
    yield opened
    await opened.close()


def worker(client, database_url, fields: str, **options):
    text = f"schedules: [{{key: k, firstFire: next, {fields}}}]"
    plugin = SchedulePlugin(load_schedules(text), database_url=database_url, **options)
    return Worker(client, task_queue="sched", workflows=WORKFLOWS, plugins=[plugin])


async def closed_runs(ledger, count: int):
    """Wait for so many closed runs; return them in the order of their windows."""

    async def enough():
        fires = [fire for fire in await ledger.fires(limit=1000) if fire.status in CLOSED]
        return fires if len(fires) >= count else None

    return sorted(await eventually(enough, timeout=40), key=lambda fire: fire.fire_time)


async def every_window(ledger):
    """Every decided window of the key, by fire time; a row of several counts for each."""
    fires = sorted(await ledger.fires(limit=1000), key=lambda fire: fire.fire_time)
    return [
        (fire.fire_time + number * timedelta(seconds=1), fire)
        for fire in fires
        for number in range(fire.windows)
    ]


def assert_apart(runs):
    """No run began before the one before it had ended. Both times are the server's own clock."""
    for earlier, later in pairwise(runs):
        assert earlier.closed_at <= later.started_at, (earlier.workflow_id, later.workflow_id)


@pytest.mark.prove
async def test_skip_never_starts_a_second_run_and_every_window_says_why(
    client, database_url, ledger
):
    """A run three windows long: all of them look at it, not only the next."""
    async with worker(
        client, database_url, "everyMs: 1000, workflow: rests, input: 3.3, overlap: skip"
    ):
        runs = await closed_runs(ledger, 3)
    assert_apart(runs)
    windows = await every_window(ledger)
    assert all(
        later - earlier == timedelta(seconds=1) for (earlier, _), (later, _) in pairwise(windows)
    )
    skipped = [fire for _, fire in windows if fire.status == "skipped"]
    assert len(skipped) >= 2 * len(runs)
    assert all((fire.reason or "").startswith("overlap: sched:k:") for fire in skipped)


@pytest.mark.prove
async def test_a_queue_runs_one_after_another_in_order(client, database_url, ledger):
    events: list[object] = []
    async with worker(
        client, database_url,
        "everyMs: 1000, workflow: rests, input: 2.2, overlap: queue, maxQueued: 2",
        on_event=events.append,
    ):  # fmt: skip
        runs = await closed_runs(ledger, 4)
    assert_apart(runs)
    told = {fire.reason for _, fire in await every_window(ledger) if fire.status == "skipped"}
    assert told == {"overlap: the queue is full (2)"}
    alerts = [event.code for event in events if isinstance(event, Alert)]
    assert "SCHEDULE_QUEUE_FULL" in alerts


async def test_cancel_previous_lets_the_run_tidy_up_before_the_next_begins(
    client, database_url, ledger
):
    async with worker(
        client,
        database_url,
        "everyMs: 3000, workflow: tidies, input: 0.7, overlap: cancel_previous",
    ):
        runs = await closed_runs(ledger, 2)
    assert {run.status for run in runs} == {"cancelled"}
    assert_apart(runs)


async def test_a_run_that_outlasts_its_grace_is_terminated(client, database_url, ledger):
    fields = (
        "everyMs: 3000, workflow: tidies, input: 600, overlap: cancel_previous, cancelGrace: 1s"
    )
    async with worker(client, database_url, fields):
        (run, *_) = await closed_runs(ledger, 1)
    assert run.status == "terminated"


@pytest.mark.prove
async def test_a_run_of_a_window_that_was_coalesced_is_taken_out_of_its_range(
    client, database_url, ledger
):
    """Rule L2: whatever class a window had, a run that is seen wins."""
    told: list[object] = []
    async with worker(
        client, database_url, "everyMs: 1000, workflow: noop, overlap: allow", on_event=told.append
    ):
        service = ScheduleService(ledger, actor="test")
        await closed_runs(ledger, 1)
        await service.pause("k", reason="test")
        begin = datetime.now(UTC)

        async def a_while() -> bool:
            return datetime.now(UTC) - begin > timedelta(seconds=4)

        await eventually(a_while)
        await service.resume("k")
        (span,) = [fire for fire in await ledger.fires() if fire.windows > 2]
        at = span.fire_time + timedelta(seconds=1)
        info = FireInfo(
            key="k", series=1, bucket=span.bucket + 1, fire_time=at, timezone="UTC",
            timing="on_time", definition_version=1, project="default",
            ledger=await ledger.identity(), token="claim",  # noqa: S106 - no secret
        )  # fmt: skip
        await client.start_workflow(
            "noop@1", id=f"sched:k:{span.bucket + 1}", task_queue="sched",
            memo={MEMO_KEY: info.to_memo()},
        )  # fmt: skip

        async def booked():
            return await ledger.fires(key="k", status="completed", limit=1000)

        async def mine():
            return [fire for fire in await booked() if fire.fire_time == at]

        (fire,) = await eventually(mine)
    assert fire.history[-1]["status"] == "skipped"
    assert "SCHEDULE_RUN_FOUND" in {event.code for event in told if isinstance(event, Alert)}
    windows = [moment for moment, _ in await every_window(ledger)]
    assert len(windows) == len(set(windows))
