"""Overview: the workers of a namespace, and whether all is well."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from engine.errors import Code
from engine.ledger import FailingNote, FailingStep, failing_text
from engine.ledger.records import Serving
from tests.conformance.conftest import Bench
from tests.conformance.past import MINUTE, declare_ago, operator, run_of

FIELDS = "everyMs: 60000, grace: 1s, catchUp: {policy: all}"
STUCK = FailingStep(
    step="workflow task", place="", run_id="run", attempts=2, max_attempts=None, error_type="X",
    error="the code differs", since=datetime(2026, 11, 24, tzinfo=UTC), next_attempt_at=None,
)  # fmt: skip


async def test_a_worker_is_shown_with_what_it_serves_and_holds(bench: Bench):
    ops = operator(bench)
    await declare_ago(bench, FIELDS, 5 * MINUTE)
    await bench.announce(Serving("host:17:3f", "default", "mail", frozenset({"b@1", "a@1"})))
    claims = await bench.claim(limit=3)
    found = {row.replica: row for row in await ops.workers()}
    other = found["host:17:3f"]
    assert (other.host, other.project, other.task_queue) == ("host", "default", "mail")
    assert (other.types, other.claims, other.state) == (("a@1", "b@1"), 0, "alive")
    assert found[bench.serving.replica].claims == len(claims) > 1
    await bench.ledger.withdraw(bench.serving)
    assert [row.replica for row in await ops.workers()] == ["host:17:3f"]


async def test_a_worker_that_has_missed_its_heartbeats_is_silent(bench: Bench):
    await bench.announce(heartbeat=timedelta(milliseconds=100))
    bench.wait(timedelta(milliseconds=301))
    (row,) = await operator(bench).workers()
    assert (row.state, row.age) == ("silent", timedelta(milliseconds=301))
    assert not (await operator(bench).status()).is_good


async def test_all_is_well_where_nothing_is_late(bench: Bench):
    await declare_ago(bench, "everyMs: 3600000, firstFire: next", timedelta(0))
    report = (await operator(bench).status()).with_temporal(None)
    assert report.is_good
    assert (report.lag, report.overdue, report.alerts) == (timedelta(0), [], [])
    assert [(each.server, each.error) for each in report.servers] == [
        ("ledger", None), ("temporal", None),
    ]  # fmt: skip


async def test_a_fleet_that_has_stopped_is_wrong_before_anything_is_late(bench: Bench):
    await bench.ledger.withdraw(bench.serving)
    assert (await operator(bench).status()).is_good, "nothing is to fire"
    await declare_ago(bench, "everyMs: 3600000, firstFire: next", timedelta(0))
    report = await operator(bench).status()
    assert (report.unserved, report.is_good, report.conditions) == (True, False, [])
    await operator(bench).pause("k", reason="stocktaking")
    assert (await operator(bench).status()).is_good, "nobody has to fire it"


async def test_a_late_window_is_overdue_with_its_cause_and_the_lag_is_its_age(bench: Bench):
    await declare_ago(bench, FIELDS, 5 * MINUTE)
    report = (await operator(bench).status()).with_temporal("refused")
    (condition,) = report.overdue
    assert (condition.code, condition.cause) == (Code.NOT_FIRED, "temporal_unreachable")
    assert 4 * MINUTE < report.lag < 6 * MINUTE
    assert not report.is_good
    (condition,) = (await operator(bench).status()).overdue
    assert condition.cause == "undecided"


async def test_a_server_that_is_away_is_wrong_by_itself(bench: Bench):
    report = (await operator(bench).status()).with_temporal("refused")
    assert report.conditions == []
    assert not report.is_good


async def test_a_run_that_is_stuck_is_wrong_and_marked(bench: Bench):
    await declare_ago(bench, "everyMs: 3600000", timedelta(minutes=61))
    (claim, *_) = await bench.claim(limit=1)
    await run_of(bench, claim)
    note = FailingNote(claim.workflow_id, None, failing_text([STUCK]))
    assert await bench.ledger.note_failing([note]) == {claim.workflow_id}
    report = (await operator(bench).status()).with_temporal(None)
    (fire,) = report.stuck
    assert (fire.workflow_id, fire.is_stuck) == (claim.workflow_id, True)
    assert not report.is_good
    assert report.totals is not None
    assert report.totals.open_runs == 1
    (shown,) = [each for each in await operator(bench).fires() if each.is_stuck]
    assert shown.workflow_id == claim.workflow_id
