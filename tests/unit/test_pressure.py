"""How a replica follows a limit of the server that it is never told."""

from __future__ import annotations

import asyncio
import heapq
from datetime import timedelta

import pytest
from hypothesis import given, settings, strategies as st

from engine.errors import SettingsInvalid
from engine.runtime.dispatch.backpressure import AdaptiveRateLimiter, CubicRate, Vegas
from engine.runtime.dispatch.shares import FairSlots
from engine.runtime.settings import Settings
from engine.schedules.terms import Rate
from tests.examples import examples


class Limited:
    """A server that lets ``limit`` calls through each second; time is simulated."""

    def __init__(self, limit: float) -> None:
        self.limit, self.tokens, self.at = limit, 0.0, 0.0

    def takes(self, now: float) -> bool:
        self.tokens = min(self.limit, self.tokens + (now - self.at) * self.limit)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


def sent(limit: float, senders: int, seconds: float) -> tuple[list[int], int]:
    """Let senders with more than enough to do run; returns what each got through, and refusals."""
    server, rates = Limited(limit), [CubicRate() for _ in range(senders)]
    taken, refused, free = [0] * senders, 0, [number / 1000 for number in range(senders)]
    while (now := min(free)) < seconds:
        number = free.index(now)
        rate = rates[number]
        if server.takes(now):
            rate.accepted(now)
            taken[number] += 1
        else:
            rate.refused(sent_at=now, now=now)
            refused += 1
        free[number] = now + 1 / (rate.at(now) or 300)
    return taken, refused


@settings(max_examples=examples(20))
@given(limit=st.integers(10, 150), senders=st.integers(1, 4))
def test_most_of_the_servers_limit_is_used_and_little_is_refused(limit: int, senders: int):
    taken, refused = sent(limit, senders, 30)
    assert sum(taken) >= 0.75 * limit * 30
    assert refused <= 0.25 * sum(taken) + 60


def test_replicas_that_know_nothing_of_each_other_share_the_limit():
    taken, _ = sent(30, 3, 120)
    assert min(taken) >= 0.5 * max(taken), taken


def test_without_a_refusal_there_is_no_limit_and_after_a_while_there_is_none_again():
    rate = CubicRate()
    assert rate.at(0) is None
    for n in range(30):
        rate.accepted(n / 30)
    rate.refused(sent_at=1, now=1)
    assert rate.at(1) == pytest.approx(0.7 * 30, rel=0.1)
    assert rate.at(30) is None


def test_many_refusals_of_one_moment_count_once():
    rate = CubicRate()
    for n in range(30):
        rate.accepted(n / 30)
    rate.refused(sent_at=0.95, now=1)
    lowered = rate.at(1)
    for _ in range(32):
        rate.refused(sent_at=1.2, now=1.2)
    assert rate.at(1) == lowered
    rate.refused(sent_at=1.6, now=1.6)
    assert (rate.at(1.6) or 0) < (lowered or 0)


async def test_a_fixed_ceiling_spaces_the_sends():
    limiter = AdaptiveRateLimiter(Rate(100, timedelta(seconds=1)).per_second)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    order: list[int] = []

    async def send(number: int) -> None:
        assert await limiter.acquire(lambda: False)
        order.append(number)

    await asyncio.gather(*(send(number) for number in range(40)))
    assert loop.time() - begun >= 0.25  # 40, less the credit of a tenth of a second
    assert order == list(range(40)), "first come, first served"


async def test_whoever_gives_up_does_not_wait_for_a_turn():
    limiter = AdaptiveRateLimiter(0.001)
    assert await limiter.acquire(lambda: False)
    assert not await limiter.acquire(lambda: True)


def test_a_ceiling_is_written_as_a_number_and_a_duration():
    read = Settings.from_environment({"SCHED_START_RATE": "50/1s"})
    assert read.start_rate == Rate(50, timedelta(seconds=1))
    for text in ("50", "0/1s", "x/1s", "5/never"):
        with pytest.raises(SettingsInvalid, match="SCHED_START_RATE"):
            Settings.from_environment({"SCHED_START_RATE": text})


def worked(
    most: int, *, at_once: int, each: float, away: float, seconds: float = 30
) -> list[float]:
    """Let a caller with more than enough to do call a server; returns how long each call took.

    The server works on ``at_once`` calls, ``each`` for so long, and lies ``away``.
    """
    vegas, now, took = Vegas(most), 0.0, []
    free = [0.0] * at_once
    under_way: list[tuple[float, float, int]] = []
    while now < seconds:
        while len(under_way) < vegas.limit:
            done = max(heapq.heappop(free), now) + each
            heapq.heappush(free, done)
            heapq.heappush(under_way, (done + away, now, len(under_way) + 1))
        now, sent_at, among = heapq.heappop(under_way)
        vegas.answered(now - sent_at, among=among, now=now)
        took.append(now - sent_at)
    return took


@settings(max_examples=examples(30))
@given(each=st.floats(0.002, 0.05), at_once=st.integers(1, 4))
def test_of_what_can_wait_little_waits_inside_the_server_which_is_busy_all_the_same(
    each: float, at_once: int
):
    took = worked(16, at_once=at_once, each=each, away=0.001)
    assert len(took) >= 0.85 * 30 / each * at_once
    assert sum(took) / len(took) <= 2.5 * each


def test_a_server_that_is_far_away_and_has_room_gets_as_many_at_once_as_may_be():
    took = worked(16, at_once=64, each=0.005, away=0.02)
    assert len(took) >= 0.85 * 16 * 30 / 0.025


async def test_who_waits_for_a_place_gets_it_in_turn_and_who_gives_up_takes_none():
    spare, began = FairSlots(16, Vegas(16)), []

    async def call(number: int, end: asyncio.Event) -> None:
        async with spare.place(late=True):
            began.append(number)
            await end.wait()

    ends = [asyncio.Event() for _ in range(4)]
    calls = [asyncio.create_task(call(number, end)) for number, end in enumerate(ends)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert began == [0], "how long an answer takes is not known yet"
    calls[1].cancel()
    for end in ends:
        end.set()
    await asyncio.wait(calls)
    assert began == [0, 2, 3]
