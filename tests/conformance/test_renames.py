"""Renamed schedules: each window once, under one of the two keys, and everything goes on."""

from __future__ import annotations

import uuid
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import groupby

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from engine.errors import (
    KeyForeign,
    KeyInUse,
    OwnedByFile,
    ParentTimesDiffer,
    ParentUnknown,
    RequestInUse,
    ScheduleError,
    ScheduleFileError,
    ScheduleRenamed,
)
from engine.ledger import Ledger
from engine.ledger.fires import Evidence
from engine.ledger.records import Lineage
from engine.runtime.apply.apply import dry_run, retire_absent
from engine.runtime.apply.edits import Renamed
from engine.schedules import load_schedules
from tests.conformance.conftest import Bench, forget_doubts
from tests.conformance.past import HOUR, MINUTE, backfilled, operator, run_of, taken
from tests.examples import examples

EVERY = "every: 1h"


def file_of(*schedules: str) -> str:
    listed = "\n".join(f"- {{workflow: noop, {each}}}" for each in schedules)
    return f"schedules:\n{listed}"


def entry(key: str, was: str | None = None, more: str = EVERY) -> str:
    return f"key: {key}, {f'was: {was}, ' if was else ''}{more}"


async def declare(bench, *schedules: str):
    return await bench.declare(file_of(*schedules))


async def plan_of(bench, *schedules: str):
    return await dry_run(bench.ledger, load_schedules(file_of(*schedules)), by="test")


async def ids(bench, key: str) -> list[str]:
    return sorted(fire.workflow_id for fire in await bench.ledger.fires(key=key, limit=1000))


async def state_of(bench, key: str):
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read([key], all_open=True)
    return state


async def close(bench, workflow_id: str, closed: str = "completed") -> None:
    now = bench.now()
    seen = Evidence(workflow_id, "run", now, closed=closed, closed_at=now)  # type: ignore[arg-type] # a word of a close
    assert await bench.ledger.record_evidence([seen]) == [workflow_id]


async def test_windows_up_to_the_rename_are_of_the_old_key_and_later_ones_of_the_new(bench):
    await declare(bench, entry("old"))
    (before,) = await bench.claim()
    report = await declare(bench, entry("new", "old"))
    assert (report.renamed, report.added, report.absent) == ({"new": "old"}, (), ())
    assert await bench.claim() == []
    bench.wait(HOUR)
    (after,) = await bench.claim()
    assert (before.key, after.key) == ("old", "new")
    assert after.bucket == before.bucket + 1
    assert after.series == before.series
    assert after.workflow_id == f"sched:new:{after.bucket}"
    rows = {row.key: row for row in await bench.ledger.schedules()}
    assert (rows["old"].state, rows["old"].successor) == ("retired", "new")
    assert (rows["new"].state, rows["new"].former) == ("active", ("old",))
    assert (
        await ids(bench, "new")
        == await ids(bench, "old")
        == [*sorted([before.workflow_id, after.workflow_id])]
    )


async def test_a_window_that_was_due_at_the_rename_is_decided_once_under_the_new_key(bench):
    await declare(bench, entry("old"))
    await declare(bench, entry("new", "old"))
    (claim,) = await bench.claim()
    assert claim.key == "new"
    assert await taken(bench) == []


async def test_was_may_stay_in_the_file_and_may_leave_it(bench):
    await declare(bench, entry("old"))
    await declare(bench, entry("new", "old"))
    for schedule in (entry("new", "old") + ", tags: [a]", entry("new") + ", tags: [a]"):
        await declare(bench, schedule)
    report = await declare(bench, entry("new") + ", tags: [a], description: other")
    assert (report.changed, report.renamed, report.refused) == (("new",), {}, {})
    assert (await state_of(bench, "new")).definition_version == 4


async def test_the_times_of_h_and_of_spread_stay_those_of_the_first_key(bench):
    times = "cron: 'H H * * *', spread: 10m"
    await declare(bench, entry("first", None, times))
    old = (await state_of(bench, "first")).schedule
    await declare(bench, entry("second", "first", times))
    await declare(bench, entry("third", "second", times))
    await declare(bench, entry("third", None, times) + ", description: edited")
    new = (await state_of(bench, "third")).schedule
    at = old.spec.next(bench.now())
    assert new.spec.next(bench.now()) == at
    assert new.delay(at) == old.delay(at) != timedelta(0)
    assert new.was == "first"


async def test_a_pause_a_limit_and_a_skip_ahead_go_on_under_the_new_key(bench):
    await declare(bench, entry("old", None, f"{EVERY}, limit: 2"))
    (first,) = await bench.claim()
    ops = operator(bench)
    second = first.fire_time + HOUR
    await ops.skip("old", second, reason="holiday")
    await ops.pause("old", reason="maintenance")
    await declare(bench, entry("new", "old", f"{EVERY}, limit: 2"))
    state = await state_of(bench, "new")
    assert (state.pause.reason, state.started, state.known) == ("maintenance", 1, {second: False})
    await ops.resume("new")
    for _ in range(3):
        bench.wait(HOUR)
        await bench.claim()
    begun = {
        fire.key: fire.status for fire in await ops.fires(key="new") if fire.status != "skipped"
    }
    assert begun == {"old": "starting", "new": "starting"}
    assert (await ops.schedule("new")).state == "ended"


async def test_an_open_run_of_the_old_key_holds_the_place_of_a_queued_window(bench):
    more = f"{EVERY}, overlap: queue"
    await declare(bench, entry("old", None, more))
    (first,) = await bench.claim()
    run = await run_of(bench, first)
    asked = await operator(bench).trigger("old", request_id="waits")
    assert asked.fire.status == "queued"
    await declare(bench, entry("new", "old", more))
    bench.wait(HOUR)
    assert await bench.claim() == []
    assert await bench.ledger.wake() == []
    statuses = {fire.workflow_id: fire.status for fire in await bench.ledger.fires(key="new")}
    assert sorted(statuses.values()) == ["queued", "queued", "started"]
    await close(bench, run)
    assert await bench.ledger.wake() == ["new"]
    await bench.claim()
    (claim,) = await taken(bench)
    assert claim.workflow_id == asked.fire.workflow_id, "what came first starts first"
    await run_of(bench, claim)
    await close(bench, claim.workflow_id)
    assert await bench.ledger.wake() == ["new"]
    await bench.claim()
    (last,) = await taken(bench)
    assert last.key == "new"


LATER = "last"
"""A key whose runs start late in their spread."""


async def test_what_is_claimed_for_later_under_the_old_key_starts(bench):
    more = f"{EVERY}, spread: 50m"
    await declare(bench, entry(LATER, None, more))
    assert await bench.claim() == []
    await declare(bench, entry("new", LATER, more))
    assert await taken(bench) == []
    bench.wait(HOUR)
    (claim,) = await taken(bench)
    assert claim.key == LATER


async def test_a_pause_of_the_new_key_revokes_what_is_claimed_under_the_old_one(bench):
    more = f"{EVERY}, spread: 50m"
    await declare(bench, entry(LATER, None, more))
    assert await bench.claim() == []
    await declare(bench, entry("new", LATER, more))
    await operator(bench).pause("new", reason="stop")
    bench.wait(HOUR)
    assert await taken(bench) == []
    assert [fire.status for fire in await bench.ledger.fires(key=LATER)] == ["skipped"]


async def test_the_data_of_the_first_run_of_the_new_key_begin_at_the_last_one_of_the_old(bench):
    await declare(bench, entry("old"))
    (first,) = await bench.claim()
    await run_of(bench, first)
    await declare(bench, entry("new", "old"))
    bench.wait(HOUR)
    (second,) = await bench.claim()
    assert second.data_from == first.fire_time


async def test_children_find_the_windows_of_a_parent_by_each_of_its_keys(bench):
    child = entry("child", None, "after: {schedule: old}")
    await declare(bench, entry("old"), child)
    (first,) = [each for each in await bench.claim() if each.key == "old"]
    await run_of(bench, first)
    ops = operator(bench)
    report = await declare(bench, entry("new", "old"), child)
    assert report.edits == {"child": ('after {"schedule": "old"} → {"schedule": "new"}',)}
    await close(bench, first.workflow_id)
    await bench.ledger.wake()
    await bench.claim()
    assert [claim.key for claim in await taken(bench)] == ["child"]
    assert await ops.children("old") == await ops.children("new") == ["child"]


async def test_an_application_s_child_waits_for_the_parent_by_its_old_key(bench):
    await declare(bench, entry("old"))
    ops = operator(bench)
    await ops.schedule_repeat("noop", key="child", every="1h", after={"schedule": "old"})
    (first,) = await bench.claim()
    await run_of(bench, first)
    await declare(bench, entry("new", "old"))
    bench.wait(HOUR)
    claims = await bench.claim()
    assert [each.key for each in claims] == ["new"]
    await run_of(bench, claims[0])
    await close(bench, claims[0].workflow_id)
    await bench.ledger.wake()
    await bench.claim()
    assert [claim.key for claim in await taken(bench)] == ["child"]
    await ops.reschedule("child", every="1h")
    with pytest.raises(ParentTimesDiffer):
        await ops.reschedule("child", every="2h")
    await ops.schedule_repeat("noop", key="second", after={"schedule": "old"})
    with pytest.raises(ParentUnknown):
        await ops.schedule_repeat("noop", key="third", every="1h", after={"schedule": "other"})


async def test_children_by_an_old_key_bind_the_times_of_an_application_s_parent(bench):
    ops = operator(bench)
    await ops.schedule_repeat("noop", key="old", every="1h")
    await ops.schedule_repeat("noop", key="child", after={"schedule": "old"})
    await ops.rename("old", "new")
    await ops.reschedule("new", every="1h")
    with pytest.raises(ParentTimesDiffer):
        await ops.reschedule("new", every="2h")


async def test_a_file_that_still_has_the_old_key_is_refused_for_it_and_retires_nothing(bench):
    await declare(bench, entry("old"), entry("other"))
    await declare(bench, entry("new", "old"), entry("other"))
    report = await declare(bench, entry("old"), entry("other") + ", description: x")
    assert report.changed == ("other",)
    assert "renamed to new" in report.misnamed["old"]
    assert report.absent == ()
    stale = load_schedules(file_of(entry("old"), entry("other") + ", description: x"))
    pruned = await retire_absent(bench.ledger, stale, by="test", absent_for=timedelta(0))
    assert pruned.retired == ()
    bench.wait(HOUR)
    assert {claim.key for claim in await bench.claim()} == {"new", "other"}


async def test_was_goes_back(bench):
    times = "cron: 'H * * * *'"
    await declare(bench, entry("a", None, times))
    claims = []
    for schedule in (entry("b", "a", times), entry("a", "b", times), entry("c", "a", times)):
        bench.wait(HOUR)
        claims += await bench.claim()
        report = await declare(bench, schedule)
        assert len(report.renamed) == 1
    bench.wait(HOUR)
    claims += await bench.claim()
    assert [claim.key for claim in claims] == ["a", "b", "a", "c"]
    assert {claim.fire_time.minute for claim in claims} == {claims[0].fire_time.minute}
    assert [claim.data_from for claim in claims[1:]] == [claim.fire_time for claim in claims[:3]]
    rows = {row.key: (row.successor, row.former) for row in await bench.ledger.schedules()}
    assert rows == {"a": ("c", ()), "b": ("c", ()), "c": (None, ("b", "a"))}


@pytest.mark.parametrize(
    ("schedules", "why"),
    [
        ((entry("new", "old"), entry("old")), "old is the key of a schedule"),
        ((entry("new", "new"),), "new is the key of a schedule"),
        ((entry("a", "b"), entry("b", "a")), "b is the key of a schedule"),
        ((entry("a", "old"), entry("b", "old")), "old became a"),
        ((entry("a", "not a key"),), "was is 'not a key'"),
    ],
)
def test_a_file_in_which_the_old_key_has_two_heirs_or_is_still_there_is_refused(schedules, why):
    with pytest.raises(ScheduleFileError, match=why):
        load_schedules(file_of(*schedules))


async def test_an_old_key_has_one_heir_and_a_new_one_no_past_of_its_own(bench):
    await declare(bench, entry("old"), entry("taken"))
    report = await declare(bench, entry("taken", "old"))
    assert "old cannot become taken" in report.misnamed["taken"]
    await declare(bench, entry("new", "old"), entry("taken"))
    report = await declare(bench, entry("other", "old"), entry("taken"))
    assert "old was renamed to new before" in report.misnamed["other"]
    assert {row.key for row in await bench.ledger.schedules() if row.state != "retired"} == {
        "new",
        "taken",
    }


async def test_the_key_of_another_project_or_of_an_application_is_not_renamed(bench):
    await declare(bench, entry("mine"))
    await operator(bench).schedule_repeat("noop", key="theirs", every="1h")
    with pytest.raises(KeyForeign):
        await bench.declare("project: other\n" + file_of(entry("new", "mine")))
    with pytest.raises(KeyForeign):
        await declare(bench, entry("new", "theirs"))


async def test_a_plan_shows_a_rename_and_points_out_a_likely_one(bench):
    await declare(bench, entry("old"), entry("other", None, "every: 2h"))
    shown = await plan_of(bench, entry("new", "old"), entry("other", None, "every: 2h"))
    (change,) = shown.changes
    assert (change.kind, change.key, change.was) == ("renamed", "new", "old")
    assert (change.moved.appear.count, change.moved.vanish.count) == (0, 0)
    assert change.fires == ()
    assert shown.absent == ()
    guess = await plan_of(bench, entry("new"), entry("other", None, "every: 2h"))
    assert [(each.kind, each.likely_was) for each in guess.changes] == [("added", "old")]
    unknown = await plan_of(bench, entry("new", "unknown"), entry("old"))
    assert unknown.in_vain == {"new": "there never was a schedule unknown, so new is new"}
    assert await ids(bench, "old") == [], "nothing was written"


async def test_an_edit_together_with_a_rename_waits_until_lost_runs_are_looked_up(bench):
    await declare(bench, entry("old"))
    await bench.claim()
    bench.wait(3 * HOUR)
    async with doubted(bench):
        report = await declare(bench, entry("new", "old") + ", input: edited")
        assert report.renamed == {"new": "old"}
        assert "looked up" in report.misnamed["new"]
        (claim,) = await bench.claim()
        assert (claim.key, claim.schedule.has_input, claim.missed) == ("new", False, 2)
        report = await declare(bench, entry("new", "old") + ", input: edited")
        assert (report.changed, report.misnamed) == (("new",), {})


@asynccontextmanager
async def doubted(bench):
    """A server that is not the one which the ledger has noted: nobody has looked since."""
    await bench.ledger.note_lineage(Lineage("another", 1), suspect=False)
    try:
        yield
    finally:
        await forget_doubts(bench.ledger)


async def test_an_edit_together_with_a_rename_decides_what_was_owed_under_the_old_key(bench):
    await declare(bench, entry("old"))
    (claim,) = await bench.claim()
    await run_of(bench, claim)
    bench.wait(HOUR)
    report = await declare(bench, entry("new", "old") + ", input: edited")
    assert (report.renamed, report.edits) == ({"new": "old"}, {"new": ("input (none) → edited",)})
    assert [(claim.key, claim.schedule.has_input) for claim in await taken(bench)] == [
        ("old", False)
    ]
    bench.wait(HOUR)
    (claim,) = await bench.claim()
    assert (claim.key, claim.schedule.input, claim.definition_version) == ("new", "edited", 3)


async def test_a_retired_schedule_returns_under_a_new_key_in_a_new_series(bench):
    await declare(bench, entry("old"), entry("other"))
    await bench.claim()
    alone = load_schedules(file_of(entry("other")))
    await declare(bench, entry("other"))
    await retire_absent(bench.ledger, alone, by="test", absent_for=timedelta(0))
    bench.wait(3 * HOUR)
    report = await declare(bench, entry("new", "old"), entry("other"))
    assert report.renamed == {"new": "old"}
    state = await state_of(bench, "new")
    assert (state.series, state.retired_at) == (2, None)
    assert [claim.key for claim in await bench.claim()] == ["other"]


async def test_what_is_open_under_the_old_key_moves_to_a_renamed_project_too(bench):
    more = f"{EVERY}, spread: 50m"
    await declare(bench, entry(LATER, None, more))
    assert await bench.claim() == []
    await declare(bench, entry("new", LATER, more))
    moved = "project: other\n" + file_of(entry("new", LATER, more))
    report = await bench.declare(moved, take_from=Renamed("default"))
    assert report.unchanged == ("new",)
    bench.wait(HOUR)
    other = replace(bench.serving, project="other")
    (claim,) = await bench.ledger.take_over(other, limit=9, lease=HOUR)
    assert claim.key == LATER


async def test_commands_on_the_old_key_name_the_new_one(bench):
    await declare(bench, entry("old"))
    await bench.claim()
    await declare(bench, entry("new", "old"))
    ops = operator(bench)
    for command in (ops.pause("old", reason="x"), ops.trigger("old"), ops.resume("old")):
        with pytest.raises(ScheduleRenamed, match="old was renamed to new; name new"):
            await command
    with pytest.raises(ScheduleRenamed):
        await ops.schedule_repeat("noop", key="old", every="1h")


async def test_a_failed_window_of_the_old_key_runs_again_under_the_new_one(bench):
    await declare(bench, entry("old"))
    (claim,) = await bench.claim()
    await run_of(bench, claim)
    await close(bench, claim.workflow_id, "failed")
    await declare(bench, entry("new", "old"))
    ops = operator(bench)
    (letter,) = await ops.dead_letters(key="new")
    asked = await ops.rerun_dead(letter.workflow_id)
    assert asked.fire.workflow_id == f"sched:new:{claim.bucket}:rerun:1"
    assert await ops.dead_letters(key="new") == []
    (again,) = await taken(bench)
    assert (again.fire_time, again.data_from) == (claim.fire_time, claim.data_from)


async def test_a_backfill_leaves_windows_with_a_row_of_the_old_key_alone(bench):
    await declare(bench, entry("old", None, "every: 1m"))
    await bench.claim()
    ops = operator(bench)
    bench.wait(5 * MINUTE)
    before = {fire.workflow_id for fire in [*await bench.ledger.fires(key="old")]}
    await bench.claim()
    await declare(bench, entry("new", "old", "every: 1m"))
    rows = [*await bench.ledger.fires(key="old")]
    seen = await ops.preview_backfill("new", bench.now() - 8 * MINUTE, bench.now())
    done, claims = await backfilled(bench, bench.now() - 8 * MINUTE, bench.now(), "new")
    assert before <= {row.workflow_id for row in rows}
    assert {claim.key for claim in claims} == {"new"}
    assert {claim.fire_time for claim in claims}.isdisjoint(
        moment for row in rows for moment in (row.fire_time, row.last_fire_time)
    )
    assert seen.starts == {"undeclared": len(claims)}
    assert done.left_alone == dict(seen.left_alone)
    assert done.left_alone["former_key"] == sum(row.windows for row in rows)


async def test_the_log_has_the_rename_under_both_keys(bench):
    await declare(bench, entry("old"))
    await declare(bench, entry("new", "old"))
    for key in ("old", "new"):
        (action,) = [each for each in await bench.ledger.actions(key=key) if each.verb == "rename"]
        assert (action.key, action.after) == ("old", {"key": "new"})


async def test_an_audit_has_one_account_of_all_keys(bench):
    await declare(bench, entry("old"))
    await bench.claim()
    for key, was in (("new", "old"), ("newer", "new")):
        bench.wait(HOUR)
        await bench.claim()
        await declare(bench, entry(key, was))
    bench.wait(HOUR)
    await bench.claim()
    for claim in await bench.ledger.fires(key="newer"):
        await bench.ledger.record_evidence([
            Evidence(claim.workflow_id, claim.workflow_id, claim.fire_time, closed="completed",
                     closed_at=claim.fire_time)
        ])  # fmt: skip
    ops = operator(bench)
    for asked in (None, "old", "newer"):
        report = await ops.audit(timedelta(hours=12), key=asked)
        (account,) = report.schedules
        assert (account.key, account.verdict, account.expected) == ("newer", "complete", 4)


# --- over the API ---


async def test_an_application_renames_its_schedule(bench):
    ops = operator(bench)
    await ops.schedule_repeat("noop", key="old", every="1h", firstFire="now")
    (claim,) = await bench.claim()
    row = await ops.rename("old", "new", reason="a better name")
    assert (row.key, row.former, row.origin) == ("new", ("old",), "api")
    bench.wait(HOUR)
    (after,) = await bench.claim()
    assert (after.key, after.bucket) == ("new", claim.bucket + 1)
    assert (await ops.rename("new", "old")).former == ("new",)


async def test_a_request_id_names_the_schedule_by_its_present_key(bench):
    ops = operator(bench)
    await ops.schedule_repeat("noop", key="old", every="1h", request_id="order-1")
    await ops.rename("old", "new")
    (row,) = await ops.schedules(request_id="order-1")
    assert row.key == "new"
    with pytest.raises(RequestInUse, match="used before, for new"):
        await ops.schedule_repeat("noop", key="other", every="1h", request_id="order-1")


async def test_a_manual_run_that_was_requested_before_the_rename_is_not_started_again(bench):
    await declare(bench, entry("old"))
    ops = operator(bench)
    first = await ops.trigger("old", request_id="r1")
    await declare(bench, entry("new", "old"))
    again = await ops.trigger("new", request_id="r1")
    assert (again.new, again.fire.workflow_id) == (False, first.fire.workflow_id)


async def test_a_window_of_the_old_key_is_explained_under_both(bench):
    await declare(bench, entry("old"))
    (claim,) = await bench.claim()
    await declare(bench, entry("new", "old"))
    ops = operator(bench)
    by_old = await ops.explain("old", claim.fire_time)
    assert by_old == await ops.explain("new", claim.fire_time)
    assert claim.workflow_id in str(by_old)


async def test_an_application_renames_nothing_of_a_file_and_takes_no_key_of_others(bench):
    ops = operator(bench)
    await declare(bench, entry("file"))
    for key in ("mine", "other"):
        await ops.schedule_repeat("noop", key=key, every="1h")
    with pytest.raises(OwnedByFile):
        await ops.rename("file", "new")
    with pytest.raises(KeyInUse):
        await ops.rename("mine", "other")
    with pytest.raises(ScheduleError):
        await ops.rename("mine", "no key")
    await ops.rename("mine", "new")
    with pytest.raises(ScheduleRenamed):
        await ops.rename("mine", "newest")
    with pytest.raises(ScheduleError, match="leave out was"):
        await ops.schedule_repeat("noop", key="third", every="1h", was="other")


# --- whatever comes ---

MOVES = st.one_of(
    st.tuples(st.just("wait"), st.integers(1, 5)),
    st.tuples(
        st.sampled_from(["claim", "rename", "rename", "back", "stale", "edit", "both"]), st.just(0)
    ),
    st.tuples(st.sampled_from(["pause", "resume", "skip"]), st.just(0)),
)


class Names:
    """A schedule of a minute that gets one key after the other."""

    def __init__(self, bench) -> None:
        self.bench, self.ops, self.keys, self.input = bench, operator(bench), ["k0"], 0

    async def declare(self, key: str, was: str | None = None) -> None:
        await declare(self.bench, entry(key, was, "every: 1m") + f", input: {self.input}")

    async def do(self, move: str, value: int) -> None:
        key = self.keys[-1]
        if move == "wait":
            self.bench.wait(value * MINUTE / 2)
        elif move == "claim":
            await self.bench.claim()
        elif move in {"pause", "resume"}:
            await getattr(self.ops, move)(key, reason="test")
        elif move == "skip":
            at = (await state_of(self.bench, key)).schedule.spec.next(self.bench.now() + MINUTE)
            await self.ops.skip(key, at)
        elif move == "stale":
            await self.declare("k0")
        elif move == "edit":
            self.input += 1
            await self.declare(key)
        else:
            self.input += move == "both"
            back = move == "back" and len(set(self.keys)) > 1
            new = next(each for each in self.keys if each != key) if back else f"k{len(self.keys)}"
            self.keys.append(new)
            await self.declare(new, key)


@settings(
    max_examples=examples(100), deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(moves=st.lists(MOVES, min_size=4, max_size=20))
async def test_whatever_comes_each_window_is_decided_once_and_the_keys_follow_each_other(
    bench, moves
):
    bench = Bench(Ledger(bench.ledger._connections, f"test-{uuid.uuid4().hex}"), bench._clock)
    await bench.announce()
    names = Names(bench)
    await names.declare("k0")
    for move, value in moves:
        await names.do(move, value)
    key = names.keys[-1]
    await names.ops.resume(key)
    for _ in range(2):
        bench.wait(MINUTE)
        await bench.claim()
    await taken(bench)
    rows = await bench.ledger.fires(key=key, limit=10_000)
    for fire in rows:
        if fire.status == "starting":
            at = fire.starting_at or fire.fire_time
            seen = Evidence(fire.workflow_id, "run", at, closed="completed", closed_at=at)
            await bench.ledger.record_evidence([seen])
    found = {
        fire.fire_time + number * MINUTE: fire.key
        for fire in sorted(rows, key=lambda each: each.fire_time)
        for number in range(fire.windows)
    }
    assert len(found) == sum(fire.windows for fire in rows), "a window has two rows"
    moments = [*found]
    assert moments == [moments[0] + number * MINUTE for number in range(len(moments))]
    order = [each for each, _ in groupby(found.values())]
    left = iter(names.keys)
    assert all(each in left for each in order), f"{order} is not in the order of {names.keys}"
    (account,) = (await names.ops.audit(timedelta(hours=2))).schedules
    assert (account.key, account.verdict) == (key, "complete"), account.faults
