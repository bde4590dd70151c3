"""Windows that wait for windows of other schedules: what is released, when, and by whom."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from temporalio.client import Client

from engine.errors import ParentCycle, ParentTimesDiffer, ParentUnknown, ScheduleError
from engine.ledger.fires import Claim, Evidence
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply, retire_absent
from engine.runtime.apply.definitions import first_definition
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.dispatcher import Dispatcher
from engine.runtime.dispatch.starter import Starter
from engine.runtime.settings import Settings
from engine.runtime.tick.poller import Poller
from engine.schedules import load_schedules
from engine.schedules.planner.decisions import Decision, Plan
from engine.schedules.terms import Reason
from engine.service import ScheduleService
from tests.blind import BLIND
from tests.conformance.families import Family, file_of
from tests.conformance.past import (
    HOUR,
    MINUTE,
    backfilled,
    declare_file_ago,
    lay,
    operator,
    run_of,
    taken,
)

AFTER = "after: {{schedule: parent, when: {when}}}"
LATEST = "everyMs: 60000, firstFire: next, after: {schedule: parent, window: latest}"


@pytest.fixture
def family(bench) -> Family:
    return Family(bench)


def child(when: str = "success", **fields: str) -> str:
    more = "".join(f", {name}: {value}" for name, value in fields.items())
    return "key: child, " + AFTER.format(when=when) + more


async def test_a_child_waits_until_its_parent_has_ended(family):
    started = await family.declare("key: parent", child())
    assert set(started) == {"parent"}
    assert await family.said("child") == ("queued", "dependency: waits for parent")
    await run_of(family.bench, started["parent"], "run")
    assert await family.turn() == {}, "its run is open"
    await family.close(started["parent"].workflow_id, "run")
    assert await family.ledger.wake() == ["child"]
    started = await family.turn()
    assert set(started) == {"child"}
    assert started["child"].fire_time == (await family.fire("parent")).fire_time
    assert started["child"].reason == "first sight", "what it said for itself is not forgotten"
    assert await family.turn() == {}, "it starts once"


ENDS = {
    "completed": "completed",
    "failed": "failed",
    "timed_out": "timed out",
    "terminated": "was terminated",
    "cancelled": "was cancelled",
    "rejected": "was rejected: payload too large",
    "lost": "was lost",
}


@pytest.mark.parametrize("end", ENDS)
async def test_what_a_parents_run_comes_to_decides_which_children_start(family, end):
    started = await family.declare(
        "key: parent",
        "key: on-success, after: {schedule: parent}",
        "key: on-failure, after: {schedule: parent, when: failure}",
        "key: on-any, after: {schedule: parent, when: always}",
    )
    started = await family.end(started["parent"], end)
    wanted, other = ("on-success", "on-failure")
    if end != "completed":
        wanted, other = other, wanted
    assert set(started) == {wanted, "on-any"}
    assert await family.said(other) == ("skipped", f"dependency: parent {ENDS[end]}")


@pytest.mark.parametrize("when", ["success", "failure", "always"])
async def test_a_parent_that_never_ran_starts_nobody_and_every_descendant_says_why(family, when):
    await family.declare(
        "key: parent, enabled: false", child(when), "key: grandchild, needs: [child]"
    )
    assert await family.said("child") == ("skipped", "dependency: parent is disabled")
    assert await family.said("grandchild") == (
        "skipped",
        "dependency: child was skipped: dependency: parent is disabled",
    )


async def test_needs_waits_for_all_and_gives_up_with_the_first_that_fails(family):
    started = await family.declare(
        "key: a", "key: b", "key: c", "key: both, needs: [a, b]",
        "key: all, after: {schedule: c, when: always}, needs: [a, b]",
    )  # fmt: skip
    assert (await family.fire("both")).reason == "dependency: waits for a, b"
    assert await family.end(started["a"]) == {}
    assert set(await family.end(started["b"])) == {"both"}
    assert await family.said("all") == ("queued", "dependency: waits for c, a, b")
    assert set(await family.end(started["c"], "failed")) == {"all"}


async def test_of_two_parents_the_first_that_fails_decides_though_the_other_runs_on(family):
    started = await family.declare("key: a", "key: b", "key: both, needs: [a, b]")
    assert await family.end(started["a"], "failed") == {}
    assert await family.said("both") == ("skipped", "dependency: a failed")


async def test_nobody_is_woken_whose_parents_are_not_final(family):
    started = await family.declare(
        "key: a", "key: b", "key: after-a, needs: [a]", "key: after-b, needs: [b]",
        "key: both, needs: [a, b]",
    )  # fmt: skip
    await run_of(family.bench, started["a"], "run")
    assert await family.ledger.wake() == []
    await family.close(started["a"].workflow_id, "run")
    assert await family.ledger.wake() == ["after-a"]
    assert await family.ledger.wake() == [], "it is due already"
    await family.bench.claim()
    assert await family.ledger.wake() == [], "it is decided"


async def test_after_an_outage_the_window_that_stands_for_all_waits_for_its_parents(family):
    text = file_of("key: parent, everyMs: 60000, firstFire: next").replace("everyMs: 3600000, ", "")
    text += "\n- {key: child, workflow: noop, firstFire: next, needs: [parent]}"
    await declare_file_ago(family.bench, text, 10 * MINUTE)
    started = await family.turn()
    assert set(started) == {"parent"}
    assert started["parent"].timing == "caught_up"
    waiting = (await family.ledger.fires(key="child", status="queued"))[0]
    assert waiting.fire_time == started["parent"].fire_time
    child = (await family.end(started["parent"]))["child"]
    assert (child.timing, child.missed) == ("caught_up", started["parent"].missed)
    assert child.reason.startswith("caught up for ")


async def test_a_window_inside_a_range_that_was_skipped_starts_nobody(family):
    text = (
        "schedules: [{key: parent, workflow: noop, everyMs: 60000, firstFire: next},"
        " {key: child, workflow: noop, firstFire: next, needs: [parent],"
        " catchUp: {policy: all, max: 3}}]"
    )
    await declare_file_ago(family.bench, text, 10 * MINUTE)
    started = await family.turn()
    newest = started["parent"]
    fires = [each for each in await family.ledger.fires(key="child") if each.status != "expired"]
    assert [fire.status for fire in fires] == ["queued", "skipped", "skipped"]
    assert {fire.reason for fire in fires[1:]} == {
        f"dependency: parent was skipped: coalesced into {newest.bucket}"
    }


async def test_the_latest_window_of_a_parent_counts_for_every_window_of_the_child(family):
    text = (
        "schedules: [{key: parent, workflow: noop, everyMs: 3600000},"
        f" {{key: child, workflow: noop, {LATEST}}}]"
    )
    await declare_file_ago(family.bench, text, 2 * MINUTE)
    started = await family.turn()
    assert set(started) == {"parent"}
    assert (await family.ledger.fires(key="child"))[0].status == "queued"
    assert set(await family.end(started["parent"])) == {"child"}


async def test_a_latest_window_that_was_skipped_is_passed_over_for_one_that_ran(family):
    text = (
        "schedules: [{key: parent, workflow: noop, everyMs: 60000, firstFire: next}, {key: child,"
        " workflow: noop, firstFire: next, after: {schedule: parent, window: latest}}]"
    )
    await declare_file_ago(family.bench, text, 5 * MINUTE)
    async with family.ledger.transaction() as transaction:
        (state,) = await transaction.read(["parent"])
        newest = state.schedule.spec.previous(family.bench.now())
        skipped = Decision(state.window(newest), "skipped", Reason("user", "user"))
        await transaction.note_ahead(Plan(state, (skipped,), state.cursor, None))
    (ran,) = (await family.turn()).values()
    assert ran.fire_time < newest
    started = await family.end(ran)
    assert started["child"].fire_time == newest


async def test_without_any_run_of_the_parent_the_child_says_so(family):
    # The parent of each day opens no window near this moment, whatever the time of day.
    far = int((family.bench.now() + 12 * HOUR).timestamp() * 1000) % 86_400_000
    both = (
        f"schedules: [{{key: parent, workflow: noop, everyMs: 86400000, firstFire: next,"
        f" offsetMs: {far}}},"
        f" {{key: child, workflow: noop, grace: 1h, {LATEST}}}]"
    )
    await declare_file_ago(family.bench, both, 2 * MINUTE)
    await family.turn()
    fires = await family.ledger.fires(key="child")
    assert {fire.reason for fire in fires} == {"dependency: parent has no run then"}


async def test_a_rerun_or_a_manual_run_of_the_parent_is_not_its_window(family):
    started = await family.declare("key: parent", child("failure"))
    ops = operator(family.bench)
    manual = await ops.trigger("parent", request_id="r")
    (asked,) = await taken(family.bench)
    assert asked.workflow_id == manual.fire.workflow_id
    assert await family.end(asked, "failed") == {}
    assert (await family.fire("child")).status == "queued"
    await family.end(started["parent"])
    again = await ops.rerun("parent", started["parent"].bucket)
    (asked,) = await taken(family.bench)
    assert asked.workflow_id == again.fire.workflow_id
    assert await family.end(asked, "failed") == {}
    assert await family.said("child") == ("skipped", "dependency: parent completed")


@pytest.mark.parametrize("which", ["same", "latest"])
async def test_a_backfill_of_the_parent_counts_while_the_child_is_not_decided(family, which):
    after = f"after: {{schedule: parent, when: always, window: {which}}}"
    child = f"key: child, {after}"
    started = await family.declare("key: first", "key: parent, needs: [first]", child)
    first = await family.fire("parent")
    assert (await operator(family.bench).skip("parent", first.fire_time)).changed
    at = first.fire_time
    await operator(family.bench).backfill("parent", at, at, include=["user"])
    await family.turn()
    assert (await family.fire("child")).status == "queued", (
        "its parent's window is still to be laid"
    )
    (claim,) = await lay(family.bench)
    assert claim.key == "parent", "a backfill asks nobody"
    assert set(await family.end(claim, "failed")) == {"child"}
    assert "first" in started


async def test_a_backfill_starts_what_its_parents_had_kept_from_starting(family):
    started = await family.declare("key: parent", child())
    await family.end(started["parent"], "failed")
    at = (await family.fire("child")).fire_time
    done, claims = await backfilled(family.bench, at, at, "child")
    assert (claims, done.left_alone) == ([], {"dependency": 1}), "only where that is said"
    _, claims = await backfilled(family.bench, at, at, "child", include=["dependency"])
    assert [claim.key for claim in claims] == ["child"]


async def test_nobody_waits_for_a_backfill_of_what_came_before_the_latest(family):
    after = "after: {schedule: parent, window: latest}, needs: [first]"
    started = await family.declare("key: first", "key: parent", f"key: child, {after}")
    await family.end(started["parent"])
    at, hour = started["parent"].fire_time, timedelta(hours=1)
    ops = operator(family.bench)
    await ops.backfill("parent", at - 3 * hour, at - hour)
    assert set(await family.end(started["first"])) == {"child"}, "its latest has run"


@pytest.mark.parametrize("hold", ["paused", "retired", "disabled"])
async def test_nobody_waits_for_a_parent_that_is_held(family, hold):
    declared = ["key: parent, firstFire: next", child()]
    await family.declare(*declared)
    assert (await family.fire("child")).status in {"queued", "skipped"}
    if hold == "disabled":
        await family.bench.declare(file_of("key: parent, firstFire: next, enabled: false", child()))
    elif hold == "paused":
        await operator(family.bench).pause("parent", reason="x")
    else:
        async with family.ledger.transaction() as transaction:
            await transaction.retire(["parent"], family.bench.now())
    await family.turn()
    assert (await family.fire("child")).status == "skipped"


@pytest.mark.parametrize("hold", ["paused", "retired", "disabled"])
async def test_the_reason_names_what_holds_the_parent(family, hold):
    """The parent's hold begins before the window does: it will never be decided by itself."""
    parent = "key: parent, firstFire: next"
    await family.bench.declare(file_of(parent))
    if hold == "paused":
        await operator(family.bench).pause("parent", reason="x")
    elif hold == "disabled":
        parent += ", enabled: false"
    else:
        async with family.ledger.transaction() as transaction:
            await transaction.retire(["parent"], family.bench.now())
        text = file_of(parent, child())
        (_, schedule) = load_schedules(text).schedules
        new = first_definition(
            schedule, family.bench.now(), project="default", workflow_type="noop@1"
        )
        async with family.ledger.transaction() as transaction:
            await transaction.define([new], by="test")
    if hold != "retired":
        await family.bench.declare(file_of(parent, child()))
    await family.turn()
    said = {"paused": "is paused", "retired": "was retired", "disabled": "is disabled"}[hold]
    assert await family.said("child") == ("skipped", f"dependency: parent {said}")


async def test_an_edit_of_the_child_leaves_what_waits_to_the_rule_it_was_decided_under(family):
    started = await family.declare("key: parent", child("failure"))
    await family.bench.declare(file_of("key: parent", child("success")))
    assert (await family.fire("child")).status == "queued"
    assert set(await family.end(started["parent"], "failed")) == {"child"}
    assert await family.ledger.children("parent") == ["child"]


async def test_a_child_that_no_longer_follows_anybody_still_keeps_what_it_waited_for(family):
    started = await family.declare("key: parent", child())
    await family.bench.declare(file_of("key: parent", "key: child"))
    assert await family.ledger.children("parent") == []
    assert await family.turn() == {}
    assert set(await family.end(started["parent"])) == {"child"}


async def test_a_child_that_is_paused_keeps_what_waits_and_goes_on_when_it_is_resumed(family):
    started = await family.declare("key: parent", child())
    ops = operator(family.bench)
    await ops.pause("child", reason="x")
    assert await family.end(started["parent"]) == {}
    assert (await family.fire("child")).status == "queued"
    await ops.resume("child")
    assert set(await family.turn()) == {"child"}


async def test_what_waits_can_be_cancelled_and_its_own_children_hear_of_it(family):
    await family.declare("key: parent", child(), "key: grandchild, needs: [child]")
    fire = await family.fire("child")
    await operator(family.bench).cancel(fire.workflow_id)
    await family.turn()
    assert (await family.fire("child")).status == "skipped"
    assert (await family.fire("grandchild")).reason.startswith("dependency: child was skipped: ")


async def test_a_key_that_is_retired_gives_up_what_waits(family):
    await family.declare("key: parent", child())
    file = load_schedules(file_of("key: parent"))
    await apply(family.ledger, file, by="test")
    await retire_absent(family.ledger, file, by="test", absent_for=timedelta(0), force=True)
    assert await family.said("child") == ("skipped", "retired")


async def three_minutes(family, overlap: str) -> dict:
    """Three windows at once of a parent whose runs may overlap, and of a child."""
    text = (
        "schedules: [{key: parent, workflow: noop, everyMs: 60000, firstFire: next,"
        " catchUp: all}, {key: child, workflow: noop, firstFire: next, needs: [parent],"
        f" catchUp: all, overlap: {overlap}}}]"
    ).replace("catchUp: all", "catchUp: {policy: all}")
    await declare_file_ago(family.bench, text, 4 * MINUTE)
    claims = await family.bench.claim()
    return dict(enumerate(sorted(claims, key=lambda claim: claim.fire_time)[-3:]))


async def ended(family, claim) -> list[datetime]:
    """End a run of the parent; the fire times of the child's runs that start then."""
    await run_of(family.bench, claim, claim.workflow_id)
    await family.close(claim.workflow_id, claim.workflow_id)
    await family.ledger.wake()
    await family.bench.claim()
    return [each.fire_time for each in await taken(family.bench) if each.key == "child"]


async def test_with_allow_what_waits_holds_nobody_up(family):
    claims = await three_minutes(family, "allow")
    for place in (2, 0, 1):
        assert await ended(family, claims[place]) == [claims[place].fire_time]


async def test_with_queue_what_waits_keeps_its_place(family):
    claims = await three_minutes(family, "queue")
    fires = await family.ledger.fires(key="child", status="queued")
    for extra in sorted(fires, key=lambda fire: fire.fire_time)[:-3]:
        await operator(family.bench).cancel(extra.workflow_id)
    assert await ended(family, claims[1]) == []
    assert await family.ledger.wake() == [], "it waits behind the first, and nobody is bothered"
    assert await ended(family, claims[0]) == [claims[0].fire_time]


async def child_runs(family) -> list[Claim]:
    """Plan what is due, and return the claims of the child that begin then."""
    await family.bench.claim()
    found = [claim for claim in await taken(family.bench) if claim.key == "child"]
    return sorted(found, key=lambda claim: claim.fire_time)


async def parent_ends(family, claim) -> list[Claim]:
    await run_of(family.bench, claim, claim.workflow_id)
    await family.close(claim.workflow_id, claim.workflow_id)
    await family.ledger.wake()
    return await child_runs(family)


@pytest.mark.parametrize(("overlap", "places"), [("queue", 1), ("queue, maxConcurrentRuns: 2", 2)])
async def test_with_queue_what_was_released_starts_when_a_place_is_free_whoever_waits_behind_it(
    family, overlap, places
):
    claims = await three_minutes(family, overlap)
    fires = await family.ledger.fires(key="child", status="queued")
    for extra in sorted(fires, key=lambda fire: fire.fire_time)[:-3]:
        await operator(family.bench).cancel(extra.workflow_id)
    runs = [run for place in range(places) for run in await parent_ends(family, claims[place])]
    assert [run.fire_time for run in runs] == [claims[n].fire_time for n in range(places)]
    assert await parent_ends(family, claims[places]) == [], "every place is taken"
    assert await family.ledger.wake() == []
    await run_of(family.bench, runs[0], "first")
    await family.close(runs[0].workflow_id, "first")
    assert await family.ledger.wake() == ["child"]
    (next_run,) = await child_runs(family)
    assert next_run.fire_time == claims[places].fire_time


async def test_with_skip_a_run_that_is_open_costs_those_that_are_released_meanwhile(family):
    claims = await three_minutes(family, "skip")
    (run,) = await parent_ends(family, claims[0])
    await run_of(family.bench, run)
    await ended(family, claims[1])
    await family.ledger.seen_open([run.workflow_id], family.bench.now())
    await family.ledger.make_due(["child"])
    assert await family.bench.claim() == []
    skipped = next(
        fire
        for fire in await family.ledger.fires(key="child")
        if fire.fire_time == claims[1].fire_time
    )
    assert skipped.status == "skipped"
    assert skipped.reason == f"overlap: {run.workflow_id} is still running"


async def test_a_run_costs_nothing_whose_release_was_learnt_after_it_was_seen_open(family):
    claims = await three_minutes(family, "skip")
    (run,) = await parent_ends(family, claims[0])
    await run_of(family.bench, run)
    await family.ledger.seen_open([run.workflow_id], family.bench.now())
    family.bench.wait()
    name = await run_of(family.bench, claims[1])
    behind = family.bench.now() - HOUR  # the clock of Temporal
    seen = Evidence(name, "run", behind, closed="completed", closed_at=behind)
    assert await family.ledger.record_evidence([seen]) == [name]
    await family.ledger.make_due(["child"])
    assert await family.bench.claim() == []
    statuses = {fire.fire_time: fire.status for fire in await family.ledger.fires(key="child")}
    assert statuses[claims[1].fire_time] == "queued", "somebody has to look again"


async def test_with_terminate_previous_what_is_released_takes_the_place_of_what_is_older(family):
    claims = await three_minutes(family, "terminate_previous")
    assert await ended(family, claims[0]) == [claims[0].fire_time]
    assert await ended(family, claims[2]) == [], "the run before it has to end first"
    fires = {fire.fire_time: fire for fire in await family.ledger.fires(key="child")}
    newest = fires[claims[2].fire_time]
    assert newest.status == "queued"
    assert "waits" not in (newest.reason or ""), "for no other schedule any more"
    assert fires[claims[1].fire_time].status == "skipped", "older, and still waiting"
    assert fires[claims[1].fire_time].reason == f"overlap: {newest.workflow_id} took its place"


async def test_only_so_many_windows_wait(family):
    text = (
        "schedules: [{key: parent, workflow: noop, everyMs: 60000, firstFire: next},"
        " {key: child, workflow: noop, firstFire: next, needs: [parent], maxQueued: 2,"
        " catchUp: {policy: all}}]"
    )
    await declare_file_ago(family.bench, text, 5 * MINUTE)
    await family.bench.claim()
    fires = await family.ledger.fires(key="child")
    full = [fire for fire in fires if fire.reason == "dependency: the queue is full (2)"]
    assert len(full) == len(fires) - 2


async def test_a_spread_child_does_not_start_before_its_own_moment(family):
    text = (
        "schedules: [{key: parent, workflow: noop, everyMs: 3600000},"
        " {key: child, workflow: noop, everyMs: 3600000, spread: 1h, needs: [parent]}]"
    )
    await family.bench.declare(text)
    async with family.ledger.transaction() as transaction:
        (state,) = await transaction.read(["child"])
    (claim,) = [each for each in await family.bench.claim() if each.key == "parent"]
    moment = claim.fire_time + state.schedule.delay(claim.fire_time)
    started = await family.end(claim)
    assert ("child" in started) is (moment <= family.bench.now())
    assert (await family.fire("child")).status in {"claimed", "starting"}


async def test_one_shots_of_an_application_follow_each_other(family):
    """Seed 003: one-time tasks in a batch, each after its parent."""
    service = ScheduleService(family.ledger, actor="shop")
    moment = family.bench.now() + timedelta(seconds=1)
    await service.schedule_at("noop", moment, key="parent")
    asked = await service.schedule_repeat("noop", key="child", after={"schedule": "parent"})
    parent = await service.get("parent")
    assert parent is not None
    assert asked.next_fire_at == parent.next_fire_at
    (claim,) = await family.bench.until(family.bench.claim)
    assert claim.key == "parent"
    assert await family.said("child") == ("queued", "dependency: waits for parent")
    started = await family.end(claim)
    assert set(started) == {"child"}


async def test_parents_of_an_applications_schedule_are_checked_as_in_files(family):
    service = ScheduleService(family.ledger, actor="shop")
    await service.schedule_repeat("noop", key="hourly", everyMs=3_600_000)
    await service.schedule_repeat("noop", key="elsewhere", everyMs=3_600_000, project="other")
    refused: list[tuple[type[ScheduleError], dict[str, Any]]] = [
        (ParentUnknown, {"needs": ["hourl"], "everyMs": 3_600_000}),
        (ParentUnknown, {"needs": ["elsewhere"], "everyMs": 3_600_000}),
        (ParentTimesDiffer, {"needs": ["hourly"], "everyMs": 1000}),
        (ParentCycle, {"needs": ["k"], "everyMs": 1000}),
    ]
    for error, fields in refused:
        with pytest.raises(error):
            await service.schedule_repeat("noop", key="k", **fields)
    await service.schedule_repeat("noop", key="k", needs=["hourly"])
    for key in ("hourly", "k"):
        with pytest.raises(ParentTimesDiffer):
            await service.reschedule(key, everyMs=60_000)
    assert [row.key for row in await service.schedules()] == ["elsewhere", "hourly", "k"]


async def test_a_file_names_the_schedules_of_applications_that_follow_what_it_changes(family):
    def file(*keys: str, every: int = 3_600_000) -> str:
        each = ", ".join(f"{{key: {key}, workflow: noop, everyMs: {every}}}" for key in keys)
        return f"schedules: [{each}]"

    service = ScheduleService(family.ledger, actor="shop")
    assert not (await family.bench.declare(file("hourly", "other"))).remarks
    await service.schedule_repeat("noop", key="child", needs=["hourly"])
    described = file("hourly", "other").replace("key: hourly,", "key: hourly, description: x,")
    assert not (await family.bench.declare(described)).remarks
    moved = await family.bench.declare(file("hourly", "other", every=60_000))
    assert moved.followed == {"hourly": ("child",)}
    (remark,) = moved.remarks
    assert remark == (
        "hourly has other times, and schedules of applications follow it: child; what they wait"
        " for in vain is skipped"
    )
    left = load_schedules(file("other", every=60_000))
    await apply(family.ledger, left, by="test")
    gone = await retire_absent(family.ledger, left, by="test", absent_for=timedelta(0), force=True)
    assert gone.retired == ("hourly",)
    assert "hourly is retired, and schedules of applications follow it: child" in gone.remarks[0]


async def test_a_look_at_the_ledger_tells_whether_anybody_in_the_project_waits_for_others(family):
    await family.declare("key: parent", "key: other")
    assert not (await family.ledger.probe(family.bench.serving)).chained
    await family.bench.declare(file_of("key: parent", "key: other", child()))
    assert (await family.ledger.probe(family.bench.serving)).chained
    elsewhere = Serving("replica-c", "elsewhere", "sched", frozenset({"noop@1"}))
    assert not (await family.ledger.probe(elsewhere)).chained


async def test_a_tick_makes_due_at_once_whoever_waited_for_what_it_decided(family):
    """Generation after generation, without anybody else's help."""
    clock, setting = LedgerClock(), Settings()
    starter = Starter(cast("Client", None), clock, setting)  # nothing starts here
    dispatcher = Dispatcher(family.ledger, starter, clock, setting, on_event=print)
    poller = Poller(family.ledger, dispatcher, clock, family.bench.serving, setting, **BLIND)
    await family.bench.declare(
        file_of("key: parent, enabled: false", child(), "key: grandchild, needs: [child]")
    )
    woken = [(await poller.tick()).woken for _ in range(4)]
    assert woken == [True, True, False, False]
    assert (await family.fire("child")).status == "skipped"
    assert (await family.fire("grandchild")).status == "skipped"
