"""What the ledger says after a sign that commits were lost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.flow.fire import FireInfo, Timing
from engine.ledger.fires import Evidence
from engine.ledger.records import Lineage
from engine.runtime.events import Alert
from engine.runtime.tracking.runs import _book_unknown, reconcile_runs
from engine.schedules.terms import Window
from tests.conformance.conftest import forget_doubts

HOURLY = "schedules: [{key: hourly, workflow: noop, everyMs: 3600000}]"


async def test_a_doubt_is_seen_by_every_probe_from_then_on(bench):
    assert (await bench.ledger.probe(bench.serving)).suspect_until is None
    assert await bench.ledger.note_lineage(Lineage("s1", 1), suspect=False) is None
    suspect_until = await bench.ledger.note_lineage(Lineage("s1", 2), suspect=True)
    for serving in (bench.serving, bench.other):
        assert (await bench.ledger.probe(serving)).suspect_until == suspect_until
    assert await bench.ledger.note_lineage(Lineage("s1", 2), suspect=False) == suspect_until
    await forget_doubts(bench.ledger)


async def test_a_lost_trigger_is_booked_beside_the_window_of_its_moment(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    told: list[object] = []
    asked_for: list[tuple[Timing, str]] = [("manual", "manual:t1"), ("rerun", "0:rerun:1")]
    for number, (timing, ending) in enumerate(asked_for):
        name = f"sched:hourly:{ending}"
        at = claim.fire_time
        info = FireInfo("hourly", 1, claim.bucket, at, "UTC", timing, 1, "default",
                        await bench.ledger.identity(), "t")  # fmt: skip
        closed_at = at + timedelta(minutes=number)
        seen = Evidence(name, f"run-{number}", at, "completed", closed_at)
        assert await reconcile_runs(
            bench.ledger, [(seen, info)], by="test", on_event=told.append
        ) == [name]
        fire = await bench.ledger.fire(name)
        assert fire is not None
        assert (fire.status, fire.timing, fire.closed_at) == ("completed", timing, closed_at)
        assert fire.history[0]["status"] == "lost"
    codes = [event.code for event in told if isinstance(event, Alert)]
    assert codes == ["SCHEDULE_RUN_FOUND"] * 2
    window = await bench.ledger.fire(claim.workflow_id)
    assert window is not None
    assert window.status == "starting"
    async with bench.ledger.transaction() as transaction:
        window = Window("hourly", 1, 0, claim.fire_time)
        assert await transaction.count_reruns(window, "sched:hourly:0") == 1


async def test_of_two_who_find_a_lost_run_at_once_one_reports_it(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    told: list[object] = []
    at, identity = claim.fire_time, await bench.ledger.identity()
    info = FireInfo("hourly", 1, claim.bucket, at, "UTC", "manual", 1, "default", identity, "t")
    seen = Evidence("sched:hourly:manual:t1", "run", at, "completed", at)
    for observer in "ab":  # each has looked before the other wrote
        await _book_unknown(bench.ledger, seen, info, by=observer, on_event=told.append)
    assert [event.code for event in told if isinstance(event, Alert)] == ["SCHEDULE_RUN_FOUND"]


@pytest.mark.parametrize("late", [timedelta(0), timedelta(seconds=90)])
async def test_a_run_of_an_edit_that_was_lost_is_not_run_again_by_what_goes_on(bench, late):
    """Its id is that of a window to come; if the lost edit moved the window, at another time."""
    await bench.declare(HOURLY)
    (first,) = await bench.claim()
    opens = first.fire_time + timedelta(hours=1)
    name = f"sched:hourly:{first.bucket + 1}"
    info = FireInfo("hourly", 3, first.bucket + 1, opens + late, "UTC", "on_time", 3, "default",
                    await bench.ledger.identity(), "t")  # fmt: skip
    seen = Evidence(name, "run-1", opens + late, "completed", opens + late)
    assert await reconcile_runs(bench.ledger, [(seen, info)], by="test", on_event=print) == [name]
    bench.wait(opens + timedelta(minutes=2) - bench.now())
    assert await bench.claim() == []
    fires = {fire.workflow_id: fire for fire in await bench.ledger.fires(key="hourly")}
    assert fires[name].status == "completed"
    assert (fires[name].series == 1) is (not late)
    bench.wait(timedelta(hours=1))
    (third,) = await bench.claim()
    assert third.bucket == first.bucket + 2
    (row,) = await bench.ledger.schedules()
    assert row.error is None
