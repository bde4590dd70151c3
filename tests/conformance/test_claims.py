"""A window is claimed once, and its fire moves by compare-and-set only."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from engine.ledger.fires import Evidence, Outcome
from engine.schedules.planner.planner import plan
from engine.schedules.terms import Reason
from tests.conformance.conftest import NOW

HOURLY = "schedules: [{key: hourly, workflow: noop, everyMs: 3600000, input: {a: 1}}]"
TWO = """schedules:
- {key: a, workflow: noop, every: 1h}
- {key: b, workflow: noop, every: 1h}"""
RUN = "0199aaaa-run"
NO_TIME = timedelta(0)
UNSURE = Reason("may_have_run", "may have run")


def started(claim, run_id=RUN) -> Outcome:
    now = NOW
    return Outcome(claim.fire_id, claim.token, "started", "on_time", run_id, started_at=now)


async def test_an_interval_never_seen_owes_its_current_window(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    assert claim.workflow_id == f"sched:hourly:{claim.bucket}"
    assert claim.fire_time <= bench.now() < claim.fire_time + timedelta(hours=1)
    assert (claim.workflow_type, claim.task_queue) == ("noop@1", "sched")
    assert claim.schedule.input == {"a": 1}


async def test_a_claimed_window_is_not_claimed_again(bench):
    await bench.declare(HOURLY)
    assert len(await bench.claim()) == 1
    assert await bench.claim(bench.other) == []


async def test_the_cursor_moves_with_the_claim(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["hourly"])
    assert state.cursor == claim.fire_time
    assert state.max_bucket == claim.bucket


async def test_a_cron_never_seen_waits_for_its_next_fire_time(bench):
    await bench.declare('schedules: [{key: nightly, workflow: noop, cron: "0 2 * * *"}]')
    assert await bench.claim() == []
    (row,) = await bench.ledger.schedules()
    assert row.next_fire_at > bench.now()


async def test_a_failing_transaction_leaves_nothing_behind(bench):
    await bench.declare(HOURLY)

    async def claim_half_way():
        async with bench.ledger.transaction() as transaction:
            keys = await transaction.lock_due(bench.serving, 10)
            (state,) = await transaction.read(keys)
            step = plan(state, await transaction.now())
            await transaction.record([step], owner="replica-a", lease=timedelta(seconds=30))
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        await claim_half_way()
    assert await bench.ledger.fires() == []
    assert len(await bench.claim()) == 1


async def test_a_schedule_that_one_replica_plans_is_left_alone_by_the_others(bench):
    await bench.declare(HOURLY)
    async with bench.ledger.transaction() as mine, bench.ledger.transaction() as theirs:
        assert await mine.lock_due(bench.serving, 10) == ["hourly"]
        assert await theirs.lock_due(bench.other, 10) == [], "planned by both, or waited for"


async def due(bench, *, spoilt: str = ""):
    """Return the plans of all due schedules, one of them with a claim that cannot be written."""
    async with bench.ledger.transaction() as transaction:
        states = await transaction.read(await transaction.lock_due(bench.serving, 10))
        plans = [plan(state, await transaction.now()) for state in states]
    nul = Reason("user", "\0")
    return [
        replace(each, decisions=tuple(replace(it, reason=nul) for it in each.decisions))
        if each.state.key == spoilt
        else each
        for each in plans
    ]


async def test_a_claim_that_cannot_be_written_leaves_its_window_and_costs_no_other(bench):
    await bench.declare(TWO)
    plans = await due(bench, spoilt="a")
    async with bench.ledger.transaction() as transaction:
        claims = await transaction.record(plans, owner="replica-a", lease=timedelta(seconds=30))
        (state,) = await transaction.read(["a"])
    assert [claim.key for claim in claims] == ["b"]
    assert state.failures == 1
    assert state.cursor < plans[0].cursor, "the window is lost"


async def test_a_plan_that_would_move_the_cursor_back_is_refused(bench):
    await bench.declare(HOURLY)
    (step,) = await due(bench)
    back = replace(step, decisions=(), cursor=step.state.cursor - timedelta(hours=1))
    async with bench.ledger.transaction() as transaction:
        await transaction.record([back], owner="replica-a")
        (state,) = await transaction.read(["hourly"])
    assert (state.cursor, state.failures) == (step.state.cursor, 1)


async def test_a_window_that_has_a_row_already_is_not_claimed_again_and_costs_no_other(bench):
    await bench.declare(TWO)
    first, second = await due(bench)

    async def recorded(*plans):
        async with bench.ledger.transaction() as transaction:
            claims = await transaction.record(plans, owner="replica-a", lease=timedelta(seconds=30))
        return [claim.key for claim in claims]

    assert await recorded(first) == [first.state.key]
    assert await recorded(first, second) == [second.state.key], "planned before the first commit"
    async with bench.ledger.transaction() as transaction:
        states = await transaction.read(["a", "b"])
    assert [state.failures for state in states] == [0, 0], "taken for an error"


async def test_an_outcome_needs_the_token_of_the_claim(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim(lease=NO_TIME)
    (taken,) = await bench.ledger.take_over(bench.other, limit=10, lease=timedelta(seconds=30))
    assert await bench.ledger.settle([started(claim, "late-run")]) == 0
    assert await bench.ledger.settle([started(taken)]) == 1
    (fire,) = await bench.ledger.fires()
    assert (fire.status, fire.run_id, fire.replica) == ("started", RUN, "replica-b")


async def test_a_lease_that_has_not_ended_is_not_taken_over(bench):
    await bench.declare(HOURLY)
    await bench.claim()
    assert await bench.ledger.take_over(bench.other, limit=10, lease=NO_TIME) == []


async def test_a_taken_over_claim_says_that_it_may_have_been_sent(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim(lease=NO_TIME)
    (taken,) = await bench.ledger.take_over(bench.other, limit=10, lease=NO_TIME)
    assert claim.fresh
    assert not taken.fresh
    assert taken.attempts == 2
    assert taken.starting_at == claim.starting_at
    assert taken.retention == timedelta(days=1)


async def test_the_smallest_retention_in_force_since_the_start_counts(bench):
    await bench.announce(retention=timedelta(hours=1))
    bench.wait()
    await bench.announce(retention=timedelta(hours=9))
    bench.wait()
    await bench.declare(HOURLY)
    await bench.claim(lease=NO_TIME)
    bench.wait()
    await bench.announce(retention=timedelta(hours=7))
    bench.wait()
    await bench.announce(retention=timedelta(hours=8))
    bench.wait()
    (taken,) = await bench.ledger.take_over(bench.other, limit=10, lease=NO_TIME)
    assert taken.retention == timedelta(hours=7)


async def test_a_short_retention_of_long_ago_does_not_count_for_ever(bench):
    await bench.announce(retention=timedelta(seconds=3))
    bench.wait()
    await bench.announce(retention=timedelta(days=30))
    bench.wait()
    await bench.declare(HOURLY)
    await bench.claim(lease=NO_TIME)
    bench.wait()
    await bench.announce(retention=timedelta(days=30))
    bench.wait()
    (taken,) = await bench.ledger.take_over(bench.other, limit=10, lease=NO_TIME)
    assert taken.retention == timedelta(days=30)


async def test_a_retention_seen_only_before_the_start_was_in_force_then(bench):
    await bench.announce(retention=timedelta(hours=1))
    bench.wait()
    await bench.declare(HOURLY)
    await bench.claim(lease=NO_TIME)
    bench.wait()
    await bench.announce(retention=timedelta(hours=7))
    bench.wait()
    (taken,) = await bench.ledger.take_over(bench.other, limit=10, lease=NO_TIME)
    assert taken.retention == timedelta(hours=1)


async def test_an_unknown_outcome_waits_for_its_retry(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    unknown = replace(started(claim), status="starting", error="Timeout", run_id=None)
    hour = replace(unknown, started_at=None, retry_after=timedelta(hours=1))
    assert await bench.ledger.settle([hour]) == 1
    assert await bench.ledger.take_over(bench.other, limit=10, lease=NO_TIME) == []
    (fire,) = await bench.ledger.fires()
    assert (fire.status, fire.error) == ("starting", "Timeout")


async def test_an_idle_probe_names_the_next_fire_time_and_nothing_stale(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    await bench.ledger.settle([started(claim)])
    probe = await bench.ledger.probe(bench.serving)
    assert probe.due_at == claim.fire_time + timedelta(hours=1)
    assert probe.stale_at is None


async def test_a_replica_neither_sees_nor_claims_another_projects_schedules(bench):
    await bench.declare(HOURLY)
    stranger = replace(bench.serving, replica="stranger", project="other")
    assert (await bench.ledger.probe(stranger)).due_at is None
    assert await bench.claim(stranger) == []
    await bench.claim(lease=NO_TIME)
    assert await bench.ledger.take_over(stranger, limit=10, lease=NO_TIME) == []


async def test_a_replica_leaves_what_it_cannot_run_to_one_that_can(bench):
    await bench.declare(HOURLY)
    unaware = replace(bench.serving, replica="unaware", types=frozenset({"else@1"}))
    elsewhere = replace(bench.serving, replica="elsewhere", task_queue="mail")
    assert await bench.claim(unaware) == []
    assert await bench.claim(elsewhere) == []
    assert len(await bench.claim()) == 1


async def test_any_replica_of_the_project_starts_external_workflows(bench):
    await bench.declare(
        "schedules: [{key: go, workflow: GoWorkflow, external: true,"
        " taskQueue: golang, everyMs: 60000}]"
    )
    elsewhere = replace(bench.serving, replica="elsewhere", task_queue="mail", types=frozenset())
    (claim,) = await bench.claim(elsewhere)
    assert (claim.workflow_type, claim.task_queue) == ("GoWorkflow", "golang")


async def test_a_project_and_queue_are_served_while_a_replica_that_announced_them_lives(bench):
    elsewhere = replace(bench.serving, replica="elsewhere", task_queue="mail")
    newer = replace(bench.serving, replica="newer", types=frozenset({"noop@2"}))
    await bench.announce(elsewhere)
    await bench.announce(newer)
    types, minute = bench.serving.types, timedelta(minutes=1)
    mine, mail = ("default", bench.serving.task_queue), ("default", "mail")
    assert await bench.ledger.served(alive=minute) == {mine: types | {"noop@2"}, mail: types}
    await bench.ledger.withdraw(elsewhere)
    await bench.ledger.withdraw(newer)
    assert await bench.ledger.served(alive=minute) == {mine: types}
    await bench.announce(heartbeat=NO_TIME)
    assert await bench.ledger.served(alive=NO_TIME) == {}


async def test_a_replica_lives_for_three_of_the_heartbeats_that_it_has_announced(bench):
    able = of_mail(bench)
    await bench.announce(heartbeat=NO_TIME)
    await bench.declare(UNHEARD_OF)
    for heartbeat, living in ((NO_TIME, 0), (timedelta(minutes=1), 1)):
        await bench.announce(able, heartbeat=heartbeat)
        assert await bench.ledger.replicas(alive=NO_TIME) == living
        assert len(await bench.ledger.served(alive=NO_TIME)) == living
        assert await unservable(bench, alive=NO_TIME) == ["k"] * (1 - living)


async def test_a_schedule_waits_until_somebody_announces_its_workflow(bench):
    await bench.declare("schedules: [{key: k, workflow: later, taskQueue: mail, everyMs: 60000}]")
    able = replace(bench.serving, replica="able", task_queue="mail", types=frozenset({"later@1"}))
    assert await bench.claim(able) == []
    await bench.announce(able)
    (claim,) = await bench.claim(able)
    assert claim.workflow_type == "later@1"


async def test_the_newest_announced_version_is_taken_and_versions_compare_by_number(bench):
    able = replace(bench.serving, types=frozenset({"noop@1", "noop@9", "noop@10"}))
    await bench.announce(able)
    await bench.declare(HOURLY)
    (claim,) = await bench.claim(able)
    assert claim.workflow_type == "noop@10"


async def test_the_limit_bounds_what_one_tick_locks(bench):
    entries = ", ".join(f"{{key: k{n}, workflow: noop, everyMs: 3600000}}" for n in range(5))
    await bench.declare(f"schedules: [{entries}]")
    assert len(await bench.claim(limit=2)) == 2
    assert len(await bench.claim(bench.other, limit=9)) == 3


async def test_a_backed_off_schedule_is_due_later_with_its_window_undecided(bench):
    await bench.declare(HOURLY)
    async with bench.ledger.transaction() as transaction:
        await transaction.lock(["hourly"])
        await transaction.back_off("hourly", "broken")
    assert await bench.claim() == []
    (row,) = await bench.ledger.schedules()
    assert row.error == "broken"
    assert row.next_fire_at <= bench.now() + timedelta(seconds=2)


async def test_evidence_wins_over_a_class_that_said_no_run(bench):
    """Rule L2."""
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    await bench.ledger.settle([Outcome(claim.fire_id, claim.token, "unvouched", reason=UNSURE)])
    now = bench.now()
    seen = Evidence(claim.workflow_id, RUN, now, "completed", now)
    assert await bench.ledger.record_evidence([seen]) == [claim.workflow_id]
    (fire,) = await bench.ledger.fires()
    assert (fire.status, fire.run_id) == ("completed", RUN)
    assert fire.history[0]["status"] == "unvouched"
    assert fire.history[0]["reason_code"] == "may_have_run"


async def test_the_same_evidence_twice_changes_nothing(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    await bench.ledger.settle([started(claim)])
    now = bench.now()
    seen = Evidence(claim.workflow_id, RUN, now, "failed", now, "boom")
    assert await bench.ledger.record_evidence([seen]) == [claim.workflow_id]
    assert await bench.ledger.record_evidence([seen]) == []
    fire = await bench.ledger.fire(claim.workflow_id)
    assert (fire.status, fire.error, fire.history) == ("failed", "boom", ())


async def test_an_older_run_never_replaces_a_newer_one(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    await bench.ledger.settle([started(claim)])
    old = bench.now() - timedelta(hours=1)
    assert (
        await bench.ledger.record_evidence([Evidence(claim.workflow_id, "old", old, "failed", old)])
        == []
    )


async def test_the_last_run_of_an_id_ends_its_fire_by_whichever_clock_it_began(bench):
    """The ledger's clock may be minutes ahead of Temporal's, and a run that went on has another."""
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    await bench.ledger.settle([started(claim)])
    before = bench.now() - timedelta(minutes=10)
    seen = Evidence(claim.workflow_id, "went-on", before, "completed", before, last=True)
    assert await bench.ledger.record_evidence([seen]) == [claim.workflow_id]
    fire = await bench.ledger.fire(claim.workflow_id)
    assert (fire.status, fire.run_id) == ("completed", "went-on")
    other = replace(seen, run_id="older", started_at=before - timedelta(minutes=1), closed="failed")
    assert await bench.ledger.record_evidence([other]) == [], (
        "what has closed is not looked at again"
    )


async def test_evidence_for_a_starting_fire_ends_its_claim(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim(lease=NO_TIME)
    now = bench.now()
    await bench.ledger.record_evidence([Evidence(claim.workflow_id, RUN, now)])
    assert await bench.ledger.take_over(bench.other, limit=10, lease=NO_TIME) == []
    assert (await bench.ledger.fire(claim.workflow_id)).status == "started"


async def test_open_runs_are_looked_at_in_turn(bench):
    entries = ", ".join(f"{{key: k{n}, workflow: noop, everyMs: 3600000}}" for n in range(3))
    await bench.declare(f"schedules: [{entries}]")
    claims = await bench.claim()
    await bench.ledger.settle([started(claim, claim.workflow_id) for claim in claims])
    bench.wait()  # what is seen now is seen after what has started
    later = bench.now() + timedelta(hours=1)
    first = await bench.ledger.open_runs(2, started_before=later)
    second = await bench.ledger.open_runs(2, started_before=later)
    assert len(first) == 2
    assert {run.workflow_id for run in (*first, *second)} == {c.workflow_id for c in claims}


async def test_a_duty_has_one_holder_until_its_lease_ends(bench):
    ledger = bench.ledger
    assert await ledger.hold_duty("tracker", "a", timedelta(hours=1)) is not None
    assert await ledger.hold_duty("tracker", "b", timedelta(hours=1)) is None
    mark = datetime(2026, 11, 21, tzinfo=UTC)
    await ledger.set_watermark("tracker", "a", mark)
    assert await ledger.hold_duty("tracker", "a", timedelta(milliseconds=1)) == mark

    async def taken():
        return await ledger.hold_duty("tracker", "b", timedelta(hours=1))

    assert await bench.until(taken) == mark


async def test_a_duty_that_is_released_is_anybodys_at_once(bench):
    ledger, hour = bench.ledger, timedelta(hours=1)
    assert await ledger.hold_duty("tracker", "a", hour) is not None
    mark = datetime(2026, 11, 21, tzinfo=UTC)
    await ledger.set_watermark("tracker", "a", mark)
    await ledger.release_duty("tracker", "b")
    assert await ledger.hold_duty("tracker", "b", hour) is None, "it was not b's to release"
    await ledger.release_duty("tracker", "a")
    assert await ledger.hold_duty("tracker", "b", hour) == mark


ALIVE, LONG = timedelta(seconds=30), timedelta(hours=1)
UNHEARD_OF = (
    "schedules: [{key: k, workflow: unheard-of, taskQueue: mail, everyMs: 3600000, grace: 1ms}]"
)
"""Nobody served its task queue when it was applied, or it would have been refused."""


async def unservable(bench, serving=None, steady=LONG, alive=ALIVE):
    asking = serving or replace(bench.serving, task_queue="mail")
    async with bench.ledger.transaction() as transaction:
        return await transaction.unservable(asking, alive=alive, steady=steady, limit=9)


def of_mail(bench):
    return replace(
        bench.serving, replica="able", task_queue="mail", types=frozenset({"unheard-of@1"})
    )


async def test_a_key_is_unservable_only_while_no_living_replica_of_its_queue_knows_it(bench):
    await bench.declare(UNHEARD_OF)
    assert await unservable(bench) == ["k"]
    able = of_mail(bench)
    await bench.announce(able)
    assert await unservable(bench) == []
    await bench.ledger.withdraw(able)
    assert await unservable(bench) == ["k"]


async def test_nothing_is_unservable_to_a_replica_that_knows_it_however_late_it_announces(bench):
    able = of_mail(bench)
    await bench.announce(able)
    await bench.ledger.withdraw(able)
    await bench.declare(UNHEARD_OF)
    assert await unservable(bench, able) == []


async def test_nothing_is_unservable_until_others_had_time_to_announce(bench):
    await bench.declare(UNHEARD_OF)
    assert await unservable(bench, steady=ALIVE) == []


async def test_a_version_announced_while_an_apply_ran_is_found_later(bench):
    await bench.declare(HOURLY)
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["hourly"])
    assert state.workflow_type == "noop@1"
    newer = replace(bench.serving, replica="newer", types=frozenset({"noop@2"}))
    await bench.announce(newer)
    await bench.announce(newer)
    assert len(await bench.claim(newer)) == 1


async def test_a_text_that_postgresql_cannot_hold_does_not_cost_the_others_their_close(bench):
    entries = ", ".join(f"{{key: k{n}, workflow: noop, everyMs: 3600000}}" for n in range(2))
    await bench.declare(f"schedules: [{entries}]")
    claims = await bench.claim()
    await bench.ledger.settle([started(claim, claim.workflow_id) for claim in claims])
    now = bench.now()
    seen = [
        Evidence(claim.workflow_id, claim.workflow_id, now, "failed", now, f"bad \0 {n} \ud800")
        for n, claim in enumerate(claims)
    ]
    assert len(await bench.ledger.record_evidence(seen)) == 2


async def test_a_run_that_went_on_as_new_within_the_clocks_skew_is_closed(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    await bench.ledger.settle([started(claim)])
    begun = bench.now() - timedelta(milliseconds=500)
    later = Evidence(claim.workflow_id, "next-run", begun, "completed", begun)
    assert await bench.ledger.record_evidence([later]) == [claim.workflow_id]


async def test_the_identity_is_stable(bench):
    identity = await bench.ledger.identity()
    probe = await bench.ledger.probe(bench.serving)
    assert str(probe.ledger_id) == identity
    assert identity == await bench.ledger.identity()


async def test_a_renewed_lease_is_not_taken_over(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim(lease=timedelta(seconds=1.5))
    assert await bench.ledger.renew([claim], timedelta(seconds=30)) == {claim.fire_id}
    assert await bench.ledger.renew([claim], NO_TIME) == {claim.fire_id}, "a lease went back"
    bench.wait(timedelta(seconds=1.6))
    assert await bench.ledger.take_over(bench.other, limit=10, lease=NO_TIME) == []


async def test_only_its_owner_renews_a_lease_and_only_while_it_lasts(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim(lease=NO_TIME)
    assert await bench.ledger.renew([claim], timedelta(seconds=30)) == set(), "it had ended"
    (taken,) = await bench.ledger.take_over(bench.other, limit=10, lease=timedelta(seconds=30))
    assert await bench.ledger.renew([claim, taken], timedelta(seconds=30)) == {taken.fire_id}
    await bench.ledger.settle([started(taken)])
    assert await bench.ledger.renew([taken], timedelta(seconds=30)) == set()


async def test_the_polls_of_external_task_queues_are_kept_as_long_as_a_schedule_has_them(bench):
    external = "{key: %s, workflow: w, external: true, taskQueue: %s, everyMs: 60000}"
    listed = ", ".join([external % ("a", "golang"), external % ("b", "java")])
    await bench.declare(f"schedules: [{listed}, {{key: own, workflow: noop, everyMs: 60000}}]")
    queues = await bench.ledger.external_queues()
    assert queues == ["golang", "java"]
    then, minute = bench.now() - timedelta(minutes=3), timedelta(minutes=1)
    await bench.ledger.note_polls({"golang": (then, 2)}, of=queues)
    (golang,) = await bench.ledger.note_polls({"golang": (None, 7)}, of=queues)
    assert (golang.polled_at, golang.waiting, golang.is_left_alone) == (then, 7, True)
    (java,) = await bench.ledger.note_polls({"java": (None, 1)}, of=queues)
    assert not java.is_left_alone, "it was looked at a moment ago for the first time"
    assert await bench.ledger.polled_queues(within=minute) == [golang, java]
    assert await bench.ledger.note_polls({}, of=["java"]) == []
    assert await bench.ledger.polled_queues(within=minute) == [java]
    assert await bench.ledger.polled_queues(within=NO_TIME) == []
