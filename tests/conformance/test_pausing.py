"""A pause holds a schedule until somebody, or its own end, lets it go on."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from engine.errors import MomentInPast
from engine.schedules.model import CatchUp
from engine.schedules.planner.decisions import Pause
from engine.schedules.planner.planner import plan
from engine.schedules.terms import parse_rate
from tests.conformance.past import (
    HOUR,
    LEASE,
    MINUTE,
    declare_ago,
    operator,
    run_of,
    taken,
    windows,
)

HOURLY = "schedules: [{key: k, workflow: noop, everyMs: 3600000}]"
CENTURY = "schedules: [{key: k, workflow: noop, everyMs: 3155760000000, spread: 36525d}]"
MINUTES = "everyMs: 60000, firstFire: next"
AGE = 10 * HOUR


async def starts(bench):
    """The windows that are to start, oldest first."""
    return [fire for _, fire in await windows(bench) if fire.status == "claimed"]


async def test_a_pause_revokes_what_nobody_has_begun_to_send_and_no_manual_run(bench):
    await bench.declare(CENTURY)
    await bench.claim()
    ops = operator(bench)
    asked = await ops.trigger("k", request_id="mine")
    await ops.pause("k", reason="stocktaking")
    ((_, window),) = await windows(bench)
    assert (window.status, window.reason) == ("skipped", "paused")
    (claim,) = await taken(bench)
    assert claim.workflow_id == asked.fire.workflow_id


async def test_a_pause_leaves_alone_what_is_being_sent_and_what_runs(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    ops = operator(bench)
    await ops.pause("k", reason="x")
    assert [fire.status for fire in await ops.fires()] == ["starting"]
    await run_of(bench, claim)
    await ops.pause("k", reason="y")
    assert [fire.status for fire in await ops.fires()] == ["started"]


async def test_nothing_of_a_paused_schedule_is_due(bench):
    await declare_ago(bench, MINUTES, AGE)
    await operator(bench).pause("k", reason="x")
    assert await bench.claim() == []
    assert (await bench.ledger.probe(bench.serving)).due_at is None


async def test_pausing_again_replaces_reason_and_end_and_keeps_the_beginning(bench):
    await bench.declare(HOURLY)
    ops = operator(bench)
    first = await ops.pause("k", reason="one")
    until = bench.now() + HOUR
    second = await ops.pause("k", reason="two", until=until)
    assert second.before == first.pause
    assert (await ops.schedule("k")).pause == Pause(first.pause.at, "two", "ops", until)


async def test_an_end_that_has_passed_is_refused_and_nothing_is_written(bench):
    await bench.declare(HOURLY)
    ops = operator(bench)
    with pytest.raises(MomentInPast):
        await ops.pause("k", reason="x", until=bench.now() - MINUTE)
    assert (await ops.schedule("k")).state == "active"
    assert await bench.actions() == []


async def test_resume_replays_nothing_unless_asked(bench):
    await declare_ago(bench, MINUTES, AGE, paused=True)
    resumed = await operator(bench).resume("k")
    assert resumed.caught_up == 0
    assert resumed.next_fire_at > bench.now()
    decided = await windows(bench)
    assert len(decided) == 600
    assert {(fire.status, fire.reason, fire.windows) for _, fire in decided} == {
        ("skipped", "paused", 600)
    }
    assert await bench.claim() == []


async def test_resume_with_latest_starts_one_run_for_the_whole_pause(bench):
    await declare_ago(bench, MINUTES, AGE, paused=True)
    resumed = await operator(bench).resume("k", catch_up=CatchUp(policy="latest"))
    assert resumed.caught_up == 1
    decided = await windows(bench)
    assert [at for at, _ in decided] == [decided[0][0] + n * MINUTE for n in range(600)]
    (start,) = await starts(bench)
    assert (start.fire_time, start.timing) == (decided[-1][0], "caught_up")
    assert len({fire.workflow_id for _, fire in decided}) == 2, "one run, one row for the rest"
    (claim,) = await taken(bench)
    assert (claim.missed, claim.missed_from) == (599, decided[0][0])


async def test_resume_with_all_starts_the_newest_of_them_up_to_max(bench):
    await declare_ago(bench, MINUTES, AGE, paused=True)
    resumed = await operator(bench).resume("k", catch_up=CatchUp(policy="all", max=50))
    assert resumed.caught_up == 50
    decided = await windows(bench)
    assert [at for at, _ in decided][-50:] == [fire.fire_time for fire in await starts(bench)]
    assert {(fire.status, fire.reason) for _, fire in decided[:-50]} == {("skipped", "paused")}
    assert len(decided) == 600


async def test_a_policy_alone_keeps_what_else_the_schedule_says_of_catching_up(bench):
    await declare_ago(bench, f"{MINUTES}, catchUp: {{max: 7}}", AGE, paused=True)
    assert (await operator(bench).resume("k", catch_up="all")).caught_up == 7


async def test_resume_with_a_rate_and_the_newest_first_begins_with_the_newest(bench):
    await declare_ago(bench, MINUTES, AGE, paused=True)
    catch_up = CatchUp(policy="all", max=5, rate=parse_rate("1/1h"), order="newest")
    await operator(bench).resume("k", catch_up=catch_up)
    (claim,) = await taken(bench)
    assert claim.fire_time == (await windows(bench))[-1][0]
    assert len(await starts(bench)) == 4


async def test_resume_with_a_window_starts_nothing_older(bench):
    await declare_ago(bench, MINUTES, AGE, paused=True)
    await operator(bench).resume("k", catch_up=CatchUp(policy="all", window=HOUR))
    assert len(await starts(bench)) in {60, 61}


async def test_a_schedule_can_say_for_itself_what_follows_a_pause_and_an_operator_otherwise(bench):
    fields = f"{MINUTES}, catchUp: {{pause: latest}}"
    await declare_ago(bench, fields, AGE, paused=True)
    ops = operator(bench)
    assert (await ops.resume("k")).caught_up == 1
    await ops.pause("k", reason="again")
    assert (await ops.resume("k", catch_up=CatchUp(policy="none"))).caught_up == 0


async def test_resuming_what_is_not_paused_changes_nothing_and_is_no_action(bench):
    await bench.declare(HOURLY)
    ops = operator(bench)
    resumed = await ops.resume("k")
    assert (resumed.before, resumed.caught_up) == (None, 0)
    assert await bench.actions() == []


async def test_a_pause_with_an_end_ends_by_itself(bench):
    then = await declare_ago(bench, MINUTES, AGE)
    until = then + 9 * HOUR
    async with bench.ledger.transaction() as transaction:
        await transaction.pause("k", Pause(then, "x", "ops", until))
    (row,) = await bench.ledger.schedules(key="k")
    assert row.next_fire_at == until
    probe = await bench.ledger.probe(bench.serving)
    assert probe.due_at
    assert probe.due_at <= probe.now
    (claim,) = await bench.claim()
    ops = operator(bench)
    row = await ops.schedule("k")
    assert (row.state, row.pause) == ("active", None)
    decided = await windows(bench)
    assert [at for at, _ in decided] == [decided[0][0] + n * MINUTE for n in range(600)]
    held = [at for at, fire in decided if fire.reason == "paused"]
    assert held[-1] < until <= held[-1] + MINUTE, "the pause, and not one window more"
    assert claim.fire_time == decided[-1][0], "what opened since is an outage of its own"
    assert claim.missed_from >= until


async def test_an_edit_keeps_the_pause_and_its_end(bench):
    await bench.declare(HOURLY)
    await bench.claim()
    ops = operator(bench)
    until = bench.now() + timedelta(days=1)
    paused = await ops.pause("k", reason="x", until=until)
    await bench.declare("schedules: [{key: k, workflow: noop, everyMs: 1000}]")
    row = await ops.schedule("k")
    assert (row.state, row.pause) == ("paused", paused.pause)
    assert row.next_fire_at == until, "it is looked at when the pause ends"
    assert await bench.claim() == []


async def test_a_pause_lets_wait_what_waits(bench):
    await bench.declare("schedules: [{key: k, workflow: noop, everyMs: 3600000, overlap: queue}]")
    (claim,) = await bench.claim()
    await run_of(bench, claim)
    ops = operator(bench)
    waiting = await ops.trigger("k")
    assert waiting.fire.status == "queued"
    await ops.pause("k", reason="x")
    await bench.ledger.lose([claim.workflow_id], "gone")
    assert await bench.ledger.wake() == []
    await ops.resume("k")
    await bench.claim()
    (promoted,) = await bench.ledger.take_over(bench.serving, limit=10, lease=LEASE)
    assert promoted.workflow_id == waiting.fire.workflow_id


async def test_resume_names_the_next_window_also_where_something_waits_in_the_queue(bench):
    await bench.declare("schedules: [{key: k, workflow: noop, everyMs: 3600000, overlap: queue}]")
    (claim,) = await bench.claim()
    await run_of(bench, claim)
    ops = operator(bench)
    await ops.trigger("k")
    await ops.pause("k", reason="x")
    resumed = await ops.resume("k")
    spec = (await ops.schedule("k")).schedule.spec
    assert resumed.next_fire_at == spec.next(bench.now())


async def test_pause_and_resume_note_who_did_it_why_and_what_was_before(bench):
    await bench.declare(HOURLY)
    ops = operator(bench)
    await ops.pause("k", reason="stocktaking")
    bench.wait()
    await ops.resume("k", reason="done")
    resumed, paused = await bench.actions(key="k")
    assert (paused.verb, paused.by, paused.reason, paused.before) == (
        "pause", "ops", "stocktaking", None,
    )  # fmt: skip
    assert paused.after["paused"]["reason"] == "stocktaking"
    assert (resumed.verb, resumed.by, resumed.reason, resumed.after) == (
        "resume", "ops", "done", None,
    )  # fmt: skip
    assert resumed.before["paused"]["by"] == "ops"
    assert paused.at < resumed.at


# --- what the end of a hold starts ---

WAITING = f"{MINUTES}, overlap: queue, maxQueued: 1000, catchUp: {{pause: all, max: 1000}}"


async def paused_until(bench, then: datetime, until: datetime) -> None:
    async with bench.ledger.transaction() as transaction:
        await transaction.pause("k", Pause(then, "x", "ops", until))


async def test_a_run_that_outlives_a_pause_costs_none_of_its_windows(bench):
    then = await declare_ago(bench, WAITING, AGE, paused=True)
    asked = await operator(bench).trigger("k")
    (claim,) = await taken(bench)
    running = await run_of(bench, claim)
    assert running == asked.fire.workflow_id
    until = bench.now() - 10 * MINUTE
    await bench.ledger.seen_open([running], until - timedelta(seconds=2))
    await paused_until(bench, then, until)
    assert await bench.claim() == []
    assert await windows(bench) == [], "the run is looked at first"
    await bench.ledger.seen_open([running], bench.now())
    await bench.claim()
    held = [fire.status for at, fire in await windows(bench) if at < until]
    assert len(held) in {589, 590}
    assert {*held} == {"queued"}
    assert (await operator(bench).schedule("k")).state == "active"


async def test_a_pause_whose_end_has_passed_gives_up_no_start(bench):
    """It is in the row until all of its windows are decided, and some are claimed before."""
    then = await declare_ago(bench, f"{MINUTES}, catchUp: {{pause: all, max: 1000}}", AGE)
    await paused_until(bench, then, then + 9 * HOUR)
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
        await transaction.record([plan(state, await transaction.now(), rows=20)])
    assert (await operator(bench).schedule("k")).pause is not None
    assert len(await starts(bench)) == 20
    assert len(await taken(bench)) == 20


@pytest.mark.parametrize("hold", ["pause", "deploy"])
async def test_the_end_of_a_hold_starts_no_more_windows_than_a_limit_allows(bench, hold):
    fields = f"{MINUTES}, limit: 3, catchUp: {{pause: all, deploy: all, max: 1000}}"
    if hold == "pause":
        await declare_ago(bench, fields, AGE, paused=True)
        assert (await operator(bench).resume("k")).caught_up == 3
    else:
        await declare_ago(bench, f"{fields}, enabled: false", AGE)
        await bench.declare(f"schedules: [{{key: k, workflow: noop, {fields}}}]")
    decided = await windows(bench)
    assert [fire.status for _, fire in decided[:4]] == ["claimed"] * 3 + ["skipped"]
    assert {fire.reason_code for _, fire in decided[3:]} == {"limit"}
    ops = operator(bench)
    await ops.pause("k", reason="again")
    assert (await ops.resume("k")).caught_up == 0
    assert await bench.claim() == []


async def test_the_end_of_a_hold_rejects_what_no_worker_can_run(bench):
    fields = f"{MINUTES}, catchUp: {{pause: all, max: 50}}"
    await declare_ago(bench, fields, AGE, paused=True, workflow="gone", workflow_type=None)
    assert (await operator(bench).resume("k")).caught_up == 0
    found: dict[tuple[str, str | None], int] = {}
    for _, fire in await windows(bench):
        key = (fire.status, fire.reason_code)
        found[key] = found.get(key, 0) + 1
    assert found == {("skipped", "paused"): 550, ("rejected", "unknown_workflow"): 50}


async def test_what_a_worker_can_run_since_it_was_declared_is_not_rejected(bench):
    """A worker that starts beside an apply writes the type with its next heartbeat only."""
    fields = f"{MINUTES}, catchUp: {{pause: all, max: 50}}"
    await declare_ago(bench, fields, AGE, paused=True, workflow_type=None)
    assert (await operator(bench).resume("k")).caught_up == 50
    assert {fire.reason_code for _, fire in await windows(bench)} <= {None, "limit", "paused"}
