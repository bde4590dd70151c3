"""A cancel is a wish that outlives whoever had it; what was not begun is skipped at once."""

from __future__ import annotations

import pytest

from engine.errors import NotCancellable, ScheduleNotFound
from engine.ledger.fires import Evidence
from engine.schedules.planner.decisions import Pause
from engine.schedules.planner.planner import plan
from tests.conformance.past import LEASE, operator, run_of, taken

HOURLY = "schedules: [{key: k, workflow: noop, everyMs: 3600000}]"
QUEUE = "schedules: [{key: k, workflow: noop, everyMs: 3600000, overlap: queue}]"
CENTURY = "schedules: [{key: k, workflow: noop, everyMs: 3155760000000, spread: 36525d}]"


async def orders(bench):
    return await bench.ledger.take_stops(bench.serving, limit=10, lease=LEASE)


async def test_what_nobody_has_begun_to_send_is_skipped(bench):
    await bench.declare(CENTURY)
    await bench.claim()
    ops = operator(bench)
    done = await ops.cancel("k", reason="wrong data")
    (fire,) = await ops.fires()
    assert done.skipped == (fire.workflow_id,)
    assert (fire.status, fire.reason) == ("skipped", "user: wrong data")
    assert (await bench.ledger.probe(bench.serving)).stale_at is None


async def test_what_waits_in_the_queue_is_skipped_and_what_runs_is_asked_to_end(bench):
    await bench.declare(QUEUE)
    (claim,) = await bench.claim()
    run = await run_of(bench, claim)
    ops = operator(bench)
    waiting = (await ops.trigger("k")).fire.workflow_id
    done = await ops.cancel("k")
    assert (done.asked, done.skipped, done.already) == ((run,), (waiting,), ())
    (order,) = await orders(bench)
    assert (order.workflow_id, order.stop, order.stop_grace) == (run, "cancel", None)
    assert order.stop_reason == "user: cancelled by ops"
    statuses = {fire.workflow_id: fire.status for fire in await ops.fires()}
    assert statuses == {run: "started", waiting: "skipped"}


async def test_a_run_that_is_being_sent_is_asked_once_it_has_started(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    done = await operator(bench).cancel("k")
    assert done.asked == (claim.workflow_id,)
    assert await orders(bench) == []
    await run_of(bench, claim)
    (order,) = await orders(bench)
    assert order.workflow_id == claim.workflow_id


async def test_one_run_is_cancelled_by_its_id_and_the_others_go_on(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    await run_of(bench, claim)
    ops = operator(bench)
    await ops.trigger("k", request_id="mine")
    (manual,) = await taken(bench)
    await run_of(bench, manual, "other-run")
    done = await ops.cancel(manual.workflow_id)
    assert done.asked == (manual.workflow_id,)
    assert [order.workflow_id for order in await orders(bench)] == [manual.workflow_id]


async def test_cancelling_twice_asks_once_and_terminating_asks_again(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    run = await run_of(bench, claim)
    ops = operator(bench)
    assert (await ops.cancel(run)).asked == (run,)
    assert (await ops.cancel(run)).already == (run,)
    assert (await ops.cancel(run, terminate=True)).asked == (run,)
    assert (await ops.cancel(run)).already == (run,), "it ends anyway"
    (order,) = await orders(bench)
    assert order.stop == "terminate"
    assert [action.verb for action in await bench.actions()] == ["cancel", "cancel"]


async def test_where_nothing_is_open_there_is_nothing_to_cancel(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    run = await run_of(bench, claim)
    now = bench.now()
    await bench.ledger.record_evidence(
        [Evidence(run, "run", now, closed="completed", closed_at=now)]
    )
    ops = operator(bench)
    for name in ("k", run, f"{run}:rerun:1"):
        with pytest.raises(NotCancellable):
            await ops.cancel(name)
    assert await bench.actions() == []


async def test_runs_of_a_retired_schedule_can_be_cancelled(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    run = await run_of(bench, claim)
    async with bench.ledger.transaction() as transaction:
        await transaction.retire(["k"], bench.now())
    assert (await operator(bench).cancel("k")).asked == (run,)


async def test_windows_to_come_are_not_touched(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    await run_of(bench, claim)
    ops = operator(bench)
    before = await ops.schedule("k")
    await ops.cancel("k")
    after = await ops.schedule("k")
    assert (after.state, after.next_fire_at) == ("active", before.next_fire_at)


@pytest.mark.parametrize("name", ["kk", "sched:kk:12", "sched:kk:manual:a"])
async def test_a_name_that_nobody_has_is_answered_with_the_key_that_was_meant(bench, name):
    await bench.declare(HOURLY.replace("key: k,", "key: kkk,"))
    with pytest.raises(ScheduleNotFound, match=r"did you mean kkk\?"):
        await operator(bench).cancel(name)


async def test_a_cancel_notes_each_run_who_asked_and_why(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    run = await run_of(bench, claim)
    ops = operator(bench)
    await ops.cancel("k", reason="wrong data")
    (action,) = await bench.actions()
    assert (action.verb, action.by, action.reason, action.workflow_id) == (
        "cancel", "ops", "wrong data", run,
    )  # fmt: skip
    assert action.before == {"status": "started", "stop": None}
    assert action.after == {"stop": "cancel"}


async def test_what_takes_the_place_of_the_one_before_gives_up_what_waits(bench):
    await bench.declare(QUEUE)
    (claim,) = await bench.claim()
    await run_of(bench, claim)
    ops = operator(bench)
    waiting = await ops.trigger("k")
    assert waiting.fire.status == "queued"
    newer = await ops.trigger("k", overlap="cancel_previous")
    given_up = await bench.ledger.fire(waiting.fire.workflow_id)
    assert given_up.status == "skipped"
    assert given_up.reason == f"overlap: {newer.fire.workflow_id} took its place"


@pytest.mark.parametrize("hold", ["paused", "retired"])
async def test_a_sweeper_sends_nothing_of_a_schedule_that_was_held_meanwhile(bench, hold):
    """A hold revokes what is claimed by then; here the claim comes after it."""
    await bench.declare(HOURLY)
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
        now = await transaction.now()
        if hold == "paused":
            await transaction.pause("k", Pause(now))
        else:
            await transaction.retire(["k"], now)
        await transaction.record([plan(state, now)])
    assert [fire.status for fire in await bench.ledger.fires()] == ["claimed"]
    assert await taken(bench) == []
    (fire,) = await bench.ledger.fires()
    assert (fire.status, fire.reason) == ("skipped", hold)


@pytest.mark.parametrize("closed", ["terminated", "cancelled", "completed"])
async def test_an_end_that_two_looks_have_seen_is_news_once(bench, closed):
    """Who lists runs and who describes one that is in the way tell of what they have changed."""
    await bench.declare(QUEUE)
    (claim,) = await bench.claim()
    run, now = await run_of(bench, claim), bench.now()
    listed = Evidence(run, "run", now, closed, now, first_run_id="run")
    described = Evidence(run, "run", now, closed, now, error="overlap", last=True)
    news = [await bench.ledger.record_evidence([each]) for each in (described, listed, described)]
    assert news == [[run], [], []]
