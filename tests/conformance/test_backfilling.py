"""Windows of the past get the runs that they never had; those that had one are left alone."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import pytest

from engine.errors import MomentInFuture, WindowNotFound, WorkflowUnknown
from engine.ledger.fire_records import Evidence
from tests.conformance.past import (
    HOUR,
    MINUTE,
    declare_ago,
    operator,
    run_of,
    taken,
    windows,
)

HOURLY = "schedules: [{key: k, workflow: noop, everyMs: 3600000, firstFire: next}]"
MINUTES = "everyMs: 60000, firstFire: next"


async def backfilled(bench, begin: datetime, end: datetime, **options):
    """Backfill to the end; returns how many windows, the runs to start, and what was left."""
    seen = [part async for part in operator(bench).backfill("k", begin, end, **options)]
    started = [run for part in seen for run in part.started]
    left_alone = dict(pair for part in seen for pair in part.left_alone)
    assert [part.done for part in seen] == sorted({part.done for part in seen})
    assert seen[-1].done == seen[-1].windows
    return seen[-1].windows, started, left_alone


async def a_paused_past(bench):
    """Ten hours of minutes in one row that says paused; returns its first window."""
    await declare_ago(bench, MINUTES, 10 * HOUR, paused=True)
    await operator(bench).resume("k")
    (span,) = await bench.ledger.fires()
    assert span.windows == 600
    return span.fire_time


async def test_windows_in_the_middle_of_a_long_row_start_and_the_rest_says_what_it_said(bench):
    first = await a_paused_past(bench)
    begin = first + 100 * MINUTE
    number, started, left_alone = await backfilled(bench, begin, begin + 9 * MINUTE)
    assert (number, len(started), left_alone) == (10, 10, {})
    decided = await windows(bench)
    assert [at for at, _ in decided] == [first + n * MINUTE for n in range(600)]
    filled = [(at, fire) for at, fire in decided if fire.status == "claimed"]
    assert [at for at, _ in filled] == [begin + n * MINUTE for n in range(10)]
    for _, fire in filled:
        assert (fire.timing, fire.reason) == ("backfill", None)
        assert fire.history[-1]["status"] == "skipped"
    rest = {(fire.status, fire.reason) for at, fire in decided if (at, fire) not in filled}
    assert rest == {("skipped", "paused")}
    claims = await taken(bench)
    assert [claim.workflow_id for claim in claims] == started
    assert {claim.timing for claim in claims} == {"backfill"}


async def test_windows_from_before_the_schedule_was_declared_start(bench):
    await bench.declare(HOURLY)
    now = datetime.now(UTC)
    number, started, left_alone = await backfilled(bench, now - 24 * HOUR, now)
    assert (number, len(started)) == (24, 24)
    assert left_alone == {}
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
    expected = [state.window(at) for at in state.schedule.spec.fires(now - 24 * HOUR, now)]
    assert started == [window.workflow_id(suffixed=False) for window in expected]
    assert state.effective_from > now - MINUTE, "its own past is as it was"


async def test_a_backfill_may_begin_before_anything_ever_opened(bench):
    moment = "2026-01-01T09:00:00Z"
    await declare_ago(bench, f'at: "{moment}"', 24 * HOUR)
    begin, end = datetime.min.replace(tzinfo=UTC), datetime.fromisoformat(moment)
    number, started, _ = await backfilled(bench, begin, end)
    assert (number, len(started)) == (1, 1)


async def test_what_was_started_or_may_have_been_is_left_alone_and_named(bench):
    await bench.declare("schedules: [{key: k, workflow: noop, everyMs: 3600000}]")
    (claim,) = await bench.claim()
    run, now = claim.workflow_id, datetime.now(UTC)
    for status in ("starting", "started", "completed"):
        assert await backfilled(bench, claim.fire_time, now) == (1, [], {run: status})
        if status == "starting":
            await run_of(bench, claim)
        else:
            seen = Evidence(run, "run", now, closed="completed", closed_at=now)
            await bench.ledger.witness([seen])


async def test_doing_it_again_starts_nothing(bench):
    first = await a_paused_past(bench)
    until = first + 9 * MINUTE
    _, started, _ = await backfilled(bench, first, until)
    assert await backfilled(bench, first, until) == (10, [], dict.fromkeys(started, "claimed"))
    for number, claim in enumerate(await taken(bench)):
        await run_of(bench, claim, f"run-{number}")
    assert await backfilled(bench, first, until) == (10, [], dict.fromkeys(started, "started"))
    assert len(await bench.ledger.fires(status="started", limit=100)) == 10


async def test_one_that_is_broken_off_goes_on_where_it_was(bench):
    first = await a_paused_past(bench)
    until = first + 599 * MINUTE
    async with aclosing(operator(bench).backfill("k", first, until)) as asked:
        part = await anext(asked)
    assert 0 < part.done < part.windows == 600
    _, started, left_alone = await backfilled(bench, first, until)
    assert set(left_alone) == set(part.started)
    assert len(started) + part.done == 600
    assert len(await taken(bench)) == 600


async def test_with_queue_they_start_one_after_another_in_the_order_of_time(bench):
    first = await a_paused_past(bench)
    _, asked, _ = await backfilled(bench, first, first + 4 * MINUTE, overlap="queue")
    order = []
    for number in range(5):
        await bench.claim()
        (claim,) = await taken(bench)
        order.append(await run_of(bench, claim, f"run-{number}"))
        await bench.claim()
        assert await taken(bench) == [], "the next one waits"
        now = datetime.now(UTC)
        seen = Evidence(claim.workflow_id, f"run-{number}", now, closed="completed", closed_at=now)
        await bench.ledger.witness([seen])
        await bench.ledger.wake()
    assert order == asked


async def test_a_schedule_whose_runs_may_not_overlap_is_backfilled_by_queue(bench):
    await bench.declare(HOURLY.replace("firstFire", "overlap: skip, firstFire"))
    now = datetime.now(UTC)
    await backfilled(bench, now - 5 * HOUR, now)
    assert {fire.status for fire in await bench.ledger.fires()} == {"queued"}


async def test_a_window_that_the_schedule_still_owes_is_left_to_it(bench):
    then = await declare_ago(bench, "everyMs: 1000, firstFire: next", timedelta(seconds=5))
    number, started, left_alone = await backfilled(bench, then, datetime.now(UTC))
    assert number >= 5
    assert (len(started), set(left_alone.values())) == (1, {"undecided"}), "but the one before it"
    assert len(await bench.claim()) >= 5


async def test_a_paused_schedule_can_be_backfilled(bench):
    first = await a_paused_past(bench)
    ops = operator(bench)
    await ops.pause("k", reason="x")
    _, started, _ = await backfilled(bench, first, first)
    assert [claim.workflow_id for claim in await taken(bench)] == started


async def test_an_end_that_is_still_to_come_is_refused(bench):
    await bench.declare(HOURLY)
    now = datetime.now(UTC)
    with pytest.raises(MomentInFuture):
        await backfilled(bench, now - HOUR, now + HOUR)
    assert await bench.ledger.fires() == []


async def test_a_time_without_windows_or_a_workflow_that_nobody_has_is_refused(bench):
    await bench.declare('schedules: [{key: k, workflow: noop, cron: "0 2 * * *"}]')
    night = datetime.now(UTC).replace(hour=2, minute=0, second=0, microsecond=0) - timedelta(days=1)
    for begin, end in ((night + MINUTE, night + HOUR), (night + MINUTE, night)):
        with pytest.raises(WindowNotFound):
            await backfilled(bench, begin, end)
    await bench.declare(
        'schedules: [{key: k, workflow: strange, taskQueue: mail, cron: "0 2 * * *"}]'
    )
    with pytest.raises(WorkflowUnknown):
        await backfilled(bench, night, night)
    assert await operator(bench).actions() == []


async def test_a_backfill_notes_who_asked_why_and_how_many(bench):
    first = await a_paused_past(bench)
    ops = operator(bench)
    before = len(await ops.actions())
    await backfilled(bench, first, first + 9 * MINUTE, reason="the feed was late")
    actions = await ops.actions()
    assert len(actions) == before + 1
    done = actions[0]
    assert (done.verb, done.by, done.reason) == ("backfill", "ops", "the feed was late")
    assert done.after["windows"] == 10
    assert done.after["until"] == f"{first + 9 * MINUTE:%Y-%m-%dT%H:%M:%SZ}"
