"""What leaves ``run`` fails the run; code that no longer fits a run's history does not."""

from __future__ import annotations

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from tests.fundamentals.samples import edited
from tests.waiting import eventually

QUEUE = "failures"


async def test_an_ordinary_exception_fails_the_run_and_keeps_its_name(client: Client) -> None:
    async with Worker(client, task_queue=QUEUE, workflows=[edited.Unlucky]):
        with pytest.raises(WorkflowFailureError) as failed:
            await client.execute_workflow("unlucky@1", id="unlucky", task_queue=QUEUE)
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.message) == ("ValueError", "no luck today")


async def test_a_run_waits_while_the_code_does_not_fit_its_history(client: Client) -> None:
    async with Worker(client, task_queue=QUEUE, workflows=[edited.Before], max_cached_workflows=0):
        run = await client.start_workflow("edited@1", id="edited", task_queue=QUEUE)

        async def has_slept():
            return [
                e
                async for e in run.fetch_history_events()
                if e.HasField("timer_started_event_attributes")
            ]

        await eventually(has_slept)
    async with Worker(client, task_queue=QUEUE, workflows=[edited.After], max_cached_workflows=0):
        await run.signal("go")

        async def a_task_failed():
            return [
                e
                async for e in run.fetch_history_events()
                if e.HasField("workflow_task_failed_event_attributes")
            ]

        await eventually(a_task_failed)
    async with Worker(client, task_queue=QUEUE, workflows=[edited.Before], max_cached_workflows=0):
        assert await run.result() == "done"
