"""What was learned of closed runs, when it is learned again, and whose duty that is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

import engine.runtime.tracking.tracker
from engine.errors import Code, InputsSealed
from engine.ledger.fires import DataGap, Evidence
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.backpressure import PAGE, Allowance, Breaker, Budget
from engine.runtime.events import Alert, Degraded, Event, Outages, Recovered, ServerAway, ServerBack
from engine.runtime.runs.memo import UnreadableHere
from engine.runtime.sealing import Sealing
from engine.runtime.settings import Settings
from engine.runtime.tracking.runs import ListedRun, RunInspector
from engine.runtime.tracking.tracker import Tracker
from engine.testing import FrozenClock
from engine.testing.virtual_ledger import VirtualLedger
from tests.encrypted_team import Mirror

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
AWAY = RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")
LEASE = 10.0


def closed(name: str) -> Any:
    return SimpleNamespace(
        id=f"sched:k:manual:{name}", run_id=name, status=WorkflowExecutionStatus.COMPLETED,
        start_time=NOW - timedelta(minutes=3), close_time=NOW - timedelta(minutes=2),
    )  # fmt: skip


RUN = closed("a")


class Temporal:
    """Closed runs, and a server that may be away, as a whole or for one of them."""

    def __init__(self) -> None:
        self.runs: tuple[Any, ...] = (RUN,)
        self.since: list[datetime] = []
        self.away = False
        self.undescribable: set[str] = set()
        self.certain: set[str] = set()
        self.asked: list[str] = []

    async def list_workflows(self, query: str, **_: Any) -> AsyncIterator[Any]:
        if self.away:
            raise AWAY
        if "Running" in query:  # of a second run, which is not asked about here
            return
        since = datetime.fromisoformat(query.split('"')[-2])
        self.since.append(since)
        for run in self.runs:
            if since <= run.close_time:
                yield run

    async def listed(self, run: Any) -> ListedRun:
        if run.run_id in self.certain:
            return ListedRun((Evidence(run.id, run.run_id, run.start_time), cast("Any", object())))
        return ListedRun(None, certain=False)

    async def seen_closed(self, run: Any) -> object:
        self.asked.append(run.run_id)
        if run.run_id in self.undescribable or self.away:
            raise AWAY
        return Evidence(run.id, run.run_id, run.start_time), object()

    async def chain_of(self, _: object) -> None:
        return

    async def inspect(self, _: object, **__: Any) -> None:
        return

    async def answers(self) -> str | None:
        return "connection refused" if self.away else None


class Bench:
    """A tracker, and time that only the test lets pass."""

    def __init__(
        self, ledger: VirtualLedger, time: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.temporal, self.booked = Temporal(), list[int]()
        self.told: list[Event] = []
        self.time = time
        time.move_to(NOW)
        self.suspect_until: datetime | None = None
        self.clock = LedgerClock()
        self.ledger = ledger
        self.breaker = Breaker(self.temporal.answers, on_event=self.told.append)
        monkeypatch.setattr(engine.runtime.tracking.tracker, "reconcile_runs", self._book)

    async def _book(self, _: object, found: Sequence[object], **__: object) -> list[str]:
        self.booked.append(len(found))
        return []

    def tracker(self, replica: str = "one") -> Tracker:
        self.clock.observe(self.time.now())
        budget = Budget()
        budget._tracking = Allowance(1000)  # test_budget.py has what it costs to have none left
        return Tracker(
            cast("Any", self.temporal), self.ledger, self.clock, Settings(),
            inspector=cast("RunInspector", self.temporal), replica=replica, breaker=self.breaker,
            budget=budget,
            suspect_until=lambda: self.suspect_until, on_event=self.told.append,
        )  # fmt: skip

    async def is_free(self) -> bool:
        """Whether another replica could take the duty just now."""
        free = await self.ledger.hold_duty("tracker:1", "other", timedelta(0)) is not None
        if free:
            await self.ledger.release_duty("tracker:1", "other")
        return free


@pytest.fixture
def bench(
    virtual_ledger: VirtualLedger, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> Bench:
    return Bench(virtual_ledger, clock, monkeypatch)


async def test_a_close_is_booked_once_and_once_more_after_a_sign_of_lost_commits(bench):
    tracker = bench.tracker()
    await bench.ledger.hold_duty("tracker:1", "one", timedelta(minutes=1))
    await bench.ledger.set_watermark("tracker:1", "one", NOW - timedelta(minutes=4))
    await tracker.run_once()
    await tracker.run_once()
    assert bench.booked == [1]
    bench.suspect_until = NOW
    await tracker.run_once()
    await tracker.run_once()
    assert bench.booked == [1, 1]
    assert bench.temporal.since[-2] < RUN.close_time, "though the watermark had moved on"


async def test_data_that_no_run_has_are_told_by_whoever_has_the_duty(bench, monkeypatch):
    gap, asked = DataGap("k", 42, None, NOW), []

    async def check(*, rest: timedelta, limit: int) -> list[DataGap]:
        asked.append((rest, limit))
        return [gap] if len(asked) == 1 else []

    monkeypatch.setattr(bench.ledger, "check_data_gaps", check)
    tracker = bench.tracker()
    await tracker.run_once()
    assert bench.told == [Alert(Code.DATA_GAP, gap.description)]
    assert asked[0][0] >= timedelta(seconds=5), "whoever counts on a window may just begin"


async def test_a_doubt_is_not_forgotten_when_temporal_cannot_be_asked(bench):
    bench.suspect_until = NOW
    tracker = bench.tracker()
    bench.suspect_until = NOW + timedelta(seconds=1)
    bench.temporal.away = True
    await tracker.run_once()
    bench.temporal.away = False
    bench.time.advance(LEASE)
    await tracker.run_once()
    assert bench.temporal.since[-1] < NOW - timedelta(minutes=4)


async def test_who_cannot_reach_temporal_gives_the_duty_up_and_waits_a_lease(bench):
    tracker = bench.tracker()
    await tracker.run_once()
    assert not await bench.is_free()
    bench.temporal.away = True
    await tracker.run_once()
    assert await bench.is_free()
    states = [event for event in bench.told if isinstance(event, Degraded | Recovered)]
    assert isinstance(states[-1], Degraded)
    bench.temporal.away = False
    bench.time.advance(LEASE - 1)
    await tracker.run_once()
    assert await bench.is_free(), "somebody who reaches the server has to get at it first"
    bench.time.advance(1)
    await tracker.run_once()
    assert not await bench.is_free()
    assert bench.told[-1] == Recovered("tracker")


async def test_nor_does_who_waited_for_an_answer_until_its_lease_had_ended_take_it_again(bench):
    tracker = bench.tracker()
    await tracker.run_once()
    listed = bench.temporal.list_workflows

    async def too_late(*of: Any, **how: Any) -> AsyncIterator[Any]:
        bench.time.advance(LEASE + 1)
        bench.temporal.away = True
        async for run in listed(*of, **how):
            yield run

    bench.temporal.list_workflows = too_late
    await tracker.run_once()
    bench.temporal.list_workflows, bench.temporal.away = listed, False
    await tracker.run_once()
    assert await bench.is_free(), "somebody who reaches the server has to get at it first"


async def test_the_duty_is_not_kept_by_a_replica_whose_starts_get_no_answer(bench):
    tracker = bench.tracker()
    await tracker.run_once()
    bench.temporal.away = True
    for _ in range(3):
        bench.breaker.unanswered()
    await bench.breaker.run_once()
    listed = len(bench.temporal.since)
    await tracker.run_once()
    assert await bench.is_free()
    bench.time.advance(LEASE * 2)
    await tracker.run_once()
    assert await bench.is_free(), "its breaker still holds"
    assert len(bench.temporal.since) == listed


async def test_a_run_that_cannot_be_looked_at_holds_up_no_other_and_costs_nobody_the_duty(
    bench,
):
    bench.temporal.runs = (closed("bad"), closed("good"))
    bench.temporal.undescribable = {"bad"}
    tracker = bench.tracker()
    await bench.ledger.hold_duty("tracker:1", "one", timedelta(minutes=1))
    await bench.ledger.set_watermark("tracker:1", "one", NOW - timedelta(minutes=4))
    await tracker.run_once()
    assert bench.booked == [1]
    assert not await bench.is_free()
    await tracker.run_once()
    assert bench.temporal.asked == ["bad", "good"], "it is put aside for a while"
    bench.time.advance(60)
    bench.temporal.undescribable = set()
    bench.suspect_until = bench.time.now()  # lets it look as far back again
    await tracker.run_once()
    assert bench.booked[-1] == 2


@pytest.fixture
async def describing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Twenty runs that have to be described, which takes a second for each."""
    bench.temporal.runs = tuple(closed(f"r{number}") for number in range(20))
    await bench.ledger.hold_duty("tracker:1", "one", timedelta(minutes=1))
    await bench.ledger.set_watermark("tracker:1", "one", NOW - timedelta(minutes=4))
    looked = bench.temporal.seen_closed

    async def look(run: Any) -> object:
        bench.time.advance(1.0)
        return await looked(run)

    monkeypatch.setattr(bench.temporal, "seen_closed", look)
    return bench


async def test_the_duty_is_kept_for_as_long_as_it_takes_to_describe_what_has_closed(
    describing, monkeypatch
):
    looked, free = describing.temporal.seen_closed, list[bool]()

    async def look(run: Any) -> object:
        free.append(await describing.is_free())
        return await looked(run)

    monkeypatch.setattr(describing.temporal, "seen_closed", look)
    await describing.tracker().run_once()
    assert describing.booked == [8, 8, 4], "what is known is kept, batch by batch"
    assert free == [False] * 20


async def test_what_is_another_s_duty_by_now_is_left_to_it(describing, monkeypatch):
    looked, tracker = describing.temporal.seen_closed, describing.tracker()

    async def look(run: Any) -> object:
        await describing.ledger.release_duty("tracker:1", "one")
        await describing.ledger.hold_duty("tracker:1", "other", timedelta(minutes=1))
        return await looked(run)

    monkeypatch.setattr(describing.temporal, "seen_closed", look)
    await tracker.run_once()
    assert describing.booked == [8], "what was looked at by then"
    assert not tracker.on_duty


async def test_nobody_takes_a_duty_for_its_own_whose_lease_has_ended(bench):
    tracker = bench.tracker()
    await tracker.run_once()
    assert tracker.on_duty
    bench.time.advance(LEASE + 1)
    assert await bench.is_free()
    assert not tracker.on_duty


async def test_who_leaves_leaves_the_duty_to_the_others(bench):
    tracker = bench.tracker()
    await tracker.run_once()
    await tracker.release()
    assert await bench.is_free()
    await bench.tracker("two").run_once()
    await tracker.release()
    assert not await bench.is_free(), "it was another's by then"


async def test_a_run_that_a_look_finds_ended_or_lost_lets_go_what_waits_at_once(bench, monkeypatch):
    woken: list[datetime] = []
    ends = SimpleNamespace(now=False)

    async def wake() -> list[str]:
        woken.append(NOW)
        return []

    async def look(_: object, **__: object) -> bool:
        return bool(ends.now)

    tracker = bench.tracker()
    monkeypatch.setattr(bench.ledger, "wake", wake)
    monkeypatch.setattr(bench.temporal, "inspect", look)
    await tracker.run_once()  # the first looks at everything
    woken.clear()
    await tracker.run_once()
    assert woken == [], "nothing has changed"
    ends.now = True
    await tracker.run_once()
    assert len(woken) == 1


async def test_a_run_that_cannot_be_read_here_is_left_to_another_replica_once(bench):
    why, tracker = UnreadableHere("no codec", "r1"), bench.tracker()
    await tracker.run_once()
    assert tracker.pass_on("sched:k:1", why)
    await tracker.run_once()
    assert not tracker.on_duty
    assert await bench.is_free(), "another replica may have the codec"
    (alert,) = bench.told
    assert isinstance(alert, Alert)
    assert (alert.code, alert.text.split(":")[0]) == (Code.UNREADABLE_HERE, "sched")
    await tracker.run_once()
    assert not tracker.on_duty, "it rests for a lease"
    bench.time.advance(LEASE + 1)
    await tracker.run_once()
    assert tracker.on_duty
    assert not tracker.pass_on("sched:k:1", why), "what can be read is recorded now"
    assert bench.told == [alert]


async def test_closes_that_are_listed_are_recorded_before_any_run_is_described(describing):
    describing.temporal.certain = {f"r{number}" for number in range(10, 20)}
    tracker = describing.tracker()
    await tracker.run_once()
    assert describing.booked == [10, 8, 2]
    assert describing.temporal.asked == [f"r{number}" for number in range(10)]


async def test_of_many_ends_to_describe_each_key_has_its_turn_and_the_others_stay(bench):
    flood = [closed(f"r{number}") for number in range(200)]
    one = closed("one")
    one.id = "sched:other:manual:one"
    bench.temporal.runs = (*flood, one)
    await bench.ledger.hold_duty("tracker:1", "one", timedelta(minutes=1))
    await bench.ledger.set_watermark("tracker:1", "one", NOW - timedelta(minutes=4))
    tracker = bench.tracker()
    await tracker.run_once()
    assert "one" in bench.temporal.asked[:2]
    first = len(bench.temporal.asked)
    assert first < 50, "the closes of others are listed again soon"
    assert tracker.lag is not None
    assert tracker.lag > 60, "they closed two minutes ago"
    for _ in range(20):
        await tracker.run_once()
    assert len(bench.temporal.asked) == len({*bench.temporal.asked}) == 201
    assert tracker.lag < 60


async def test_what_has_just_closed_waits_for_no_whole_listing_however_long_that_takes(bench):
    bench.temporal.runs = tuple(closed(f"r{number:04}") for number in range(PAGE * 3))
    bench.temporal.certain = {run.run_id for run in bench.temporal.runs} | {"new"}
    await bench.ledger.hold_duty("tracker:1", "one", timedelta(minutes=1))
    await bench.ledger.set_watermark("tracker:1", "one", NOW - timedelta(minutes=4))
    tracker = bench.tracker()
    await tracker.run_once()
    assert sum(bench.booked) == PAGE, "a page"
    new = closed("new")
    new.close_time = NOW + timedelta(seconds=1)
    bench.temporal.runs = (*bench.temporal.runs, new)
    bench.time.advance(9)  # so long a turn may take
    bench.clock.observe(bench.time.now())
    bench.booked.clear()
    await tracker.run_once()
    assert bench.booked[0] == 1, "before the second page"
    assert await watermark(bench) == NOW - timedelta(minutes=4)
    for _ in range(2):
        await tracker.run_once()
    assert sum(bench.booked) == 1 + PAGE * 2
    assert await watermark(bench) > NOW - timedelta(minutes=2)


async def watermark(bench: Bench) -> datetime:
    mark = await bench.ledger.hold_duty("tracker:1", "one", timedelta(minutes=1))
    assert mark is not None
    return mark


@pytest.mark.parametrize("codec", [Mirror(), None])
async def test_handlers_that_wait_for_a_codec_are_told_once(bench, monkeypatch, codec):
    async def yes() -> bool:
        return True

    monkeypatch.setattr(bench.ledger, "anything_ended", yes)
    tracker, converter = bench.tracker(), replace(DataConverter.default, payload_codec=codec)
    tracker._sealing = Sealing(bench.ledger, converter)
    for _ in range(4):
        await tracker.run_once()
        bench.time.advance(LEASE)
    told = [each for each in bench.told if isinstance(each, Alert)]
    assert [each.code for each in told] == ([] if codec else [Code.UNREADABLE_HERE])


async def test_a_server_that_answers_again_just_after_a_failed_look_is_back(bench):
    answers: list[str | None] = ["refused", "refused", None]

    async def ask() -> str | None:
        return answers.pop(0)

    bench.breaker.ask, bench.temporal.away = ask, True
    tracker, outages = bench.tracker(), Outages({})
    await tracker.run_once()
    bench.time.advance(LEASE + 1)
    await tracker.run_once()
    news = [outages.of(each) for each in bench.told if isinstance(each, Degraded | Recovered)]
    assert [type(each) for each in news if each] == [ServerAway, ServerBack]


async def test_a_codec_that_fails_is_told_once_and_holds_up_nothing_else(bench, monkeypatch):
    async def follow(*_: object, **__: object) -> None:
        raise InputsSealed("the codec failed: KeyError")

    monkeypatch.setattr(engine.runtime.tracking.tracker, "follow", follow)
    tracker = bench.tracker()
    tracker._sealing = Sealing(bench.ledger, replace(DataConverter.default, payload_codec=Mirror()))
    for _ in range(4):
        await tracker.run_once()
        bench.time.advance(LEASE)
    (alert,) = [each for each in bench.told if isinstance(each, Alert)]
    assert (alert.code, "KeyError" in alert.text) == (Code.UNREADABLE_HERE, True)
    assert await watermark(bench) > NOW - timedelta(minutes=2)
    await bench.ledger.release_duty("tracker:1", "one")
    await bench.ledger.hold_duty("tracker:1", "other", timedelta(minutes=1))
    await tracker.run_once()  # beside the duty it does not fail either


@pytest.mark.parametrize("codec", [Mirror(), None])
async def test_who_has_the_codec_writes_sealed_handlers_beside_who_has_the_duty(
    bench, monkeypatch, codec
):
    asked = []

    async def follow(*_: object, **__: object) -> None:
        asked.append(True)

    monkeypatch.setattr(engine.runtime.tracking.tracker, "follow", follow)
    await bench.ledger.hold_duty("tracker:1", "other", timedelta(minutes=1))
    tracker, converter = bench.tracker(), replace(DataConverter.default, payload_codec=codec)
    tracker._sealing = Sealing(bench.ledger, converter)
    await tracker.run_once()
    assert bool(asked) is (codec is not None)
