"""The breaker: who opens it, who does not, and what a listener hears."""

from __future__ import annotations

import asyncio

from engine.runtime.dispatch.backpressure import Breaker
from engine.runtime.events import Degraded, Event, Recovered

AWAY = "UNAVAILABLE: tcp connect error"


class Server:
    """Answers trial calls as told."""

    def __init__(self) -> None:
        self.trouble: str | None = None
        self.asked = 0

    async def ask(self) -> str | None:
        self.asked += 1
        return self.trouble


def made() -> tuple[Breaker, Server, list[Event]]:
    server, told = Server(), list[Event]()
    return Breaker(server.ask, on_event=told.append), server, told


def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        breaker.unanswered()


async def test_nothing_is_claimed_while_the_server_is_away_and_it_is_said_once():
    breaker, server, told = made()
    server.trouble = AWAY
    fail(breaker, 40)
    assert breaker.holds, "held at once, before the server has been asked"
    for _ in range(5):
        await breaker.run_once()
        fail(breaker, 10)
    assert not await breaker.closed()
    server.trouble = None
    await breaker.run_once()
    assert await breaker.closed()
    assert told == [Degraded("starts", f"Temporal does not answer: {AWAY}"), Recovered("starts")]


async def test_a_schedule_whose_own_start_always_fails_never_holds_the_others():
    breaker, server, told = made()
    for _ in range(20):
        fail(breaker, 3)
        await breaker.run_once()
        assert await breaker.closed()
    assert (server.asked, told) == (20, [])


async def test_failures_with_answers_between_them_raise_no_suspicion():
    breaker, server, _ = made()
    for _ in range(10):
        fail(breaker, 2)
        breaker.answered()
    assert not breaker.holds
    assert server.asked == 0


async def test_what_waits_to_be_sent_is_given_back_when_the_server_is_away_and_sent_when_not():
    for trouble, may_go_on in ((AWAY, False), (None, True)):
        breaker, server, _ = made()
        server.trouble = trouble
        fail(breaker, 3)
        waiting = asyncio.create_task(breaker.closed())
        await breaker.run_once()
        assert await waiting is may_go_on


async def test_trial_calls_become_rarer_but_never_rarer_than_five_seconds():
    breaker, server, _ = made()
    server.trouble = AWAY
    fail(breaker, 3)
    pauses = [(await breaker.run_once()).total_seconds() for _ in range(12)]
    assert pauses[0] <= 0.25
    assert 2.5 <= pauses[-1] <= 5
    assert len(set(pauses)) == len(pauses), "replicas would ask in step"


async def test_a_replica_that_leaves_waits_for_no_verdict():
    breaker, server, _ = made()
    fail(breaker, 3)
    waiting = asyncio.create_task(breaker.closed())
    breaker.give_up()
    assert not await waiting
    assert server.asked == 0
