"""Handlers of signals and updates: what leaves them ends the run as if it had left ``run``."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from engine.flow.failures import CompensationFailed
from tests.fundamentals.flow_runs import Runs
from tests.fundamentals.samples import handled
from tests.fundamentals.samples.handled import DID
from tests.fundamentals.shared_worker import shared_worker
from tests.waiting import eventually

worker = shared_worker("handled", handled.ALL, handled.STEPS)


@pytest.fixture
def runs(served: Client) -> Runs:
    DID.clear()
    return Runs(served, "handled", handled)


async def charged(runs: Runs, what: str):
    handle = await runs.start("handled@1", what)
    await eventually(lambda: [f"charge {what}"] == DID)
    return handle


@pytest.mark.parametrize("how", ["fatal", "runtime", "value"])
async def test_what_leaves_a_signal_handler_fails_the_run_and_undoes_it(runs, how):
    handle = await charged(runs, "a book")
    await handle.signal("abort", how)
    failure = await runs.end(handle)
    assert isinstance(failure, ApplicationError)
    assert failure.message == "told to stop"
    assert DID == ["charge a book", "refund a book"]


async def test_the_steps_of_a_handler_are_undone_too(runs):
    handle = await charged(runs, "a book")
    await handle.signal("abort", "step")
    assert (await runs.end(handle)).message == "told to stop"
    assert DID == ["charge a book", "charge more", "refund more", "refund a book"]


async def test_what_is_left_is_listed(runs):
    handle = await charged(runs, "kept")
    await handle.signal("abort", "fatal")
    failure = await runs.end(handle)
    assert failure.type == CompensationFailed.__name__
    (left,) = failure.details
    assert (left["step"], left["undo"], left["input"]) == (
        "handled-charge", "handled-refund", '"kept"',
    )  # fmt: skip
    assert left["idempotency_key"] == f"{handle.first_execution_run_id}/handled-charge/1"


async def test_a_commit_is_a_pivot_and_undo_steps_may_stand_alone(runs):
    handle = await runs.start("handled-pivot@1", "last")
    failure = await runs.end(handle)
    assert (failure.type, failure.message) == ("ArithmeticError", "ArithmeticError")
    assert DID[3:] == ["refund last", "refund registered", "refund after"]


async def test_a_run_that_calls_exit_fails_and_its_worker_goes_on(runs):
    failure = await runs.result("handled-pivot@1", "exit")
    assert (failure.type, failure.message) == ("SystemExit", "sys.exit(3) was called")
    assert DID[3:] == ["refund exit", "refund registered", "refund after"]


async def test_a_run_that_swallows_its_cancel_fails_all_the_same(runs):
    handle = await charged(runs, "patient")
    await handle.signal("abort", "value")
    assert (await runs.end(handle)).message == "told to stop"
    assert DID == ["charge patient", "refund patient"]


async def test_a_refused_update_fails_alone(runs):
    handle = await charged(runs, "a book")
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await handle.execute_update("add", "refused")
    assert "not this one" in str(refused.value.cause)
    await handle.signal("go")
    assert await runs.end(handle) == "done"
    assert DID == ["charge a book", "charge added"]


async def test_a_bug_in_an_update_ends_the_run_and_its_caller_is_told(runs):
    handle = await charged(runs, "a book")
    with pytest.raises(WorkflowUpdateFailedError) as told:
        await handle.execute_update("add", "bug")
    assert isinstance(told.value.cause, ApplicationError)
    assert told.value.cause.type == "LookupError"
    assert (await runs.end(handle)).type == "LookupError"
    assert DID == ["charge a book", "charge added", "refund added", "refund a book"]


async def test_a_run_ends_after_its_handlers(runs):
    handle = await charged(runs, "a book")
    await handle.signal("slowly")
    await handle.signal("go")
    assert await runs.end(handle) == "done"
    assert DID == ["charge a book", "charge late"]


async def test_a_signal_of_another_type_is_dropped(runs):
    handle = await runs.start("handled-adder@1")
    for value in (1, "no number", 2, 0):
        await handle.signal("number", value)
    assert (await runs.end(handle))[-2:] == [1, 2]


async def test_signals_that_came_are_counted_and_waited_for_without_a_wait(runs):
    handle = await runs.start("handled-adder@1", start_signal="number", start_signal_args=[7])
    await handle.signal("number", 0)
    assert await runs.end(handle) in ([1, 7], [2, 7])  # the second one may come as early


async def test_without_a_signal_a_wait_of_no_time_is_over_at_once(runs):
    handle = await runs.start("handled-adder@1")

    async def begun() -> bool:
        return len((await handle.fetch_history()).events) >= 4

    await eventually(begun)
    await handle.signal("number", 0)
    assert await runs.end(handle) == [0, -1]


async def test_signals_that_nobody_asked_for_reach_the_next_run(runs):
    handle = await runs.start("handled-loop@1", 0)
    for _ in range(10):
        await handle.signal("number", 1)
    assert await handle.result() == 10


async def test_more_signals_than_one_run_takes_stay_in_their_order(runs):
    handle = await runs.start("handled-adder@1", start_signal="number", start_signal_args=[1])
    for value in (2, 3, 0):
        await handle.signal("number", value)
    assert (await runs.end(handle))[1:] == [1, 2, 3]


@pytest.mark.parametrize(
    ("undo", "undone"),
    [("carry", ["refund run 2", "refund run 1"]), ("commit", [])],
)
async def test_what_a_chain_has_done_is_undone_or_stays_as_it_says(runs, undo, undone):
    handle = await runs.start("handled-chain@1", [1, undo])
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    assert ["charge run 1", "charge run 2", *undone] == DID


async def test_what_comes_while_a_handler_ends_the_last_task_of_a_run_reaches_the_next_one(runs):
    handle = await runs.start("handled-relay@1", 0)

    async def is_at_rest() -> bool:
        described = (await handle.describe()).raw_description
        return not described.HasField("pending_workflow_task")

    for name, *values in (("slowly",), ("number", 1), ("number", 2)):
        await eventually(is_at_rest)
        await handle.signal(name, args=values)
    await eventually(is_at_rest)
    for name, *values in (("go",), ("number", 0)):
        await handle.signal(name, args=values)
    with pytest.raises(WorkflowFailureError) as failure:
        async with asyncio.timeout(20):
            await handle.result()
    assert str(failure.value.cause) == "LookupError: 3"
    assert DID == ["charge late", "refund late"]


async def test_a_run_with_something_to_undo_does_not_continue_unasked(runs):
    handle = await runs.start("handled-chain@1", [1, None])
    failure = await runs.end(handle)
    assert "a bad end of this run would undo handled-charge" in str(failure)
    assert DID == ["charge run 1", "refund run 1"]
