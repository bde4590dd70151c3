"""A ledger without its last commits, and a Temporal without its runs: nothing is done twice."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.worker import Worker

from engine.ledger import Ledger
from engine.runtime import SchedulePlugin
from engine.runtime.events import Alert
from engine.schedules import load_schedules
from tests.sample_workflows import Noop, Sleeps
from tests.waiting import eventually


@pytest.fixture
async def ledger(client, database_url):
    opened = await Ledger.connect(database_url, namespace=client.namespace)
    yield opened
    await opened.close()


def worker(client, database_url, fields: str, told: list[object]):
    text = f"schedules: [{{key: k, firstFire: next, everyMs: 1000, {fields}}}]"
    plugin = SchedulePlugin(load_schedules(text), database_url=database_url, on_event=told.append)
    return Worker(client, task_queue="sched", workflows=[Noop, Sleeps], plugins=[plugin])


async def completed(ledger):
    return await ledger.fires(key="k", status="completed", limit=1000)


async def test_windows_whose_commits_were_lost_are_booked_with_the_runs_they_have(
    client, database_url, ledger
):
    """Rule L4: what has run is found before missed windows are coalesced."""
    told: list[object] = []
    fields = "workflow: noop, grace: 2s"

    async def eight():
        return len(await completed(ledger)) >= 8

    async with worker(client, database_url, fields, told):
        await eventually(eight, timeout=30)
    before = sorted(await completed(ledger), key=lambda fire: fire.fire_time)
    lost = before[-5:]
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute("ALTER TABLE sched.schedules DISABLE TRIGGER cursor_moves_forward")
        await connection.execute("DELETE FROM sched.fires WHERE fire_time >= $1", lost[0].fire_time)
        await connection.execute(
            "WITH moved AS (UPDATE sched.positions SET cursor = $1, next_fire_at = $2, due_at = $2)"
            " UPDATE sched.schedules SET cursor = $1, next_fire_at = $2, position_step = -1",
            before[-6].fire_time, lost[0].fire_time,
        )  # fmt: skip
        await connection.execute("ALTER TABLE sched.schedules ENABLE TRIGGER cursor_moves_forward")
    finally:
        await connection.close()

    async def found():
        there = {fire.workflow_id: fire for fire in await completed(ledger)}
        return there if all(fire.workflow_id in there for fire in lost) else None

    async with worker(client, database_url, fields, told):
        again = await eventually(found, timeout=30)
    for fire in lost:
        assert again[fire.workflow_id].run_id == fire.run_id
        assert again[fire.workflow_id].history[0]["status"] == "lost"
    codes = {event.code for event in told if isinstance(event, Alert)}
    assert "SCHEDULE_RUN_FOUND" in codes
    assert_each_once(await ledger.fires(key="k", limit=1000))


def assert_each_once(fires) -> None:
    """Check that no window has two rows, of whatever key."""
    windows = [
        fire.fire_time + number * timedelta(seconds=1)
        for fire in fires
        for number in range(fire.windows)
    ]
    assert len(windows) == len(set(windows))


async def test_a_run_that_temporal_has_lost_is_told_and_never_started_again(
    client, database_url, ledger
):
    """A namespace that was restored empty asks its operator, and the schedule goes on."""
    told: list[object] = []

    async def started():
        return await ledger.fires(key="k", status="started", limit=10)

    async def lost():
        codes = [event.code for event in told if isinstance(event, Alert)]
        return "SCHEDULE_RUN_LOST" in codes and len(await started()) == 2

    async with worker(client, database_url, "workflow: sleeps, overlap: skip", told):
        (first,) = await eventually(started)
        execution = WorkflowExecution(workflow_id=first.workflow_id, run_id=first.run_id)
        await client.workflow_service.delete_workflow_execution(
            DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
        )
        await eventually(lost)
    fire = await ledger.fire(first.workflow_id)
    assert fire is not None
    assert (fire.status, fire.run_id) == ("started", first.run_id)
    assert fire.error is not None
    assert "Temporal does not know it any more" in fire.error


# --- renames ---


def renamed(client, database_url, entry: str, told: list[object]):
    text = f"schedules: [{{firstFire: next, workflow: noop, everyMs: 1000, grace: 2s, {entry}}}]"
    plugin = SchedulePlugin(load_schedules(text), database_url=database_url, on_event=told.append)
    return Worker(client, task_queue="sched", workflows=[Noop, Sleeps], plugins=[plugin])


async def ran(ledger, *keys: str, most: int = 5):
    """Return whether each of these keys has so many completed windows of its own."""
    fires = await ledger.fires(status="completed", limit=1000)
    return all(sum(fire.key == key for fire in fires) >= most for key in keys)


@pytest.mark.parametrize(
    ("forgets_rename", "returning"),
    [
        *(pytest.param(forgets, "new", marks=pytest.mark.prove) for forgets in (False, True)),
        (True, "old"),
    ],
)
async def test_of_windows_around_a_rename_whose_commits_were_lost_none_runs_twice(
    client, database_url, ledger, forgets_rename, returning
):
    """Rule L4: runs are found by all keys of a schedule, and by the first one if that is all."""
    told: list[object] = []
    async with renamed(client, database_url, "key: old", told):
        await eventually(lambda: ran(ledger, "old"), timeout=30)
    async with renamed(client, database_url, "key: new, was: old", told):
        await eventually(lambda: ran(ledger, "new"), timeout=30)
    before = await ledger.fires(status="completed", limit=1000)
    runs = {fire.workflow_id: fire.run_id for fire in before}
    olds = sorted(fire.fire_time for fire in before if fire.key == "old")
    await lose(database_url, olds[2], forgets_rename=forgets_rename)

    async def found():
        there = {fire.workflow_id: fire.run_id for fire in await completed_all(ledger)}
        return runs.items() <= there.items()

    entry = "key: new, was: old" if returning == "new" else "key: old"
    async with renamed(client, database_url, entry, told):
        await eventually(found, timeout=30)
        await eventually(lambda: ran(ledger, returning, most=7), timeout=30)
    assert_each_once(await ledger.fires(limit=1000))


async def completed_all(ledger):
    return await ledger.fires(status="completed", limit=1000)


async def lose(database_url: str, since, *, forgets_rename: bool) -> None:
    """Take back what was written from a window of the old key on."""
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute("SET search_path = sched")
        await connection.execute("ALTER TABLE schedules DISABLE TRIGGER cursor_moves_forward")
        await connection.execute("DELETE FROM fires WHERE fire_time >= $1", since)
        if forgets_rename:
            await connection.execute("DELETE FROM positions WHERE key = 'new'")
            await connection.execute("DELETE FROM definitions WHERE key = 'new'")
            await connection.execute("DELETE FROM schedules WHERE key = 'new'")
            await connection.execute("DELETE FROM projects")
            await connection.execute("UPDATE schedules SET successor = NULL, retired_at = NULL")
        await connection.execute(
            "WITH moved AS (UPDATE positions SET cursor = $1, next_fire_at = $2, due_at = $2"
            " WHERE key = $3)"
            " UPDATE schedules SET cursor = $1, next_fire_at = $2, position_step = -1"
            " WHERE key = $3",
            since - timedelta(seconds=1), since, "old" if forgets_rename else "new",
        )  # fmt: skip
        await connection.execute("ALTER TABLE schedules ENABLE TRIGGER cursor_moves_forward")
    finally:
        await connection.close()
