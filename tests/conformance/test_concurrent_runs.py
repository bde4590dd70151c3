"""Schedules of which several runs may be open at once: who waits, and who is let go."""

from __future__ import annotations

import pytest

from engine.errors import ScheduleError
from engine.ledger.fires import Evidence
from tests.conformance.past import MINUTE, backfilled, declare_ago, operator, run_of, taken


def hourly(fields: str) -> str:
    return f"schedules: [{{key: k, workflow: noop, everyMs: 3600000, {fields}}}]"


async def close(bench, workflow_id: str) -> None:
    now = bench.now()
    seen = Evidence(workflow_id, "run", now, closed="completed", closed_at=now)
    assert await bench.ledger.record_evidence([seen]) == [workflow_id]


async def full(bench, most: int, waiting: int, fields: str = "") -> tuple[list[str], list[str]]:
    """Return the ids of as many open runs as there may be, and of those that wait behind them."""
    await bench.declare(hourly(f"maxConcurrentRuns: {most}{fields}"))
    (claim,) = await bench.claim()
    runs = [await run_of(bench, claim)]
    ops = operator(bench)
    for number in range(1, most):
        asked = await ops.trigger("k", request_id=f"r{number}")
        assert asked.fire.status == "claimed", "a place is free"
        (claim,) = await taken(bench)
        runs.append(await run_of(bench, claim))
    queued = [await ops.trigger("k", request_id=f"w{number}") for number in range(waiting)]
    assert {each.fire.status for each in queued} <= {"queued"}
    await bench.claim()  # plans once more: nothing is due any longer
    return runs, [each.fire.workflow_id for each in queued]


async def promoted(bench) -> list[str]:
    """Plan what is due, and return the runs that somebody would send now, in their order."""
    await bench.claim()
    return [
        claim.workflow_id for claim in sorted(await taken(bench), key=lambda each: each.fire_id)
    ]


async def test_a_key_is_woken_as_soon_as_fewer_runs_are_open_than_may_be(bench):
    runs, waiting = await full(bench, 2, 2)
    assert await bench.ledger.wake() == [], "both places are taken"
    await close(bench, runs[0])
    assert await bench.ledger.wake() == ["k"]
    assert await promoted(bench) == waiting[:1]
    assert await bench.ledger.wake() == [], "the place is taken again"
    await close(bench, runs[1])
    assert await bench.ledger.wake() == ["k"]
    assert await promoted(bench) == waiting[1:]


async def test_as_many_start_as_there_are_free_places_in_the_order_in_which_they_came(bench):
    runs, waiting = await full(bench, 3, 4)
    await close(bench, runs[0])
    await close(bench, runs[2])
    assert await bench.ledger.wake() == ["k"]
    assert await promoted(bench) == waiting[:2]
    assert await promoted(bench) == []


async def test_a_run_that_nobody_knows_any_more_leaves_its_place(bench):
    runs, waiting = await full(bench, 2, 1)
    await bench.ledger.lose([runs[1]], "gone")
    assert await bench.ledger.wake() == ["k"]
    assert await promoted(bench) == waiting


async def test_a_higher_limit_lets_go_at_once_what_has_waited(bench):
    _, waiting = await full(bench, 1, 3)
    await bench.declare(hourly("maxConcurrentRuns: 3"))
    await bench.ledger.wake()
    assert await promoted(bench) == waiting[:2]


async def test_a_lower_limit_waits_until_enough_runs_have_ended(bench):
    runs, waiting = await full(bench, 3, 1)
    await bench.declare(hourly("maxConcurrentRuns: 1"))
    await bench.claim()
    for run in runs[:2]:
        await close(bench, run)
        assert await bench.ledger.wake() == []
    await close(bench, runs[2])
    assert await bench.ledger.wake() == ["k"]
    assert await promoted(bench) == waiting


async def test_with_skip_a_request_is_skipped_when_every_place_is_taken(bench):
    runs, _ = await full(bench, 2, 0, ", overlap: skip")
    asked = await operator(bench).trigger("k", request_id="late")
    await bench.ledger.seen_open(runs, bench.now())
    await bench.claim()
    fire = await bench.ledger.fire(asked.fire.workflow_id)
    assert (fire.status, fire.reason) == ("skipped", f"overlap: {runs[0]} and 1 more are open")
    forced = await operator(bench).trigger("k", request_id="now", overlap="allow")
    assert forced.fire.status == "claimed"


async def test_a_rerun_waits_for_a_place_like_everything_else(bench):
    await bench.declare(hourly("maxConcurrentRuns: 2"))
    (claim,) = await bench.claim()
    first = await run_of(bench, claim)
    await close(bench, first)
    ops = operator(bench)
    bucket = (await ops.fires(key="k"))[0].bucket
    states = [(await ops.rerun("k", bucket)).fire.status for _ in range(3)]
    assert states == ["claimed", "claimed", "queued"]


async def test_a_backfill_runs_so_many_at_a_time_in_the_order_of_time(bench):
    declared = await declare_ago(bench, "everyMs: 60000, maxConcurrentRuns: 2", 10 * MINUTE)
    first = declared.replace(second=0) - 10 * MINUTE
    end = first + 4 * MINUTE
    (own,) = await bench.claim()
    await close(bench, await run_of(bench, own))
    await backfilled(bench, first, end)
    moments = []
    for _ in range(10):
        await bench.ledger.wake()
        await bench.claim()
        claims = sorted(await taken(bench), key=lambda each: each.fire_time)
        moments.append([claim.fire_time for claim in claims if claim.fire_time <= end])
        for claim in claims:
            await close(bench, await run_of(bench, claim))
    begun = [moment for some in moments for moment in some]
    assert begun == [first + n * MINUTE for n in range(5)]
    assert max(map(len, moments)) == 2


@pytest.mark.parametrize("policy", ["cancel_previous", "terminate_previous"])
async def test_nobody_takes_the_place_of_one_among_several(bench, policy):
    _, waiting = await full(bench, 2, 1)
    ops = operator(bench)
    with pytest.raises(ScheduleError, match="which of them is the previous one") as found:
        await ops.trigger("k", overlap=policy)
    assert "cancel runs first" in (found.value.hint or "")
    (still,) = await ops.fires(key="k", status="queued")
    assert still.workflow_id == waiting[0]
