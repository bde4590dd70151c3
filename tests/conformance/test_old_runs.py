"""What the ledger says of runs whose rows may leave."""

from __future__ import annotations

from dataclasses import replace

from engine.ledger.fires import Evidence
from engine.ledger.records import NewFire
from engine.schedules.terms import Window
from tests.conformance.past import backfilled

HOURLY = "schedules: [{key: hourly, workflow: noop, everyMs: 3600000}]"


async def test_a_rerun_never_takes_the_number_of_one_before(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["hourly"])
        for number in (3, 11):
            name = f"{claim.workflow_id}:rerun:{number}"
            new = NewFire.under(state, claim.window, name, "claimed", "rerun", kind="rerun")
            await transaction.request(new)
        window = Window("hourly", 1, claim.bucket, claim.fire_time)
        assert await transaction.count_reruns(window, claim.workflow_id) == 11


async def test_nothing_is_forgotten_of_a_key_whose_rows_are_all_there(bench):
    await bench.declare(HOURLY)
    await bench.claim()
    async with bench.ledger.transaction() as transaction:
        assert await transaction.forgotten_until("hourly") is None


async def forget(bench, key: str) -> None:
    """Let the newest row of a key leave, as the ledger would in time."""
    tables = getattr(bench.ledger, "_tables", None)
    if tables is not None:
        for number, fire in list(tables.fires.items()):
            tables.fires[number] = replace(fire, status="completed")
        tables.forget_closed(0)
        return
    async with bench.ledger.upkeep() as upkeep:
        (newest,) = await bench.ledger.fires(key=key, limit=1)
        await upkeep.connection.execute("DELETE FROM fires")
        await upkeep.done(key, forgotten=newest.fire_time)


async def test_a_forgotten_window_is_not_started_again_by_a_backfill(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    seen = Evidence(claim.workflow_id, "run", claim.fire_time, "completed", claim.fire_time)
    await bench.ledger.record_evidence([seen])
    await forget(bench, "hourly")
    at = claim.fire_time
    done, claims = await backfilled(bench, at, at, "hourly")
    assert (claims, done.left_alone) == ([], {"forgotten, see the archive": 1})
    assert await bench.ledger.fires() == []
