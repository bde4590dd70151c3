"""Cancels that come while a part of a run is undone, or together with the result of a step."""

from __future__ import annotations

import pytest
from temporalio.api.command.v1 import Command, StartChildWorkflowExecutionCommandAttributes
from temporalio.api.common.v1 import Payloads, WorkflowType
from temporalio.api.enums.v1 import CommandType, EventType, ParentClosePolicy
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    PollWorkflowTaskQueueRequest,
    RespondWorkflowTaskCompletedRequest,
)
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.converter import DefaultPayloadConverter
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import Worker

from engine import CompensationFailed
from engine.testing.worker import PluginWithoutReplica
from tests.fundamentals.flow_runs import Runs
from tests.fundamentals.samples import late
from tests.fundamentals.samples.late import DID, GATES
from tests.fundamentals.shared_worker import shared_worker
from tests.waiting import eventually

QUEUE = "late"
HELD = ["book flight", "book full and held", "cancelling full and held"]
"""What a trip does until its first place, which is full, is being cancelled."""
FREED = "cancel full and held (None)"


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DID.clear()
    GATES.clear()


worker = shared_worker(QUEUE, late.ALL, late.STEPS)


@pytest.fixture
def runs(served: Client) -> Runs:
    return Runs(served, QUEUE, late)


async def held(runs: Runs, workflow_type: str, *places: str) -> WorkflowHandle:
    """Start a trip, and return it while its first place is being cancelled."""
    handle = await runs.start(workflow_type, ["full and held", *places])
    await eventually(lambda: DID == HELD)
    return handle


async def knows(handle: WorkflowHandle, event: EventType.ValueType) -> None:
    """Wait until the code of a run has had its turn after an event."""

    async def has_seen() -> bool:
        events = [each.event_type for each in (await handle.fetch_history()).events]
        done = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        return event in events and done in events[events.index(event) :]

    await eventually(has_seen, every=0.05)


async def status_of(handle: WorkflowHandle) -> WorkflowExecutionStatus | None:
    return (await handle.describe()).status


async def test_a_cancel_that_comes_while_a_part_is_undone_ends_the_run(runs):
    handle = await held(runs, "late-trip@1", "next")
    await handle.cancel()
    await knows(handle, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED)
    GATES["full and held"].set()
    assert isinstance(await runs.end(handle), CancelledError)
    assert await status_of(handle) == WorkflowExecutionStatus.CANCELED
    assert [*HELD, FREED, "cancel flight (no. flight)"] == DID


async def test_an_error_of_a_handler_that_comes_while_a_part_is_undone_ends_the_run(runs):
    handle = await held(runs, "late-trip@1", "next")
    await handle.signal("abort")
    await knows(handle, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
    GATES["full and held"].set()
    failure = await runs.end(handle)
    assert isinstance(failure, ApplicationError)
    assert failure.message == "told to stop"
    assert [*HELD, FREED, "cancel flight (no. flight)"] == DID


async def test_a_cancel_that_comes_while_a_part_cannot_be_undone_ends_the_run_too(runs):
    handle = await runs.start("late-trip@1", ["full, held and stuck", "next"])
    await eventually(lambda: "cancelling full, held and stuck" in DID)
    await handle.cancel()
    await knows(handle, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED)
    GATES["full, held and stuck"].set()
    failure = await runs.end(handle)
    assert failure.type == CompensationFailed.__name__
    assert [each["input"] for each in failure.details] == ['"full, held and stuck"']
    assert "book next" not in DID


async def test_a_cancel_of_a_branch_whose_part_is_undone_ends_that_branch_alone(runs):
    handle = await held(runs, "late-branch@1", "next")
    await handle.signal("stop")
    await knows(handle, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
    GATES["full and held"].set()
    assert await runs.end(handle) == "no. home"
    assert [*HELD, FREED, "book home"] == DID


async def test_a_timeout_that_ends_while_a_part_is_undone_is_a_timeout(runs):
    handle = await held(runs, "late-limit@1", "next")
    await knows(handle, EventType.EVENT_TYPE_TIMER_FIRED)
    GATES["full and held"].set()
    assert await runs.end(handle) == "no. home"
    assert [*HELD, FREED, "book home"] == DID


async def test_a_run_that_is_cancelled_while_it_is_undone_is_not_tried_again(runs):
    handle = await runs.start(
        "late-failure@1", "held", retry_policy=RetryPolicy(maximum_attempts=3)
    )
    await eventually(lambda: "cancelling held" in DID)
    await handle.cancel()
    await knows(handle, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED)
    GATES["held"].set()
    assert (await runs.end(handle)).message == "as planned"
    assert DID == ["book held", "cancelling held", "cancel held (no. held)"]


async def test_a_part_that_is_not_cancelled_while_it_is_undone_lets_its_error_out(runs):
    GATES["full and held"].set()
    assert await runs.result("late-trip@1", ["full and held", "next"]) == "next"
    assert [*HELD, FREED, "book next"] == DID


async def test_a_result_that_comes_together_with_a_cancel_is_given_to_the_undo(client: Client):
    plugin = PluginWithoutReplica()
    async with Worker(
        client, task_queue="elsewhere", activities=late.STEPS, plugins=[plugin]
    ):  # fmt: skip
        async with Worker(client, task_queue=QUEUE, workflows=late.ALL, plugins=[plugin]):
            handle = await Runs(client, QUEUE, late).start("late-elsewhere@1", "elsewhere")
            await eventually(lambda: DID == ["book slow"])
        # Without a worker for its code, the run gets both with its next task.
        GATES["slow"].set()
        await happened(handle, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
        await handle.cancel()
        async with Worker(client, task_queue=QUEUE, workflows=late.ALL, plugins=[plugin]):
            failure = await Runs(client, QUEUE, late).end(handle)
    assert isinstance(failure, CancelledError)
    assert DID == ["book slow", "cancel slow (no. slow)"]


async def happened(handle: WorkflowHandle, event: EventType.ValueType) -> None:
    """Wait until a run has an event, which its code may not know yet."""

    async def has_happened() -> bool:
        return event in [each.event_type for each in (await handle.fetch_history()).events]

    await eventually(has_happened)


async def begin(client: Client, what: str) -> WorkflowHandle:
    """Start a parent whose first task ends with the start of its child, and no later one begins.

    Its code gets all that has come until then at once: no worker can be stopped at that place.
    """
    handle = await Runs(client, QUEUE, late).start("late-parent@1", what)
    service, queue = client.workflow_service, TaskQueue(name=QUEUE)
    task = await service.poll_workflow_task_queue(
        PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=queue)
    )
    start = StartChildWorkflowExecutionCommandAttributes(
        namespace=client.namespace, workflow_id="child", task_queue=TaskQueue(name="elsewhere"),
        workflow_type=WorkflowType(name="late-child@1"),
        input=Payloads(payloads=DefaultPayloadConverter().to_payloads([what])),
        parent_close_policy=ParentClosePolicy.PARENT_CLOSE_POLICY_TERMINATE,
    )  # fmt: skip
    command = Command(
        command_type=CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION,
        start_child_workflow_execution_command_attributes=start,
    )
    await service.respond_workflow_task_completed(
        RespondWorkflowTaskCompletedRequest(
            namespace=client.namespace, task_token=task.task_token, commands=[command]
        )
    )
    return handle


@pytest.mark.parametrize("what", ["a room", "a stuck room"])
async def test_a_run_that_is_cancelled_while_its_child_starts_waits_for_it(
    client: Client, what: str
):
    plugin = PluginWithoutReplica()
    handle = await begin(client, what)
    async with Worker(
        client, task_queue="elsewhere", workflows=late.ALL, activities=late.STEPS,
        plugins=[plugin],
    ):  # fmt: skip
        await eventually(lambda: [f"book {what}"] == DID)
        await handle.cancel()
        async with Worker(
            client, task_queue=QUEUE, workflows=late.ALL, activities=late.STEPS, plugins=[plugin]
        ):
            failure = await Runs(client, QUEUE, late).end(handle)
    if "stuck" in what:
        assert failure.type == CompensationFailed.__name__
        assert [each["step"] for each in failure.details] == ["late-book"]
    else:
        assert isinstance(failure, CancelledError)
        assert [f"book {what}", f"cancel {what} (no. {what})"] == DID


async def test_a_run_that_is_cancelled_before_its_child_starts_does_not_wait_for_it(
    client: Client,
):
    handle = await Runs(client, QUEUE, late).start("late-parent@1", "a room")
    await handle.cancel()
    async with Worker(
        client, task_queue=QUEUE, workflows=late.ALL, activities=late.STEPS,
        plugins=[PluginWithoutReplica()],
    ):  # fmt: skip
        failure = await Runs(client, QUEUE, late).end(handle)
    assert isinstance(failure, CancelledError)
    assert DID == ["cancel a room (None)"]
