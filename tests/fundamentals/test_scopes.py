"""Parts of a run that are undone on their own, and undo steps that see what they undo."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError

from engine import Undo
from engine.errors import Code
from engine.flow.saga import UNDO_TYPE
from engine.testing import FakeContext, fake
from tests.fundamentals.flow_runs import reset, tasks_of
from tests.fundamentals.replays import replay
from tests.fundamentals.samples import scopes
from tests.fundamentals.samples.mended import NOW, Now
from tests.fundamentals.shared_worker import shared_worker
from tests.waiting import eventually

QUEUE = "scopes"


worker = shared_worker(QUEUE, scopes.ALL, scopes.STEPS)


@pytest.fixture(autouse=True)
def _not_mended() -> None:
    NOW.__dict__.update(vars(Now()))
    NOW.shop_is_mended = False


@pytest_asyncio.fixture(loop_scope="module")
async def bookings(stored: asyncpg.Pool) -> asyncpg.Pool:
    await stored.execute(scopes.TABLE)
    await stored.execute("DELETE FROM bookings")
    return stored


@pytest.fixture
def client(served: Client, bookings: asyncpg.Pool) -> Client:
    return served


async def start(client: Client, name: str, given: object) -> WorkflowHandle[Any, Any]:
    workflow_id = f"trip-{uuid.uuid4().hex[:8]}"
    return await client.start_workflow(f"{name}@1", given, id=workflow_id, task_queue=QUEUE)


async def outcome(client: Client, handle: WorkflowHandle[Any, Any]) -> Any:
    """Wait for the end, replay the run, and return its result or its error."""
    try:
        found = await handle.result(follow_runs=False)
    except WorkflowFailureError as failure:
        found = failure.cause
    await replay(client, handle, scopes)
    return found


async def standing(bookings: asyncpg.Pool) -> list[str]:
    found = await bookings.fetch("SELECT what FROM bookings WHERE cancelled_by IS NULL ORDER BY n")
    return [row["what"] for row in found]


async def cancelled(bookings: asyncpg.Pool) -> list[tuple[str, str]]:
    """Return what was cancelled, in order, with the receipts that the undo steps saw."""
    found = await bookings.fetch("SELECT * FROM bookings WHERE receipt IS NOT NULL ORDER BY n")
    return [(row["what"].removeprefix("cancel "), row["receipt"]) for row in found]


async def test_a_part_that_fails_is_undone_alone_and_the_run_takes_another_way(client, bookings):
    assert await outcome(client, await start(client, "scopes-trip", ["a", "b"])) == "b"
    assert await standing(bookings) == ["flight", "room", "b"]
    assert await cancelled(bookings) == [("a", "no. a"), ("room", "no. room")]


async def test_the_first_of_a_race_is_kept_and_the_others_are_undone(client, bookings):
    wanted = {"inn": 3600.0, "ritz": 0.2, "hut": 3600.0}
    assert await outcome(client, await start(client, "scopes-race", wanted)) == "ritz"
    assert await standing(bookings) == ["flight", "ritz"]


async def test_of_those_that_end_at_once_one_is_kept(client, bookings):
    wanted = {"inn": 0.0, "ritz": 0.0}
    assert await FakeContext(fakes=[fake(scopes.book), fake(scopes.cancel)]).run(
        scopes.Race, wanted
    ) in {"inn", "ritz"}
    found = await outcome(client, await start(client, "scopes-race", wanted))
    assert await standing(bookings) == ["flight", found]


async def test_a_race_ends_with_the_error_of_the_first_and_all_is_undone(client, bookings):
    wanted = {"inn": 3600.0, "fully booked": 0.1}
    failure = await outcome(client, await start(client, "scopes-race", wanted))
    assert "fully booked" in str(failure)
    assert await standing(bookings) == []


async def test_a_run_does_not_complete_with_the_work_of_a_loser_left(client, bookings):
    NOW.stuck = {"inn"}
    wanted = {"inn": 3600.0, "ritz": 0.2}
    failure = await outcome(client, await start(client, "scopes-race", wanted))
    assert failure.type == "CompensationFailed"
    assert [each["step"] for each in failure.details] == ["scopes-book"]
    assert await standing(bookings) == ["inn"]


async def test_a_part_that_takes_too_long_is_undone(client, bookings):
    assert await outcome(client, await start(client, "scopes-patience", 0.5)) == "no room"
    assert await standing(bookings) == []


async def test_a_run_that_fails_later_undoes_its_parts_too(client, bookings):
    NOW.lost = {"b"}
    failure = await outcome(client, await start(client, "scopes-trip", ["a", "b"]))
    assert "no hotel" in str(failure)
    assert await standing(bookings) == []
    assert await cancelled(bookings) == [
        ("a", "no. a"), ("room", "no. room"),
        ("b", "none"), ("room", "no. room"), ("flight", "no. flight"),
    ]  # fmt: skip


async def test_what_a_part_cannot_undo_ends_the_run_unless_its_code_takes_it(client, bookings):
    NOW.stuck = {"a"}
    assert await outcome(client, await start(client, "scopes-trip", ["a", "b"])) == "b"
    NOW.lost = {"b"}
    failure = await outcome(client, await start(client, "scopes-trip", ["a", "b"]))
    assert isinstance(failure, ApplicationError)
    assert failure.type == "CompensationFailed"
    (left,) = failure.details
    assert (left["step"], left["input"]) == ("scopes-book", '"a"')


@pytest.mark.parametrize("parallel", [False, True])
async def test_a_completed_child_is_undone_with_its_result(client, bookings, parallel):
    run = await start(client, "scopes-fails-later", parallel)
    await run.signal("go")
    assert "it failed" in str((await outcome(client, run)).__cause__)
    assert await standing(bookings) == []
    rows = await bookings.fetch("SELECT * FROM bookings WHERE what = 'child'")
    assert [(row["cancelled_by"], row["receipt"]) for row in rows] == [("parent", "no. child")]
    names = [what for what, _ in await cancelled(bookings)]
    assert [each for each in names if each != "child"] == ["third", "second", "first"]


async def test_a_run_that_is_terminated_has_its_children_undone_with_their_results(
    client, bookings
):
    run = await start(client, "scopes-fails-later", False)

    async def reported() -> bool:
        events = (await run.fetch_history()).events
        ended = [each.HasField("activity_task_completed_event_attributes") for each in events]
        return sum(ended) == len(["first", "second", "third"])

    await eventually(reported)
    await run.terminate()
    undo = await client.start_workflow(
        UNDO_TYPE,
        {"workflow_id": run.id, "run_id": run.result_run_id, "workflow": "scopes-fails-later@1"},
        id=f"{run.id}:undo", task_queue=QUEUE,
    )  # fmt: skip
    assert await undo.result() == 4
    assert await standing(bookings) == []
    assert {("third", "no. third"), ("child", "no. child"), ("first", "no. first")} <= {
        *await cancelled(bookings)
    }


async def test_a_child_that_undid_itself_is_not_undone_and_one_that_could_not_is(client, bookings):
    NOW.first = ["child"]
    run = await start(client, "scopes-ended-child", 0)
    await eventually(lambda: _has(bookings, "child"))
    await run.cancel()
    await outcome(client, run)
    assert await cancelled(bookings) == [("child", "no. child")]
    await bookings.execute("DELETE FROM bookings")
    run = await start(client, "scopes-ended-child", 2.0)
    await outcome(client, run)  # the child has timed out, and could undo nothing
    rows = await bookings.fetch("SELECT cancelled_by FROM bookings")
    assert [row["cancelled_by"] for row in rows] == ["parent"]


@pytest.mark.prove
async def test_wherever_a_run_with_parts_is_reset_each_booking_stands_once(client, bookings):
    first = await start(client, "scopes-trip", ["a", "b"])
    assert await outcome(client, first) == "b"
    outcomes: list[Any] = []
    for event in await tasks_of(first):
        again = await reset(client, first, event)
        outcomes.append(await outcome(client, again))
        stands = sorted(await standing(bookings))
        assert stands == sorted(set(stands)), outcomes  # nothing is booked twice
        if outcomes[-1] == "b":
            assert stands == ["b", "flight", "room"], outcomes
    assert outcomes.count("b") > 1


async def test_a_reset_repeats_the_call_that_stands_and_not_the_one_that_was_undone(
    client, bookings
):
    first = await start(client, "scopes-trip", ["a", "b"])
    assert await outcome(client, first) == "b"
    NOW.shop_is_mended = True
    again = await reset(client, first, (await tasks_of(first))[0])
    assert await outcome(client, again) == "a"
    assert sorted(await standing(bookings)) == ["a", "b", "flight", "room"]


@pytest.mark.parametrize("apart", [pytest.param(1, marks=pytest.mark.prove), 3])
async def test_a_child_that_was_undone_is_made_again_after_a_reset(client, bookings, apart):
    first = await start(client, "scopes-fails-later", False)
    await first.signal("go")
    await outcome(client, first)
    NOW.shop_is_mended = True
    outcomes = []
    for event in (await tasks_of(first))[::apart]:
        again = await reset(client, first, event)
        outcomes.append(await outcome(client, again))
        expected = ["first", "second", "child", "third"] if outcomes[-1] is None else []
        assert await standing(bookings) == expected, outcomes
        if expected:
            await bookings.execute("UPDATE bookings SET cancelled_by = 'by hand'")
    assert outcomes[0] is None
    refused = [each.__cause__ or each for each in outcomes if each is not None]
    assert {each.type for each in refused} <= {Code.RESET_UNSAFE, "FatalError"}


async def test_the_stand_in_undoes_parts_and_children_with_their_results():
    seen: list[Any] = []
    fakes: dict[Any, Any] = {
        scopes.book: lambda what: scopes.Receipt(f"no. {what}"), scopes.cancel: seen.append,
    }  # fmt: skip
    ctx = FakeContext(fakes=fakes)
    assert await ctx.run(scopes.Trip, ["a", "b"]) == "b"
    assert [(undo.input, undo.result.number) for undo in seen] == [
        ("a", "no. a"), ("room", "no. room"),
    ]  # fmt: skip
    trips = fake(scopes.cancel_trip)
    ctx = FakeContext(
        fakes=[fake(scopes.book, returns=scopes.Receipt("no. 1")), fake(scopes.cancel), trips],
        signals={"go": [None]},
    )
    with pytest.raises(Exception, match="Activity task failed"):
        await ctx.run(scopes.FailsLater, False)
    assert trips.calls == [Undo("child", ["no. 1"])]


async def test_an_undo_step_that_is_called_by_itself_gets_what_it_is_given():
    cancelling = fake(scopes.cancel)
    ctx = FakeContext(fakes=[cancelling])
    given = Undo("room", scopes.Receipt("no. 1"))
    await ctx.step(scopes.cancel, given)
    ctx.on_failure(scopes.cancel, given)
    await ctx._unwind()
    assert cancelling.calls == [given, given]
    with pytest.raises(TypeError, match=r"takes an Undo\(input, result\); got 'room'"):
        await ctx.step(scopes.cancel, "room")  # type: ignore[misc]


async def test_what_a_task_of_a_part_begins_after_it_is_undone_with_the_run():
    cancelling = fake(scopes.cancel)
    ctx = FakeContext(fakes=[fake(scopes.book, returns=scopes.Receipt("no. 1")), cancelling])
    async with ctx.saga():
        later = asyncio.create_task(ctx.step(scopes.book, "late", compensate=scopes.cancel))
    await later
    await ctx._unwind()
    assert [undo.input for undo in cancelling.calls] == ["late"]


async def _has(bookings: asyncpg.Pool, what: str) -> bool:
    return bool(await bookings.fetchval("SELECT count(*) FROM bookings WHERE what = $1", what))
