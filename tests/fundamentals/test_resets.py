"""Resets: no effect twice, none for another customer, or the run fails and says why."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import TerminatedError

from engine.errors import Code
from engine.runtime.runs.histories import HistoryReader
from tests.fundamentals.flow_runs import reset, tasks_of
from tests.fundamentals.replays import CACHED, replay
from tests.fundamentals.samples import resets
from tests.fundamentals.samples.mended import NOW, Now
from tests.fundamentals.shared_worker import shared_worker
from tests.waiting import eventually

QUEUE = "resets"


worker = shared_worker(QUEUE, resets.ALL, resets.STEPS, cached=CACHED[:1])


@pytest_asyncio.fixture(loop_scope="module")
async def payments(stored: asyncpg.Pool) -> asyncpg.Pool:
    NOW.__dict__.update(vars(Now()))
    await stored.execute(resets.TABLE)
    await stored.execute("DELETE FROM payments")
    return stored


@pytest.fixture
def client(served: Client, payments: asyncpg.Pool) -> Client:
    return served


async def start(client: Client, name: str, given: object) -> WorkflowHandle[Any, Any]:
    workflow_id = f"order-{uuid.uuid4().hex[:8]}"
    return await client.start_workflow(f"{name}@1", given, id=workflow_id, task_queue=QUEUE)


async def outcome(client: Client, handle: WorkflowHandle[Any, Any]) -> Any:
    """Wait for the end, replay the run, and return its result or its error's text."""
    try:
        found = await handle.result(follow_runs=False)
    except WorkflowFailureError as failure:
        found = cause = failure.cause
        while cause.__cause__ is not None and getattr(cause, "type", None) != Code.RESET_UNSAFE:
            found = cause = cause.__cause__
    await replay(client, handle, resets)
    return found


async def who_paid(payments: asyncpg.Pool) -> list[str]:
    found = await payments.fetch(
        "SELECT customer FROM payments WHERE refunded_by IS NULL ORDER BY customer"
    )
    return [row["customer"] for row in found]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("resets-pay", ["ann", "bob"]),
     pytest.param("resets-family", ["ann", "ann's child", "bob", "bob's child"],
                  marks=pytest.mark.prove)],
)  # fmt: skip
async def test_each_customer_pays_once_wherever_a_run_is_reset(client, payments, name, expected):
    NOW.seconds = {"ann": 0.4}
    first = await start(client, name, ["ann", "bob"])
    assert await outcome(client, first) == "paid"
    NOW.seconds = {"bob": 0.4}
    # The first run is reset again and again, so that each run has those before it beside it.
    for event in await tasks_of(first):
        again = await reset(client, first, event)
        assert await outcome(client, again) == "paid"
        assert await who_paid(payments) == expected


async def test_a_run_that_is_reset_while_steps_are_under_way_pays_once(client, payments):
    NOW.seconds = {"ann": 1.5}
    first = await start(client, "resets-pay", ["ann", "bob"])
    await eventually(lambda: NOW.charged == ["bob"])
    NOW.seconds = {"bob": 0.3}
    again = await reset(client, first, (await tasks_of(first))[-1])
    assert await outcome(client, again) == "paid"
    assert await who_paid(payments) == ["ann", "bob"]


async def test_a_saga_that_was_undone_is_made_again_or_the_run_says_where_to_reset_it(
    client, payments
):
    NOW.shop_is_mended = False
    first = await start(client, "resets-order", "ann")
    assert "nothing goes to ann" in str(await outcome(client, first))
    assert await who_paid(payments) == []
    NOW.shop_is_mended = True
    outcomes = []
    for event in await tasks_of(first):
        again = await reset(client, first, event)
        outcomes.append(await outcome(client, again))
        shipped = outcomes[-1] == "shipped to ann"
        assert await who_paid(payments) == (["ann"] if shipped else []), outcomes
        if shipped:
            await payments.execute("UPDATE payments SET refunded_by = 'by hand'")
    assert outcomes[0] == "shipped to ann"
    for refused in outcomes[1:]:
        assert refused.type in {Code.RESET_UNSAFE, "FatalError"}
    assert "was undone after the place of the reset" in str(outcomes[1])


async def test_a_run_may_not_complete_on_a_payment_that_was_refunded(client, payments):
    NOW.seconds = {"in code": 1}
    first = await start(client, "resets-order", "ann")
    assert "a bug of the run itself" in str(await outcome(client, first))
    NOW.seconds = {}
    again = await reset(client, first, (await tasks_of(first))[1])
    assert (await outcome(client, again)).type == Code.RESET_UNSAFE
    assert await who_paid(payments) == []


async def test_mended_code_does_not_take_the_keys_of_other_calls(client, payments):
    first = await start(client, "resets-pay", ["ann", "bob"])
    assert await outcome(client, first) == "paid"
    NOW.first = ["zoe"]
    again = await reset(client, first, (await tasks_of(first))[0])
    refused = await outcome(client, again)
    assert refused.type == Code.RESET_UNSAFE
    assert "resets-capture/" in str(refused)
    assert "resets-capture has another input than" in str(refused)
    assert await who_paid(payments) == ["ann", "bob"]


async def test_a_refused_call_ends_the_run_even_if_its_code_handles_the_error(client, payments):
    first = await start(client, "resets-forgiving", "ann")
    assert await outcome(client, first) == "went on"
    NOW.first = ["zoe"]
    again = await reset(client, first, (await tasks_of(first))[0])
    assert (await outcome(client, again)).type == Code.RESET_UNSAFE
    assert await who_paid(payments) == ["ann"]


async def test_without_the_earlier_history_nothing_is_paid(
    client, payments, monkeypatch: pytest.MonkeyPatch
):
    NOW.seconds = {"ann": 60}
    first = await start(client, "resets-pay", ["ann", "bob"])
    await eventually(lambda: NOW.charged == ["bob"])
    event, NOW.seconds = (await tasks_of(first))[0], {}
    read = HistoryReader.read

    async def forgotten(self: HistoryReader, workflow_id: str, run_id: str | None) -> Any:
        # The server deletes a run up to a minute after it was asked to.
        return await read(self, workflow_id, run_id) if run_id != first.result_run_id else None

    monkeypatch.setattr(HistoryReader, "read", forgotten)
    refused = await outcome(client, await reset(client, first, event))
    assert refused.type == Code.RESET_UNSAFE
    assert "is gone" in str(refused)
    assert await who_paid(payments) == ["bob"]


async def test_a_faster_branch_waits_until_it_is_known_whose_payment_was_made(client, payments):
    NOW.seconds = {"ann": 60}
    first = await start(client, "resets-pay", ["ann", "bob"])
    await eventually(lambda: NOW.charged == ["bob"])
    NOW.seconds = {"bob": 1}
    again = await reset(client, first, (await tasks_of(first))[0])
    assert await outcome(client, again) == "paid"
    assert await who_paid(payments) == ["ann", "bob"]


async def orphaned(client: Client, policy: str) -> tuple[WorkflowHandle[Any, Any], Any]:
    """Terminate a run whose child is open; return it, and a handle of the child."""
    first = await start(client, "resets-guardian", policy)

    async def waits() -> bool:
        return len(await tasks_of(first)) > 1

    await eventually(waits)  # it knows that the child has started
    await first.terminate()
    return first, client.get_workflow_handle(f"child:{first.id}:resets-ward:1")


async def test_a_run_learns_how_a_child_ended_while_no_run_waited_for_it(client, payments):
    paid, child = await orphaned(client, "abandon")
    await child.signal("go")
    await child.result()
    NOW.shop_is_mended = False
    refunded, child = await orphaned(client, "abandon")
    await child.signal("go")
    with pytest.raises(WorkflowFailureError):
        await child.result()
    ended, child = await orphaned(client, "terminate")
    with pytest.raises(WorkflowFailureError):
        await child.result()

    async def again(run: WorkflowHandle[Any, Any]) -> Any:
        return await outcome(client, await reset(client, run, (await tasks_of(run))[-1]))

    found, *refused = await asyncio.gather(again(paid), again(refunded), again(ended))
    assert found == "shipped to ann"
    assert await who_paid(payments) == ["ann"]
    if isinstance(refused[1], TerminatedError):
        # A busy server had not noted the child's end before the reset, and told the new run of it.
        del refused[1]
    for error, why in zip(
        refused,
        ["step resets-ship: FatalError: nothing goes to ann", "by parent close policy"],
        strict=False,
    ):
        assert error.type == Code.RESET_UNSAFE
        assert f"ended while no run waited for it ({why}). Reset the run to a place" in str(error)
    assert NOW.lost == {ended.id}, "a child that has undone its work is not undone again"


async def test_a_run_is_told_of_a_child_that_ends_after_the_reset(client, payments):
    left, child = await orphaned(client, "abandon")
    again = await reset(client, left, (await tasks_of(left))[-1])
    await child.signal("go")
    assert await outcome(client, again) == "shipped to ann"
    assert await who_paid(payments) == ["ann"]
