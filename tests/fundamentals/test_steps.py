"""Steps: ordinary functions that a workflow calls with ``ctx.step`` and that are retried."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from tests.fundamentals.replays import CACHED
from tests.fundamentals.samples import steps as samples
from tests.fundamentals.samples.steps import (
    ATTEMPTS,
    Mail,
    UsesOtherSteps,
    count_rows,
    echo,
    plain_activity,
    send,
    unreliable,
)
from tests.fundamentals.shared_worker import shared_worker

QUEUE = "steps"


# A plain worker: nothing of the engine but the decorated functions and classes.
worker = shared_worker(
    QUEUE, samples.ALL, [send, count_rows, unreliable, echo, plain_activity],
    plugin=None, cached=CACHED[:1], activity_executor=ThreadPoolExecutor(4),
)  # fmt: skip


async def run(client: Client, workflow_type: str, *args: object):
    workflow_id = f"run-{uuid.uuid4().hex[:8]}"
    handle = await client.start_workflow(workflow_type, args=args, id=workflow_id, task_queue=QUEUE)
    return await handle.result(), await handle.fetch_history()


async def test_a_step_stays_a_function_that_a_unit_test_calls_directly():
    assert await send(Mail("a@example.org", copies=3)) == 3
    assert count_rows() == 7
    assert await ActivityEnvironment().run(unreliable, 1) == 1


async def test_async_steps_sync_steps_and_plain_activities_run_alike(served: Client):
    result, _ = await run(served, "uses-steps@1")
    assert result == [2, 7, "PLAIN", "nothing", None]


async def test_each_attempt_has_a_timeout_of_ten_minutes_unless_somebody_says_otherwise(served):
    _, history = await run(served, "uses-steps@1")
    scheduled = [
        event.activity_task_scheduled_event_attributes
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]
    assert [
        (each.activity_type.name, each.start_to_close_timeout.ToSeconds()) for each in scheduled
    ] == [
        ("send", 600),
        ("count-rows", 30),
        ("plain_activity", 5),
        ("echo", 600),
        ("echo", 600),
    ]


async def test_a_failing_step_is_tried_again_as_its_retry_rule_says(served: Client):
    ATTEMPTS.clear()
    result, _ = await run(served, "tries@1", 3)
    assert result == 3
    assert ATTEMPTS == [1, 2, 3]


async def test_a_step_that_keeps_failing_fails_the_run_after_the_last_attempt(served: Client):
    ATTEMPTS.clear()
    with pytest.raises(WorkflowFailureError) as failure:
        await run(served, "tries@1", 99)
    assert ATTEMPTS == [1, 2, 3]
    assert "attempt 3" in str(failure.value.cause.__cause__)


async def test_a_call_may_bring_its_own_retry_rule_and_catch_the_failure(served: Client):
    ATTEMPTS.clear()
    result, _ = await run(served, "tries-once@1")
    assert result == "ConnectionError: attempt 1"
    assert ATTEMPTS == [1]


async def test_a_run_with_steps_replays_from_its_stored_history(served: Client):
    _, history = await run(served, "uses-steps@1")
    result = await Replayer(workflows=samples.ALL).replay_workflow(history)
    assert result.replay_failure is None


async def test_a_history_of_other_code_does_not_replay(served: Client):
    _, history = await run(served, "uses-steps@1")
    with pytest.raises(NondeterminismError):
        await Replayer(workflows=[UsesOtherSteps]).replay_workflow(history)


async def test_a_wrong_call_fails_the_run_with_a_sentence(served: Client):
    for way, sentence in [
        ("not a step", "ctx.step needs a function marked with @step: mark _undecorated in "),
        ("not a step", "in tests.fundamentals.samples.steps with @step"),
        ("closure", "ctx.step('gather', <function>) is no step: mark the function with @step, at"),
        ("lambda", "a lambda of tests.fundamentals.samples.steps exists only where it was made"),
        ("local", "gather, a local function, of tests.fundamentals.samples.steps exists only"),
        ("local", "write it at the top level of a module and mark it with @step"),
        ("called", "got a str; pass the function itself, and its input as an argument"),
        ("no input", "the step 'send' needs an input"),
        ("an input too many", "the step 'count-rows' takes no input"),
    ]:
        with pytest.raises(WorkflowFailureError) as failure:
            await run(served, "misuses-steps@1", way)
        assert sentence in str(failure.value.cause)
