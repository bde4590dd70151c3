"""What a ledger cannot vouch for, and Temporal has forgotten, does not run a second time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from engine.ledger import Serving
from engine.runtime import Poller, Settings
from engine.runtime.apply.apply import apply
from engine.runtime.clock import LedgerClock
from engine.schedules import load_schedules
from engine.service import ScheduleService
from engine.testing import FrozenClock
from engine.testing.virtual_ledger import VirtualLedger
from tests.blind import BLIND
from tests.conformance.past import LEASE
from tests.unit.test_planning_apart import Outbox

SERVING = Serving("one", "default", "sched", frozenset({"noop@1"}))
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
FILE = """
schedules:
  - {key: pay, workflow: noop, everyMs: 60000, grace: 30s, catchUp: {policy: all, window: 7d}}
"""


async def announced(ledger: VirtualLedger, retention: timedelta = HOUR):
    return await ledger.announce(SERVING, engine="0", tzdata="0", retention=retention)


@pytest.fixture
async def outage(virtual_ledger: VirtualLedger, clock: FrozenClock) -> VirtualLedger:
    """Three hours without a worker; Temporal keeps runs for one."""
    await announced(virtual_ledger)
    await apply(virtual_ledger, load_schedules(FILE), by="test")
    await tick(virtual_ledger)
    clock.advance(3 * HOUR)
    return virtual_ledger


async def tick(ledger: VirtualLedger) -> Counter[tuple[str, str | None]]:
    """Plan what is due; returns how many windows became what."""
    settings, outbox = Settings(lease=LEASE), Outbox()
    poller = Poller(
        ledger,
        outbox,  # type: ignore[arg-type] # it keeps what it is given
        LedgerClock(),
        SERVING,
        settings,
        **{**BLIND, "on_event": lambda _: None},
    )
    for _ in range(4):
        await poller.tick()
    found = Counter[tuple[str, str | None]]()
    for fire in await ledger.fires(key="pay", limit=1000):
        found[fire.status, fire.reason_code] += fire.windows
    return found


async def test_a_silence_longer_than_temporal_keeps_runs_is_reported_once(outage, clock):
    silent_since = await announced(outage)
    assert silent_since is not None
    assert clock.now() - silent_since == 3 * HOUR
    assert await announced(outage) is None
    clock.advance(HOUR / 2)
    assert await announced(outage) is None, "a short one is none"


async def test_windows_that_may_be_forgotten_are_unvouched_and_the_others_are_caught_up(outage):
    await announced(outage)
    found = await tick(outage)
    kept = HOUR - MINUTE * 10  # the margin is the smaller of ten minutes and a quarter
    assert found["unvouched", "may_have_run"] == (3 * HOUR - kept) / MINUTE
    assert sum(found.values()) - found["unvouched", "may_have_run"] == kept / MINUTE + 1
    assert (await tick(outage)) == found


async def test_a_retention_that_is_shorter_now_has_its_own_margin(virtual_ledger, clock):
    await announced(virtual_ledger, 24 * HOUR)
    await apply(virtual_ledger, load_schedules(FILE), by="test")
    await tick(virtual_ledger)
    clock.advance(3 * HOUR)
    assert await announced(virtual_ledger, 8 * MINUTE)
    found = await tick(virtual_ledger)
    assert found["unvouched", "may_have_run"] == (3 * HOUR - 6 * MINUTE) / MINUTE


async def test_what_waited_to_be_sent_is_looked_up_and_what_was_asked_for_since_is_not(
    outage, clock
):
    """In a copy of a ledger, both may wait; only the former may have run, and be forgotten."""
    await outage._connections.fetch(
        "UPDATE fires SET status = 'claimed', owner = NULL, starting_at = NULL"
        " WHERE status = 'starting'"
    )
    await ScheduleService(outage, actor="ops").trigger("pay", request_id="since")
    await announced(outage)
    took = await outage.take_over(SERVING, limit=10, lease=LEASE)
    claims = {claim.kind: claim for claim in took}
    assert set(claims) == {"window", "manual"}
    assert not claims["window"].fresh
    assert claims["window"].starting_at <= clock.now() - 3 * HOUR
    assert claims["window"].retention == HOUR
    assert claims["manual"].fresh


async def test_an_old_window_that_a_backfill_asks_for_now_is_not_looked_up(outage):
    await announced(outage)
    await outage._connections.fetch(
        "UPDATE fires SET status = 'claimed', owner = NULL, starting_at = NULL, history = history"
        " || jsonb_build_object('status', 'skipped', 'until', clock_timestamp())"
        " WHERE status = 'starting'"
    )
    (claim,) = await outage.take_over(SERVING, limit=10, lease=LEASE)
    assert claim.fresh


async def test_nothing_is_unvouched_after_an_outage_that_temporal_remembers(virtual_ledger, clock):
    await announced(virtual_ledger, 4 * HOUR)
    await apply(virtual_ledger, load_schedules(FILE), by="test")
    await tick(virtual_ledger)
    clock.advance(3 * HOUR)
    assert await announced(virtual_ledger, 4 * HOUR) is None
    assert not [each for each in await tick(virtual_ledger) if each[0] == "unvouched"]


async def test_an_operator_can_start_what_is_unvouched(outage, clock):
    await announced(outage)
    await tick(outage)
    service = ScheduleService(outage, actor="ops")
    begin, end = clock.now() - 3 * HOUR + MINUTE, clock.now() - 2 * HOUR - 30 * MINUTE
    seen = await service.preview_backfill("pay", begin, end)
    assert (seen.would_start, dict(seen.left_alone)) == (0, {"unvouched": 30})
    seen = await service.preview_backfill("pay", begin, end, include=["unvouched"])
    assert seen.would_start == 30
