"""Undo steps that ``continue_as_new(undo="carry")`` carries over, in the run that they reach."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from engine import CompensationFailed
from tests.fundamentals.flow_runs import Runs
from tests.fundamentals.samples import carried
from tests.fundamentals.samples.carried import DID, KEYS
from tests.fundamentals.shared_worker import shared_worker
from tests.waiting import eventually

QUEUE = "carried"
THRICE = RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_attempts=3)


worker = shared_worker(QUEUE, carried.ALL, carried.STEPS)


@pytest.fixture
def runs(served: Client) -> Runs:
    DID.clear()
    KEYS.clear()
    return Runs(served, QUEUE, carried)


async def ending(runs: Runs, workflow_type: str, given: object, **options: Any) -> Any:
    """Run a chain with its tries to the end, and return the error of the last one."""
    handle = await runs.start(workflow_type, given, **options)
    with pytest.raises(WorkflowFailureError) as failure:
        async with asyncio.timeout(30):
            await handle.result()
    return failure.value.cause


@pytest.mark.parametrize(
    ("way", "shipped"), [("an error", []), ("a step fails", ["ship a book"])], ids=["run", "step"]
)
async def test_a_run_that_has_undone_what_an_earlier_one_did_is_not_tried_again(
    runs: Runs, way: str, shipped: list[str]
):
    error = await ending(runs, "carried-order@1", [way, "charge"], retry_policy=THRICE)
    assert isinstance(error, ApplicationError)
    assert error.non_retryable
    assert error.type == ("LookupError" if shipped else "ArithmeticError")
    assert ["charge a book", "try 1", *shipped, "refund a book"] == DID


async def test_nor_is_one_that_fails_because_its_child_was_cancelled(runs: Runs):
    handle = await runs.start(
        "carried-order@1", ["a child is cancelled", "charge"], retry_policy=THRICE
    )
    child = runs.client.get_workflow_handle("child")

    async def waits() -> bool:
        with suppress(RPCError):
            return bool((await child.fetch_history()).events[3:])
        return False

    await eventually(waits)
    await child.cancel()
    with pytest.raises(WorkflowFailureError):
        async with asyncio.timeout(30):
            await handle.result()
    assert DID == ["charge a book", "try 1", "refund a book"]


async def test_a_run_that_has_kept_what_an_earlier_one_did_is_not_tried_again(runs: Runs):
    await ending(runs, "carried-order@1", ["committed", "charge"], retry_policy=THRICE)
    assert DID == ["charge a book", "try 1"]


async def test_a_run_that_nothing_was_carried_over_to_is_tried_again(runs: Runs):
    handle = await runs.start("carried-order@1", ["nothing to undo", "charge"], retry_policy=THRICE)
    await handle.result()
    assert DID == ["try 1", "try 2", "try 3"]


async def test_without_a_retry_rule_the_error_of_the_run_stays_as_it_is(runs: Runs):
    error = await ending(runs, "carried-order@1", ["an error", "charge"])
    assert (error.type, error.non_retryable) == ("ArithmeticError", False)
    assert DID == ["charge a book", "try 1", "refund a book"]


async def test_an_undo_of_its_own_keeps_its_key(runs: Runs):
    error = await ending(runs, "carried-alone@1", "a book")
    assert error.message == "as planned"
    assert (KEYS, DID) == (["key of a book"], ["refund a book"])


async def test_an_undo_of_its_own_keeps_its_deadline(runs: Runs):
    error = await ending(runs, "carried-alone@1", "never")
    assert error.type == CompensationFailed.__name__
    assert set(KEYS) == {"key of never"}
