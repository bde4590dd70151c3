"""A key whose plan takes too long, or raises, backs off alone: Temporal is an outbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

import pytest

from engine.errors import LedgerTimeout, LedgerUnavailable
from engine.ledger.fires import Claim
from engine.ledger.records import Serving
from engine.runtime import Poller, Settings
from engine.runtime.apply.apply import apply
from engine.runtime.clock import LedgerClock
from engine.runtime.events import Alert, Event
from engine.schedules import load_schedules
from engine.schedules.planner import planner
from engine.testing import FrozenClock
from engine.testing.virtual_ledger import VirtualLedger
from tests.blind import BLIND

BEGIN = datetime(2026, 11, 22, 10, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SERVING = Serving("one", "default", "sched", frozenset({"noop@1"}))
FILE = """
schedules:
  - {key: a-good, workflow: noop, everyMs: 1000}
  - {key: bad, workflow: noop, everyMs: 1000}
  - {key: good, workflow: noop, everyMs: 1000}
"""


class Outbox:
    room = 100
    room_made: asyncio.Event
    breaker = cast("Any", type("Breaker", (), {"holds": False}))

    def __init__(self) -> None:
        self.claims: list[Claim] = []

    def send(self, claims: Sequence[Claim], lease_ends: float) -> list[Any]:
        self.claims += claims
        return []

    def room_behind(self, *, shared: bool) -> int:
        return self.room

    def room_of(self, share: str, late: bool) -> int:  # noqa: FBT001 - as the dispatcher's
        return self.room

    @property
    def room_for_late(self) -> int:
        return self.room

    def started(self, since: datetime) -> set[str]:
        return {claim.key for claim in self.claims if claim.fire_time >= since}


class Bench:
    """A poller whose transactions take too long, or fail, where they plan the key ``bad``."""

    def __init__(
        self, ledger: VirtualLedger, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.ledger, self.clock, self.outbox = ledger, clock, Outbox()
        self.trouble: Exception | None = None
        self.away = False
        self.told: list[Event] = []
        clock.move_to(BEGIN)
        monkeypatch.setattr(ledger, "transaction", partial(self._transaction, ledger.transaction))
        self.poller = Poller(
            ledger, cast("Any", self.outbox), LedgerClock(), SERVING, Settings(),
            **BLIND, on_event=self.told.append,
        )  # fmt: skip

    @asynccontextmanager
    async def _transaction(self, begin: Any, *, long: bool = False) -> AsyncIterator[Any]:
        if self.away:
            raise LedgerUnavailable("away")
        async with begin(long=long) as transaction:
            read = transaction.read

            async def troubled(keys: Sequence[str], **options: Any) -> Any:
                if "bad" in keys and self.trouble:
                    raise self.trouble
                return await read(keys, **options)

            transaction.read = troubled  # what a slow plan comes to
            yield transaction

    async def begin(self, text: str = FILE) -> None:
        await self.ledger.announce(SERVING, engine="0", tzdata="0", retention=None)
        await apply(self.ledger, load_schedules(text), by="test")

    async def tick(self, moment: datetime) -> None:
        self.clock.move_to(moment)
        await self.poller.tick()

    @property
    def alerts(self) -> list[str]:
        return [each.code for each in self.told if isinstance(each, Alert)]


@pytest.fixture
def fresh(
    virtual_ledger: VirtualLedger, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> Bench:
    return Bench(virtual_ledger, clock, monkeypatch)


@pytest.fixture
async def bench(fresh: Bench) -> Bench:
    await fresh.begin()
    return fresh


async def test_a_key_that_takes_too_long_costs_the_others_one_tick(bench):
    bench.trouble = LedgerTimeout("it took too long")
    with pytest.raises(LedgerTimeout):
        await bench.tick(BEGIN)
    for number in range(1, 20):
        await bench.tick(BEGIN + number * SECOND)
        assert bench.outbox.started(BEGIN + number * SECOND) == {"a-good", "good"}
    assert bench.outbox.started(BEGIN) == {"a-good", "good"}
    assert bench.alerts == ["SCHEDULE_PLAN_FAILED"], "it is told once"


async def test_a_key_that_took_too_long_goes_on_once_it_does_not(bench):
    bench.trouble = LedgerTimeout("it took too long")
    with pytest.raises(LedgerTimeout):
        await bench.tick(BEGIN)
    await bench.tick(BEGIN + SECOND)
    bench.trouble = None
    for number in range(2, 10):
        await bench.tick(BEGIN + number * SECOND)
    mine = sorted(claim.fire_time for claim in bench.outbox.claims if claim.key == "bad")
    assert mine == [BEGIN + number * SECOND for number in range(10)], "and nothing of it is lost"


@pytest.mark.parametrize("why", ["room", "server", "clock"])
async def test_what_is_planned_apart_stops_when_nothing_may_be_claimed_any_more(
    bench, why, monkeypatch
):
    bench.trouble = LedgerTimeout("it took too long")
    with pytest.raises(LedgerTimeout):
        await bench.tick(BEGIN)
    bench.trouble = None

    def send(claims: Sequence[Claim], lease_ends: float) -> list[Any]:
        bench.outbox.claims += claims
        if claims and why == "room":
            bench.outbox.room = 0
        elif claims:
            monkeypatch.setattr(holding, "holds", True)
        return []

    if why == "room":
        bench.outbox.room = 2  # the tick keeps half of it, which is one claim
    holding = bench.outbox.breaker if why == "server" else bench.poller._watch
    monkeypatch.setattr(type(bench.poller._watch), "holds", False)
    monkeypatch.setattr(bench.outbox, "send", send)
    await bench.tick(BEGIN)
    assert len(bench.outbox.claims) == 1


async def test_the_keys_planned_apart_have_room_beside_others_that_would_take_all_of_it(
    fresh, monkeypatch
):
    keys = ["bad", *(f"k{number}" for number in range(9))]
    bench = fresh
    entry = "{key: %s, workflow: noop, everyMs: 1000}"
    await bench.begin(f"schedules: [{', '.join(entry % key for key in keys)}]")

    def send(claims: Sequence[Claim], lease_ends: float) -> list[Any]:
        bench.outbox.claims += claims
        bench.outbox.room = max(bench.outbox.room - len(claims), 0)
        return []

    monkeypatch.setattr(bench.outbox, "send", send)
    bench.outbox.room = 4
    bench.trouble = LedgerTimeout("it took too long")
    with pytest.raises(LedgerTimeout):
        await bench.tick(BEGIN)
    bench.trouble = None
    apart = {*bench.poller._apart}
    for number in range(4):
        bench.outbox.room = 4  # and ten windows more each second
        await bench.tick(BEGIN + number * SECOND)
    started = {claim.key for claim in bench.outbox.claims}
    assert started >= apart >= {"bad"}
    assert started - apart, "the others have some too"


async def test_many_keys_planned_apart_take_few_transactions_unless_one_of_them_fails(
    fresh, monkeypatch
):
    keys = [*(f"a{number:02}" for number in range(14)), "bad"]
    bench = fresh
    entry = "{key: %s, workflow: noop, everyMs: 1000}"
    await bench.begin(f"schedules: [{', '.join(entry % key for key in keys)}]")
    tried: list[list[str] | None] = []
    claim_due = bench.poller._claim_due

    async def noted(*arguments: Any, only: list[str] | None = None) -> Any:
        tried.append(only)
        return await claim_due(*arguments, only=only)

    monkeypatch.setattr(bench.poller, "_claim_due", noted)
    for at, fails, sizes in ((BEGIN, False, []), (BEGIN + SECOND, True, [1] * 8)):
        bench.trouble = trouble = LedgerTimeout("it took too long")
        with pytest.raises(LedgerTimeout):
            await bench.tick(at)
        bench.trouble = trouble if fails else None
        tried.clear()
        await bench.tick(at)
        assert [len(each) for each in tried if each] == [1, 2, 4, 8, *sizes]
        assert bench.outbox.started(at) == {*keys} - ({"bad"} if fails else set())


async def test_a_ledger_that_goes_away_in_a_plan_is_no_keys_fault(bench):
    bench.trouble = LedgerUnavailable("the connection was lost")
    with pytest.raises(LedgerUnavailable):
        await bench.tick(BEGIN)
    bench.away = True
    with pytest.raises(LedgerUnavailable):
        await bench.tick(BEGIN + SECOND)
    bench.trouble, bench.away = None, False
    await bench.tick(BEGIN + 2 * SECOND)
    await bench.tick(BEGIN + 3 * SECOND)
    assert bench.outbox.started(BEGIN + 2 * SECOND) == {"a-good", "bad", "good"}
    assert bench.alerts == []


async def test_a_plan_that_raises_is_told_once_until_it_works_again(bench, monkeypatch):
    plan, broken = planner.plan, True

    def sometimes(state: Any, *arguments: Any, **options: Any) -> Any:
        if state.key == "bad" and broken:
            raise OverflowError("no such moment")
        return plan(state, *arguments, **options)

    monkeypatch.setattr("engine.runtime.tick.poller.plan", sometimes)
    for number in range(20):
        await bench.tick(BEGIN + number * SECOND)
    assert bench.alerts == ["SCHEDULE_PLAN_FAILED"]
    broken = False
    for number in range(20, 60):
        await bench.tick(BEGIN + number * SECOND)
    assert "bad" in bench.outbox.started(BEGIN + 59 * SECOND)
    broken = True
    await bench.tick(BEGIN + 60 * SECOND)
    assert bench.alerts == ["SCHEDULE_PLAN_FAILED"] * 2


@pytest.mark.parametrize(
    ("keys", "late", "behind"), [(3, 0.1, False), (3, 1, True), (60, 0.1, True), (0, 1, False)]
)
async def test_a_replica_is_behind_where_windows_are_late_or_many(
    virtual_ledger, clock, keys, late, behind
):
    """Events are then delivered a little at a time: starts come first."""
    moment = BEGIN + 60 * SECOND
    ledger = virtual_ledger
    clock.move_to(BEGIN)
    outbox = Outbox()
    outbox.room_made = asyncio.Event()
    poller = Poller(ledger, cast("Any", outbox), LedgerClock(), SERVING, Settings(), **BLIND)
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=None)
    each = "{{key: k{}, workflow: noop, at: '{}'}}"
    entries = ", ".join(each.format(n, moment.isoformat()) for n in range(keys or 1))
    await apply(ledger, load_schedules(f"schedules: [{entries}]"), by="test")
    clock.move_to(moment + late * SECOND if keys else BEGIN)
    await poller.run_once()
    assert len(outbox.claims) == keys
    assert poller.is_behind is behind
    await poller.run_once()
    assert not poller.is_behind, "nothing is due any more"


async def test_a_catch_up_that_finds_too_few_rows_left_is_planned_alone_and_whole(
    fresh, monkeypatch
):
    """Of a part of it, another window would be the newest, and its rate would begin anew."""
    monkeypatch.setattr("engine.runtime.tick.poller.MOST_ROWS", 30)
    policy = "catchUp: {policy: all, max: 20, order: newest, rate: 1/1h}"
    entry = "{key: %s, workflow: noop, everyMs: 60000, firstFire: next, " + policy + "}"
    bench = fresh
    await bench.begin(f"schedules: [{', '.join(entry % key for key in 'abc')}]")
    now = BEGIN + timedelta(hours=1)
    for _ in range(3):
        await bench.tick(now)
    assert [(claim.key, claim.fire_time) for claim in bench.outbox.claims] == [
        (key, now) for key in "abc"
    ]
    for key in "abc":
        row = (await bench.ledger.schedules(key=key))[0]
        assert row.next_fire_at == now + timedelta(minutes=1), "nothing of it is left"
