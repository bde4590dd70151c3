"""Which of a clock's readings is taken, where nobody knows when between two moments it was read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.ledger.records import Probe, Serving
from engine.runtime.clock import LedgerClock
from tests.unit.test_lookups_beside_ticks import STUCK, Bench, moment
from tests.virtual_time import VirtualTime, virtual_time

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
def time() -> Iterator[VirtualTime]:
    with virtual_time() as moves:
        yield moves


def test_the_clock_is_never_ahead_of_what_it_reads_and_says_how_late_it_may_be(time):
    clock = LedgerClock()
    with pytest.raises(RuntimeError, match="has not been seen"):
        clock.now()
    clock.observe(NOW, asked=-4, answered=0)
    assert (clock.now(), clock.about(), clock.latest()) == (NOW, NOW + 2 * SECOND, NOW + 4 * SECOND)
    time.run(asyncio.sleep(3))
    assert clock.now() - NOW - 3 * SECOND < SECOND / 10


def test_a_probe_held_up_on_its_way_makes_no_proof_from_the_future(time, bridge):
    bench = Bench(time, bridge)
    bench.temporal.bad = set()
    probe, held = bench.ledger.probe, [0.0]

    async def slow(serving: Serving, **options: Any) -> Probe:
        delay, held[0] = held[0], 0.0
        await asyncio.sleep(delay)
        return await probe(serving, **options)

    bench.ledger.probe = slow  # type: ignore[method-assign] # the request is held
    seen: list[tuple[datetime, datetime]] = []
    clock = bench.poller._clock

    async def look(_: object) -> bool:
        seen.append((clock.now(), moment(time)))
        return False

    bench.temporal.inspect = look  # type: ignore[method-assign,assignment] # only dates are wanted

    async def course() -> None:
        await bench.declare(STUCK)
        for _ in range(5):
            await bench.live(1.5)
            held[0] = 4.0

    time.run(course())
    assert seen
    assert all(read <= truly for read, truly in seen)
