"""Totals: what gauges read of the ledger."""

from __future__ import annotations

from datetime import timedelta

from engine.ledger.fires import Evidence
from engine.ledger.records import Serving, Totals
from tests.conformance.past import HOUR, declare_ago, run_of

TWO = """
schedules:
  - {key: a, workflow: noop, everyMs: 86400000}
  - {key: b, workflow: noop, everyMs: 86400000}
"""


async def totals(bench, most: int = 100) -> Totals:
    found: Totals = await bench.ledger.totals(bench.serving, most=most)
    return found


async def end(bench, workflow_id: str, closed) -> None:
    now = bench.now()
    seen = Evidence(workflow_id, "run", now, closed=closed, closed_at=now)
    assert await bench.ledger.record_evidence([seen]) == [workflow_id]


async def test_an_empty_ledger_has_none_of_each(bench):
    assert await totals(bench) == Totals(0, 0, 0, 0, 0)


async def test_a_fire_is_pending_then_open_then_perhaps_a_dead_letter(bench):
    await bench.declare(TWO)
    claims = await bench.claim()
    assert await totals(bench) == Totals(
        queued=0, pending=2, open_runs=0, dead_letters=0, overdue=0
    )
    for claim in claims:
        await run_of(bench, claim)
    assert await totals(bench) == Totals(
        queued=0, pending=0, open_runs=2, dead_letters=0, overdue=0
    )
    await end(bench, claims[0].workflow_id, "failed")
    await end(bench, claims[1].workflow_id, "completed")
    assert await totals(bench) == Totals(
        queued=0, pending=0, open_runs=0, dead_letters=1, overdue=0
    )
    async with bench.ledger.transaction() as transaction:
        await transaction.resolve_dead_letters([claims[0].workflow_id])
    assert await totals(bench) == Totals(0, 0, 0, 0, 0)


async def test_each_number_ends_at_the_bound(bench):
    await bench.declare(TWO)
    await bench.claim()
    assert (await totals(bench, most=1)).pending == 1


async def test_a_schedule_is_overdue_once_its_grace_has_passed_with_nothing_decided(bench):
    await declare_ago(bench, "everyMs: 60000, firstFire: next, grace: 1m", HOUR, key="late")
    await declare_ago(bench, "everyMs: 60000, firstFire: next, grace: 2h", HOUR, key="patient")
    assert (await totals(bench)).overdue == 1
    elsewhere = Serving("other", "default", "mail", frozenset({"noop@1"}))
    assert (await bench.ledger.totals(elsewhere, most=100)).overdue == 0
    await bench.claim()
    assert (await totals(bench)).overdue == 0


async def test_windows_that_wait_for_their_turn_are_counted(bench):
    fields = "everyMs: 60000, firstFire: next, grace: 2h, overlap: queue"
    await declare_ago(bench, fields, timedelta(minutes=5))
    assert len(await bench.claim()) == 1
    found = await totals(bench)
    assert found.pending == 1
    assert found.queued == 4
