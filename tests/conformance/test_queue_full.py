"""A queue that is full is told once each time, and what it cost is counted."""

from __future__ import annotations

from datetime import timedelta

from engine.ledger.fires import Evidence
from engine.runtime.tick.poller import turned_full
from engine.schedules.planner.planner import plan
from tests.conformance.past import LEASE, declare_ago, run_of

TEN = timedelta(minutes=10)


async def turn(bench, rows: int):
    """Plan so many windows as the poller does; returns the claims, and what was told."""
    async with bench.ledger.transaction() as transaction:
        states = await transaction.read(await transaction.lock_due(bench.serving, 10))
        now = await transaction.now()
        steps = [plan(state, now, rows=rows) for state in states]
        alerts = await turned_full(transaction, steps)
        claims = await transaction.record(steps, owner="replica-a", lease=LEASE)
    return claims, [alert.text for alert in alerts]


async def declared(bench, overlap: str) -> None:
    await declare_ago(bench, f"everyMs: 60000, firstFire: next, grace: 1h, {overlap}", TEN)


async def test_a_full_queue_is_told_when_it_becomes_full_and_again_after_it_had_room(bench):
    await declared(bench, "overlap: queue, maxQueued: 2")
    (first,), told = await turn(bench, 2)
    assert told == []
    _, (text,) = await turn(bench, 2)
    assert text.startswith("k: its queue is full (2), 1 window was skipped")
    assert (await turn(bench, 2))[1] == [], "full still"
    await run_of(bench, first)
    now = bench.now()
    await bench.ledger.record_evidence([Evidence(first.workflow_id, "run", now, "completed", now)])
    assert len((await turn(bench, 2))[1]) == 1, "one was promoted, and another took its place"
    assert (await turn(bench, 2))[1] == []


async def test_windows_that_find_the_queue_full_are_counted(bench):
    await declared(bench, "overlap: queue, maxQueued: 2")
    assert await bench.ledger.overflow("k") == (0, None)
    _, (text,) = await turn(bench, 100)
    full = [fire for fire in await bench.ledger.fires(key="k") if fire.status == "skipped"]
    assert len(full) == 7
    assert "7 windows were skipped" in text
    assert await bench.ledger.overflow("k") == (7, full[0].fire_time)
    assert await bench.ledger.overflow("other") == (0, None)


async def test_a_queue_of_one_is_no_alarm(bench):
    await declared(bench, "overlap: queue_one")
    _, told = await turn(bench, 100)
    assert told == []
    assert (await bench.ledger.overflow("k"))[0] == 8
