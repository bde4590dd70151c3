"""What ``spread`` and ``exclude`` make of due windows, in either ledger."""

from __future__ import annotations

from datetime import timedelta

CENTURY_MS = 36_525 * 86_400_000
LEASE = timedelta(seconds=30)


def spread(key: str, every_ms: int, length: str) -> str:
    return f"schedules: [{{key: {key}, workflow: noop, everyMs: {every_ms}, spread: {length}}}]"


async def test_a_spread_window_is_claimed_at_once_and_sent_at_its_keys_moment(bench):
    await bench.declare(spread("later", CENTURY_MS, "36525d"))
    assert await bench.claim() == []
    (fire,) = await bench.ledger.fires()
    assert (fire.status, fire.bucket) == ("claimed", 0)
    (row,) = await bench.ledger.schedules()
    moment = fire.fire_time + row.schedule.delay(fire.fire_time)
    assert moment > bench.now()
    probe = await bench.ledger.probe(bench.serving)
    assert probe.stale_at == moment, "the poller sleeps until then"
    assert await bench.ledger.take_over(bench.serving, limit=10, lease=LEASE) == []


async def test_a_spread_window_that_was_not_yet_sent_is_sent_by_anybody_as_fresh(bench):
    await bench.declare(spread("later", 2000, "2s"))

    async def waiting():
        await bench.claim()
        return [fire for fire in await bench.ledger.fires() if fire.status == "claimed"]

    (fire,) = await bench.until(waiting)

    async def taken():
        return await bench.ledger.take_over(bench.other, limit=10, lease=LEASE)

    (claim,) = await bench.until(taken)
    assert claim.fresh
    assert (claim.bucket, claim.fire_time) == (fire.bucket, fire.fire_time)
    assert claim.workflow_id == f"sched:later:{fire.bucket}"


async def test_an_edit_lets_a_spread_window_that_is_owed_run_under_the_old_definition(bench):
    await bench.declare(spread("later", CENTURY_MS, "36525d"))
    await bench.claim()
    await bench.declare("schedules: [{key: later, workflow: noop, everyMs: 1000, enabled: false}]")
    (fire,) = await bench.ledger.fires()
    assert (fire.status, fire.definition_version) == ("claimed", 1)


async def test_an_excluded_window_is_accounted_for_and_never_sent(bench):
    today = bench.now().date()
    days = f"{today - timedelta(days=1)}..{today + timedelta(days=1)}"
    await bench.declare(
        f"schedules: [{{key: off, workflow: noop, everyMs: 1000, exclude: ['{days}']}}]"
    )
    assert await bench.claim() == []
    (row,) = await bench.ledger.schedules()
    assert f"{row.next_fire_at:%H:%M:%S}" == "23:59:59", "a day is one row, with its last window"
    await bench.declare("schedules: [{key: off, workflow: noop, everyMs: 1000, firstFire: next}]")
    (fire,) = await bench.ledger.fires()
    assert (fire.status, fire.reason) == ("skipped", f"excluded: {days}")
