"""Workflows: an ordinary class with ``async def run(self, ctx)`` and ``@workflow`` above it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer, Worker

from engine import Context
from tests.fundamentals.replays import CACHED
from tests.fundamentals.samples import workflows as samples
from tests.fundamentals.samples.workflows import (
    Approval,
    CleanUpHTTPCache,
    Greeting,
    Ordering,
    Person,
)
from tests.fundamentals.shared_worker import shared_worker

QUEUE = "workflows"


# A plain Temporal worker: nothing of the engine but the decorated classes.
worker = shared_worker(QUEUE, samples.ALL, [], plugin=None, cached=CACHED[:1])


async def reason_of_failure(client: Client, workflow_type: str, *args: object) -> str:
    with pytest.raises(WorkflowFailureError) as failure:
        await client.execute_workflow(workflow_type, args=args, id="failing", task_queue=QUEUE)
    reason: BaseException = failure.value.cause
    while reason.__cause__ is not None:
        reason = reason.__cause__
    return str(reason)


async def test_run_stays_an_ordinary_method_that_a_unit_test_can_call():
    class FakeContext(Context):
        def now(self) -> datetime:
            return datetime(2026, 11, 21, tzinfo=UTC)

    assert await Greeting().run(FakeContext(), Person("Who")) == "Good day, Dr Who"
    assert await CleanUpHTTPCache().run(FakeContext()) == "2026-11-21T00:00:00+00:00"


async def test_plain_temporal_clients_and_workers_run_it(served: Client):
    text = await served.execute_workflow(
        "greeting@1", Person("Who"), id="by-type", task_queue=QUEUE, result_type=str
    )
    same = await served.execute_workflow(
        Greeting.run, args=[Person("Who")], id="by-method", task_queue=QUEUE
    )
    assert text == same == "Good day, Dr Who"


async def test_the_engine_is_not_loaded_again_for_each_run(served: Client):
    """Loading it would cost 25 ms a run; the plain worker here passes nothing through."""
    result = await served.execute_workflow("tells-its-engine@1", id="id", task_queue=QUEUE)
    assert result == id(Context)


async def test_two_versions_live_side_by_side_in_one_worker(served: Client):
    answers = [
        await served.execute_workflow(name, {"name": "Who"}, id=name, task_queue=QUEUE)
        for name in ("greeting@1", "greeting@1.1")
    ]
    assert answers == ["Good day, Dr Who", "Hi Who"]


async def test_a_pydantic_input_is_validated_and_the_input_may_be_left_out(client: Client):
    config = client.config()
    config["data_converter"] = pydantic_data_converter
    client = Client(**config)
    async with Worker(client, task_queue=QUEUE, workflows=[Ordering]):
        more = {"quantity": 4}
        assert await client.execute_workflow("ordering@1", more, id="a", task_queue=QUEUE) == 5
        assert await client.execute_workflow("ordering@1", id="b", task_queue=QUEUE) == 0
        assert "quantity" in await reason_of_failure(client, "ordering@1", {"quantity": "many"})


async def test_a_required_input_that_is_missing_fails_the_run_with_a_sentence(served: Client):
    reason = await reason_of_failure(served, "greeting@1")
    assert "greeting@1 needs an input, but was started without; add `input:`" in reason


async def test_an_input_nobody_takes_fails_the_run_with_a_sentence(served: Client):
    reason = await reason_of_failure(served, "clean-up-http-cache@1", {"days": 3})
    assert "clean-up-http-cache@1 takes no input, but was started with one" in reason


async def test_any_exception_that_leaves_run_fails_the_run(served: Client):
    assert await reason_of_failure(served, "broken@1") == "LookupError: nobody is at home"


async def test_reading_the_clock_fails_the_run_and_names_the_call(served: Client):
    reason = await reason_of_failure(served, "reads-the-clock@1")
    assert "a workflow cannot use datetime.now() (tests/fundamentals/samples/workflows" in reason
    assert reason.endswith("use ctx.now()")


async def test_temporals_signals_and_queries_work_in_it(served: Client):
    handle = await served.start_workflow("approval@1", 70, id="approval", task_queue=QUEUE)
    assert await handle.query(Approval.pending) == 70
    await handle.signal(Approval.approve, "Ada")
    assert await handle.result() == "70 approved by Ada"
    assert await handle.query(Approval.pending) == 0


async def test_run_may_be_inherited(served: Client):
    for name, given in (("a", ["the dishes"]), ("b", [])):
        result = await served.execute_workflow(
            "inherits-its-run@1", args=given, id=name, task_queue=QUEUE
        )
        assert result == f"did {given[0] if given else 'nothing'}"


async def test_a_stored_history_replays(client: Client):
    async with Worker(client, task_queue=QUEUE, workflows=[Greeting], max_cached_workflows=0):
        handle = await client.start_workflow("greeting@1", Person("X"), id="r", task_queue=QUEUE)
        await handle.result()
    stored = (await handle.fetch_history()).to_json()
    history = WorkflowHistory.from_json("r", stored)
    assert (await Replayer(workflows=samples.ALL).replay_workflow(history)).replay_failure is None
