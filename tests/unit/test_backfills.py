"""How a replica lays backfills: behind all that is due, and carefully after lost commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Self, cast

import pytest

from engine.errors import CommitUnknown
from engine.ledger.fires import Claim
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.dispatcher import Dispatcher
from engine.runtime.dispatch.starter import Starter
from engine.runtime.settings import Settings
from engine.runtime.tick.backfills import Backfills
from engine.runtime.tick.poller import Poller
from engine.schedules import load_schedules
from engine.service import ScheduleService
from engine.testing import FrozenClock
from engine.testing.virtual_ledger import VirtualLedger
from tests.blind import BLIND
from tests.unit.test_dispatcher import Temporal, started
from tests.waiting import eventually

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
SERVING = Serving("one", "default", "sched", frozenset({"noop@1"}))
PAST = "{key: past, workflow: noop, everyMs: 1000, firstFire: next, %s}"
GOOD = "{key: good, workflow: noop, everyMs: 1000}"


class Bench:
    """A replica whose sends end when the test says so."""

    def __init__(
        self, ledger: VirtualLedger, clock: FrozenClock, *schedules: str, **settings: Any
    ) -> None:
        self.temporal = Temporal(started)
        self.temporal.slow = asyncio.Event()
        self.ledger, self.clock = ledger, clock
        clock.move_to(NOON)
        options, seen = Settings(**settings), LedgerClock()
        self.dispatcher = Dispatcher(
            self.ledger, cast("Starter", self.temporal), seen, options, on_event=lambda _: None
        )
        self.poller = Poller(self.ledger, self.dispatcher, seen, SERVING, options, **BLIND)
        self.service = ScheduleService(self.ledger, actor="ops")
        self._schedules = schedules

    async def __aenter__(self) -> Self:
        await self.ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
        text = "schedules:\n" + "\n".join(f"  - {each}" for each in self._schedules)
        await apply(self.ledger, load_schedules(text), by="test")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.temporal.slow:
            self.temporal.slow.set()
        await self.dispatcher.drain()

    async def backfill(self, windows: int, **options: Any) -> None:
        await self.service.backfill("past", NOON - windows * SECOND, NOON - SECOND, **options)

    async def turns(self, count: int) -> list[Claim]:
        """So many turns of the poller's loop; returns what they claim."""
        claims: list[Claim] = []
        for _ in range(count):
            tick, _ = await self.poller._claim()
            claims += tick.claims
        return claims


@pytest.fixture
def bench_of(virtual_ledger: VirtualLedger, clock: FrozenClock) -> Callable[..., Bench]:
    return partial(Bench, virtual_ledger, clock)


async def test_a_backfill_never_takes_more_than_a_quarter_of_the_room_while_anything_is_due(
    bench_of,
):
    async with bench_of(PAST % "overlap: allow", GOOD) as bench:
        await bench.backfill(1000)
        room = bench.dispatcher.room
        claims = await bench.turns(10)
        laid = [claim for claim in claims if claim.timing == "backfill"]
        assert 0 < len(laid) <= room // 4, "ten turns took more than one does"
        assert [claim.key for claim in claims[:1]] == ["good"], "what is due comes first"
        assert bench.dispatcher.room >= room // 2, "there is room for what comes next"


async def test_a_backfill_has_all_the_room_while_nothing_is_due(
    bench_of,
):
    async with bench_of(PAST.replace("1000", "3600000") % "overlap: allow") as bench:
        await bench.service.backfill("past", NOON - timedelta(days=30), NOON)
        room = bench.dispatcher.room
        assert len(await bench.turns(1)) == room


async def test_windows_that_are_due_do_not_wait_for_the_sends_of_a_backfill(bench_of):
    later = GOOD.replace("1000", "1000, firstFire: next")
    async with bench_of(PAST % "overlap: allow", later, concurrency=4) as bench:
        await bench.backfill(1000)
        assert len(await bench.turns(1)) > 4
        await eventually(lambda: bench.temporal.sent == ["past"])
        bench.clock.advance(SECOND)
        await bench.turns(1)
        await eventually(lambda: "good" in bench.temporal.sent)


async def test_what_a_lost_answer_of_a_commit_had_laid_is_sent_by_its_token(bench_of, monkeypatch):
    async with bench_of(PAST % "overlap: allow") as bench:
        await bench.backfill(10)
        whole = bench.ledger.transaction

        class Unsure:
            """A transaction whose commit happens, and whose answer does not come."""

            def __init__(self) -> None:
                self.inner = whole()

            async def __aenter__(self) -> Any:
                return await self.inner.__aenter__()

            async def __aexit__(self, *error: object) -> None:
                await self.inner.__aexit__(*error)
                raise CommitUnknown

        with monkeypatch.context() as patched:
            patched.setattr(bench.ledger, "transaction", Unsure)
            with pytest.raises(CommitUnknown):
                await bench.turns(1)
        assert bench.temporal.sent == [], "sent without knowing"
        bench.temporal.slow = None
        await bench.turns(1)
        await eventually(lambda: bench.temporal.sent == ["past"] * 10)
        (done,) = await bench.ledger.backfills("past")
        assert (done.state, done.laid) == ("done", 10)


async def test_runs_are_looked_up_after_signs_of_lost_commits_before_anything_is_laid(bench_of):
    async with bench_of(PAST % "overlap: allow") as bench:
        await bench.backfill(10)
        looked: list[tuple[str, datetime]] = []

        class Looks:
            async def look_up(self, key: str, since: datetime) -> None:
                looked.append((key, since))

        of = Backfills(
            bench.ledger, SERVING, Settings(), lookups=cast("Any", Looks()), on_event=print
        )
        claims: list[Claim] = []
        doubted = NOON + SECOND
        bench.clock.advance(2 * SECOND)
        await of.lay(claims, 4, doubted)
        assert (claims, looked) == ([], []), "visibility need not show what has run just now"
        bench.clock.advance(2 * MINUTE)
        await of.lay(claims, 4, doubted)
        await eventually(lambda: looked == [("past", NOON - MINUTE)])
        assert claims == []
        await eventually(lambda: of._looking and of._looking.done())
        await of.lay(claims, 4, doubted)
        assert len(claims) == 4
        await of.lay(claims, 4, bench.clock.now() + SECOND)
        assert len(claims) == 4, "a later sign, another look"
