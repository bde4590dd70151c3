"""Sagas: ``compensate=`` names the step that takes a step back when the run ends badly.

Every effect is a line of a journal in PostgreSQL, so that their order is what the database saw.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

import asyncpg
import pytest
import pytest_asyncio
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError

from tests.fundamentals.replays import replay
from tests.fundamentals.samples import effects, sagas
from tests.fundamentals.samples.effects import Order, lines, write
from tests.fundamentals.shared_worker import shared_worker
from tests.waiting import eventually

QUEUE = "sagas"
DONE = {"reserve": ["reserve"], "charge": ["reserve", "charge"]}
DONE["notify"] = DONE["run"] = ["reserve", "charge", "notify"]
UNDONE = {"reserve": ["release"], "charge": ["refund", "release"]}
UNDONE["notify"] = UNDONE["run"] = ["retract", "refund", "release"]
PLACES = [
    pytest.param("reserve", marks=pytest.mark.prove),
    "charge",
    pytest.param("notify", marks=pytest.mark.prove),
    "run",
]


worker = shared_worker(QUEUE, sagas.ALL, effects.ALL)


@pytest_asyncio.fixture(loop_scope="module")
async def client(served: Client, stored: asyncpg.Pool) -> Client:
    await stored.execute(effects.TABLE)
    await stored.execute("DELETE FROM journal")
    return served


async def start(client: Client, workflow_type: str, *args: object) -> WorkflowHandle:
    workflow_id = f"saga-{uuid.uuid4().hex[:8]}"
    return await client.start_workflow(workflow_type, args=args, id=workflow_id, task_queue=QUEUE)


async def ended(client: Client, handle: WorkflowHandle) -> BaseException:
    """Wait for a bad end, replay the history, and return the cause."""
    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()
    await replay(client, handle, sagas)
    return failure.value.cause


def written(line: str) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        return line in await lines()

    return condition


async def test_a_saga_that_succeeds_undoes_nothing(client: Client):
    handle = await start(client, "fulfil@1", Order())
    assert await handle.result() == "reservation 7"
    assert await lines() == ["reserve", "charge", "notify"]


@pytest.mark.parametrize("place", PLACES)
async def test_a_failure_undoes_what_was_begun_in_reverse_and_stays_the_runs_error(
    client: Client, place: str
):
    cause = await ended(client, await start(client, "fulfil@1", Order(fails_at=place)))
    # The failed step is undone as well: it may have had its effect before it failed.
    assert await lines() == DONE[place] + UNDONE[place]
    if place == "run":
        assert isinstance(cause, ApplicationError)
        assert (cause.type, cause.message) == ("LookupError", "the run itself failed")
    else:
        assert isinstance(cause, ActivityError)
        assert f"{place} failed for order 7" in str(cause.cause)


@pytest.mark.parametrize("place", PLACES)
async def test_a_cancel_stops_the_step_under_way_and_then_undoes_it_all(client: Client, place: str):
    handle = await start(client, "fulfil@1", Order(waits_at=place))
    await eventually(written(place if place != "run" else "notify"))
    await handle.cancel()
    assert isinstance(await ended(client, handle), CancelledError)
    assert (await handle.describe()).status == WorkflowExecutionStatus.CANCELED
    stopped = [] if place == "run" else [f"{place} stopped"]
    assert await lines() == DONE[place] + stopped + UNDONE[place]


@pytest.mark.parametrize("place", ["refund", "release"])
async def test_an_undo_that_fails_leaves_the_others_and_the_run_says_what_is_left(
    client: Client, place: str, caplog: pytest.LogCaptureFixture
):
    order = Order(fails_at="notify", undo_fails_at=place)
    cause = await ended(client, await start(client, "fulfil@1", order))
    expected = [f"cannot {undo}" if undo == place else undo for undo in UNDONE["notify"]]
    assert await lines() == DONE["notify"] + expected
    step = {"refund": "charge", "release": "reserve"}[place]
    assert f"the undo '{place}' of '{step}' failed: {place} failed, too" in caplog.text
    assert isinstance(cause, ApplicationError)
    assert cause.type == "CompensationFailed"
    (left,) = cause.details
    named = {"step": step, "undo": place, "error": f"{place} failed, too"}
    assert named.items() <= left.items()
    assert f"could not undo '{step}'" in cause.message
    own = cause.__cause__
    assert isinstance(own, ActivityError), "the error that ended the run is kept"
    assert "notify failed for order 7" in str(own.__cause__)


async def test_a_cancelled_run_that_could_not_undo_everything_has_failed(client: Client):
    order = Order(waits_at="notify", undo_fails_at="refund")
    handle = await start(client, "fulfil@1", order)
    await eventually(written("notify"))
    await handle.cancel()
    cause = await ended(client, handle)
    assert isinstance(cause, ApplicationError)
    assert cause.type == "CompensationFailed"
    assert (await handle.describe()).status == WorkflowExecutionStatus.FAILED


async def test_a_cancel_does_not_interrupt_the_undoing(client: Client):
    order = Order(fails_at="charge", undo_waits_at="refund")
    handle = await start(client, "fulfil@1", order)
    await eventually(written("refund begins"))
    await handle.cancel()

    async def the_run_knows() -> bool:
        events = [event.event_type for event in (await handle.fetch_history()).events]
        asked = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED
        done = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        return asked in events and done in events[events.index(asked) :]

    await eventually(the_run_knows)
    await write("go on")
    assert isinstance(await ended(client, handle), ActivityError), "the first error counts"
    types = {event.event_type for event in (await handle.fetch_history()).events}
    assert EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED not in types
    assert await lines() == ["reserve", "charge", "refund begins", "go on", "refund", "release"]


async def test_an_undo_is_retried_by_its_own_rule(client: Client):
    await ended(client, await start(client, "retried-undo@1", Order()))
    assert await lines() == ["reserve", "try", "try", "try"]


async def test_a_failure_that_the_run_copes_with_undoes_nothing(client: Client):
    handle = await start(client, "copes@1", Order(fails_at="charge"))
    assert await handle.result() == "sent without payment"
    assert await lines() == ["reserve", "charge"]


async def test_a_run_that_copes_with_failures_does_not_take_a_cancel_for_one(client: Client):
    handle = await start(client, "copes@1", Order(waits_at="charge"))
    await eventually(written("charge"))
    await handle.cancel()
    assert isinstance(await ended(client, handle), CancelledError)
    assert await lines() == ["reserve", "charge", "charge stopped", "refund", "release"]


async def test_a_step_that_finishes_in_spite_of_a_cancel_does_not_swallow_it(client: Client):
    handle = await start(client, "finishes-anyway@1", Order())
    await eventually(written("stubborn"))
    await handle.cancel()
    assert isinstance(await ended(client, handle), CancelledError)
    assert await lines() == ["reserve", "stubborn", "stubborn finished", "refund", "release"]


async def test_a_parallel_branch_is_stopped_before_it_is_undone_and_begins_nothing_more(
    client: Client,
):
    order = Order(fails_at="charge", waits_at="reserve", fails_after="reserve")
    cause = await ended(client, await start(client, "branches@1", order))
    assert "charge failed" in str(cause.__cause__)
    journal = await lines()
    # `charge` was noted last, so it is undone first; `reserve` has stopped before its own undo.
    assert journal.index("reserve stopped") < journal.index("release")
    journal.remove("reserve stopped")
    assert journal == ["reserve", "charge", "refund", "release"], "no notify"


async def test_nothing_is_undone_before_every_step_of_the_run_has_stopped(client: Client):
    order = Order(fails_at="notify", waits_at="reserve", fails_after="reserve")
    cause = await ended(client, await start(client, "ships@1", order))
    assert "notify failed" in str(cause.__cause__)
    assert await lines() == ["charge", "reserve", "notify", "reserve stopped", "refund"]


async def test_a_sync_step_hears_of_a_cancel_as_well(client: Client):
    effects.SYNC_STEP_RUNS.clear()
    handle = await start(client, "waits-in-a-thread@1")
    await eventually(effects.SYNC_STEP_RUNS.is_set)
    await handle.cancel()
    assert isinstance(await ended(client, handle), CancelledError)


@pytest.mark.parametrize(
    ("way", "sentence"),
    [
        ("not a step", "compensate= needs a function marked with @undo"),
        ("needs an input", "the step 'release' needs an input"),
    ],
)
async def test_an_undo_that_does_not_fit_fails_the_run_before_the_step(
    client: Client, way: str, sentence: str
):
    cause = await ended(client, await start(client, "misuses-undo@1", way))
    assert sentence in str(cause)
    assert await lines() == []
