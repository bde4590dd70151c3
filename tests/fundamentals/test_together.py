"""Several things at once, and runs of other workflows: ``ctx.parallel`` and ``ctx.child``."""

from __future__ import annotations

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError

from tests.fundamentals.flow_runs import Runs
from tests.fundamentals.samples import together
from tests.fundamentals.samples.together import BEGUN, BUSY, Work
from tests.fundamentals.shared_worker import shared_worker
from tests.waiting import eventually

worker = shared_worker("together", together.ALL, together.STEPS)


@pytest.fixture
def runs(served: Client) -> Runs:
    BEGUN.clear()
    BUSY.now = BUSY.most = 0
    return Runs(served, "together", together)


async def test_results_come_in_the_order_of_the_list_and_no_more_run_than_allowed(runs: Runs):
    parts = [f"part {n}" for n in range(7)]
    result = await runs.result("parallel@1", Work(parts, limit=2))
    assert result == [each.upper() for each in parts]
    assert BUSY.most <= 2


async def test_without_a_limit_all_begin_at_once_and_none_is_an_empty_list(runs: Runs):
    assert await runs.result("parallel@1", Work([])) == []


async def test_the_first_failure_stops_the_others_and_what_had_not_begun_does_not(runs: Runs):
    failure = await runs.result("parallel@1", Work(["waits", "fails", "never"], limit=2))
    assert isinstance(failure, ActivityError)
    assert "no such part" in str(failure.cause)
    assert "waits stopped" in BEGUN
    assert "never" not in BEGUN
    assert BEGUN[-2:] == ["undo fails", "undo waits"]


async def test_a_call_that_nobody_awaits_fails_the_run_and_what_was_done_is_undone(runs: Runs):
    failure = await runs.result("forgets-to-await@1", ["one"])
    assert str(failure) == (
        "TypeError: ctx.step(do) was never awaited and did nothing; write `await` before it"
    )
    assert BEGUN == ["one", "undo one"]


async def test_a_cancel_of_the_run_reaches_everything_under_way(runs: Runs):
    handle = await runs.start("parallel@1", Work(["waits", "waits", "never"], limit=2))

    async def both_wait() -> bool:
        return BEGUN == ["waits", "waits"]

    await eventually(both_wait)
    await handle.cancel()
    await runs.end(handle)
    assert (await handle.describe()).status == WorkflowExecutionStatus.CANCELED
    assert BEGUN[2:] == ["waits stopped", "waits stopped", "undo waits", "undo waits"]


async def test_children_are_runs_of_their_own_under_readable_ids(runs: Runs):
    assert await runs.result("whole@1", Work(["wheel", "frame"])) == ["WHEEL", "FRAME"]
    for number in (1, 2):
        child = await runs.client.get_workflow_handle(f"child:{runs.id}:part:{number}").describe()
        assert child.workflow_type == "part@1"
        assert child.status == WorkflowExecutionStatus.COMPLETED


async def test_a_child_that_fails_undoes_its_own_and_fails_its_parent(runs: Runs):
    failure = await runs.result("whole@1", Work(["waits", "fails"]))
    assert isinstance(failure, ChildWorkflowError)
    # The other child is cancelled, and its parent waits until it has undone what it did.
    assert {"undo fails", "undo waits"} <= set(BEGUN)


async def test_a_run_that_fails_stops_its_children_and_waits_until_they_have_undone(runs: Runs):
    failure = await runs.result("parent@1", "gather")
    assert isinstance(failure, ActivityError)
    assert BEGUN[:3] == ["waits", "waits stopped", "undo waits"], "the child's, and then its own"
    child = await runs.client.get_workflow_handle(f"child:{runs.id}:part:1").describe()
    assert child.status == WorkflowExecutionStatus.CANCELED


@pytest.mark.parametrize("child", ["part", "ends"])
async def test_a_cancel_of_the_run_is_not_lost_in_the_end_of_a_child(runs: Runs, child: str):
    handle = await runs.start("parent@1", child)
    await eventually(lambda: "waits" in BEGUN)
    await handle.cancel()
    await runs.end(handle)
    assert (await handle.describe()).status == WorkflowExecutionStatus.CANCELED
    assert "after" not in BEGUN


async def test_what_a_cancelled_child_could_not_undo_is_said_by_its_parent(runs: Runs):
    handle = await runs.start("parent@1", "stuck")
    await eventually(lambda: "waits" in BEGUN)
    await handle.cancel()
    failure = await runs.end(handle)
    assert isinstance(failure, ApplicationError)
    assert failure.type == "CompensationFailed"
    assert "could not undo 'do' (by 'undo_nothing': RuntimeError: waits is stuck)" in str(failure)


async def test_a_child_may_be_waited_for_with_asyncios_own_timeout(runs: Runs):
    assert await runs.result("parent@1", "patience") == "nobody waited"
    assert BEGUN[-1] == "undo waits", "and had ended then"


async def test_a_run_that_is_reset_knows_its_children_and_begins_an_open_one_again(runs: Runs):
    handle = await runs.start("one-by-one@1", Work(["wheel", "waits once"]))
    await eventually(lambda: "waits once" in BEGUN)
    finished = 0
    async for event in handle.fetch_history_events():
        if event.HasField("workflow_task_completed_event_attributes"):
            finished = event.event_id
        child = event.start_child_workflow_execution_initiated_event_attributes
        if child.workflow_id == f"child:{runs.id}:part:2":
            break
    await runs.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=runs.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=runs.id),
            workflow_task_finish_event_id=finished,
            request_id="reset",
        )
    )
    found = await runs.end(runs.client.get_workflow_handle(runs.id))
    assert found == ["WHEEL", "WAITS ONCE"]
    assert BEGUN.count("wheel") == 1, "what the first run had done is not done again"


async def test_a_child_keeps_to_its_own_retry_rule_and_timeout(runs: Runs):
    assert await runs.result("family@1", "again") == 3


async def test_a_fatal_error_ends_the_retries_of_a_run_too(runs: Runs):
    failure = await runs.result("family@1", "fatal")
    assert isinstance(failure, ChildWorkflowError)
    assert "attempt 1" in str(failure.cause)


@pytest.mark.parametrize(
    ("how", "reason", "begun"),
    [
        ("declined", "Declined: declined", ["declined"]),
        ("in a group", "Declined: declined", ["declined"]),
        ("in a child", "FatalError: attempt 1", []),
        ("raises a subclass", "Broken: attempt 1", []),
        ("broken", "Broken: broken", ["broken", "broken"]),
    ],
)
async def test_what_a_step_or_a_child_gives_up_for_good_ends_the_retries_of_the_run(
    runs: Runs, how: str, reason: str, begun: list[str]
):
    failure = await runs.result("family@1", f"gives up: {how}")
    assert isinstance(failure, ChildWorkflowError)
    assert reason in str(failure.cause)
    assert begun == BEGUN


async def test_a_child_that_takes_too_long_is_timed_out(runs: Runs):
    failure = await runs.result("family@1", "too long")
    assert isinstance(failure, ChildWorkflowError)
    child = await runs.client.get_workflow_handle(f"child:{runs.id}:takes-too-long:1").describe()
    assert child.status == WorkflowExecutionStatus.TIMED_OUT


async def test_any_temporal_type_may_be_a_child_by_its_name(runs: Runs):
    assert await runs.result("family@1", "named") == ["NAMED", "plain named"]


@pytest.mark.parametrize(
    ("of", "sentence"),
    [
        ("no workflow", "needs a class marked with @workflow"),
        ("without", "the workflow 'part' needs an input"),
    ],
)
async def test_what_cannot_be_a_child_fails_the_run_with_one_clear_error(
    runs: Runs, of: str, sentence: str
):
    failure = await runs.result("family@1", of)
    assert isinstance(failure, ApplicationError)
    assert sentence in failure.message
