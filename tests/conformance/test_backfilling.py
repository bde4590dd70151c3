"""Windows of the past get the runs that they never had; those that had one are left alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from engine.errors import (
    BackfillOverlaps,
    LedgerUnavailable,
    MomentInFuture,
    NotCancellable,
    ScheduleError,
    WindowNotFound,
    WorkflowUnknown,
)
from engine.ledger.fires import Claim, Evidence
from engine.runtime.settings import Settings
from engine.runtime.tick.backfills import Backfills
from engine.runtime.tick.lookups import RunLookups
from tests.conformance.conftest import NOW
from tests.conformance.past import (
    HOUR,
    LEASE,
    MINUTE,
    a_young_minute,
    backfilled,
    declare_ago,
    lay,
    laying,
    operator,
    run_of,
    taken,
    windows,
)

HOURLY = "schedules: [{key: k, workflow: noop, everyMs: 3600000, firstFire: next}]"
MICROSECOND = timedelta(microseconds=1)
MINUTES = "everyMs: 60000, firstFire: next"


async def a_paused_past(bench):
    """Ten hours of minutes, the last ones, in one row that says paused; returns the first."""
    await a_young_minute(bench)  # before the end is said
    fields = f"{MINUTES}, end: '{bench.now():%Y-%m-%dT%H:%M:%SZ}'"
    await declare_ago(bench, fields, 10 * HOUR, paused=True)
    await operator(bench).resume("k")
    (span,) = await bench.ledger.fires()
    assert span.windows == 600
    return span.fire_time


async def test_windows_in_the_middle_of_a_long_row_start_and_the_rest_says_what_it_said(bench):
    first = await a_paused_past(bench)
    begin = first + 100 * MINUTE
    done, claims = await backfilled(bench, begin, begin + 9 * MINUTE)
    assert (done.state, done.windows, done.laid, done.left_alone) == ("done", 10, 10, {})
    decided = await windows(bench)
    assert [at for at, _ in decided] == [first + n * MINUTE for n in range(600)]
    filled = [(at, fire) for at, fire in decided if fire.status == "starting"]
    assert [at for at, _ in filled] == [begin + n * MINUTE for n in range(10)]
    for _, fire in filled:
        assert (fire.timing, fire.reason) == ("backfill", None)
        denied = fire.history[-1]
        assert (denied["status"], denied["reason_code"]) == ("skipped", "paused")
    rest = {(fire.status, fire.reason) for at, fire in decided if (at, fire) not in filled}
    assert rest == {("skipped", "paused")}
    assert [claim.fire_time for claim in claims] == [at for at, _ in filled]
    assert {claim.timing for claim in claims} == {"backfill"}


async def test_what_was_laid_is_its_replicas_to_send_and_a_sweepers_when_that_dies(bench):
    first = await a_paused_past(bench)
    _, claims = await backfilled(bench, first, first + 2 * MINUTE)
    assert await taken(bench) == [], "the leases have not ended"
    for number, claim in enumerate(claims):
        assert await run_of(bench, claim, f"run-{number}") == claim.workflow_id
    assert len(await bench.ledger.fires(status="started")) == 3


async def test_windows_are_laid_some_at_a_time_in_the_order_of_time(bench):
    first = await a_paused_past(bench)
    asked = await operator(bench).backfill("k", first, first + 599 * MINUTE)
    assert (asked.backfill.windows, asked.would_start, asked.left_alone) == (600, 600, {})
    assert len(await bench.ledger.fires(limit=1000)) == 1, "nothing happens but by ticks"
    of, begun = laying(bench), []
    while True:
        claims: list = []
        if not (await of.lay(claims, 7, None)).windows:
            break
        assert len(claims) <= 7
        begun += [claim.fire_time for claim in claims]
        (row,) = await bench.ledger.backfills("k")
        assert (row.cursor, row.laid) == (begun[-1], len(begun))
    assert begun == [first + n * MINUTE for n in range(600)]
    assert row.state == "done"


async def test_windows_from_before_the_schedule_was_declared_start(bench):
    await bench.declare(HOURLY)
    now = bench.now()
    done, claims = await backfilled(bench, now - 24 * HOUR, now)
    assert (done.windows, done.laid, done.left_alone) == (24, 24, {})
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
    expected = [state.window(at) for at in state.schedule.spec.fires(now - 24 * HOUR, now)]
    assert [claim.workflow_id for claim in claims] == [
        window.workflow_id(suffixed=False) for window in expected
    ]
    assert state.effective_from > now - MINUTE, "its own past is as it was"


async def test_a_later_series_does_not_take_the_id_of_a_window_that_was_backfilled(bench):
    await bench.declare(HOURLY)
    now = bench.now()
    hour = now.replace(minute=0, second=0, microsecond=0)
    _, (claim,) = await backfilled(bench, hour, hour)
    offset = round((now + 2 * MINUTE - hour) / timedelta(milliseconds=1)) % 3_600_000
    await bench.declare(HOURLY.replace("firstFire", f"offsetMs: {offset}, firstFire"))
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
    coming = state.window(state.schedule.spec.next(bench.now()))
    assert coming.workflow_id(state.suffixed) != claim.workflow_id


async def test_a_backfill_may_begin_before_anything_ever_opened(bench):
    moment = "2026-01-01T09:00:00Z"
    await declare_ago(bench, f'at: "{moment}"', 24 * HOUR)
    begin, end = datetime.min.replace(tzinfo=UTC), datetime.fromisoformat(moment)
    done, _ = await backfilled(bench, begin, end)
    assert (done.windows, done.laid) == (1, 1)


async def test_what_was_started_or_may_have_been_is_left_alone_and_counted(bench):
    await bench.declare("schedules: [{key: k, workflow: noop, everyMs: 3600000}]")
    (claim,) = await bench.claim()
    now = bench.now()
    for status in ("starting", "started", "completed"):
        asked = await operator(bench).backfill("k", claim.fire_time, now)
        assert (asked.would_start, asked.left_alone) == (0, {status: 1})
        assert await lay(bench) == []
        (done, *_) = await bench.ledger.backfills("k")
        assert (done.state, done.laid, done.left_alone) == ("done", 0, {status: 1})
        if status == "starting":
            await run_of(bench, claim)
        else:
            seen = Evidence(claim.workflow_id, "run", now, closed="completed", closed_at=now)
            await bench.ledger.record_evidence([seen])


DAY = timedelta(days=1)
DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


def days_off(*ago: int) -> str:
    """The weekdays, in UTC, of so many days ago."""
    return "[" + ", ".join(DAYS[(NOW - n * DAY).weekday()] for n in ago) + "]"


async def counted_and_laid(bench, begin, end, **options):
    """Ask for a backfill, see that it comes to what was counted; returns the counts."""
    ops = operator(bench)
    seen = await ops.preview_backfill("k", begin, end, **options)
    assert seen.backfill.id == 0
    listed: dict[tuple[str, bool], int] = {}
    async for each in ops.windows_of(seen.backfill):
        listed[each.why, each.starts] = listed.get((each.why, each.starts), 0) + 1
    assert listed == {
        **{(why, True): number for why, number in seen.starts.items()},
        **{(why, False): number for why, number in seen.left_alone.items()},
    }
    assert all(each.id for each in await bench.ledger.backfills("k"))
    done, claims = await backfilled(bench, begin, end, **options)
    assert (done.laid, done.left_alone) == (seen.would_start, seen.left_alone)
    assert len(claims) == seen.would_start
    return seen.starts, seen.left_alone


@pytest.mark.parametrize("held", [True, False])
async def test_a_backfill_leaves_alone_the_days_that_the_schedule_leaves_out(bench, held):
    """Also where a pause has skipped them first, and where nobody has ever decided them."""
    fields = f"{MINUTES.replace('60000', '3600000')}, timezone: UTC, exclude: {days_off(2, 4)}"
    midnight = bench.now().replace(hour=0, minute=0, second=0, microsecond=0)
    if held:
        await declare_ago(bench, fields, 10 * DAY, paused=True)
        await operator(bench).resume("k")
    else:
        await bench.declare(f"schedules: [{{key: k, workflow: noop, {fields}}}]")
    span = (midnight - 5 * DAY, midnight - MINUTE)
    cause = "paused" if held else "undeclared"
    assert await counted_and_laid(bench, *span) == ({cause: 72}, {"excluded": 48})
    both = await counted_and_laid(bench, *span, include=["excluded"])
    assert both == ({"excluded": 48}, {"starting": 72})


async def test_a_backfill_leaves_alone_what_somebody_skipped(bench):
    await bench.declare("schedules: [{key: k, workflow: noop, everyMs: 1000, firstFire: next}]")
    (row,) = await bench.ledger.schedules()
    at = row.next_fire_at.replace(microsecond=0) + timedelta(seconds=1)
    await operator(bench).skip("k", at)

    async def decided():
        await bench.claim()
        return [fire for fire in await bench.ledger.fires() if fire.fire_time > at]

    await bench.until(decided)
    assert await counted_and_laid(bench, at, at) == ({}, {"user": 1})
    assert await counted_and_laid(bench, at, at, include=["user"]) == ({"user": 1}, {})


async def test_after_an_outage_a_backfill_runs_nothing_again_that_was_caught_up(bench):
    await declare_ago(bench, f"{MINUTES}, catchUp: {{policy: latest}}", HOUR)
    (claim,) = await bench.claim()
    assert claim.missed == 59
    await run_of(bench, claim)
    span = (claim.fire_time - HOUR, claim.fire_time)
    _, alone = await counted_and_laid(bench, *span)
    assert alone == {"coalesced": 59, "started": 1}
    begun, _ = await counted_and_laid(bench, *span, include=["coalesced"])
    assert begun["coalesced"] == 59


async def test_a_backfill_says_in_the_log_what_was_included(bench):
    first = await a_paused_past(bench)
    await backfilled(bench, first, first, include=["user", "dependency"])
    asked = next(each for each in await bench.actions() if "until" in (each.after or {}))
    assert asked.after["include"] == ["dependency", "user"]


async def test_doing_it_again_starts_nothing(bench):
    first = await a_paused_past(bench)
    until = first + 9 * MINUTE
    _, claims = await backfilled(bench, first, until)
    done, again = await backfilled(bench, first, until)
    assert (again, done.left_alone) == ([], {"starting": 10})
    for number, claim in enumerate(claims):
        await run_of(bench, claim, f"run-{number}")
    done, again = await backfilled(bench, first, until)
    assert (again, done.left_alone) == ([], {"started": 10})


async def test_a_second_backfill_of_windows_that_are_still_to_be_laid_is_refused(bench):
    first = await a_paused_past(bench)
    ops = operator(bench)
    await ops.backfill("k", first + 5 * MINUTE, first + 9 * MINUTE)
    for begin, end in ((0, 5), (9, 20), (6, 7), (0, 100)):
        with pytest.raises(BackfillOverlaps, match="is being laid") as found:
            await ops.backfill("k", first + begin * MINUTE, first + end * MINUTE)
        assert found.value.code == "SCHEDULE_BACKFILL_OVERLAPS"
    await ops.backfill("k", first, first + 4 * MINUTE)
    assert len(await lay(bench)) == 10
    await ops.backfill("k", first, first + 100 * MINUTE)


async def test_with_queue_they_start_one_after_another_in_the_order_of_time(bench):
    first = await a_paused_past(bench)
    done, _ = await backfilled(bench, first, first + 4 * MINUTE, overlap="queue")
    assert done.laid == 5
    order = []
    for number in range(5):
        await bench.claim()
        (claim,) = await taken(bench)
        await run_of(bench, claim, f"run-{number}")
        order.append(claim.fire_time)
        await bench.claim()
        assert await taken(bench) == [], "the next one waits"
        now = bench.now()
        seen = Evidence(claim.workflow_id, f"run-{number}", now, closed="completed", closed_at=now)
        await bench.ledger.record_evidence([seen])
        await bench.ledger.wake()
    assert order == [first + n * MINUTE for n in range(5)]


async def test_a_pause_gives_up_no_backfilled_window_that_is_about_to_start(bench):
    first = await a_paused_past(bench)
    await backfilled(bench, first, first + MINUTE, overlap="queue")
    await bench.claim()
    await operator(bench).pause("k", reason="x")
    fires = await bench.ledger.fires(key="k", limit=1000)
    laid = sorted((fire.fire_time, fire.status) for fire in fires if fire.timing == "backfill")
    assert laid == [(first, "claimed"), (first + MINUTE, "queued")]
    (claim,) = await taken(bench)
    assert claim.fire_time == first


async def test_few_windows_wait_in_line_however_many_are_asked_for(bench):
    first = await a_paused_past(bench)
    done, _ = await backfilled(bench, first, first + 599 * MINUTE, overlap="queue")
    assert (done.state, done.laid) == ("laying", 10)
    assert len(await bench.ledger.fires(status="queued", limit=100)) == 10
    await bench.ledger.wake()
    await bench.claim()
    (claim,) = await taken(bench)
    assert claim.fire_time == first
    await lay(bench)
    assert len(await bench.ledger.fires(status="queued", limit=100)) == 10
    (row,) = await bench.ledger.backfills("k")
    assert (row.laid, row.done) == (11, 11)


async def test_on_time_windows_overtake_what_a_backfill_has_laid(bench):
    await bench.declare("schedules: [{key: k, workflow: noop, everyMs: 1000, overlap: queue}]")
    (running,) = await bench.claim()
    await run_of(bench, running)
    end = running.fire_time - timedelta(seconds=1)
    await backfilled(bench, end - timedelta(seconds=3), end)

    async def own():
        await bench.ledger.seen_open([running.workflow_id], bench.now())
        await bench.claim()
        fires = await bench.ledger.fires(status="queued", limit=100)
        return [fire for fire in fires if fire.timing != "backfill"]

    waiting = await bench.until(own)
    now = bench.now()
    seen = Evidence(running.workflow_id, "run", now, closed="completed", closed_at=now)
    await bench.ledger.record_evidence([seen])
    await bench.ledger.wake()
    await bench.claim()
    (promoted,) = await taken(bench)
    assert promoted.fire_time == min(fire.fire_time for fire in waiting)


async def test_a_schedule_whose_runs_may_not_overlap_is_backfilled_by_queue(bench):
    await bench.declare(HOURLY.replace("firstFire", "overlap: skip, firstFire"))
    now = bench.now()
    asked = await operator(bench).backfill("k", now - 5 * HOUR, now)
    assert asked.cost == (
        "overlap: skip: own windows that open while a backfilled run is open are skipped"
    )
    await lay(bench)
    assert {fire.status for fire in await bench.ledger.fires()} == {"queued"}


async def test_a_window_that_the_schedule_still_owes_is_left_to_it(bench):
    then = await declare_ago(bench, "everyMs: 1000, firstFire: next", timedelta(seconds=5))
    asked = await operator(bench).backfill("k", then, bench.now())
    await lay(bench)
    (done,) = await bench.ledger.backfills("k")
    assert done.windows >= 5
    assert (done.laid, set(done.left_alone)) == (1, {"undecided"}), "but the one before it"
    assert (asked.would_start, asked.left_alone) == (1, done.left_alone)
    assert len(await bench.claim()) >= 5


async def test_a_backfill_that_is_asked_for_during_a_pause_is_laid(bench):
    first = await a_paused_past(bench)
    await operator(bench).pause("k", reason="x")
    done, claims = await backfilled(bench, first, first)
    assert (done.state, [claim.fire_time for claim in claims]) == ("done", [first])


@pytest.mark.parametrize("hold", ["pause", "disable"])
async def test_a_hold_halts_a_backfill_and_its_end_lets_it_go_on(bench, hold):
    first = await a_paused_past(bench)
    ops = operator(bench)
    await ops.backfill("k", first, first + 9 * MINUTE)
    of = laying(bench)
    claims: list[Claim] = []
    await of.lay(claims, 4, None)
    bench.wait()
    file = f"schedules: [{{key: k, workflow: noop, {MINUTES}, enabled: %s}}]"
    if hold == "pause":
        await ops.pause("k", reason="x")
    else:
        await bench.declare(file % "false")
    assert await lay(bench) == []
    assert (await bench.ledger.probe(bench.serving)).lay_at is None, "an idle tick does not look"
    if hold == "pause":
        await ops.resume("k")
    else:
        await bench.declare(file % "true")
    claims += await lay(bench)
    assert [claim.fire_time for claim in claims] == [first + n * MINUTE for n in range(10)]


async def test_a_change_of_series_ends_a_backfill_and_says_what_was_not_laid(bench):
    first = await a_paused_past(bench)
    await operator(bench).backfill("k", first, first + 9 * MINUTE)
    await laying(bench).lay([], 4, None)
    await bench.declare("schedules: [{key: k, workflow: noop, everyMs: 70000, firstFire: next}]")
    told: list = []
    assert await lay(bench, of=laying(bench, told=told)) == []
    (row,) = await bench.ledger.backfills("k")
    assert (row.state, row.laid) == ("ended", 4)
    assert "an edit changed when the schedule fires" in (row.ended_reason or "")
    (alert,) = told
    assert alert.code == "SCHEDULE_BACKFILL_ENDED"
    assert alert.text.endswith("6 of its 10 windows were not laid")
    (action, *_) = await bench.actions()
    assert (action.verb, action.after["state"], action.after["notLaid"]) == (
        "backfill",
        "ended",
        6,
    )


async def test_a_retirement_ends_a_backfill(bench):
    first = await a_paused_past(bench)
    await operator(bench).backfill("k", first, first + 9 * MINUTE)
    async with bench.ledger.transaction() as transaction:
        await transaction.retire(["k"], bench.now())
    assert await lay(bench) == []
    (row,) = await bench.ledger.backfills("k")
    assert (row.state, row.ended_reason) == ("ended", "the schedule was retired")
    assert (await bench.ledger.probe(bench.serving)).lay_at is None


async def test_a_cancel_ends_a_backfill_that_is_being_laid(bench):
    first = await a_paused_past(bench)
    ops = operator(bench)
    await ops.backfill("k", first, first + 9 * MINUTE)
    done = await ops.cancel("k", reason="wrong day")
    (row,) = await bench.ledger.backfills("k")
    assert (row.state, row.ended_reason) == ("ended", "user: wrong day")
    assert [text.partition(" has ended: ")[2] for text in done.backfills] == [
        "user: wrong day; 10 of its 10 windows were not laid"
    ]
    assert await lay(bench) == []
    with pytest.raises(NotCancellable):
        await ops.cancel("k")


async def test_an_edit_of_anything_else_leaves_a_backfill_its_definition(bench):
    first = await a_paused_past(bench)
    await operator(bench).backfill("k", first, first)
    await bench.declare(f"schedules: [{{key: k, workflow: noop, {MINUTES}, input: {{a: 1}}}}]")
    (claim,) = await lay(bench)
    assert (claim.definition_version, claim.arguments) == (1, ())


async def test_after_signs_of_lost_commits_nothing_is_laid_before_its_runs_were_looked_up(bench):
    first = await a_paused_past(bench)
    await operator(bench).backfill("k", first, first + MINUTE)
    (row,) = await bench.ledger.backfills("k")
    doubted = row.requested_at + MICROSECOND
    looked: list = []

    class Looks:
        async def look_up(self, key, since):
            looked.append((key, since))

    lookups = cast("RunLookups", Looks())
    of = Backfills(
        bench.ledger, bench.serving, Settings(lease=LEASE), lookups=lookups, on_event=print
    )
    claims: list = []
    await of.lay(claims, 10, doubted)
    (row,) = await bench.ledger.backfills("k")
    assert (claims, looked) == ([], []), "visibility does not have to show yet what has run"
    assert row.next_at == doubted + MINUTE
    async with bench.ledger.transaction() as transaction:
        await transaction.move_backfill(
            replace(row, requested_at=row.requested_at, next_at=row.requested_at)
        )
        await transaction.backfill_looked_at("k", doubted)
    await of.lay(claims, 10, doubted)
    assert len(claims) == 2, "they were looked up after the sign"


async def test_an_end_that_is_still_to_come_is_refused(bench):
    await bench.declare(HOURLY)
    now = bench.now()
    with pytest.raises(MomentInFuture):
        await backfilled(bench, now - HOUR, now + HOUR)
    assert await bench.ledger.backfills("k") == []


async def test_a_time_without_windows_or_a_workflow_that_nobody_has_is_refused(bench):
    await bench.declare('schedules: [{key: k, workflow: noop, cron: "0 2 * * *"}]')
    night = bench.now().replace(hour=2, minute=0, second=0, microsecond=0) - timedelta(days=1)
    with pytest.raises(WindowNotFound):
        await backfilled(bench, night + MINUTE, night + HOUR)
    with pytest.raises(ScheduleError, match="write the earlier moment first"):
        await backfilled(bench, night + MINUTE, night)
    await bench.declare(
        'schedules: [{key: k, workflow: strange, taskQueue: mail, cron: "0 2 * * *"}]'
    )
    with pytest.raises(WorkflowUnknown):
        await backfilled(bench, night, night)
    assert await bench.actions() == []


async def test_a_backfill_notes_who_asked_why_and_what_became_of_it(bench):
    first = await a_paused_past(bench)
    before = len(await bench.actions())
    done, _ = await backfilled(bench, first, first + 9 * MINUTE, reason="the feed was late")
    actions = await bench.actions()
    assert len(actions) == before + 2
    ended, asked = actions[:2]
    assert (asked.verb, asked.by, asked.reason) == ("backfill", "ops", "the feed was late")
    assert (asked.after["id"], asked.after["windows"]) == (done.id, 10)
    assert asked.after["until"] == f"{first + 9 * MINUTE:%Y-%m-%dT%H:%M:%SZ}"
    assert (ended.by, ended.after["state"], ended.after["laid"]) == ("replica-a", "done", 10)


@pytest.mark.parametrize("error", [ValueError, LedgerUnavailable])
async def test_what_cannot_be_laid_waits_and_is_told_and_others_go_on(bench, monkeypatch, error):
    """A statement that takes too long looks like a ledger that is away."""

    async def _fail(*_):
        raise error("it does not work")

    first = await a_paused_past(bench)
    await operator(bench).backfill("k", first, first)
    told: list = []
    of = laying(bench, told=told)
    with monkeypatch.context() as patched:
        patched.setattr("engine.runtime.tick.backfills._Batch.choose", _fail)
        assert await lay(bench, of=of) == []
    (alert,) = told
    assert (alert.code, alert.text) == (
        "SCHEDULE_BACKFILL_HELD",
        f"the backfill of k waits: {error.__name__}: it does not work",
    )  # fmt: skip
    (row,) = await bench.ledger.backfills("k")
    assert row.error == f"{error.__name__}: it does not work"
    assert row.next_at > row.requested_at + 50 * timedelta(seconds=1)


async def test_a_cause_that_is_misspelt_is_refused(bench):
    first = await a_paused_past(bench)
    with pytest.raises(ScheduleError, match="include has 'exclude'; did you mean excluded"):
        await backfilled(bench, first, first, include=["exclude"])
