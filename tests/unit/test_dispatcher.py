"""What becomes of claims while the Temporal server is away, says "too many", or is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import cast

import pytest

from engine.errors import CommitUnknown, LedgerUnavailable
from engine.ledger.fires import Claim, Outcome
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.dispatcher import Dispatcher
from engine.runtime.dispatch.starter import Answer, Starter
from engine.runtime.events import Alert, Event, Settled
from engine.runtime.loop import Loop, beside
from engine.runtime.settings import Settings
from engine.runtime.tick.poller import Poller
from engine.schedules import load_schedules
from engine.testing import FrozenClock
from engine.testing.virtual_ledger import VirtualLedger
from tests.blind import BLIND
from tests.waiting import eventually

SERVING = Serving("one", "default", "sched", frozenset({"noop@1"}))
OTHER = Serving("other", "default", "sched", frozenset({"noop@1"}))


class Temporal:
    """Stands where the starter would be."""

    def __init__(self, answer: Callable[[Claim], Answer]) -> None:
        self.answer = answer
        self.sent: list[str] = []
        self.away = False
        self.slow: asyncio.Event | None = None

    async def start(self, claim: Claim, lease_ends: float) -> Answer | None:
        self.sent.append(claim.key)
        if self.slow:
            await self.slow.wait()
        return self.answer(claim)

    async def ask(self) -> str | None:
        return "refused" if self.away else None


def started(claim: Claim) -> Answer:
    return Answer(
        Outcome(claim.fire_id, claim.token, "started", "on_time", "run", claim.starting_at)
    )


def unanswered(claim: Claim) -> Answer:
    wait = timedelta(milliseconds=1)
    outcome = Outcome(claim.fire_id, claim.token, "starting", error="away", retry_after=wait)
    return Answer(outcome, failure="unavailable")


def too_many(claim: Claim) -> Answer:
    outcome = Outcome(claim.fire_id, claim.token, "starting", retry_after=timedelta(hours=1))
    return Answer(outcome, failure="throttled")


class Bench:
    def __init__(self, ledger: VirtualLedger, temporal: Temporal, **settings: object) -> None:
        self.told: list[Event] = []
        self.temporal, self.ledger = temporal, ledger
        options = Settings(**settings)  # type: ignore[arg-type] # a test names what it needs
        self.settings = options
        clock = LedgerClock()
        self.dispatcher = Dispatcher(
            self.ledger, cast("Starter", temporal), clock, options, on_event=self.told.append
        )
        self.poller = Poller(self.ledger, self.dispatcher, clock, SERVING, options, **BLIND)

    async def declare(self, count: int) -> None:
        await self._declare(
            f"{{key: k{n:03}, workflow: noop, everyMs: 3600000}}" for n in range(count)
        )

    async def declare_inputs(self, *sizes: int) -> None:
        """One schedule for each of these lengths of an input."""
        await self._declare(
            f"{{key: k{n}, workflow: noop, everyMs: 3600000, input: {'x' * size}}}"
            for n, size in enumerate(sizes)
        )
        # A tick leaves out large definitions until they have been parsed beside it.
        async with self.ledger.transaction() as transaction:
            await transaction.read([f"k{n}" for n in range(len(sizes))])

    async def _declare(self, entries: Iterable[str]) -> None:
        await self.ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
        text = "schedules:\n" + "\n".join(f"  - {entry}" for entry in entries)
        await apply(self.ledger, load_schedules(text), by="test")


@pytest.fixture
def bench_of(virtual_ledger: VirtualLedger) -> Callable[..., Bench]:
    return partial(Bench, virtual_ledger)


async def passing(clock: FrozenClock) -> None:
    """Let time pass, faster than it does."""
    while True:
        await asyncio.sleep(0.01)
        clock.advance(0.5)


async def test_while_temporal_is_away_nothing_is_claimed_and_the_rest_is_given_back_at_once(
    bench_of, clock
):
    temporal = Temporal(unanswered)
    temporal.away = True
    bench = bench_of(temporal, concurrency=4)
    await bench.declare(80)
    breaker = bench.dispatcher.breaker
    watching = Loop("starts", breaker.run_once, on_event=bench.told.append)
    breaker.rouse = watching.wake
    async with beside(watching.run()):
        tick = await bench.poller.tick()
    assert len(tick.claims) == 80
    assert len(temporal.sent) < 10, "each window met the server that is away"
    assert (await bench.poller.tick()).claims == (), "claimed although it cannot be sent"
    assert not [event for event in bench.told if isinstance(event, Settled)]
    # Another replica, which the server answers, finds them all.
    clock.advance(0.001)
    taken = await bench.ledger.take_over(OTHER, limit=100, lease=timedelta(seconds=30))
    assert len(taken) == 80
    assert {claim.attempts for claim in taken} == {2}


async def test_what_the_server_refused_as_too_many_is_sent_again_by_its_owner(bench_of, clock):
    refusals: dict[str, int] = {}

    def at_the_third_time(claim: Claim) -> Answer:
        refusals[claim.key] = refusals.get(claim.key, 0) + 1
        return started(claim) if refusals[claim.key] == 3 else too_many(claim)

    bench = bench_of(Temporal(at_the_third_time), lease=timedelta(hours=1))
    await bench.declare(3)
    async with beside(passing(clock)):
        await bench.poller.tick()
    fires = await bench.ledger.fires()
    assert [fire.status for fire in fires] == ["started"] * 3
    assert len([event for event in bench.told if isinstance(event, Settled)]) == 3
    assert not bench.dispatcher.breaker.holds, "too many is an answer"


async def test_large_inputs_go_as_the_server_has_time_and_stand_in_nobodys_way(bench_of):
    temporal = Temporal(started)
    temporal.slow = asyncio.Event()
    bench = bench_of(temporal, concurrency=8)
    await bench.declare_inputs(*range(0, 54_000, 9000))
    turn = asyncio.create_task(bench.poller.tick())
    await eventually(lambda: len(temporal.sent) >= 3)
    assert sorted(temporal.sent) == ["k0", "k1", "k2"], "one of them is large"
    temporal.slow.set()
    await turn
    assert len(temporal.sent) == 6


async def test_large_inputs_that_wait_take_no_room_and_are_handed_back_by_who_leaves(bench_of):
    temporal = Temporal(started)
    temporal.slow = asyncio.Event()
    bench = bench_of(temporal, concurrency=8, batch=120)
    await bench.declare_inputs(*[20_000] * 60)
    turn = asyncio.create_task(bench.poller.tick())
    await eventually(lambda: temporal.sent)
    assert bench.dispatcher.room == 119, "one is on its way"
    draining = asyncio.create_task(bench.dispatcher.drain())
    await asyncio.sleep(0)  # lets it say that it leaves
    temporal.slow.set()
    await draining
    await turn
    assert len(temporal.sent) < 5
    taken = await bench.ledger.take_over(OTHER, limit=100, lease=timedelta(seconds=30))
    assert len(taken) == 60 - len(temporal.sent)


async def test_a_lease_is_renewed_for_as_long_as_the_send_takes(bench_of, clock):
    temporal = Temporal(started)
    temporal.slow = asyncio.Event()
    bench = bench_of(temporal, concurrency=1)
    await bench.declare(3)
    ticking = asyncio.create_task(bench.poller.tick())
    await eventually(lambda: temporal.sent)
    swept: list[Claim] = []
    for _ in range(12):
        clock.advance(await bench.dispatcher.leases.run_once())
        swept += await bench.ledger.take_over(OTHER, limit=9, lease=timedelta(0))
    assert swept == [], "swept although its owner still had it in hand"
    temporal.slow.set()
    await ticking
    assert {fire.status for fire in await bench.ledger.fires()} == {"started"}


async def test_nothing_is_sent_after_a_lease_that_nobody_renewed(bench_of, clock):
    temporal = Temporal(started)
    temporal.slow = asyncio.Event()
    bench = bench_of(temporal, concurrency=1)
    await bench.declare(3)
    ticking = asyncio.create_task(bench.poller.tick())
    await eventually(lambda: temporal.sent)
    clock.advance(bench.settings.lease)
    assert len(await bench.ledger.take_over(OTHER, limit=9, lease=timedelta(seconds=30))) == 3
    await bench.dispatcher.leases.renew()
    temporal.slow.set()
    await ticking
    assert len(temporal.sent) == 1, "sent what another replica owns"


async def test_a_replica_that_leaves_under_a_limit_hands_back_what_waits(bench_of):
    bench = bench_of(Temporal(started), start_rate=None)
    bench.dispatcher.limiter._ceiling = 0.01
    await bench.declare(5)
    ticking = asyncio.create_task(bench.poller.tick())
    await eventually(lambda: bench.temporal.sent)
    await bench.dispatcher.drain()
    await ticking
    statuses = sorted(fire.status for fire in await bench.ledger.fires())
    assert statuses == ["started"] + ["starting"] * 4
    taken = await bench.ledger.take_over(OTHER, limit=9, lease=timedelta(seconds=30))
    assert len(taken) == 4


async def test_what_could_not_be_written_is_not_told_as_started(bench_of, monkeypatch):
    bench = bench_of(Temporal(started))
    await bench.declare(2)

    async def away(_: object) -> int:
        raise LedgerUnavailable

    with monkeypatch.context() as broken:
        broken.setattr(bench.ledger, "settle", away)
        await bench.poller.tick()
    assert {fire.status for fire in await bench.ledger.fires()} == {"starting"}
    assert [type(event) for event in bench.told] == [Alert], "its sweeper will tell what became"


async def test_a_wake_up_that_waits_for_a_held_key_keeps_no_outcome_from_being_written(
    bench_of, monkeypatch
):
    waking, held = asyncio.Event(), asyncio.Event()

    class Second(Temporal):
        """Answers about the second while what the first has let go is woken."""

        async def start(self, claim: Claim, lease_ends: float) -> Answer | None:
            if claim.key == "k001":
                await waking.wait()
                return started(claim)
            return Answer(Outcome(claim.fire_id, claim.token, "rejected", error="too large"))

    async def wake() -> list[str]:
        waking.set()
        await held.wait()
        return []

    bench = bench_of(Second(started))
    await bench.declare(2)
    monkeypatch.setattr(bench.ledger, "wake", wake)
    ticking = asyncio.create_task(bench.poller.tick())

    async def both_are_written() -> bool:
        return {fire.status for fire in await bench.ledger.fires()} == {"rejected", "started"}

    await eventually(both_are_written)
    held.set()
    await ticking


async def test_a_failed_renewal_forgets_no_claims_of_commits_that_nobody_confirmed(
    bench_of, monkeypatch
):
    temporal = Temporal(started)
    bench = bench_of(temporal)
    await bench.declare(2)
    begin, rooms = bench.ledger.transaction, iter([1, 1])

    @asynccontextmanager
    async def unconfirmed(**options: bool):
        async with begin(**options) as transaction:
            yield transaction
        raise CommitUnknown

    async def not_yet_there(*_: object) -> set[int]:
        return set()

    async def away(*_: object) -> set[int]:
        raise LedgerUnavailable

    with monkeypatch.context() as broken:
        broken.setattr(bench.ledger, "transaction", unconfirmed)
        broken.setattr(bench.ledger, "renew", not_yet_there)
        broken.setattr(Dispatcher, "room", property(lambda _: next(rooms, 0)))
        for _ in range(2):
            with pytest.raises(CommitUnknown):
                await bench.poller.tick()
        broken.setattr(bench.ledger, "renew", away)
        with pytest.raises(LedgerUnavailable):
            await bench.poller.tick()
    await bench.poller.tick()
    assert sorted(temporal.sent) == ["k000", "k001"]
