"""How a replica follows a limit of the server that it is never told."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ScheduleError
from engine.runtime.pressure import CubicRate, Pressure
from engine.runtime.settings import Rate, Settings


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


@settings(max_examples=20)
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
    pressure = Pressure(Rate(100, timedelta(seconds=1)).per_second)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    order: list[int] = []

    async def send(number: int) -> None:
        assert await pressure.turn(lambda: False)
        order.append(number)

    await asyncio.gather(*(send(number) for number in range(40)))
    assert loop.time() - begun >= 0.25  # 40, less the credit of a tenth of a second
    assert order == list(range(40)), "first come, first served"


async def test_whoever_gives_up_does_not_wait_for_a_turn():
    pressure = Pressure(0.001)
    assert await pressure.turn(lambda: False)
    assert not await pressure.turn(lambda: True)


def test_a_ceiling_is_written_as_a_number_and_a_duration():
    read = Settings.from_environment({"SCHED_START_RATE": "50/1s"})
    assert read.start_rate == Rate(50, timedelta(seconds=1))
    for text in ("50", "0/1s", "x/1s", "5/never"):
        with pytest.raises(ScheduleError, match="SCHED_START_RATE"):
            Settings.from_environment({"SCHED_START_RATE": text})
