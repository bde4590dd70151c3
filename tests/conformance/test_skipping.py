"""One window is skipped before it comes, and that can be taken back."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from engine.errors import MomentInPast, WindowDecided, WindowNotFound
from tests.conformance.conftest import NOW
from tests.conformance.past import HOUR, MINUTE, declare_ago, operator, run_of, taken

HOURLY = "schedules: [{key: k, workflow: noop, everyMs: 3600000}]"
SECONDS = "schedules: [{key: k, workflow: noop, everyMs: 1000, firstFire: next}]"
CENTURY = "schedules: [{key: k, workflow: noop, everyMs: 3155760000000, spread: 36525d}]"
TICK = timedelta(microseconds=1)


def entry(fields: str) -> str:
    return f"schedules: [{{key: k, workflow: noop, firstFire: next, {fields}}}]"


def whole_hour(ahead: int) -> datetime:
    now = NOW.replace(minute=0, second=0, microsecond=0)
    return now + ahead * HOUR


async def claimed_until(bench, at: datetime) -> list[datetime]:
    """Claim until the window at ``at``, and one more, have come; returns what was to start."""
    claimed: list[datetime] = []

    async def decided() -> bool:
        claimed.extend(claim.fire_time for claim in await bench.claim())
        async with bench.ledger.transaction() as transaction:
            (state,) = await transaction.read(["k"])
        return bool(state.cursor > at)

    await bench.until(decided)
    return claimed


async def test_a_skipped_window_does_not_start_when_it_comes_and_those_around_it_do(bench):
    await bench.declare(SECONDS)
    at = bench.now().replace(microsecond=0) + timedelta(seconds=2)
    done = await operator(bench).skip("k", at, reason="holiday")
    assert done.changed
    claimed = await claimed_until(bench, at)
    assert at not in claimed
    assert at + timedelta(seconds=1) in claimed
    (fire,) = await bench.ledger.fires(status="skipped")
    assert (fire.fire_time, fire.reason) == (at, "user: holiday")
    assert fire.workflow_id == done.workflow_id


async def test_a_skip_that_is_taken_back_leaves_no_trace_but_the_actions(bench):
    await bench.declare(SECONDS)
    ops = operator(bench)
    at = bench.now().replace(microsecond=0) + timedelta(seconds=3)
    await ops.skip("k", at)
    assert (await ops.unskip("k", at)).changed
    assert not (await ops.unskip("k", at)).changed
    assert at in await claimed_until(bench, at)
    assert [action.verb for action in await bench.actions()] == ["unskip", "skip"]


async def test_skipping_twice_is_one_skip(bench):
    await bench.declare(HOURLY)
    ops = operator(bench)
    at = whole_hour(2)
    assert (await ops.skip("k", at, reason="a")).changed
    assert not (await ops.skip("k", at, reason="b")).changed
    (action,) = await bench.actions()
    assert (action.verb, action.by, action.reason, action.key) == ("skip", "ops", "a", "k")
    assert (action.before, action.after) == (
        None, {"status": "skipped", "fireTime": f"{at:%Y-%m-%dT%H:%M:%SZ}"},
    )  # fmt: skip
    assert action.workflow_id == (await ops.skip("k", at)).workflow_id


async def test_a_window_that_waits_for_its_spread_can_still_be_skipped(bench):
    await bench.declare(CENTURY)
    await bench.claim()
    (waiting,) = await bench.ledger.fires()
    assert waiting.status == "claimed"
    assert (await operator(bench).skip("k", waiting.fire_time)).changed
    (fire,) = await bench.ledger.fires()
    assert (fire.status, fire.reason) == ("skipped", "user")
    assert (await bench.ledger.probe(bench.serving)).stale_at is None


async def test_what_was_started_cannot_be_skipped(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    ops = operator(bench)
    for _ in ("starting", "started"):
        with pytest.raises(WindowDecided):
            await ops.skip("k", claim.fire_time)
        if _ == "starting":
            await run_of(bench, claim)
    assert await bench.actions() == []


async def test_a_moment_without_a_window_is_answered_with_the_next_that_has_one(bench):
    await bench.declare(HOURLY)
    at = whole_hour(2)
    for verb in (operator(bench).skip, operator(bench).unskip):
        with pytest.raises(WindowNotFound, match=f"opens at {at + HOUR:%Y-%m-%d %H:%M:%S}Z"):
            await verb("k", at + MINUTE)


async def test_a_window_that_was_decided_long_ago_is_neither_skipped_nor_unskipped(bench):
    await declare_ago(bench, "everyMs: 60000, firstFire: next", 10 * HOUR, paused=True)
    ops = operator(bench)
    await ops.resume("k")
    (span,) = await ops.fires()
    for verb in (ops.skip, ops.unskip):
        with pytest.raises(MomentInPast, match="has passed already"):
            await verb("k", span.fire_time + 5 * MINUTE)


async def test_a_skip_survives_a_pause_that_ends_before_its_window(bench):
    await bench.declare(HOURLY)
    ops = operator(bench)
    at = whole_hour(2)
    await ops.skip("k", at)
    await ops.pause("k", reason="x")
    await ops.resume("k")
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
    assert state.known == {at: False}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("everyMs: 3600000", "everyMs: 3600000, description: other"),
        ("everyMs: 3600000", "everyMs: 1800000"),
        ("everyMs: 3600000", 'cron: "0 * * * *"'),
        ('cron: "0 * * * *"', 'cron: "0,30 * * * *"'),
        ('cron: "0 * * * *"', "everyMs: 1000"),
        ("everyMs: 3600000", "everyMs: 3600000, enabled: false"),
    ],
)
async def test_an_edit_that_keeps_the_moment_of_a_skipped_window_keeps_the_skip(
    bench, before, after
):
    await bench.declare(entry(before))
    ops = operator(bench)
    at = whole_hour(3)
    await ops.skip("k", at, reason="holiday")
    report = await bench.declare(entry(after))
    assert report.changed == ("k",)
    assert report.remarks == []
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
    assert state.known == {at: False}, "the planner passes over it"
    (fire,) = [fire for fire in await ops.fires() if fire.fire_time == at]
    window = state.window(at)
    assert fire.workflow_id == window.workflow_id(state.suffixed)
    assert (fire.series, fire.bucket, fire.reason) == (state.series, window.bucket, "user: holiday")
    assert fire.definition_version == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("everyMs: 3600000", "everyMs: 3600000, offsetMs: 60000"),
        ('cron: "0 * * * *"', 'cron: "30 * * * *"'),
    ],
)
async def test_an_edit_that_takes_the_window_away_drops_the_skip_and_says_so(bench, before, after):
    await bench.declare(entry(before))
    ops = operator(bench)
    at = whole_hour(3)
    await ops.skip("k", at, reason="holiday")
    report = await bench.declare(entry(after))
    assert report.unskipped == {"k": (f"{at:%Y-%m-%dT%H:%M:%SZ}",)}
    assert f"no window opens at {at:%Y-%m-%dT%H:%M:%SZ} any more" in report.remarks[0]
    assert [fire for fire in await ops.fires() if fire.fire_time == at] == []
    dropped, skipped = await bench.actions()
    assert (dropped.verb, dropped.by, dropped.workflow_id) == (
        "unskip", "test", skipped.workflow_id,
    )  # fmt: skip
    assert dropped.reason == "edited: no window opens then any more"
    assert dropped.before["reason"] == "user: holiday"


async def test_an_edit_back_does_not_bring_a_dropped_skip_back(bench):
    await bench.declare(entry("everyMs: 3600000"))
    await operator(bench).skip("k", whole_hour(3))
    await bench.declare(entry("everyMs: 3600000, offsetMs: 60000"))
    report = await bench.declare(entry("everyMs: 3600000"))
    assert report.remarks == []
    async with bench.ledger.transaction() as transaction:
        (state,) = await transaction.read(["k"])
    assert state.known == {}


async def test_a_window_skipped_ahead_is_not_the_last_fire(bench):
    await bench.declare(HOURLY)
    (claim,) = await bench.claim()
    ops = operator(bench)
    await ops.skip("k", whole_hour(3))
    row = await ops.schedule("k")
    assert (row.last_fire_at, row.last_status) == (claim.fire_time, "starting")
    assert await taken(bench) == []


async def test_what_starts_next_is_the_first_window_that_nobody_skipped(bench):
    await bench.declare(entry('cron: "0 * * * *"'))
    first, second = whole_hour(1), whole_hour(2)
    ops = operator(bench)
    for number, at in enumerate([first, second]):
        await ops.skip("k", at, reason=f"reason {number}")
    (row,) = await bench.ledger.schedules()
    assert row.next_start_at == whole_hour(3)
    assert row.skips == {first: "user: reason 0", second: "user: reason 1"}
    (fire,) = await bench.ledger.upcoming("default", 5)
    assert fire.fire_time == whole_hour(3)
    await ops.unskip("k", first)
    (row,) = await bench.ledger.schedules()
    assert (row.next_start_at, [*row.skips]) == (first, [second])
    (fire,) = await bench.ledger.upcoming("default", 5)
    assert fire.fire_time == first


async def test_a_moment_that_was_skipped_is_never_said_to_start(bench):
    at = whole_hour(5)
    await bench.declare(f'schedules: [{{key: k, workflow: noop, at: "{at.isoformat()}"}}]')
    await operator(bench).skip("k", at)
    (row,) = await bench.ledger.schedules()
    assert row.next_start_at is None
    assert await bench.ledger.upcoming("default", 5) == []
