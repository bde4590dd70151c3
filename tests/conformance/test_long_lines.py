"""More fires of a key are open than one plan reads: nothing is decided otherwise for that."""

from __future__ import annotations

from datetime import timedelta
from unittest.mock import patch

import pytest

from engine.ledger.fires import Evidence
from engine.ledger.postgres import schedule_statements
from engine.schedules.planner import overlap
from tests.conformance.past import (
    HOUR,
    backfilled,
    declare_ago,
    declare_file_ago,
    operator,
    run_of,
    taken,
)

TEN = timedelta(hours=10)


@pytest.fixture(autouse=True)
def few_are_read():
    """A plan reads one open fire beyond the places of its schedule."""
    with patch.object(overlap, "READ_AHEAD", 1), patch.object(schedule_statements, "READ_AHEAD", 1):
        yield


async def ended(bench, workflow_id: str) -> None:
    now = bench.now()
    seen = Evidence(workflow_id, "run", now, "completed", now)
    assert await bench.ledger.record_evidence([seen]) == [workflow_id]
    await bench.ledger.wake()


async def statuses(bench) -> dict[str, int]:
    counted: dict[str, int] = {}
    for fire in await bench.ledger.fires(key="k", limit=100):
        counted[fire.status] = counted.get(fire.status, 0) + fire.windows
    return counted


async def test_a_line_keeps_its_order_and_its_length_however_little_of_it_is_read(bench):
    await declare_ago(
        bench, "everyMs: 3600000, firstFire: next, grace: 1d, overlap: queue, maxQueued: 7", TEN
    )
    (first,) = await bench.claim()
    assert await statuses(bench) == {"starting": 1, "queued": 7, "skipped": 2}
    order, running = [first.fire_time], first
    while True:
        await run_of(bench, running)
        await ended(bench, running.workflow_id)
        assert await bench.claim() == []
        if not (promoted := await taken(bench)):
            break
        (running,) = promoted
        order.append(running.fire_time)
    assert order == [first.fire_time + number * HOUR for number in range(8)]
    assert await statuses(bench) == {"completed": 8, "skipped": 2}


async def test_a_request_finds_its_place_at_the_end_of_a_long_line(bench):
    await declare_ago(
        bench, "everyMs: 3600000, firstFire: next, grace: 1d, overlap: queue, maxQueued: 10", TEN
    )
    await bench.claim()
    service = operator(bench)
    assert (await service.trigger("k")).fire.status == "queued"
    assert (await service.trigger("k")).fire.reason == "overlap: the queue is full (10)"
    assert (await service.trigger("k", overlap="skip")).fire.status == "skipped"
    assert (await service.trigger("k", overlap="allow")).fire.status == "claimed"


async def test_a_window_that_takes_the_place_of_a_long_line_gives_up_all_of_it(bench):
    fields = "everyMs: 3600000, firstFire: next, grace: 1d, overlap: "
    await declare_ago(bench, f"{fields}queue", TEN)
    (first,) = await bench.claim()
    await run_of(bench, first)
    await bench.declare(f"schedules: [{{key: k, workflow: noop, {fields}terminate_previous}}]")
    assert (await operator(bench).trigger("k")).fire.status == "queued"
    counted = await statuses(bench)
    assert (counted["started"], counted["queued"]) == (1, 1), "the run, and who took its place"
    assert counted["skipped"] == 9


async def test_a_long_line_of_what_a_backfill_has_laid_is_worked_off(bench):
    first = await declare_ago(bench, "everyMs: 3600000, firstFire: next", TEN, paused=True)
    await operator(bench).resume("k")
    await backfilled(bench, first, first + 6 * HOUR, overlap="queue")
    order = []
    for number in range(6):
        await bench.claim()
        (running,) = await taken(bench)
        await run_of(bench, running, f"run-{number}")
        await ended(bench, running.workflow_id)
        order.append(running.fire_time)
    assert order == sorted(order)
    assert await statuses(bench) == {"completed": 6, "skipped": 4}


async def test_cancelling_a_schedule_ends_all_of_a_long_line(bench):
    await declare_ago(bench, "everyMs: 3600000, firstFire: next, grace: 1d, overlap: queue", TEN)
    (first,) = await bench.claim()
    await run_of(bench, first)
    done = await operator(bench).cancel("k")
    assert (len(done.skipped), done.asked) == (9, (first.workflow_id,))


async def test_what_is_let_go_far_back_in_a_long_line_starts_all_the_same(bench):
    each = "workflow: noop, firstFire: next, grace: 1d"
    await declare_file_ago(
        bench,
        f"schedules: [{{key: parent, everyMs: 3600000, {each}}},"
        f" {{key: k, {each}, after: {{schedule: parent}}}}]",
        TEN,
    )
    parents = {claim.fire_time: claim for claim in await bench.claim() if claim.key == "parent"}
    newest = parents[max(parents)]
    assert (await statuses(bench))["queued"] == len(parents) == 10
    await run_of(bench, newest)
    await ended(bench, newest.workflow_id)
    started = []
    for _ in range(300):  # somewhere in the line a few more are read each time
        await bench.claim()
        if started := await taken(bench):
            break
        await bench.ledger.wake()
    assert [(claim.key, claim.fire_time) for claim in started] == [("k", newest.fire_time)]
