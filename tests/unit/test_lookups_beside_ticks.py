"""A key's trouble stays its own: what one plan waits for delays no other key."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, cast

import pytest

from engine.errors import LedgerUnavailable
from engine.ledger import Ledger
from engine.ledger.fires import Claim, Outcome
from engine.ledger.records import Serving
from engine.runtime import Poller, Settings
from engine.runtime.apply.apply import apply
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.backpressure import Budget
from engine.runtime.dispatch.dispatcher import Dispatcher
from engine.runtime.events import Alert, Event
from engine.runtime.runs.memo import UnreadableHere
from engine.runtime.tick.lookups import RunLookups
from engine.runtime.tracking.runs import RunAuditor, RunCanceller, RunInspector
from engine.schedules import load_schedules
from tests.bridge import Bridge
from tests.virtual_time import VirtualTime, virtual_time

BEGIN = datetime(2026, 11, 21, 10, tzinfo=UTC)
SERVING = Serving("one", "default", "sched", frozenset({"noop@1"}))
PATIENCE = 5.0
GOOD = "{key: good, workflow: noop, everyMs: 1000}"
STUCK = "{key: stuck, workflow: noop, everyMs: 1000, overlap: skip}"
OFF = "{key: off, workflow: noop, everyMs: 1000, enabled: false}"
CHILD = "{key: child, workflow: noop, everyMs: 1000, needs: [off]}"
LATE = "{key: late, workflow: noop, everyMs: 1000, overlap: allow}"


def moment(time: VirtualTime) -> datetime:
    """What the ledger's clock reads."""
    return BEGIN + timedelta(seconds=time.now)


class Temporal:
    """Looks at runs that are open; those of some keys cannot be looked at, or audited."""

    def __init__(self, ledger: Ledger, time: VirtualTime) -> None:
        self.ledger, self.time = ledger, time
        self.bad, self.audited = {"stuck"}, False
        self.error: Exception = TimeoutError("Timeout expired")
        self.looks: list[tuple[float, str]] = []
        self.budget = Budget()

    async def inspect(self, workflow_ids: Sequence[str]) -> bool:
        for name in workflow_ids:
            await self.budget.call()
            self.looks.append((self.time.now, name))
            asked = moment(self.time)
            if name.split(":")[1] in self.bad:
                await asyncio.sleep(PATIENCE)
                raise self.error
            await asyncio.sleep(0.01)
            await self.ledger.seen_open([name], asked)
        return False

    def is_audited(self, _: object) -> bool:
        return self.audited

    def forget(self) -> None:
        return

    async def audit(self, states: Sequence[Any], known: Any) -> dict[str, Exception]:
        await asyncio.sleep(1000)
        return {}

    async def stop_due(self) -> int:
        return 0


class Outbox:
    """Stands where the dispatcher would be, and starts whatever it is given at once."""

    room = 200

    def __init__(self, ledger: Ledger, time: VirtualTime) -> None:
        self.ledger, self.time = ledger, time
        self.lags: dict[str, list[timedelta]] = {}
        self.unanswered: list[Claim] | None = None
        self.room_made = asyncio.Event()
        self.breaker = cast("Any", type("Breaker", (), {"holds": False}))

    def send(self, claims: Sequence[Claim], lease_ends: float) -> list[asyncio.Task[None]]:
        return [asyncio.ensure_future(self._start(claim)) for claim in claims]

    def room_of(self, share: str, late: bool) -> int:  # noqa: FBT001 - as the dispatcher's
        return self.room

    @property
    def room_for_late(self) -> int:
        return self.room

    async def _start(self, claim: Claim) -> None:
        if self.unanswered is not None:
            self.unanswered.append(claim)
            return
        now = moment(self.time)
        self.lags.setdefault(claim.key, []).append(now - claim.fire_time)
        run = f"run-{claim.workflow_id}"
        begun = Outcome(claim.fire_id, claim.token, "started", "on_time", run, started_at=now)
        await self.ledger.settle([begun])


class Bench:
    """One poller in a time of its own."""

    def __init__(self, time: VirtualTime, bridge: Bridge) -> None:
        self.time = time
        self.ledger = time.ledger(bridge, BEGIN)
        self.temporal, self.told = Temporal(self.ledger, time), list[Event]()
        self.outbox = Outbox(self.ledger, time)
        self.lookups = RunLookups(
            self.ledger, inspector=cast("RunInspector", self.temporal),
            auditor=cast("RunAuditor", self.temporal),
            canceller=cast("RunCanceller", self.temporal),
            on_event=self.told.append,
        )  # fmt: skip
        self.poller = Poller(
            self.ledger, cast("Dispatcher", self.outbox), LedgerClock(), SERVING, Settings(),
            lookups=self.lookups, on_event=lambda _: None,
        )  # fmt: skip
        self.plans: Counter[str] = Counter()

    async def declare(self, *entries: str) -> None:
        await self.ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
        await apply(self.ledger, load_schedules(f"schedules: [{', '.join(entries)}]"), by="test")

    async def live(self, seconds: float) -> None:
        until = self.time.now + seconds
        while self.time.now < until:
            wait = await self.poller.run_once()
            await asyncio.sleep(max(wait.total_seconds(), 0.001))


@pytest.fixture
def bench(bridge: Bridge) -> Iterator[Bench]:
    with virtual_time() as time:
        yield Bench(time, bridge)


def test_what_a_tick_has_claimed_is_sent_before_anybody_is_looked_at(bench):
    async def course() -> None:
        await bench.declare(GOOD, STUCK)
        await bench.live(1.5)
        bench.outbox.lags.clear()
        begun = bench.time.now
        await bench.live(1)
        assert bench.temporal.looks
        assert bench.time.now - begun < PATIENCE
        assert bench.outbox.lags["good"]

    bench.time.run(course())


def test_what_a_tick_has_claimed_is_sent_although_the_ledger_fails_right_after_it(
    bench, monkeypatch
):
    async def away(*_: object) -> list[str]:
        raise LedgerUnavailable("the database restarts")

    monkeypatch.setattr(bench.ledger, "wake", away)
    monkeypatch.setattr(bench.ledger, "seen_open", away)

    async def course() -> None:
        await bench.declare(GOOD, STUCK, OFF, CHILD)
        bench.temporal.bad = set()
        await bench.live(10)
        assert len(bench.outbox.lags["good"]) >= 10

    bench.time.run(course())


def test_a_run_that_cannot_be_looked_at_delays_no_window_of_another_schedule(bench):
    async def course() -> None:
        await bench.declare(GOOD, STUCK)
        await bench.live(60)

    bench.time.run(course())
    lags = bench.outbox.lags["good"]
    assert len(lags) >= 60
    assert max(lags) < timedelta(seconds=0.1)


def test_a_look_that_fails_is_tried_less_and_less_often_whatever_is_planned_meanwhile(bench):
    async def course() -> None:
        bench.temporal.audited = True
        await bench.declare(GOOD, STUCK)
        await bench.live(200)

    bench.time.run(course())
    tries = [at for at, _ in bench.temporal.looks]
    gaps = [later - earlier for earlier, later in pairwise(tries)]
    assert gaps == sorted(gaps)
    assert gaps[-1] >= 60
    (alert,) = bench.told
    assert isinstance(alert, Alert)
    assert (alert.code, "sched:stuck:" in alert.text) == ("SCHEDULE_LOOK_FAILED", True)


def test_a_run_that_cannot_be_read_here_is_looked_at_again_without_an_alert(bench):
    """The tracker reports it, and leaves it to a replica that can read it."""

    async def course() -> None:
        bench.temporal.audited = True
        bench.temporal.error = UnreadableHere("its failure could not be read", "r1")
        await bench.declare(GOOD, STUCK)
        await bench.live(100)

    bench.time.run(course())
    assert len(bench.temporal.looks) > 3
    assert bench.told == []


def test_a_look_that_works_lets_the_key_be_planned_at_once(bench):
    async def course() -> None:
        bench.temporal.bad = set()
        await bench.declare(STUCK)
        await bench.live(30.5)
        skipped = await bench.ledger.fires(key="stuck", status="skipped")
        assert sum(fire.windows for fire in skipped) >= 29
        assert len(bench.temporal.looks) <= 31, "each is asked once"

    bench.time.run(course())


def test_a_plan_that_waits_is_not_made_again_and_again(bench):
    plan = Counter[str]()
    patience = bench.lookups.patience

    def counted(step: Any) -> timedelta:
        plan[step.state.key] += 1
        wait: timedelta = patience(step)
        return wait

    bench.lookups.patience = counted

    async def course() -> None:
        await bench.declare(STUCK)
        await bench.live(100)

    bench.time.run(course())
    assert 50 <= plan["stuck"] <= 110


def test_a_window_that_waits_for_a_start_to_be_answered_is_decided_soon_after(bench):
    async def course() -> None:
        await bench.declare(STUCK)
        bench.temporal.bad, bench.outbox.unanswered = set(), []
        await bench.live(8.5)
        (sent,) = bench.outbox.unanswered
        assert len(await bench.ledger.fires(key="stuck")) == 1, "it proves nothing"
        assert not bench.temporal.looks, "a look could say nothing of it"
        bench.outbox.unanswered = None
        await bench.outbox._start(sent)
        await bench.live(1.1)
        fires = await bench.ledger.fires(key="stuck", status="skipped")
        assert sum(fire.windows for fire in fires) >= 8
        assert {fire.reason for fire in fires} == {f"overlap: {sent.workflow_id} is still running"}

    bench.time.run(course())


def test_an_audit_that_takes_long_delays_no_schedule_that_was_not_late(bench):
    async def course() -> None:
        await bench.declare(LATE)
        await asyncio.sleep(600)
        await bench.declare(GOOD)
        await bench.live(100)

    bench.time.run(course())
    assert "late" not in bench.outbox.lags
    assert max(bench.outbox.lags["good"]) < timedelta(seconds=0.1)
