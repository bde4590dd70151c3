"""Runs that somebody asks for: beside the windows, or once more of one of them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.errors import (
    FireStillOpen,
    InputInvalid,
    RequestInvalid,
    ScheduleRetired,
    WindowNotFound,
    WorkflowUnknown,
)
from engine.ledger.fires import Evidence
from tests.conformance.past import HOUR, LEASE, MINUTE, declare_ago, operator, run_of, taken
from tests.sample_workflows import Fails, Noop

HOURLY = "schedules: [{key: k, workflow: noop, everyMs: 3600000, input: {a: 1}}]"
MINUTES = "everyMs: 60000, firstFire: next"


def hourly(overlap: str) -> str:
    return f"schedules: [{{key: k, workflow: noop, everyMs: 3600000, overlap: {overlap}}}]"


async def close(bench, workflow_id: str, run_id: str = "run") -> None:
    now = bench.now()
    seen = Evidence(workflow_id, run_id, now, closed="completed", closed_at=now)
    assert await bench.ledger.record_evidence([seen]) == [workflow_id]


async def with_an_open_run(bench, overlap: str) -> str:
    await bench.declare(hourly(overlap))
    (claim,) = await bench.claim()
    return await run_of(bench, claim)


async def test_asking_twice_under_one_request_id_starts_one_run(bench):
    await bench.declare(HOURLY)
    ops = operator(bench)
    one = await ops.trigger("k", request_id="ticket-1")
    two = await ops.trigger("k", request_id="ticket-1", own_input=({"b": 2},))
    assert (one.new, two.new) == (True, False)
    assert one.fire == two.fire
    (claim,) = await taken(bench)
    assert (claim.workflow_id, claim.timing) == ("sched:k:manual:ticket-1", "manual")
    assert claim.arguments == ({"a": 1},)
    assert len(await bench.actions()) == 1


async def test_an_input_that_the_code_cannot_take_is_refused_if_the_code_is_there(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    await close(bench, await run_of(bench, claim))
    ops = operator(bench)
    assert (await ops.trigger("k", own_input=({"b": 2},))).new, "without the code the run finds out"
    ops.check_inputs([Noop, Fails])
    for refused in (
        ops.trigger("k", own_input=({"b": 2},)),
        ops.rerun("k", claim.window.bucket, own_input=("text",)),
    ):
        with pytest.raises(InputInvalid, match=r"^input.*; the workflow noop@1 takes "):
            await refused
    assert len(await bench.actions()) == 1, "nothing more was requested"
    assert (await ops.rerun("k", claim.window.bucket, own_input=({"b": "2"},))).new
    assert (await ops.trigger("k")).new, "the schedule's own input is compared by an apply"


async def test_without_a_request_id_each_request_is_a_run(bench):
    await bench.declare(HOURLY)
    ops = operator(bench)
    runs = {(await ops.trigger("k")).fire.workflow_id for _ in range(3)}
    assert len(runs) == 3
    assert {claim.workflow_id for claim in await taken(bench)} == runs


@pytest.mark.parametrize("argument", [{"b": [1, None]}, "text", None, 7])
async def test_an_argument_of_ones_own_is_that_runs_alone(bench, argument):
    await bench.declare(HOURLY)
    await operator(bench).trigger("k", own_input=(argument,))
    (claim,) = await taken(bench)
    assert claim.arguments == (argument,)
    (window,) = await bench.claim()
    assert window.arguments == ({"a": 1},)


async def test_a_manual_run_never_eats_a_window(bench):
    await declare_ago(bench, "everyMs: 1000, firstFire: next", timedelta(seconds=3))
    ops = operator(bench)
    await ops.trigger("k")
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
    assert state.cursor == state.effective_from, "no window was decided by it"
    claims = await bench.claim()
    assert [claim.fire_time for claim in claims] == [
        *state.schedule.spec.fires(state.effective_from, claims[-1].fire_time)
    ]


@pytest.mark.parametrize("request_id", ["", "a b", "x" * 65, "a:b", "ä"])
async def test_a_request_id_that_would_make_no_id_is_refused(bench, request_id):
    await bench.declare(HOURLY)
    with pytest.raises(RequestInvalid):
        await operator(bench).trigger("k", request_id=request_id)


async def test_with_skip_a_manual_run_gives_way_to_one_that_is_open(bench):
    window = await with_an_open_run(bench, "skip")
    ops = operator(bench)
    asked = await ops.trigger("k", request_id="a")
    assert (asked.fire.status, asked.asks) == ("queued", True)
    await bench.claim()
    assert await bench.ledger.fire(asked.fire.workflow_id) == asked.fire, "nobody has looked yet"
    await bench.ledger.seen_open([window], bench.now())
    await bench.ledger.make_due(["k"])
    await bench.claim()
    fire = await bench.ledger.fire(asked.fire.workflow_id)
    assert (fire.status, fire.reason) == ("skipped", f"overlap: {window} is still running")
    forced = await ops.trigger("k", request_id="b", overlap="allow")
    assert forced.fire.status == "claimed"


async def test_with_skip_a_manual_run_starts_when_a_look_finds_that_what_was_open_has_ended(bench):
    window = await with_an_open_run(bench, "skip")
    asked = await operator(bench).trigger("k")
    await bench.claim()
    assert await taken(bench) == []
    await close(bench, window)
    await bench.ledger.make_due(["k"])
    await bench.claim()
    (claim,) = await taken(bench)
    assert claim.workflow_id == asked.fire.workflow_id


async def test_a_manual_run_that_asks_is_decided_at_once_though_no_window_is_due(bench):
    await with_an_open_run(bench, "skip")
    await bench.claim()
    before = await bench.ledger.probe(bench.serving)
    assert before.due_at > before.now
    await operator(bench).trigger("k")
    after = await bench.ledger.probe(bench.serving)
    assert after.due_at <= after.now


async def test_with_queue_a_manual_run_waits_for_the_one_that_is_open(bench):
    window = await with_an_open_run(bench, "queue")
    asked = await operator(bench).trigger("k")
    assert asked.fire.status == "queued"
    await bench.claim()
    assert await taken(bench) == []
    await close(bench, window)
    assert await bench.ledger.wake() == ["k"]
    await bench.claim()
    (claim,) = await taken(bench)
    assert claim.workflow_id == asked.fire.workflow_id


async def test_a_manual_run_can_wait_though_the_schedules_own_windows_never_do(bench):
    window = await with_an_open_run(bench, "allow")
    asked = await operator(bench).trigger("k", overlap="queue")
    assert asked.fire.status == "queued"
    await close(bench, window)
    await bench.ledger.wake()
    await bench.claim()
    (claim,) = await taken(bench)
    assert claim.workflow_id == asked.fire.workflow_id


async def test_with_cancel_previous_a_manual_run_takes_the_place_of_the_open_one(bench):
    window = await with_an_open_run(bench, "allow")
    asked = await operator(bench).trigger("k", overlap="cancel_previous")
    assert asked.fire.status == "queued"
    (order,) = await bench.ledger.take_stops(bench.serving, limit=9, lease=LEASE)
    assert (order.workflow_id, order.stop) == (window, "cancel")
    assert asked.fire.workflow_id in order.stop_reason


async def test_a_paused_schedule_can_be_triggered(bench):
    await bench.declare(HOURLY)
    ops = operator(bench)
    await ops.pause("k", reason="x")
    asked = await ops.trigger("k")
    (claim,) = await taken(bench)
    assert claim.workflow_id == asked.fire.workflow_id


async def test_nothing_can_be_asked_of_what_is_retired_or_nobody_can_run(bench):
    await bench.declare(
        "schedules: [{key: k, workflow: strange, taskQueue: mail, everyMs: 3600000}]"
    )
    ops = operator(bench)
    with pytest.raises(WorkflowUnknown):
        await ops.trigger("k")
    async with bench.ledger.transaction() as transaction:
        await transaction.retire(["k"], bench.now())
    with pytest.raises(ScheduleRetired):
        await ops.trigger("k")
    assert await bench.actions() == []


async def test_a_window_runs_once_more_each_time_it_is_asked_for(bench):
    window = await with_an_open_run(bench, "allow")
    await close(bench, window)
    bucket = int(window.rpartition(":")[2])
    ops = operator(bench)
    first = await ops.rerun("k", bucket, own_input=({"only": "this"},))
    second = await ops.rerun("k", bucket)
    assert first.fire.workflow_id == f"{window}:rerun:1"
    assert second.fire.workflow_id == f"{window}:rerun:2"
    claims = {claim.workflow_id: claim for claim in await taken(bench)}
    assert claims[f"{window}:rerun:1"].arguments == ({"only": "this"},)
    assert claims[f"{window}:rerun:2"].arguments == ()
    assert {claim.timing for claim in claims.values()} == {"rerun"}
    original = next(fire for fire in await ops.fires() if fire.workflow_id == window)
    assert original.status == "completed", "the window's own row stays as it was"
    assert {claim.fire_time for claim in claims.values()} == {original.fire_time}


async def test_a_window_among_many_of_one_row_can_be_run(bench):
    await declare_ago(bench, MINUTES, 10 * HOUR, paused=True)
    ops = operator(bench)
    await ops.resume("k")
    (span,) = await ops.fires()
    asked = await ops.rerun("k", span.bucket + 7)
    assert asked.fire.workflow_id == f"sched:k:{span.bucket + 7}:rerun:1"
    assert asked.fire.fire_time == span.fire_time + 7 * MINUTE
    assert (await taken(bench))[0].bucket == span.bucket + 7
    assert span in await ops.fires(), "the row of the range says what it said"


@pytest.mark.parametrize("when", ["everyMs: 2000", 'cron: "0 2 * * *"'])
async def test_the_first_of_many_windows_is_run_of_the_time_it_had_when_its_schedule_was_another(
    bench, when
):
    await declare_ago(bench, MINUTES, 10 * HOUR, paused=True)
    ops = operator(bench)
    await ops.resume("k")
    (span,) = await ops.fires()
    await bench.declare(f"schedules: [{{key: k, workflow: noop, {when}}}]")
    asked = await ops.rerun("k", span.bucket)
    assert (asked.fire.series, asked.fire.fire_time) == (span.series, span.fire_time)


async def test_a_window_whose_run_is_open_or_that_nobody_knows_is_not_run_again(bench):
    window = await with_an_open_run(bench, "allow")
    bucket = int(window.rpartition(":")[2])
    ops = operator(bench)
    with pytest.raises(FireStillOpen):
        await ops.rerun("k", bucket)
    for unknown in (bucket - 1, bucket + 1, 10**12, -(10**12), 10**30):  # beyond the calendar, too
        with pytest.raises(WindowNotFound):
            await ops.rerun("k", unknown)
    with pytest.raises(WindowNotFound):
        await ops.rerun("k", bucket, series=2)


async def test_the_number_of_a_run_that_was_triggered_is_no_window(bench):
    await bench.declare(HOURLY)
    ops = operator(bench)
    manual = (await ops.trigger("k")).fire
    with pytest.raises(WindowNotFound):
        await ops.rerun("k", manual.bucket)


async def test_each_request_notes_who_asked_and_why(bench):
    await declare_ago(bench, MINUTES, HOUR, paused=True)
    ops = operator(bench)
    await ops.resume("k")
    (span,) = await ops.fires()
    await ops.trigger("k", request_id="a", reason="asked by finance")
    await ops.rerun("k", span.bucket, reason="wrong rates")
    await ops.backfill("k", span.fire_time, span.fire_time, reason="missing")
    filled, again, manual = (await bench.actions())[:3]
    assert (manual.verb, manual.by, manual.reason, manual.workflow_id) == (
        "trigger", "ops", "asked by finance", "sched:k:manual:a",
    )  # fmt: skip
    assert (manual.before, manual.after) == (None, {"status": "claimed", "reason": None})
    assert (again.verb, again.reason) == ("rerun", "wrong rates")
    assert again.workflow_id == f"sched:k:{span.bucket}:rerun:1"
    assert (filled.verb, filled.reason, filled.after["windows"]) == ("backfill", "missing", 1)
