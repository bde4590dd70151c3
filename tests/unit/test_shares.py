"""One tenant's flood is nobody else's: whose turn it is when more is due than can be started."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from engine.errors import Code
from engine.ledger import Claim, Fire, Outcome, Serving
from engine.runtime import Poller, Settings
from engine.runtime.apply.apply import apply
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.backpressure import Vegas
from engine.runtime.dispatch.dispatcher import Dispatcher
from engine.runtime.dispatch.shares import FairSlots, Turns
from engine.runtime.dispatch.starter import Answer, Starter
from engine.runtime.events import Alert, Event
from engine.schedules import Rate, load_schedules
from engine.schedules.terms import share_of
from engine.service import ScheduleService
from tests.blind import BLIND
from tests.bridge import Bridge
from tests.virtual_time import VirtualTime, virtual_time

BEGIN = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
SERVING = Serving("one", "default", "sched", frozenset({"noop@1", "mail@1"}))
FLOOD, MOMENT = 120, BEGIN + timedelta(seconds=5)
EACH, AT_ONCE = 0.25, 2
"""Seconds of a start, and starts at once: a flood takes 15 s."""

# --- turns ---

ITEMS = st.lists(
    st.tuples(st.sampled_from(["", "a", "b", "c"]), st.sampled_from(["x", "y"]), st.booleans())
)


@given(ITEMS)
def test_between_two_turns_of_a_tenant_no_other_has_more_than_one_of_the_same_kind(items):
    turns = Turns[tuple[str, str, bool, int]]()
    for number, (tenant, workflow, late) in enumerate(items):
        turns.add(share_of(tenant, workflow), (tenant, workflow, late, number), late=late)
    order = []
    while turns:
        order.append(turns.pop())
    assert sorted(order) == sorted((*each, number) for number, each in enumerate(items))
    for late in (False, True):
        mine = [each for each in order if each[2] == late]
        for first, (tenant, *_) in enumerate(mine):
            waits = [each for each in mine[first:] if each[0] == tenant]
            if len(waits) < 2:
                continue
            until = mine.index(waits[1])
            between = Counter(each[0] for each in mine[first + 1 : until])
            assert max(between.values(), default=0) <= 1
        for share in {each[:2] for each in mine}:
            numbers = [each[3] for each in mine if each[:2] == share]
            assert numbers == sorted(numbers), "a share keeps its order"


@given(ITEMS)
def test_what_is_on_time_and_what_is_late_take_turns(items):
    turns = Turns[bool]()
    for tenant, workflow, late in items:
        turns.add(share_of(tenant, workflow), late, late=late)
    order = []
    while turns:
        order.append(turns.pop())
    both = 2 * min(order.count(True), order.count(False))
    assert all(order[n] != order[n + 1] for n in range(both - 1))


async def test_a_newcomer_has_the_next_slot_however_many_of_another_wait():
    slots, served = FairSlots(1), list[str]()

    async def take(share: str) -> None:
        async with slots.place(share):
            served.append(share)
            await asyncio.sleep(0)

    many = [asyncio.create_task(take("many")) for _ in range(100)]
    await asyncio.sleep(0)
    one = asyncio.create_task(take("one"))
    await asyncio.gather(*many, one)
    assert served.index("one") <= 3


async def test_a_slot_of_one_who_gave_up_is_not_lost():
    slots = FairSlots(1)
    async with slots.place("a"):
        waits = [asyncio.create_task(_take(slots, "b")) for _ in range(3)]
        await asyncio.sleep(0)
        waits[0].cancel()
    waits[1].cancel()  # it has the slot by now
    await asyncio.gather(*waits, return_exceptions=True)
    async with asyncio.timeout(5), slots.place("c"):
        return


def test_beside_a_flood_that_is_late_the_server_has_no_long_line_for_who_is_on_time():
    """Each start takes a hundredth of a second of a server that does one after the other."""
    each, took = 0.01, list[float]()
    with virtual_time() as time:

        async def play() -> int:
            slots, server, done = FairSlots(32, Vegas(32)), asyncio.Lock(), 0

            async def start(*, late: bool) -> float:
                nonlocal done
                async with slots.place(late=late) as answered:
                    sent_at = time.now
                    async with server:
                        await asyncio.sleep(each)
                    answered(sent_at)
                    done += late
                    return time.now - sent_at

            flood = [asyncio.create_task(start(late=True)) for _ in range(2_000)]
            for _ in range(10):
                await asyncio.sleep(1)
                took.append(await start(late=False))
            for call in flood:
                call.cancel()
            return done

        done = time.run(play())
    assert max(took) < 5 * each, "32 at once would take 32 of them"
    assert done * each > 0.85 * 10, "the server has hardly a rest"


async def _take(slots: FairSlots, share: str) -> None:
    async with slots.place(share):
        return


# --- floods ---


class Temporal:
    """Stands where the starter would be; a start takes its time."""

    def __init__(self, time: VirtualTime, each: float) -> None:
        self._time, self._each = time, each
        self.lags: dict[str, list[timedelta]] = {}

    async def start(self, claim: Claim, lease_ends: float) -> Answer:
        await asyncio.sleep(self._each)
        now = BEGIN + timedelta(seconds=self._time.now)
        self.lags.setdefault(claim.key, []).append(now - claim.fire_time)
        run = f"run-{claim.workflow_id}"
        return Answer(Outcome(claim.fire_id, claim.token, "started", claim.timing, run, now))

    async def ask(self) -> str | None:
        return None


class Bench:
    """One poller and its dispatcher in a time of their own."""

    def __init__(
        self, time: VirtualTime, bridge: Bridge, *, each: float = EACH, **options: Any
    ) -> None:
        self.time, self.ledger = time, time.ledger(bridge, BEGIN)
        self.temporal, self.told = Temporal(time, each), list[Event]()
        settings, clock = Settings(concurrency=AT_ONCE, **options), LedgerClock()
        self.dispatcher = Dispatcher(
            self.ledger,
            cast("Starter", self.temporal),
            clock,
            settings,
            on_event=self.told.append,
        )
        self.poller = Poller(
            self.ledger,
            self.dispatcher,
            clock,
            SERVING,
            settings,
            **{**BLIND, "on_event": self.told.append},
        )

    async def live(self, *entries: str, seconds: float) -> None:
        await self.ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
        await apply(self.ledger, load_schedules(f"schedules: [{', '.join(entries)}]"), by="test")
        while self.time.now < seconds:
            wait = await self.poller.run_once()
            await asyncio.sleep(max(wait.total_seconds(), 0.001))

    def fires(self, key: str, seconds: float) -> list[Fire]:
        async def read() -> list[Fire]:
            return [
                each
                for each in await self.ledger.fires(key=key, limit=1000)
                if each.fire_time >= BEGIN
            ]

        return self.time.run(read())


@pytest.fixture
def bench(bridge: Bridge) -> Iterator[Bench]:
    with virtual_time() as time:
        yield Bench(time, bridge)


def one_shots(workflow: str, tenant: str | None = None) -> list[str]:
    """``tenant`` may have the number of the one-shot in it."""
    return [
        f"{{key: shot-{n}, workflow: {workflow}, at: '{MOMENT.isoformat()}'"
        + (f", metadata: {{tenantId: '{tenant.format(n)}'}}}}" if tenant else "}")
        for n in range(FLOOD)
    ]


INNOCENT = "{key: innocent, workflow: noop, every: 1s, grace: 5s%s}"
OF_B = ", metadata: {tenantId: b}"


@pytest.mark.parametrize(
    ("innocent", "flood"),
    [
        (INNOCENT % OF_B, one_shots("noop", "a")),
        pytest.param(INNOCENT % "", one_shots("mail"), marks=pytest.mark.prove),
        (INNOCENT % "", one_shots("noop")),
    ],
    ids=["of another tenant", "of another workflow", "of the same workflow"],
)
def test_beside_a_flood_of_one_moment_a_schedule_fires_in_time(bench, innocent, flood):
    bench.time.run(bench.live(innocent, *flood, seconds=30))
    fires = bench.fires("innocent", 30)
    assert {each.status for each in fires} == {"started"}
    assert len(fires) >= 29
    lags = sorted(bench.temporal.lags["innocent"])
    assert lags[len(lags) * 9 // 10] < timedelta(seconds=1)
    shots = [each for n in range(FLOOD) for each in bench.temporal.lags[f"shot-{n}"]]
    assert len(shots) == FLOOD, "the flood runs too"
    assert max(shots) < timedelta(seconds=FLOOD * EACH / AT_ONCE * 1.3)


def test_what_somebody_asks_for_just_now_waits_for_no_flood_of_such_requests(bridge):
    with virtual_time() as time:
        bench = Bench(time, bridge, each=0.1)
        daily = "{key: %s, workflow: noop, every: 1d, firstFire: next, metadata: {tenantId: %s}}"

        asked = 200

        async def ask() -> None:
            service = ScheduleService(bench.ledger, actor="test")
            await asyncio.sleep(5)
            for _ in range(asked):
                await service.trigger("flood")
            for _ in range(3):
                await asyncio.sleep(1)
                await service.trigger("innocent")

        async def play() -> None:
            asking = asyncio.create_task(ask())
            await bench.live(daily % ("innocent", "b"), daily % ("flood", "a"), seconds=20)
            await asking

        time.run(play())
        assert len(bench.temporal.lags["flood"]) == asked
        assert max(bench.temporal.lags["flood"]) > timedelta(seconds=9)
        assert max(bench.temporal.lags["innocent"]) < timedelta(seconds=6)


def test_a_window_that_waited_for_others_only_is_not_missed(bench):
    everyone = one_shots("noop", "t{}")
    bench.time.run(bench.live(INNOCENT % OF_B, *everyone, seconds=35))
    fires = bench.fires("innocent", 35)
    assert {each.status for each in fires} == {"started"}
    assert not [each for each in bench.told if isinstance(each, Alert)]


def test_more_than_its_own_share_is_coalesced_as_an_overload_and_told_once(bench):
    own = [f"{{key: own-{n}, workflow: noop, every: 1s, grace: 3s{OF_B}}}" for n in range(60)]
    bench.time.run(bench.live(INNOCENT % "", *own, seconds=40))
    reasons = Counter(
        each.reason_code for n in range(60) for each in bench.fires(f"own-{n}", 40) if each.reason
    )
    assert reasons["overload"] > 10
    assert not reasons["coalesced"]
    alerts = [each for each in bench.told if isinstance(each, Alert)]
    assert [each.code for each in alerts] == [Code.OVERLOADED]
    assert "tenant b" in alerts[0].text
    assert {each.status for each in bench.fires("innocent", 40)} == {"started"}


def test_a_tenant_has_no_more_starts_a_second_than_the_setting_says(bridge):
    rate = Rate(5, timedelta(seconds=1))
    with virtual_time() as time:
        bench = Bench(time, bridge, each=0.1, tenant_rate=rate)
        shots = [one_shots("noop", name)[:50] for name in ("a", "b")]
        named = [each.replace("shot-", f"{n}-") for n, of in enumerate(shots) for each in of]
        time.run(bench.live(INNOCENT % "", *named, seconds=30))
        for n in range(2):
            lags = sorted(lag for i in range(50) for lag in bench.temporal.lags[f"{n}-{i}"])
            assert timedelta(seconds=8) < lags[-1] < timedelta(seconds=13), "50 at 5 a second"
        assert max(bench.temporal.lags["innocent"]) < timedelta(seconds=0.6)
