"""Applying a file: idempotent, forward only, and nothing owed is ever lost (rule L3)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from engine.errors import KeyForeign, PruneRefused, RevisionTooLow
from engine.runtime.apply.apply import dry_run, retire_absent
from engine.runtime.apply.edits import PruneReport, Renamed
from engine.schedules import Window, load_schedules
from engine.schedules.planner.decisions import Decision, Plan
from engine.schedules.terms import Reason
from engine.service import ScheduleService

HOUR = timedelta(hours=1)
NO_TIME, SOON = timedelta(0), timedelta(seconds=5)
EXCLUDED = Reason("excluded", "excluded")


def interval(every: int, offset: int = 0, key: str = "k", more: str = "") -> str:
    declared = f"key: {key}, workflow: noop, everyMs: {every}, offsetMs: {offset}{more}"
    return f"schedules: [{{{declared}}}]"


async def windows(bench):
    return sorted(
        (fire.series, fire.fire_time, fire.workflow_id) for fire in await bench.ledger.fires()
    )


async def test_applying_the_same_file_again_changes_nothing(bench):
    text = interval(3_600_000)
    assert (await bench.declare(text)).added == ("k",)
    before = await bench.ledger.probe(bench.serving)
    report = await bench.declare(text)
    assert report.already_applied
    assert (await bench.ledger.probe(bench.serving)).epoch == before.epoch


async def test_an_edit_decides_what_the_old_definition_owed_and_fires_no_past_window(bench):
    await bench.declare(interval(3_600_000, more=", input: old"))
    await bench.declare(interval(3_600_000, more=", input: new"))
    # The window of first sight was still undecided: the edit claimed it, under the old input.
    (taken,) = await bench.ledger.take_over(bench.serving, limit=9, lease=NO_TIME)
    assert (taken.schedule.input, taken.definition_version, taken.fresh) == ("old", 1, True)
    assert await bench.claim() == []
    (row,) = await bench.ledger.schedules()
    assert row.next_fire_at == taken.fire_time + timedelta(hours=1)


async def test_an_edit_of_the_times_owes_no_window_of_the_past(bench):
    await bench.declare(interval(3_600_000))
    await bench.claim()
    bench.wait(timedelta(minutes=30))
    await bench.declare(interval(600_000))
    assert await bench.claim() == []


@pytest.mark.parametrize(
    ("before", "after"),
    [((3_600_000, 0), (3_601_000, 0)), ((86_400_000, 0), (86_400_000, 21_600_000))],
)
async def test_a_changed_interval_starts_a_new_series_and_never_reuses_an_id(bench, before, after):
    await bench.declare(interval(*before))
    (first,) = await bench.claim()
    await bench.declare(interval(*after))
    async with bench.ledger.transaction() as transaction:
        await transaction.lock(["k"])
        (state,) = await transaction.read(["k"])
    following = state.schedule.spec.next(bench.now())
    bucket = state.schedule.spec.bucket(following)
    assert state.series == 2
    assert state.suffixed == (bucket <= first.bucket)
    assert state.cursor >= first.fire_time


async def test_a_returning_key_waits_for_its_next_fire_time_in_a_new_series(bench):
    both = "schedules: [{key: a, workflow: noop, everyMs: 3600000}, %s]"
    second = "{key: b, workflow: noop, everyMs: 3600000}"
    await bench.declare(both % second)
    assert len(await bench.claim()) == 2
    alone = load_schedules(both.replace(", %s", ""))
    await bench.declare(both.replace(", %s", ""))
    report = await retire_absent(bench.ledger, alone, by="test", absent_for=NO_TIME)
    assert report.retired == ("b",)
    states = {row.key: row.state for row in await bench.ledger.schedules()}
    assert states == {"a": "active", "b": "retired"}
    assert (await bench.declare(both % second)).returned == ("b",)
    assert await bench.claim() == []
    assert {row.key: row.state for row in await bench.ledger.schedules()}["b"] == "active"


async def test_retirement_revokes_what_was_only_claimed(bench):
    two = interval(3_600_000).replace("]", ", {key: b, workflow: noop, everyMs: 3600000}]")
    await bench.declare(two)
    file = load_schedules(interval(3_600_000))
    await bench.declare(interval(3_600_000))
    # b's window of first sight is decided by the retirement: claimed, and revoked at once.
    await retire_absent(bench.ledger, file, by="test", absent_for=NO_TIME)
    (fire,) = await bench.ledger.fires(key="b")
    assert (fire.status, fire.reason) == ("skipped", "retired")
    assert await bench.ledger.take_over(bench.serving, limit=9, lease=NO_TIME) == []


async def test_a_key_is_not_retired_before_it_has_been_absent_long_enough(bench):
    two = interval(3_600_000).replace("]", ", {key: b, workflow: noop, everyMs: 3600000}]")
    await bench.declare(two)
    report = await bench.declare(interval(3_600_000))
    assert report.absent == ("b",)
    file = load_schedules(interval(3_600_000))
    report = await retire_absent(bench.ledger, file, by="test")
    assert (report.retired, report.waiting) == ((), ("b",))


async def test_more_than_half_of_a_project_is_not_retired_without_force(bench):
    entries = ", ".join(f"{{key: k{n}, workflow: noop, everyMs: 3600000}}" for n in range(3))
    await bench.declare(f"schedules: [{entries}]")
    lone = "schedules: [{key: k0, workflow: noop, everyMs: 3600000}]"
    await bench.declare(lone)
    file = load_schedules(lone)
    with pytest.raises(PruneRefused):
        await retire_absent(bench.ledger, file, by="test", absent_for=NO_TIME)
    retired = (
        await retire_absent(bench.ledger, file, by="test", absent_for=NO_TIME, force=True)
    ).retired
    assert retired == ("k1", "k2")


async def test_nobody_is_told_that_a_key_will_be_retired_when_more_than_half_would(bench):
    """The refusal comes at once, and not when the keys have been absent for long enough."""
    entries = ", ".join(f"{{key: k{n}, workflow: noop, everyMs: 3600000}}" for n in range(3))
    await bench.declare(f"schedules: [{entries}]")
    lone = "schedules: [{key: k0, workflow: noop, everyMs: 3600000}]"
    await bench.declare(lone)
    with pytest.raises(PruneRefused, match=r"k1, k2; that is more than half.* continue to fire"):
        await retire_absent(bench.ledger, load_schedules(lone), by="test")
    half = lone.replace("]", ", {key: k1, workflow: noop, everyMs: 3600000}]")
    await bench.declare(half)
    report = await retire_absent(bench.ledger, load_schedules(half), by="test")
    assert report.waiting == ("k2",)


@pytest.mark.parametrize("applied_before", [False, True])
async def test_an_apply_that_is_to_prune_too_much_changes_nothing(bench, applied_before):
    entries = ", ".join(f"{{key: k{n}, workflow: noop, everyMs: 3600000}}" for n in range(3))
    await bench.declare(f"schedules: [{entries}]")
    lone = "schedules: [{key: k0, workflow: noop, everyMs: 60000}]"
    if applied_before:  # without the wish to prune
        await bench.declare(lone)
    before = await bench.ledger.schedules()
    with pytest.raises(PruneRefused):
        await bench.declare(lone, prune=True)
    assert await bench.ledger.schedules() == before
    report = await bench.declare(lone, prune=True, force=True)
    assert report.absent == ("k1", "k2")


async def test_an_edit_is_told_by_what_the_ledger_had_and_not_by_another_file(bench):
    await bench.declare(interval(3_600_000))
    await bench.declare(interval(5000))
    report = await bench.declare(interval(3_600_000))
    assert report.edits == {"k": ("every 5s → 1h",)}


async def test_the_ledger_has_one_word_for_a_workflow_that_nobody_knows(bench):
    """Whether the watchdog rejects its windows or an edit does."""
    await bench.declare(interval(3_600_000).replace("noop", "helo, taskQueue: mail"))
    await bench.declare(interval(3_600_000))
    (fire,) = await bench.ledger.fires()
    assert (fire.status, fire.reason) == ("rejected", "no worker on task queue mail knows helo")


async def test_a_file_that_is_not_the_applied_one_retires_nothing(bench):
    two = interval(3_600_000).replace("]", ", {key: b, workflow: noop, everyMs: 3600000}]")
    await bench.declare(two)
    stale = load_schedules(interval(3_600_000))
    report = await retire_absent(bench.ledger, stale, by="test", absent_for=NO_TIME)
    assert report == PruneReport()


async def test_a_key_of_another_project_is_an_error_and_nothing_is_applied(bench):
    await bench.declare("project: one\n" + interval(3_600_000))
    text = interval(3_600_000).replace("]", ", {key: b, workflow: noop, everyMs: 3600000}]")
    with pytest.raises(KeyForeign, match=r"k \(of project one\)"):
        await bench.declare("project: two\n" + text)
    assert [row.key for row in await bench.ledger.schedules()] == ["k"]


async def test_a_project_never_retires_another_projects_keys(bench):
    one, two = interval(3_600_000, key="a"), interval(3_600_000, key="b")
    await bench.declare("project: one\n" + one)
    await bench.declare("project: two\n" + two)
    file = load_schedules("project: two\n" + two)
    retired = (
        await retire_absent(bench.ledger, file, by="test", absent_for=NO_TIME, force=True)
    ).retired
    assert retired == ()
    states = {row.key: (row.project, row.state) for row in await bench.ledger.schedules()}
    assert states == {"a": ("one", "active"), "b": ("two", "active")}


async def test_a_renamed_project_takes_its_schedules_along_with_all_that_has_not_ended(bench):
    text = "schedules: [{key: k, workflow: noop, everyMs: 3600000}]"
    await bench.declare("project: one\n" + text)
    bench.serving = one = replace(bench.serving, project="one")
    (claim,) = await bench.claim()
    renamed = "project: two\n" + text
    with pytest.raises(KeyForeign, match=r"let `sched apply --take-from one` move them"):
        await bench.declare(renamed)
    service = ScheduleService(bench.ledger, actor="test")
    await service.schedule_repeat("noop", key="billing", every="1h", project="one")
    from_one = Renamed("one")
    plan = await dry_run(bench.ledger, load_schedules(renamed), by="test", take_from=from_one)
    assert (plan.refused, plan.unchanged, plan.left_behind) == (None, ("k",), ("billing",))
    for _ in range(2):  # a deploy may say so each time
        report = await bench.declare(renamed, take_from=from_one)
        assert (report.unchanged, report.left_behind) == (("k",), ("billing",))
    rows = {row.key: (row.project, row.series) for row in await bench.ledger.schedules()}
    assert rows == {"k": ("two", 1), "billing": ("one", 1)}
    assert await bench.ledger.take_over(one, limit=9, lease=NO_TIME) == []
    (fire,) = await bench.ledger.fires()
    assert (fire.project, fire.workflow_id) == ("two", claim.workflow_id)
    with pytest.raises(KeyForeign):  # it is not what was applied to it last
        await bench.declare("project: one\n" + text)
    back = await bench.declare("project: one\n" + text, take_from=Renamed("two"))
    assert back.unchanged == ("k",)
    report = await bench.declare(renamed, take_from=Renamed("one", with_applications=True))
    assert (report.unchanged, report.left_behind) == (("k",), ())
    assert {row.project for row in await bench.ledger.schedules()} == {"two"}


async def test_a_plan_shows_no_drift_where_the_file_itself_says_paused(bench):
    text = "schedules: [{key: k, workflow: noop, everyMs: 3600000%s}]"
    paused = load_schedules(text % ", paused: true")
    await bench.declare(text % ", paused: true")
    assert (await dry_run(bench.ledger, paused, by="test")).drift == ()
    found = await dry_run(bench.ledger, load_schedules(text % ""), by="test")
    assert [row.key for row in found.drift if row.pause] == ["k"]


async def test_only_what_the_file_of_the_renamed_project_declares_is_taken(bench):
    await bench.declare("project: one\n" + interval(3_600_000, key="a"))
    await bench.declare("project: other\n" + interval(3_600_000, key="b"))
    both = "project: two\n" + interval(3_600_000, key="a").replace(
        "]", ", {key: b, workflow: noop, everyMs: 3600000}]"
    )
    with pytest.raises(KeyForeign, match=r"b \(of project other\)"):
        await bench.declare(both, take_from=Renamed("one"))
    projects = {row.key: row.project for row in await bench.ledger.schedules()}
    assert projects == {"a": "one", "b": "other"}, "all of it or nothing"


async def test_a_lower_revision_is_not_applied_unless_forced(bench):
    await bench.declare("revision: 8\n" + interval(3_600_000))
    with pytest.raises(RevisionTooLow):
        await bench.declare("revision: 7\n" + interval(60_000))
    await bench.declare("revision: 7\n" + interval(60_000), force=True)


async def test_a_file_that_was_replaced_comes_back_only_if_somebody_means_it(bench):
    """A worker of the last deploy that starts again has the old file, and says so."""
    old, new = interval(60_000), interval(120_000)
    assert (await bench.declare(old, only_newer=True)).added == ("k",)
    assert (await bench.declare(new, only_newer=True)).changed == ("k",)
    for _ in range(2):
        with pytest.raises(RevisionTooLow, match=r"was applied before, and replaced by .* by test"):
            await bench.declare(old, only_newer=True)
    assert (await bench.declare(new, only_newer=True)).unchanged == ("k",)
    assert (await bench.declare(old, force=True)).changed == ("k",)
    assert (await bench.declare(old, only_newer=True)).already_applied
    with pytest.raises(RevisionTooLow):
        await bench.declare(new, only_newer=True)
    assert (await bench.declare(interval(180_000), only_newer=True)).changed == ("k",)


async def test_another_file_of_the_same_revision_is_not_newer(bench):
    await bench.declare("revision: 8\n" + interval(60_000))
    with pytest.raises(RevisionTooLow, match="has revision 8, and so has"):
        await bench.declare("revision: 8\n" + interval(120_000), only_newer=True)
    await bench.declare("revision: 8\n" + interval(120_000))  # by hand, it is meant


async def test_the_log_has_what_each_apply_did_to_a_key(bench):
    two = interval(60_000).replace("]", ", {key: b, workflow: noop, everyMs: 60000}]")
    await bench.declare("revision: 7\n" + two)
    await bench.declare("revision: 8\n" + interval(120_000))
    file = load_schedules("revision: 8\n" + interval(120_000))
    await retire_absent(bench.ledger, file, by="ops", absent_for=NO_TIME)
    rows = await ScheduleService(bench.ledger, actor="test").actions()
    assert [(row.verb, row.key, row.by, row.after) for row in rows] == [
        ("retire", "b", "ops", None),
        ("apply", "k", "test", {"edits": ["every 1m → 2m"]}),
        ("apply", "b", "test", None),
        ("apply", "k", "test", None),
    ]
    assert {row.reason for row in rows if row.verb == "apply"} == {
        f"{file.name}, revision 7", f"{file.name}, revision 8",
    }  # fmt: skip


async def test_a_past_moment_in_a_file_is_booked_expired(bench):
    report = await bench.declare(
        'schedules: [{key: once, workflow: noop, at: "2020-01-01T00:00:00Z"}]'
    )
    assert report.expired == ("once",)
    (fire,) = await bench.ledger.fires()
    assert (fire.status, fire.key) == ("expired", "once")
    assert await bench.claim() == []


async def test_a_moment_that_comes_back_after_it_has_passed_is_booked_and_nothing_breaks(bench):
    """A revert brings an old one-shot back; its first run's id must not be claimed again."""
    hourly = "{key: h, workflow: noop, everyMs: 3600000}"
    once = '{key: once, workflow: noop, at: "2020-01-01T00:00:00Z"}'
    both, alone = f"schedules: [{hourly}, {once}]", f"schedules: [{hourly}]"
    await bench.declare(both)
    await bench.declare(alone)
    file = load_schedules(alone)
    report = await retire_absent(bench.ledger, file, by="test", absent_for=NO_TIME)
    assert report.retired == ("once",)
    report = await bench.declare(both)
    assert report.returned == ("once",)
    ids = [fire.workflow_id for fire in await bench.ledger.fires(key="once")]
    assert len(set(ids)) == len(ids)


async def test_editing_the_words_of_a_moment_that_has_passed_books_nothing_again(bench):
    once = '{key: once, workflow: noop, at: "2020-01-01T00:00:00Z", description: %s}'
    await bench.declare(f"schedules: [{once % 'before'}]")
    report = await bench.declare(f"schedules: [{once % 'after'}]")
    assert (report.changed, report.expired) == (("once",), ())
    assert len(await bench.ledger.fires()) == 1


async def test_first_fire_now_does_not_start_a_moment_that_has_passed(bench):
    report = await bench.declare(
        'schedules: [{key: once, workflow: noop, at: "2020-01-01T00:00:00Z", firstFire: now}]'
    )
    assert report.expired == ("once",)


async def test_paused_is_an_initial_state_and_disabled_always_wins(bench):
    await bench.declare(interval(3_600_000, more=", paused: true"))
    assert await bench.claim() == []
    (row,) = await bench.ledger.schedules()
    assert (row.state, row.next_fire_at) == ("paused", None)
    await bench.declare(interval(3_600_000, more=", input: 1"))
    assert (await bench.ledger.schedules())[0].state == "paused"
    await bench.declare(interval(3_600_000, more=", enabled: false", key="other"))
    states = {row.key: row.state for row in await bench.ledger.schedules()}
    assert states["other"] == "disabled"


async def test_a_disabled_span_is_accounted_for_when_the_schedule_is_enabled_again(bench):
    await bench.declare(interval(1000, more=", enabled: false"))
    bench.wait(timedelta(seconds=2))
    await bench.declare(interval(1000))
    (fire,) = await bench.ledger.fires()
    assert (fire.status, fire.reason) == ("skipped", "disabled")
    assert fire.windows >= 2


async def test_one_schedule_is_read_with_the_version_and_series_in_force(bench):
    await bench.declare(interval(3_600_000, key="a"))
    await bench.declare(
        "schedules: [{key: a, workflow: noop, everyMs: 7200000},"
        " {key: b, workflow: noop, everyMs: 3600000}]"
    )
    (row,) = await bench.ledger.schedules(key="a")
    assert (row.key, row.definition_version, row.series) == ("a", 2, 2)
    assert bench.now() - row.effective_from < timedelta(minutes=1)
    assert await bench.ledger.schedules(key="c") == []
    assert await bench.ledger.schedules("other", key="a") == []


async def test_what_fires_next_is_told_in_order_one_of_each_schedule(bench):
    await bench.declare(
        """
        schedules:
          - {key: yearly, workflow: noop, cron: "0 0 1 1 *", timezone: America/Sao_Paulo}
          - {key: soon, workflow: noop, everyMs: 60000, firstFire: next}
          - {key: never, workflow: noop, everyMs: 60000, enabled: false}
        """
    )
    await bench.declare("project: other\nschedules: [{key: else, workflow: noop, everyMs: 1000}]")
    rows = await bench.ledger.upcoming("default", 5)
    assert [(row.key, row.timezone) for row in rows] == [
        ("soon", "UTC"), ("yearly", "America/Sao_Paulo"),
    ]  # fmt: skip
    assert rows[0].fire_time < rows[1].fire_time
    assert len(await bench.ledger.upcoming("default", 1)) == 1
    assert await bench.ledger.count_schedules("default") == 3
    assert await bench.ledger.count_schedules("nobody") == 0


async def test_schedules_with_a_day_off_hide_nobody_who_starts_before_them(bench):
    today = bench.now().date()
    days = f"{today - timedelta(days=1)}..{today + timedelta(days=3)}"
    entries = [
        f"{{key: off-{n}, workflow: noop, everyMs: 1000, exclude: ['{days}'], firstFire: next}}"
        for n in range(30)
    ]
    soon = bench.now() + timedelta(days=2)
    entries.append(f'{{key: real, workflow: noop, at: "{soon:%Y-%m-%dT%H:%M:%SZ}"}}')
    await bench.declare(f"schedules: [{', '.join(entries)}]")
    (first,) = await bench.ledger.upcoming("default", 1)
    assert first.key == "real"
    found = await bench.ledger.upcoming("default", 3)
    assert [row.key for row in found] == ["real", "off-0", "off-1"]


async def test_a_workflow_that_an_apply_missed_is_resolved_at_the_next_heartbeat(
    bench, monkeypatch
):
    """The apply had looked before the workflow was announced, and was committed after."""
    await bench.announce()
    async with bench.ledger.transaction() as transaction:
        kind = type(transaction)

    async def looked_before(self, wanted):
        return dict.fromkeys(wanted)

    async def of_nobody(self, task_queues):
        return {}

    with monkeypatch.context() as patched:
        patched.setattr(kind, "resolve", looked_before)
        patched.setattr(kind, "announced", of_nobody)
        await bench.declare("schedules: [{key: a, workflow: noop, everyMs: 60000}]")
    ((before,), _) = await bench.ledger.schedules(), await bench.announce()
    assert before.workflow_type is None
    (after,) = await bench.ledger.schedules()
    assert after.workflow_type == "noop@1"


HOURLY_FILE = "schedules: [{key: h, workflow: noop, everyMs: 3600000}]"


@pytest.mark.parametrize("when", ["everyMs: 2000", 'at: "%s"'])
async def test_a_cursor_ahead_of_the_clock_swallows_no_window_of_another_kind(bench, when):
    """Newer zone rules put it there, so that a local time which comes again does not fire."""
    await bench.declare('schedules: [{key: k, workflow: noop, cron: "0 2 * * *"}]')
    async with bench.ledger.transaction() as transaction:
        await transaction.lock(["k"])
        (state,) = await transaction.read(["k"])
        now = await transaction.now()
        decision = Decision(Window("k", 1, int(now.timestamp() * 1000), now), "skipped", EXCLUDED)
        ahead = Plan(state, (decision,), now + timedelta(hours=1), None)
        await transaction.record([ahead], strict=True)
    soon = now + timedelta(seconds=2)
    when = when.replace("%s", f"{soon:%Y-%m-%dT%H:%M:%SZ}")
    await bench.declare(f"schedules: [{{key: k, workflow: noop, {when}}}]")
    declared = bench.now()
    (claim, *_) = await bench.until(bench.claim)
    assert claim.fire_time <= max(soon, declared + timedelta(seconds=2))
    ids = [fire.workflow_id for fire in await bench.ledger.fires()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("when", ["everyMs: 2000", 'cron: "0 2 * * *"', "everyMs: 3000"])
async def test_an_edit_by_a_clock_that_was_set_back_owes_no_moment_twice(bench, when):
    """Until the clock was set back, the old definition was decided up to an hour from now."""
    await bench.declare("schedules: [{key: k, workflow: noop, everyMs: 1000}]")
    async with bench.ledger.transaction() as transaction:
        await transaction.lock(["k"])
        (state,) = await transaction.read(["k"])
        ahead = await transaction.now() + timedelta(hours=1)
        await transaction.record([Plan(state, (), ahead, None)], strict=True)
    for declared in (when, "everyMs: 5000"):  # the next edit, of either kind, goes back no further
        await bench.declare(f"schedules: [{{key: k, workflow: noop, {declared}}}]")
        async with bench.ledger.transaction() as transaction:
            (state,) = await transaction.read(["k"])
        assert (state.cursor, state.effective_from) == (ahead, ahead)


async def test_a_key_that_returns_with_its_cron_fires_no_local_time_again(bench):
    cron = '{key: k, workflow: noop, cron: "* * 2 1 *", timezone: America/Sao_Paulo}'
    both = HOURLY_FILE.replace("]", f", {cron}]")
    await bench.declare(both)
    await bench.declare(HOURLY_FILE)
    file = load_schedules(HOURLY_FILE)
    await retire_absent(bench.ledger, file, by="test", absent_for=NO_TIME)
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
        ahead = await transaction.now() + timedelta(hours=1)
        await transaction.record([Plan(state, (), ahead, None)], strict=True)
    await bench.declare(both)
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
    assert (state.cursor, state.effective_from) == (ahead, ahead)
