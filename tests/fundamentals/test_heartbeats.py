"""Heartbeats: a worker with the plugin speaks for its steps, so that its death is noticed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.worker import Worker

from engine.runtime import SchedulePlugin
from tests.fundamentals.samples.heartbeats import STEPS, WORKFLOWS


async def run(client: Client, workflow_type: str, plugins: list[SchedulePlugin]):
    with ThreadPoolExecutor(2) as threads:
        worker = Worker(
            client, task_queue="beats", workflows=WORKFLOWS, activities=STEPS,
            activity_executor=threads, plugins=plugins,
        )  # fmt: skip
        async with worker:
            handle = await client.start_workflow(workflow_type, id="run", task_queue="beats")
            return await handle.result(), await handle.fetch_history()


def expected_within(history) -> dict[str, float]:
    """How long each activity's worker may be silent; 0 is for ever."""
    scheduled = [
        event.activity_task_scheduled_event_attributes
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]
    return {each.activity_type.name: each.heartbeat_timeout.ToSeconds() for each in scheduled}


async def test_steps_are_expected_to_be_heard_as_they_were_declared(client: Client):
    _, history = await run(client, "beats@1", [SchedulePlugin(None)])
    # A plain activity beats by itself, if at all: its author decides.
    found = expected_within(history)
    assert found.pop("hurried") == 2, "as the call says"
    assert found == {"quick": 30, "patient": 5, "silent": 0, "plain": 0}


async def test_a_plain_worker_gives_no_sign_of_life_and_expects_none(client: Client):
    _, history = await run(client, "beats@1", [])
    assert expected_within(history).pop("hurried") == 2, "as the call says"
    assert set(expected_within(history).values()) == {0, 2}


async def test_a_step_longer_than_its_heartbeat_lives_and_what_it_said_itself_is_kept(
    client: Client,
):
    result, _ = await run(client, "reads@1", [SchedulePlugin(None)])
    assert result == "page 7"
