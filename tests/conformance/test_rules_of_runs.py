"""What a workflow's class declares for its runs, whichever replica starts them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from engine.ledger.fires import Outcome
from tests.conformance.past import operator, taken

DAILY = "schedules: [{key: k, workflow: noop, everyMs: 86400000}]"


async def test_a_claim_carries_the_rules_of_its_type(bench):
    await bench.announce(replace(bench.serving, rules={"noop@1": {"timeout": 5.0}}))
    await bench.declare(DAILY)
    (claim,) = await bench.claim()
    assert claim.rules == {"timeout": 5.0}


async def test_so_does_one_that_is_taken_over_by_a_replica_without_the_class(bench):
    await bench.announce(replace(bench.serving, rules={"noop@1": {"timeout": 5.0}}))
    await bench.declare(DAILY)
    (claim,) = await bench.claim(lease=timedelta(0))
    (other,) = await taken(bench)
    assert (other.workflow_id, other.rules) == (claim.workflow_id, {"timeout": 5.0})


async def test_the_last_announcement_wins_and_may_take_the_rules_away(bench):
    await bench.announce(replace(bench.serving, rules={"noop@1": {"timeout": 5.0}}))
    await bench.announce(replace(bench.other, rules={"noop@1": {"timeout": 7.0}}))
    await bench.declare(DAILY)
    (claim,) = await bench.claim()
    assert claim.rules == {"timeout": 7.0}
    now = bench.now()
    outcome = Outcome(claim.fire_id, claim.token, "started", "on_time", "r", started_at=now)
    await bench.ledger.settle([outcome])
    await bench.announce(bench.serving)
    await operator(bench).trigger("k")
    (manual,) = await taken(bench)
    assert manual.rules is None
