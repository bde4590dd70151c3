"""Shadow mode, limits and pauses after failures: what the ledger makes of them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from engine.audit.comparison import TheirRun, TheirRuns, TheirSource
from engine.errors import Code, WindowDecided, WorkflowUnknown
from engine.ledger.fires import Claim, ClosedStatus, Evidence, Outcome
from engine.ledger.records import Serving
from engine.runtime.events import Alert, Event
from engine.runtime.sealing import Sealing
from engine.runtime.tracking.follow_ups import follow, pause_failing
from engine.schedules.planner.planner import plan
from engine.schedules.terms import Reason
from engine.service import ScheduleService
from tests.conformance.conftest import Bench
from tests.conformance.past import (
    HOUR,
    LEASE,
    MINUTE,
    backfilled,
    declare_ago,
    declare_file_ago,
    operator,
    run_of,
    taken,
    windows,
)

SECOND = timedelta(seconds=1)
FIELDS = "everyMs: 60000, grace: 1s, firstFire: next, catchUp: {policy: all}"


def file_of(fields: str) -> str:
    return f"schedules: [{{key: k, workflow: noop, {fields}}}]"


async def statuses(bench: Bench) -> list[tuple[str, str | None]]:
    return [(fire.status, fire.reason_code) for _, fire in await windows(bench)]


# --- shadow mode ---


async def test_windows_of_shadow_mode_are_accounted_for_and_nothing_is_to_be_sent(bench: Bench):
    await declare_ago(bench, f"{FIELDS}, mode: shadow", 5 * MINUTE)
    assert await bench.claim() == []
    assert await taken(bench) == []
    assert {*await statuses(bench)} == {("skipped", "shadow")}
    report = await ScheduleService(bench.ledger, actor="ops").audit(2 * HOUR)
    assert [each.verdict for each in report.schedules] == ["complete"]


async def test_shadow_mode_needs_no_workflow_and_no_worker_of_its_task_queue(bench: Bench):
    new = "workflow: run_command, taskQueue: %s, everyMs: 60000, firstFire: now"
    shadowed = f"schedules: [{{key: k, {new}, mode: shadow}}]"
    report = await bench.declare(shadowed % "none")
    assert (report.refused, report.unknown) == ({}, {})
    for _ in range(3):
        bench.wait(MINUTE)
        assert await bench.claim() == []
    assert {*await statuses(bench)} == {("skipped", "shadow")}
    # On a task queue whose workers lack the workflow it is recorded too, and its runs are refused.
    assert (await bench.declare(shadowed % "sched")).refused == {}
    live = await bench.declare(f"schedules: [{{key: k, {new % 'sched'}}}]")
    assert "no worker on task queue sched knows run_command" in live.refused["k"]
    with pytest.raises(WorkflowUnknown):
        await operator(bench).trigger("k")


async def test_an_end_of_shadow_mode_needs_the_workflow(bench: Bench):
    until = f"{bench.now() + HOUR:%Y-%m-%dT%H:%M:%SZ}"
    ending = f'workflow: run_command, {FIELDS}, mode: shadow, shadowUntil: "{until}"'
    report = await bench.declare(f"schedules: [{{key: k, {ending}}}]")
    assert "no worker on task queue sched knows run_command" in report.refused["k"]


async def test_leaving_shadow_mode_begins_with_the_next_window(bench: Bench):
    await declare_ago(bench, f"{FIELDS}, mode: shadow", 5 * MINUTE)
    await bench.declare(file_of(FIELDS))
    assert await bench.claim() == []
    assert {*await statuses(bench)} == {("skipped", "shadow")}
    assert (await operator(bench).schedule("k")).next_start_at > bench.now()


async def test_the_data_of_the_first_run_begin_at_the_last_window_of_shadow_mode(bench: Bench):
    at = bench.now().replace(second=0, microsecond=0) - 2 * MINUTE
    until = f'mode: shadow, shadowUntil: "{at:%Y-%m-%dT%H:%M:%SZ}"'
    await declare_ago(bench, f"{FIELDS}, {until}", 6 * MINUTE)
    first, *_ = sorted(await bench.claim(), key=lambda each: each.fire_time)
    assert (first.fire_time, first.data_from) == (at, at - MINUTE)


async def test_no_rerun_and_no_backfill_starts_a_window_of_shadow_mode(bench: Bench):
    begun = await declare_ago(bench, f"{FIELDS}, mode: shadow", 5 * MINUTE)
    await bench.claim()
    await bench.declare(file_of(FIELDS))
    done, claims = await backfilled(bench, begun + SECOND, bench.now() - MINUTE)
    assert (claims, dict(done.left_alone)) == ([], {"shadow": done.windows})
    bucket = (await windows(bench))[0][1].bucket
    with pytest.raises(WindowDecided, match="shadow mode"):
        await operator(bench).rerun("k", bucket)


async def test_what_was_claimed_before_shadow_mode_still_starts(bench: Bench):
    await declare_ago(bench, f"{FIELDS}, overlap: queue", 3 * MINUTE)
    (first, *_) = await bench.claim()
    await bench.declare(file_of(f"{FIELDS}, overlap: queue, mode: shadow"))
    await run_of(bench, first)
    await close(bench, first.workflow_id, "completed")
    await bench.ledger.wake()
    await bench.claim()
    assert len(await taken(bench)) == 1


class Started:
    """A native schedule that has started a run in each half minute."""

    async def read(self, source: TheirSource, since: datetime, until: datetime) -> TheirRuns:
        half = 30 * SECOND
        first = datetime.fromtimestamp(-(-since.timestamp() // 30) * 30, UTC)
        moments = [first + n * half for n in range((until - first) // half + 1)]
        return TheirRuns([TheirRun(at, f"{source.name}-{at}", at, at) for at in moments])


async def test_two_schedules_that_replace_one_with_two_calendars_are_equal_to_it(bench: Bench):
    rule = "workflow: noop, mode: shadow, metadata: {temporalSchedule: n}, everyMs: 60000"
    tail = "firstFire: next, catchUp: {policy: all}"
    file = f"schedules: [{{key: k, {rule}, {tail}}}, {{key: l, {rule}, offsetMs: 30000, {tail}}}]"
    await declare_file_ago(bench, file, 5 * MINUTE)
    await bench.claim()
    found = await operator(bench).compare(2 * HOUR, Started())
    assert [(each.key, each.differences) for each in found] == [("k", ()), ("l", ())]
    assert all(each.equal >= 4 for each in found)


# --- limits ---


async def test_no_more_windows_start_than_the_limit_allows_and_the_schedule_has_ended(bench: Bench):
    await declare_ago(bench, f"{FIELDS}, limit: 3", 9 * MINUTE)
    assert len(await bench.claim()) == 3
    row = await operator(bench).schedule("k")
    assert (row.state, row.next_start_at) == ("ended", None)
    assert await bench.claim() == []


async def test_what_is_shown_of_the_future_ends_with_the_last_window_of_a_limit(bench: Bench):
    await declare_ago(bench, f"{FIELDS}, limit: 12", 9 * MINUTE)
    claims = await bench.claim()
    row = await operator(bench).schedule("k")
    assert (row.state, row.started) == ("active", len(claims))
    assert row.last_start_at is not None
    shown = [*row.starts(bench.now(), bench.now() + 24 * HOUR)]
    assert len(shown) == 12 - len(claims)
    assert shown[-1] == row.last_start_at
    listed = await operator(bench).list(keys=["k"])
    assert listed.schedules[0].last_start_at == row.last_start_at
    assert row.defined_at is not None


async def claim_one(bench: Bench, serving: Serving) -> list[Claim]:
    """Claim at most one window, as a replica with little room does."""
    async with bench.ledger.transaction() as transaction:
        keys = await transaction.lock_due(serving, 1)
        now = await transaction.now()
        steps = [plan(state, now, limit=1) for state in await transaction.read(keys)]
        return await transaction.record(steps, owner=serving.replica, lease=LEASE)


async def test_two_replicas_start_no_more_together(bench: Bench):
    await declare_ago(bench, "everyMs: 60000, grace: 1h, firstFire: next, limit: 3", 9 * MINUTE)
    replicas = [bench.serving, bench.other] * 4
    claims = [
        claim
        for _ in range(6)  # those that find the schedule locked get nothing
        for batch in await asyncio.gather(*(claim_one(bench, each) for each in replicas))
        for claim in batch
    ]
    assert len({claim.workflow_id for claim in claims}) == len(claims) == 3
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
    assert state.started == 3


async def test_a_window_that_never_started_does_not_count_and_a_manual_run_neither(bench: Bench):
    await declare_ago(bench, f"{FIELDS}, limit: 3", 9 * MINUTE)
    refused = Reason("payload_too_large", "payload too large")
    (first,) = (await bench.claim())[:1]
    await bench.ledger.settle([Outcome(first.fire_id, first.token, "rejected", reason=refused)])
    await operator(bench).trigger("k")
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
    assert (state.started, state.room) == (2, 1)


async def test_a_higher_limit_goes_on_with_the_next_window_and_the_rest_is_accounted_for(
    bench: Bench,
):
    await declare_ago(bench, f"{FIELDS}, limit: 3", 9 * MINUTE)
    await bench.claim()
    await bench.declare(file_of(f"{FIELDS}, limit: 4"))
    codes = [code for _, code in await statuses(bench)]
    assert codes[:3] == [None] * 3
    assert len(codes) > 7
    assert {*codes[3:]} == {"limit"}
    assert (await operator(bench).schedule("k")).state == "active"
    report = await ScheduleService(bench.ledger, actor="ops").audit(2 * HOUR)
    assert [each.verdict for each in report.schedules] == ["complete"]


async def test_the_audit_of_an_ended_schedule_misses_nothing(bench: Bench):
    await declare_ago(bench, f"{FIELDS}, limit: 3", 9 * MINUTE)
    await bench.claim()
    report = await ScheduleService(bench.ledger, actor="ops").audit(2 * HOUR)
    (each,) = report.schedules
    assert (each.verdict, each.held > 3) == ("complete", True)


async def test_an_apply_of_the_same_limit_does_not_wake_an_ended_schedule(bench: Bench):
    await declare_ago(bench, f"{FIELDS}, limit: 3", 9 * MINUTE)
    await bench.claim()
    await bench.declare(file_of(f"{FIELDS}, limit: 3, description: other words"))
    assert (await operator(bench).schedule("k")).state == "ended"
    await operator(bench).pause("k", reason="x")
    assert (await operator(bench).resume("k")).next_fire_at is None


# --- pauses after failures ---


async def close(bench: Bench, workflow_id: str, closed: ClosedStatus) -> None:
    now = bench.now()
    fire = await bench.ledger.fire(workflow_id)
    assert fire is not None
    assert fire.run_id is not None
    await bench.ledger.record_evidence(
        [Evidence(workflow_id, fire.run_id, now, closed=closed, closed_at=now)]
    )


async def claimed(bench: Bench) -> list[Claim]:
    return sorted(await bench.claim(), key=lambda each: each.fire_time)


async def ended(bench: Bench, claims: list[Claim], *ends: ClosedStatus) -> list[str]:
    """Let these windows end like this; return the alerts of the turn that follows."""
    for claim, closed in zip(claims, ends, strict=False):
        await run_of(bench, claim, f"run-{claim.bucket}")
        await close(bench, claim.workflow_id, closed)
    alerts: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, Alert):
            alerts.append(event.code)

    await follow(bench.ledger, Sealing(bench.ledger), on_event=hear)
    return alerts


PAUSING = f"{FIELDS}, pauseAfterFailures: 2"


async def test_a_schedule_whose_runs_fail_in_a_row_pauses_itself_with_a_reason(bench: Bench):
    await declare_ago(bench, PAUSING, HOUR)
    assert Code.PAUSED_AFTER_FAILURES in await ended(
        bench, await claimed(bench), "completed", "failed", "timed_out"
    )
    row = await operator(bench).schedule("k")
    assert (row.state, row.pause.by, row.pause.until) == ("paused", "sched-engine", None)
    assert row.pause.reason.startswith("2 failed runs in a row, the last is sched:k:")
    (action, *_) = await bench.actions(key="k")
    assert (action.verb, action.by) == ("pause", "sched-engine")
    assert await bench.claim() == []


async def test_a_run_that_completes_and_one_that_is_cancelled_are_no_failures(bench: Bench):
    await declare_ago(bench, PAUSING, HOUR)
    claims = await claimed(bench)
    ends: list[ClosedStatus] = ["failed", "completed", "failed", "cancelled", "terminated"]
    assert await ended(bench, claims, *ends) == []
    assert (await operator(bench).schedule("k")).state == "active"
    assert await ended(bench, claims[5:], "failed") == [Code.PAUSED_AFTER_FAILURES]


async def test_after_a_resume_it_counts_anew_and_a_late_end_of_before_does_not_count(bench: Bench):
    await declare_ago(bench, f"{PAUSING}, overlap: allow", HOUR)
    late, others = (claims := await claimed(bench))[:2], claims[2:]
    for claim in late:
        await run_of(bench, claim, f"run-{claim.bucket}")
    assert Code.PAUSED_AFTER_FAILURES in await ended(bench, others, "failed", "failed")
    await operator(bench).resume("k", catch_up=None)
    for claim in late:
        await close(bench, claim.workflow_id, "failed")
    assert await follow(bench.ledger, Sealing(bench.ledger), on_event=lambda _: None) == 2
    assert (await operator(bench).schedule("k")).state == "active"


async def test_a_pause_that_a_dead_replica_left_out_is_made_up_for_and_made_once(bench: Bench):
    await declare_ago(bench, PAUSING, HOUR)
    for claim in (await claimed(bench))[:2]:
        await run_of(bench, claim, f"run-{claim.bucket}")
        await close(bench, claim.workflow_id, "failed")
    both = await asyncio.gather(
        *(pause_failing(bench.ledger, on_event=lambda _: None) for _ in range(2))
    )
    assert sorted(map(len, both)) == [0, 1]
