"""Rows of older definitions that span moments of the present one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from engine.ledger import Ledger
from engine.ledger.fires import Claim
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.runtime.settings import Settings
from engine.runtime.tick.backfills import Backfills
from engine.schedules import load_schedules
from engine.service import ScheduleService
from tests.blind import BLIND

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


async def declared(ledger: Ledger, entry: str) -> None:
    file = load_schedules(f"schedules:\n  - {{key: k, workflow: noop, external: true, {entry}}}")
    await apply(ledger, file, by="test")


async def test_a_backfill_across_an_edit_starts_windows_that_no_older_row_stands_for(
    virtual_ledger, clock
) -> None:
    service = ScheduleService(virtual_ledger, actor="test")
    clock.move_to(NOON)
    await declared(virtual_ledger, "everyMs: 600000, firstFire: next")
    await service.pause("k", reason=None)
    clock.move_to(NOON + HOUR)
    await declared(
        virtual_ledger, "everyMs: 600000, offsetMs: 60000, firstFire: next"
    )  # one row: paused
    asked = await service.backfill("k", NOON, NOON + HOUR)
    assert (asked.backfill.windows, asked.would_start) == (6, 6)
    serving = Serving("r", "default", "sched", frozenset())
    claims: list[Claim] = []
    await Backfills(virtual_ledger, serving, Settings(), on_event=print, **BLIND).lay(
        claims, 100, None
    )
    assert len(claims) == 6


async def test_a_run_that_may_overlap_lets_nothing_else_out_of_the_queue(
    virtual_ledger, clock
) -> None:
    service = ScheduleService(virtual_ledger, actor="test")
    clock.move_to(NOON)
    await declared(virtual_ledger, "everyMs: 600000, overlap: queue, firstFire: next")
    await service.trigger("k", request_id="runs")
    await service.trigger("k", request_id="waits")
    await service.trigger("k", request_id="beside", overlap="allow")
    fires = {
        fire.workflow_id.rpartition(":")[2]: fire.status for fire in await virtual_ledger.fires()
    }
    assert fires == {"runs": "claimed", "waits": "queued", "beside": "claimed"}


async def test_the_id_of_a_window_that_was_skipped_before_it_came_is_given_away_to_nobody(
    virtual_ledger, clock
) -> None:
    service = ScheduleService(virtual_ledger, actor="test")
    clock.move_to(NOON)
    at = f'at: "{NOON + HOUR:%Y-%m-%dT%H:%M:%SZ}"'
    await declared(virtual_ledger, at)
    await service.skip("k", NOON + HOUR)
    clock.move_to(NOON + 2 * HOUR)
    await declared(virtual_ledger, "everyMs: 600000, firstFire: next")
    await declared(virtual_ledger, at)
    said = {(fire.series, fire.status) for fire in await virtual_ledger.fires()}
    assert (1, "skipped") in said
