"""Which fires are found by key and status, and in which order."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import get_args

from engine.ledger.fires import Evidence, Status
from tests.conformance.conftest import Bench
from tests.conformance.past import declare_ago, run_of

TEN = timedelta(minutes=10)


async def fires_of_all_kinds(bench: Bench) -> None:
    """Two keys, with fires that completed, failed, started, were lost, wait, and were skipped."""
    for key in ("k", "other"):
        rest = "firstFire: next, grace: 1h, catchUp: {policy: all, window: 24h}, overlap: allow"
        await declare_ago(bench, f"everyMs: 60000, {rest}", TEN, key=key)
    now = bench.now()
    for number, claim in enumerate(await bench.claim()):
        if number % 6:
            await run_of(bench, claim)
        run = claim.workflow_id, f"run-{number}", now
        if number % 6 == 2:
            await bench.ledger.record_evidence([Evidence(*run, "completed", now, last=True)])
        if number % 6 == 3:
            await bench.ledger.record_evidence([Evidence(*run, "failed", now, last=True)])
        if number % 6 == 4:
            await bench.ledger.lose([claim.workflow_id], "gone")


async def test_fires_are_found_by_key_and_status_the_newest_first(bench: Bench):
    await fires_of_all_kinds(bench)
    found = await bench.ledger.fires(limit=1000)
    assert {fire.status for fire in found} == {"starting", "started", "completed", "failed"}
    assert found == sorted(found, key=lambda fire: (-fire.fire_time.timestamp(), fire.key))
    for key, status in product((None, "k", "other", "absent"), (None, *get_args(Status))):
        wanted = [
            each for each in found if key in {None, each.key} and status in {None, each.status}
        ]
        assert await bench.ledger.fires(key=key, status=status, limit=1000) == wanted
        assert await bench.ledger.fires(key=key, status=status, limit=2) == wanted[:2]
        assert await bench.ledger.fires(key=key, status=status, limit=20_000) == wanted
