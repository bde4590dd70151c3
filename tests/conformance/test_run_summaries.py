"""One line per schedule: how its last runs ended, how long they took, and its last failure."""

from __future__ import annotations

from datetime import datetime, timedelta

from engine.ledger.fires import ClosedStatus, Evidence, Outcome
from engine.ledger.schedule_rows import SUMMARISED, RunSummary
from tests.conformance.past import declare_ago, run_of

HOUR = timedelta(hours=1)
EVERY = "everyMs: 60000, catchUp: {policy: all}, overlap: allow"


async def past_runs(bench, ends: list[tuple[ClosedStatus, int]]) -> datetime:
    """Let the windows of ``k`` end so, one a minute, with their seconds; returns the last close."""
    await declare_ago(bench, EVERY, timedelta(minutes=len(ends)))
    claims = sorted(await bench.claim(), key=lambda claim: claim.fire_time)
    assert len(claims) >= len(ends)
    at: datetime = bench.now().replace(microsecond=0)
    for claim, (closed, seconds) in zip(claims, ends, strict=False):
        await run_of(bench, claim)
        end = at + timedelta(seconds=seconds)
        error = None if closed == "completed" else f"no {claim.fire_time:%M}"
        seen = Evidence(claim.workflow_id, "run", at, closed, end, error, first_run_id="run")
        assert await bench.ledger.record_evidence([seen])
    return at


async def summary(bench, key: str = "k") -> RunSummary:
    found: list[RunSummary] = await bench.ledger.run_summaries([key])
    return found[0]


async def test_a_schedule_without_runs_has_an_empty_line(bench):
    assert await bench.ledger.run_summaries(["b", "a"]) == [
        RunSummary(key="b"), RunSummary(key="a"),
    ]  # fmt: skip
    assert (await summary(bench)).success_rate is None


async def test_runs_that_ended_by_themselves_count_and_completed_ones_have_the_median(bench):
    ends: list[tuple[ClosedStatus, int]] = [
            ("completed", 1), ("failed", 50), ("completed", 4), ("cancelled", 9),
            ("terminated", 9), ("timed_out", 60), ("completed", 2)]  # fmt: skip
    at = await past_runs(bench, ends)
    found = await summary(bench)
    assert (found.runs, found.completed, found.success_rate) == (5, 3, 0.6)
    assert found.median_duration_ms == 2000
    assert (found.last_failure, found.last_failure_at) == ("timed_out", at + timedelta(seconds=60))
    # The newest first; the two windows behind these are open.
    assert [*found.recent][-7:] == [closed for closed, _ in reversed(ends)]
    assert found.error is not None


async def test_only_the_last_twenty_runs_count_and_the_last_failure_is_older(bench):
    once: tuple[ClosedStatus, int] = ("completed", 1)
    ends: list[tuple[ClosedStatus, int]] = [("failed", 3), *[once] * SUMMARISED]
    at = await past_runs(bench, ends)
    found = await summary(bench)
    assert (found.runs, found.completed) == (SUMMARISED, SUMMARISED)
    assert (found.last_failure, found.last_failure_at) == ("failed", at + timedelta(seconds=3))


async def test_a_rejected_window_is_a_failure_without_a_run(bench):
    await bench.declare("schedules: [{key: k, workflow: noop, everyMs: 3600000}]")
    (claim,) = await bench.claim()
    refused = Outcome(claim.fire_id, claim.token, "rejected", error="no paper")
    await bench.ledger.settle([refused])
    found = await summary(bench)
    assert (found.runs, found.last_failure, found.error) == (0, "rejected", "no paper")
    assert found.last_failure_at is not None


async def test_windows_of_an_hour_are_counted_by_status_and_for_keys_like_these(bench):
    once: tuple[ClosedStatus, int] = ("completed", 1)
    await past_runs(bench, [("failed", 1), once, once])
    now = bench.now()
    counted = bench.ledger.count_fires
    found = await counted(now - HOUR, now, most=1000)
    assert (found["completed"], found["failed"]) == (2, 1)
    assert await counted(now - HOUR, now, keys=["other", "?"], most=1000) == found
    assert await counted(now - HOUR, now, keys=["k.*", "_"], most=1000) == {}
    assert await counted(now - 2 * HOUR, now - HOUR, most=1000) == {}


async def test_many_keys_are_answered_in_their_order(bench):
    names = [f"k{number}" for number in range(120)]
    entries = ", ".join(f"{{key: {name}, workflow: noop, everyMs: 3600000}}" for name in names)
    await bench.declare(f"schedules: [{entries}]")
    found = await bench.ledger.run_summaries(names[::-1])
    assert [each.key for each in found] == names[::-1]
