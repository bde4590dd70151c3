"""Promises of a run that are kept outside of its coroutine: decoding, handlers, undo, resets."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ActivityError
from temporalio.service import RPCError
from temporalio.worker import Worker

from engine.errors import Code, EngineError
from engine.flow import Context
from engine.runtime import SchedulePlugin
from engine.runtime.tracking.replay import task_failure
from engine.testing import FakeContext
from tests.fundamentals.flow_runs import Runs, reset, tasks_of
from tests.fundamentals.samples import outside
from tests.fundamentals.samples.outside import BANK, DID, RESULTS, Early
from tests.waiting import eventually


@pytest.fixture
async def runs(client: Client) -> AsyncIterator[Runs]:
    for each in (DID, BANK, RESULTS):
        each.clear()
    client = Client(**client.config() | {"plugins": [SchedulePlugin(None)]})
    async with Worker(
        client, task_queue="outside", workflows=outside.ALL, activities=outside.STEPS
    ):
        yield Runs(client, "outside", outside)


async def failed_task(handle: WorkflowHandle[Any, Any]) -> str:
    """Wait until a workflow task of the run has failed, and return what was said."""

    async def found() -> str:
        events = (await handle.fetch_history()).events
        failures = [e.workflow_task_failed_event_attributes.failure for e in events]
        return next((each.message for each in failures if each.message), "")

    return await eventually(found, timeout=30)


# --- values that cannot be read ---


@pytest.mark.parametrize("how", ["step", "child"])
async def test_a_result_of_another_type_waits_for_fitting_code_and_nothing_is_undone(runs, how):
    RESULTS[how] = "a new kind"
    handle = await runs.start("outside-unread@1", how)
    assert await failed_task(handle) == "Failed decoding arguments"
    place = (
        "outside-answer/1" if how == "step" else f"the child child:{runs.id}:outside-answering:1"
    )
    _, shown = task_failure(await handle.fetch_history()) or ("", "")
    assert shown.startswith(f"the result of {place} cannot be read: 1 validation error for int")
    assert "pydantic.dev" not in shown
    assert shown.endswith("the run waits for code whose type fits")
    assert (await handle.describe()).status.name == "RUNNING"
    assert [f"charge {how}"] + (["answer step"] if how == "step" else []) == DID
    await handle.terminate()


async def test_an_input_of_another_type_ends_a_run_that_has_begun_nothing(runs):
    failure = await runs.result("outside-chain@1", "no number")
    assert (failure.type, failure.non_retryable) == (Code.INPUT_INVALID, True)
    assert failure.message.startswith("the input of the run cannot be read as int: ")


async def test_an_input_of_another_type_does_not_lose_what_a_later_run_carries(runs):
    handle = await runs.start("outside-chain@1", 0)
    newest = runs.client.get_workflow_handle(handle.id)
    await eventually(lambda: DID == ["charge chain"])
    assert (await failed_task(newest)).startswith("the input of the run cannot be read as int")
    assert (await newest.describe()).status.name == "RUNNING"
    await newest.terminate()


async def test_a_next_run_is_not_given_what_it_could_not_read(runs):
    failure = await runs.result("outside-unfit@1", 0)
    assert failure.type == "TypeError"
    assert failure.message.startswith("the input of the next run is no int: ")
    assert DID[0] == "charge unfit"
    assert DID[1].startswith("refund ")


async def test_an_undo_step_waits_for_code_that_can_read_the_result_it_undoes(runs):
    handle = await runs.start("outside-held@1", "held")

    async def waits() -> str:
        pending = (await handle.describe()).raw_description.pending_activities
        return next((each.last_failure.message for each in pending if each.attempt > 1), "")

    said = await eventually(waits, timeout=30)
    assert said.startswith("the input of the step cannot be read: ")
    assert "no kind of receipt: held" in said
    assert said.endswith("it waits for a worker whose code can")
    RESULTS.clear()  # a worker of newer code
    with pytest.raises(WorkflowFailureError) as failed:
        await handle.result()
    assert isinstance(failed.value.cause, ActivityError)
    assert str(failed.value.cause.cause).endswith("as planned")
    assert DID == ["release held"]


# --- what an undo step is given ---


@pytest.mark.parametrize(
    ("how", "undone"),
    [
        ("input", ["cancel 3", "cancel 2", "cancel 1"]),
        ("result", ["return 3 3", "return 2 2", "return 1 1"]),
        ("child", ["cancel 3", "cancel 2", "cancel 1"]),
        ("alone", ["cancel 3", "cancel 2", "cancel 1"]),
    ],
)
async def test_an_undo_step_is_given_what_was_sent_and_received(runs, how, undone):
    assert (await runs.result("outside-changed@1", how)).cause.message == "as planned"
    assert DID[-3:] == undone
    DID.clear()
    with pytest.raises(ActivityError):
        await FakeContext().run(outside.Changed, how)
    assert DID[-3:] == undone


async def test_an_undo_that_was_interrupted_has_the_same_key_in_the_clean_up_run(
    client, database_url, runs
):
    handle = await runs.start("outside-ended@1", "slow")
    key = f"{handle.first_execution_run_id}/outside-charge/1/undo/outside-refund"
    await eventually(lambda: f"refund {key}" in DID)
    await handle.terminate()
    undo = await client.start_workflow(
        "sched.undo@1", {"workflow_id": handle.id, "run_id": handle.first_execution_run_id,
                         "workflow": "outside-ended@1"},
        id=f"{handle.id}:undo", task_queue="outside",
    )  # fmt: skip
    assert await undo.result() == 1
    assert ["charge slow", f"refund {key}", f"refund {key}"] == DID
    assert list(BANK.values()) == ["charge slow", "refund slow"]


async def test_a_call_under_the_key_of_one_that_was_undone_is_refused(runs):
    failure = await runs.result("outside-again@1", "order 1")
    assert failure.type == EngineError.__name__
    assert "the call that had this key was undone" in failure.message
    assert [each.partition(" ")[0] for each in DID] == ["charge", "refund"]


async def test_a_worker_without_the_plugin_does_not_guess_a_key(client):
    BANK.clear()
    queue = "outside-plain"
    ours = Worker(client, task_queue=queue, workflows=outside.ALL, plugins=[SchedulePlugin(None)])
    async with ours, Worker(client, task_queue=queue, activities=outside.STEPS):
        handle = await client.start_workflow("outside-once@1", "plain", id="run", task_queue=queue)
        with pytest.raises(WorkflowFailureError) as failure:
            await handle.result()
    assert "this worker has no SchedulePlugin" in str(failure.value.cause.__cause__)
    assert BANK == {}


# --- children of others ---


async def reset_to_its_start(runs: Runs, handle: WorkflowHandle[Any, Any]) -> Any:
    return await reset(runs.client, handle, (await tasks_of(handle))[0])


async def test_a_reset_run_ends_no_run_of_another(runs):
    name = f"customer-{uuid.uuid4().hex}"
    own = await runs.client.start_workflow("outside-entity@1", name, id=name, task_queue="outside")
    handle = await runs.start("outside-wants@1", name)
    assert await handle.result(follow_runs=False) == "WorkflowAlreadyStartedError"
    again = await reset_to_its_start(runs, handle)
    assert await runs.end(again) == "WorkflowAlreadyStartedError"
    assert (await own.describe()).status.name == "RUNNING"
    await own.terminate()


async def test_a_reset_run_replaces_the_child_that_it_had(runs):
    handle = await runs.start("outside-wants@1", "child")
    child = runs.client.get_workflow_handle("child")

    async def child_run(other: str = "") -> str:
        try:
            found = await child.describe()
        except RPCError:  # not yet
            return ""
        return found.run_id if found.run_id != other else ""

    first = await eventually(child_run)
    again = await reset_to_its_start(runs, handle)
    await eventually(lambda: child_run(first))
    await child.signal("close", "closed")
    assert await runs.end(again) == "closed"


# --- handlers ---


@pytest.mark.parametrize(
    ("how", "signal"), [("complete", "note"), ("fail", "note"), ("complete", "keep")]
)
async def test_a_handler_that_comes_before_run_has_its_context(runs, how, signal):
    handle = await runs.client.start_workflow(
        "outside-early@1", how, id="run", task_queue="outside",
        start_signal=signal, start_signal_args=["early"],
    )  # fmt: skip
    ended = await runs.end(handle)
    if how == "complete":
        assert ended == ["early"]
        assert DID == ["charge early"]
    else:
        assert ended.cause.message == "as planned"
        assert [each.partition(" ")[0] for each in DID] == ["charge", "refund"]


async def test_an_update_with_start_has_its_context(runs):
    start: Any = WithStartWorkflowOperation(
        "outside-early@1", "complete", id="run", task_queue="outside",
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
    )  # fmt: skip
    added = await runs.client.execute_update_with_start_workflow(
        "add", "one", start_workflow_operation=start
    )
    assert added == 7
    assert await runs.end(await start.workflow_handle()) == ["one"]


async def test_a_handler_that_a_test_calls_has_the_stand_in():
    ctx, early = FakeContext(), Early()
    await early.note("a test")
    assert (early.heard, ctx.steps) == (["a test"], ["outside-charge"])


def test_code_outside_of_a_run_has_no_context():
    with pytest.raises(EngineError, match="called outside of a run"):
        Context.current()


# --- calls in progress ---


@pytest.mark.parametrize(
    "how", [*(pytest.param(each, marks=pytest.mark.prove) for each in ("step", "gather")), "child"]
)
async def test_a_run_that_returns_while_its_calls_are_in_progress_fails_and_is_undone(runs, how):
    failure = await runs.result("outside-hasty@1", how)
    name = "ctx.child(outside-entity)" if how == "child" else "ctx.step(outside-slow)"
    assert failure.message.startswith(f"run has returned while {name} is in progress; await it")
    refunds = [each for each in DID if each.startswith("refund")]
    assert len(refunds) == (1 if how == "child" else 2)


async def test_a_child_that_outlives_its_parent_may_be_in_progress(runs):
    assert await runs.result("outside-hasty@1", "abandon") == "done"


# --- signals without a value ---


async def test_a_signal_without_the_value_that_is_waited_for_is_dropped(runs):
    handle = await runs.start("outside-asked@1", "required")
    await handle.signal("approval")
    await handle.signal("approval", {"by": "ana"})
    assert await runs.end(handle) == "ana"


async def test_a_signal_without_a_value_is_none_where_the_type_has_it(runs):
    handle = await runs.start("outside-asked@1", "optional")
    await handle.signal("approval")
    assert await runs.end(handle) == "None"
