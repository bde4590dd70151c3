"""Two thousand missed windows: as many rows as there is to say, and every window in one of them."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from engine.schedules.planner.planner import plan

MINUTE = timedelta(minutes=1)
MISSED = 2000


async def after_an_outage(bench, catch_up: str):
    """Claim what an outage of two thousand windows owes, in one plan; return claims and fires."""
    entry = f"key: k, workflow: noop, everyMs: 60000, firstFire: next, catchUp: {catch_up}"
    await bench.declare(f"schedules: [{{{entry}}}]")
    async with bench.ledger.transaction() as transaction:
        await transaction.lock(["k"])
        (state,) = await transaction.read(["k"])
        opened = state.schedule.spec.next(state.cursor)
        now = opened + (MISSED - 1) * MINUTE + timedelta(seconds=30)
        step = plan(state, now, limit=10)
        claims = await transaction.record([step], owner="replica-a", lease=timedelta(seconds=30))
    fires = sorted(await bench.ledger.fires(limit=5000), key=lambda fire: fire.fire_time)
    return claims, fires, step, now


async def test_latest_is_one_start_and_one_row_for_all_others(bench):
    claims, fires, _, _ = await after_an_outage(bench, "{window: 48h}")
    (claim,) = claims
    assert (claim.timing, claim.missed) == ("caught_up", MISSED - 1)
    assert claim.missed_from == fires[0].fire_time
    assert [(fire.status, fire.windows) for fire in fires] == [("skipped", 1999), ("starting", 1)]


async def test_all_starts_the_newest_at_its_rate_and_the_rest_expires(bench):
    claims, fires, step, now = await after_an_outage(
        bench, "{policy: all, window: 48h, max: 50, rate: 5/1s}"
    )
    assert Counter(fire.status for fire in fires) == {"expired": 1, "starting": 1, "claimed": 49}
    assert sum(fire.windows for fire in fires) == MISSED
    assert fires[0].reason == "beyond catchUp.max 50"
    assert len(claims) == 1, "the others wait for their turn"
    turns = [each.not_before for each in step.decisions if each.not_before]
    assert turns == [now + number * timedelta(milliseconds=200) for number in range(1, 50)]


async def test_every_window_is_in_exactly_one_row(bench):
    _, fires, step, _ = await after_an_outage(bench, "{policy: all, window: 3h, max: 20}")
    moments = [fire.fire_time + number * MINUTE for fire in fires for number in range(fire.windows)]
    assert len(moments) == len(set(moments)) == MISSED
    assert step.cursor == max(moments)
