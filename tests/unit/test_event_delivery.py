"""Delivery of events: at least once, in the order of each schedule, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest

from engine.events import ScheduleEvent, delivery, on
from engine.events.delivery import (
    LEASE,
    MOST_ATTEMPTS,
    Deliverer,
    DeliveryContext,
    listeners_by_name,
    pause_after,
)
from engine.events.listeners import Listener, listener_of
from engine.events.messages import AT_ONCE, FAILING_AT_ONCE, MOST_AT_ONCE
from engine.ledger import Subscription
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from engine.service import ScheduleService
from engine.testing import FrozenClock
from engine.testing.virtual_ledger import VirtualLedger
from tests.waiting import eventually

TICK = timedelta(milliseconds=5)
HOOK = "hooks: [{url: 'https://a.example/x', secret: '${env:S}', events: [schedule.changed]}]\n"


(WITH_TOPIC,) = load_schedules(
    "schedules: [{key: a, workflow: w, everyMs: 1000, topic: bills.due}]"
).schedules


class Scene:
    """A ledger with replicas that deliver, and the reports that they emit."""

    def __init__(self, ledger: VirtualLedger, clock: FrozenClock) -> None:
        self.ledger, self.clock = ledger, clock
        self.reports: list[tuple[str, bool]] = []
        self.version = 0

    def deliverer(
        self, *listeners: Any, holder: str = "a", project: str = "default", **options: Any
    ) -> Deliverer:
        around = DeliveryContext(
            holder=holder, namespace="ns", project=project, tick=TICK, idle=TICK,
            report=lambda text, good: self.reports.append((text, good)),
        )  # fmt: skip
        options.setdefault("pause", lambda attempts: TICK if attempts < 5 else None)
        of = [each if isinstance(each, Listener) else listener_of(each) for each in listeners]
        return Deliverer(self.ledger.events, around, of, **options)

    @asynccontextmanager
    async def delivering(self, *each: Deliverer) -> AsyncIterator[None]:
        async def run(deliverer: Deliverer) -> None:
            while True:
                wait = await deliverer.run_once()
                await asyncio.sleep(0.001)  # what is due is delivered beside the turns
                self.clock.advance(wait)

        for deliverer in each:
            await deliverer.run_once()  # subscribes
        running = [asyncio.create_task(run(deliverer)) for deliverer in each]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            for deliverer in each:
                await deliverer.end()

    async def turn(self, deliverer: Deliverer) -> None:
        """Look once, and deliver all that is due."""
        await deliverer.run_once()
        await asyncio.gather(*deliverer._tasks.values())

    async def change(self, *keys: str, head: str = "") -> None:
        """Change these schedules, which is an event of each."""
        self.version += 1
        every = 1000 * (self.version + 1)
        listed = ", ".join(f"{{key: {key}, workflow: w, everyMs: {every}}}" for key in keys)
        await apply(self.ledger, load_schedules(f"{head}schedules: [{listed}]"), by="test")


@pytest.fixture
def scene(virtual_ledger: VirtualLedger, clock: FrozenClock) -> Scene:
    return Scene(virtual_ledger, clock)


def count(got: list[str], number: int) -> bool:
    return len(got) == number


def changes(of: list[str], got: list[str]) -> bool:
    return [each for each in got if ":changed:" in each] == of


async def test_a_listener_gets_each_event_in_the_order_of_its_schedule(scene: Scene):
    got: list[ScheduleEvent] = []

    @on("schedule.changed", "schedule.created")
    async def note(event: ScheduleEvent) -> None:
        got.append(event)

    async with scene.delivering(scene.deliverer(note)):
        for _ in range(3):
            await scene.change("a", "b")
        await eventually(lambda: len(got) == 6)
    for key in ("a", "b"):
        its = [event for event in got if event.key == key]
        expected = [f"{key}:created:1", f"{key}:changed:2", f"{key}:changed:3"]
        assert [event.id for event in its] == expected
        assert [event.sequence for event in its] == sorted(event.sequence for event in its)


async def test_a_failing_event_lets_later_ones_pass_after_its_first_retry(scene: Scene):
    tries: list[str] = []

    @on("schedule.changed")
    def note(event: ScheduleEvent) -> None:
        tries.append(event.id)
        if event.id == "a:changed:2" and tries.count(event.id) < 4:
            raise ValueError("not yet")

    await scene.change("a", "b")
    deliverer = scene.deliverer(note)
    await deliverer.run_once()  # subscribes
    await scene.change("a", "b")
    await scene.change("a", "b")
    for _ in range(4):
        await scene.turn(deliverer)
        scene.clock.advance(TICK)
    await deliverer.end()
    assert tries.count("a:changed:2") == 4
    its = [each for each in tries if each.startswith("a:")]
    assert its[:3] == ["a:changed:2", "a:changed:2", "a:changed:3"]
    assert its.count("a:changed:3") == 1
    assert [each for each in tries if each.startswith("b:")] == ["b:changed:2", "b:changed:3"]
    text, good = scene.reports[0]
    assert text.startswith("events of listener:default:tests.unit.test_event_delivery.")
    assert text.endswith("note: ValueError: not yet; they are tried again")
    assert not good
    assert scene.reports[-1][1], "it says when they are delivered again"


async def test_what_fails_for_too_long_is_a_dead_letter_that_can_be_delivered_again(scene: Scene):
    works = False
    got: list[str] = []

    @on("schedule.changed")
    async def note(event: ScheduleEvent) -> None:
        if not works:
            raise ValueError("gone")
        got.append(event.id)

    await scene.change("a")
    service = ScheduleService(scene.ledger, actor="ops")
    async with scene.delivering(scene.deliverer(note)):
        await scene.change("a")
        (dead,) = await eventually(service.dead_events)
        assert (dead.attempts, dead.event.event_id) == (5, "a:changed:2")
        assert "ValueError: gone" in str(dead.error)
        await eventually(lambda: "were given up after 5 attempts" in scene.reports[-1][0])
        works = True
        assert await service.redeliver(dead.event.event_id) == 1
        await eventually(lambda: got == ["a:changed:2"])
    assert await service.dead_events() == []


def test_attempts_go_on_for_about_a_day():
    pauses = [pause_after(attempts) or timedelta(0) for attempts in range(1, MOST_ATTEMPTS)]
    total = sum(pauses, timedelta(0))
    assert timedelta(hours=20) < total < timedelta(hours=28)
    assert timedelta(0) < pauses[0] <= timedelta(seconds=1.1)
    assert max(pauses) <= timedelta(minutes=66)
    assert pause_after(MOST_ATTEMPTS) is None


async def test_a_hook_is_sent_by_a_worker_of_its_project(scene: Scene):
    senders: list[str] = []

    def opened(project: str) -> Callable[..., Any]:
        async def send(event: ScheduleEvent) -> None:
            senders.append(project)

        return lambda *_: send

    await scene.change("a", head=HOOK)
    mail = scene.deliverer(holder="m", project="mail", open_hook=opened("mail"))
    await mail.run_once()  # subscribes
    await scene.change("a", head=HOOK)
    for _ in range(3):
        await mail.run_once()
    await mail.end()
    assert senders == []
    async with scene.delivering(scene.deliverer(open_hook=opened("default"))):
        await eventually(lambda: senders == ["default"])


async def test_a_worker_without_the_extra_leaves_hooks_to_others_and_serves_its_listeners(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    got: list[str] = []

    @on("schedule.changed")
    async def note(event: ScheduleEvent) -> None:
        got.append(event.id)

    async def send(event: ScheduleEvent) -> None:
        got.append(f"hook {event.id}")

    monkeypatch.setitem(sys.modules, "httpx", None)
    without = scene.deliverer(note)
    monkeypatch.undo()
    await scene.change("a", head=HOOK)
    async with scene.delivering(without):
        await scene.change("a", head=HOOK)
        await eventually(lambda: got == ["a:changed:2"] and len(scene.reports) == 1)
        ((text, good),) = scene.reports
        assert "pip install 'sched-engine[webhooks]'" in text
        assert not good
        async with scene.delivering(scene.deliverer(holder="b", open_hook=lambda *_: send)):
            await eventually(lambda: got == ["a:changed:2", "hook a:changed:2"])


async def test_a_slow_hook_delays_no_other(scene: Scene):
    release = asyncio.Event()
    got: list[str] = []

    @on("schedule.changed")
    async def note(event: ScheduleEvent) -> None:
        got.append(event.id)

    def open_hook(its: Subscription, _: object) -> Callable[[ScheduleEvent], Any]:
        async def send(event: ScheduleEvent) -> str | None:
            await release.wait()
            got.append(f"hook {event.id}")
            return None

        return send

    await scene.change("a", head=HOOK)
    async with scene.delivering(scene.deliverer(note, open_hook=open_hook)):
        for _ in range(3):
            await scene.change("a", head=HOOK)
        await eventually(lambda: changes(["a:changed:2", "a:changed:3", "a:changed:4"], got))
        release.set()
        await eventually(lambda: len(got) == 6)
    assert got[3:] == ["hook a:changed:2", "hook a:changed:3", "hook a:changed:4"]


async def test_an_event_that_hangs_delays_no_other_schedule_of_its_hook(scene: Scene):
    got: list[str] = []
    hangs, release = asyncio.Event(), asyncio.Event()

    def open_hook(*_: object) -> Callable[[ScheduleEvent], Any]:
        async def send(event: ScheduleEvent) -> str | None:
            if event.key == "a":
                hangs.set()
                await release.wait()
            got.append(event.id)
            return None

        return send

    await scene.change("a", "b", head=HOOK)
    async with scene.delivering(scene.deliverer(open_hook=open_hook)):
        await scene.change("a", "b", head=HOOK)
        await hangs.wait()
        for _ in range(3):
            await scene.change("a", "b", head=HOOK)
        await eventually(lambda: got == [f"b:changed:{number}" for number in range(2, 6)])
        release.set()
        await eventually(lambda: len(got) == 8)
    assert got[4:] == [f"a:changed:{number}" for number in range(2, 6)], "in their order"


class Refusing:
    """A receiver that refuses, and notes how many events it has at once."""

    def __init__(self, *, refuses: bool = True) -> None:
        self.refuses, self.under_way, self.most = refuses, 0, 0
        self.tries: list[str] = []
        self.got: dict[str, list[str]] = defaultdict(list)

    def open_hook(self, *_: object) -> Callable[[ScheduleEvent], Any]:
        return self._send

    async def _send(self, event: ScheduleEvent) -> str | None:
        self.tries.append(event.id)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if self.refuses:
            return "it answers 503"
        self.got[event.key].append(event.id)
        return None


async def hook_of(scene: Scene) -> Subscription:
    (hook,) = (each for each in await scene.ledger.events.subscriptions() if each.kind == "hook")
    return hook


KEYS = [f"k{number}" for number in range(10)]


async def test_a_receiver_that_accepts_nothing_gets_one_event_at_a_time(scene: Scene):
    receiver = Refusing()
    await scene.change(*KEYS, head=HOOK)
    deliverer = scene.deliverer(open_hook=receiver.open_hook, pause=lambda _: TICK)
    await deliverer.run_once()
    await scene.change(*KEYS, head=HOOK)
    await scene.turn(deliverer)
    hook, receiver.most = await hook_of(scene), 0
    assert hook.failing_since
    assert hook.failing_error == "it answers 503"
    assert hook.retry_at == scene.clock.now() + timedelta(seconds=1)
    assert "gets one event at a time until it accepts one: it answers 503" in str(scene.reports)
    await scene.change(*KEYS, head=HOOK)
    begun = len(receiver.tries)
    await scene.turn(deliverer)
    assert len(receiver.tries) == begun, "it rests"
    for rest in (1, 2, 4, 8, 16, 30, 30):
        scene.clock.advance(timedelta(seconds=rest))
        await scene.turn(deliverer)
    assert len(receiver.tries) == begun + 7
    assert receiver.most == 1
    receiver.refuses = False
    for _ in range(5):
        scene.clock.advance(timedelta(seconds=30))
        await scene.turn(deliverer)
    await deliverer.end()
    assert receiver.most > 1
    for key in KEYS:
        assert receiver.got[key] == [f"{key}:changed:2", f"{key}:changed:3"], "in their order"
    hook = await hook_of(scene)
    assert (hook.failing_since, hook.failing_error, hook.retry_at) == (None, None, None)
    assert scene.reports[-1] == (f"events of {hook.name} are delivered again", True)


async def test_a_breaker_stays_open_when_another_replica_takes_over(scene: Scene):
    receiver = Refusing()
    await scene.change(*KEYS, head=HOOK)
    first = scene.deliverer(open_hook=receiver.open_hook)
    await first.run_once()
    await scene.change(*KEYS, head=HOOK)
    await scene.turn(first)
    await first.end()
    assert (await hook_of(scene)).failing_since
    receiver.most = 0
    second = scene.deliverer(open_hook=receiver.open_hook, holder="b")
    for _ in range(3):
        scene.clock.advance(timedelta(seconds=30))
        await scene.turn(second)
    await second.end()
    assert receiver.most == 1
    assert len(receiver.tries) > len(KEYS)


async def test_a_schedule_whose_events_fail_opens_no_breaker_while_others_are_accepted(
    scene: Scene,
):
    got: list[str] = []

    @on("schedule.changed")
    async def note(event: ScheduleEvent) -> None:
        if event.key == "a":
            raise ValueError("never")
        got.append(event.id)

    await scene.change("a", "b")
    async with scene.delivering(scene.deliverer(note, pause=lambda _: TICK)):
        for number in range(1, 7):
            await scene.change("a", "b")
            await eventually(partial(count, got, number))
        (its,) = await scene.ledger.events.subscriptions()
        assert its.failing_since is None


async def test_what_waits_for_a_receiver_for_a_day_is_given_up(scene: Scene):
    receiver = Refusing()
    await scene.change(*KEYS, head=HOOK)
    deliverer = scene.deliverer(open_hook=receiver.open_hook, pause=lambda _: TICK)
    await deliverer.run_once()
    await scene.change(*KEYS, head=HOOK)
    await scene.turn(deliverer)
    scene.clock.advance(timedelta(days=1, seconds=1))
    await scene.change("new", head=HOOK)  # younger
    await scene.turn(deliverer)
    await deliverer.end()
    service = ScheduleService(scene.ledger, actor="ops")
    dead = await service.dead_events()
    assert {each.event.key for each in dead} == {*KEYS}
    assert {each.error for each in dead} == {"it answers 503"}
    assert "10 events of hook:default:a.example" in str(scene.reports)


async def test_retries_that_hang_leave_the_places_of_other_schedules(scene: Scene):
    """As many schedules hang as there are places: their first attempts failed at once."""
    tries: dict[str, int] = defaultdict(int)
    got: list[str] = []
    release = asyncio.Event()

    @on("schedule.changed")
    async def note(event: ScheduleEvent) -> None:
        tries[event.key] += 1
        if event.key.startswith("bad"):
            if tries[event.key] > 1:
                await release.wait()
            raise ValueError("no")
        got.append(event.id)

    bad = [f"bad{number}" for number in range(AT_ONCE)]
    await scene.change("a", *bad)
    async with scene.delivering(scene.deliverer(note, pause=lambda _: TICK)):
        for number, each in enumerate(bad, 1):
            await scene.change("a", each)
            await eventually(partial(count, got, number))
            await eventually(partial(tries.get, each))
        await eventually(lambda: sum(tries[each] > 1 for each in bad) == FAILING_AT_ONCE)
        before = len(got)
        await scene.change("a")
        await eventually(lambda: len(got) > before)
        release.set()


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(each, marks=pytest.mark.prove) for each in (2, 3))]
)
async def test_however_a_receiver_behaves_each_schedule_gets_all_its_events_in_order(
    scene: Scene, seed: int
):
    """It accepts, refuses and takes its time, by chance; an event is refused twice at most."""
    chance = random.Random(seed)
    tries: list[str] = []
    got: set[str] = set()
    under_way: list[str] = []
    most = 0

    def open_hook(*_: object) -> Callable[[ScheduleEvent], Any]:
        async def send(event: ScheduleEvent) -> str | None:
            nonlocal most
            assert event.id not in under_way, "once at a time"
            tries.append(event.id)
            under_way.append(event.id)
            most = max(most, len(under_way))
            await asyncio.sleep(chance.choice((0, 0, 0.01, 0.4)))
            under_way.remove(event.id)
            if chance.random() < 0.3 and tries.count(event.id) <= 2:
                return "it answers 503"
            got.add(event.id)
            return None

        return send

    await scene.change(*KEYS, head=HOOK)
    versions = dict.fromkeys(KEYS, 1)
    expected: dict[str, list[str]] = {key: [] for key in KEYS}
    deliverer = scene.deliverer(open_hook=open_hook, pause=lambda _: TICK, lease=timedelta(days=1))
    async with scene.delivering(deliverer):
        for _ in range(6):
            changed = chance.sample(KEYS, 6)
            await scene.change(*changed, head=HOOK)
            for key in changed:
                versions[key] += 1
                expected[key].append(f"{key}:changed:{versions[key]}")

        def all_came() -> bool:
            scene.clock.advance(timedelta(seconds=1))  # an open breaker rests
            return got >= {each for of in expected.values() for each in of}

        await eventually(all_came, timeout=60)
    for key in KEYS:
        its = [each for each in tries if each.startswith(f"{key}:")]
        assert [*dict.fromkeys(its)] == expected[key]
    assert most <= MOST_AT_ONCE


async def test_an_event_that_cannot_be_sent_is_a_failure_and_delays_no_other(scene: Scene):
    got = []

    def open_hook(*_: object) -> Callable[[ScheduleEvent], Any]:
        async def send(event: ScheduleEvent) -> str | None:
            if event.key == "a":
                raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
            got.append(event.id)
            return None

        return send

    await scene.change("a", "b", head=HOOK)
    async with scene.delivering(scene.deliverer(open_hook=open_hook)):
        await scene.change("a", "b", head=HOOK)
        service = ScheduleService(scene.ledger, actor="ops")
        (dead,) = await eventually(service.dead_events)
        assert dead.error == "a:changed:2 cannot be sent: UnicodeEncodeError"
        await eventually(lambda: got == ["b:changed:2"])


async def test_a_plain_listener_that_hangs_takes_no_thread_of_another(scene: Scene):
    release, hanging = threading.Event(), []
    got: list[str] = []

    @on("schedule.changed")
    def hangs(event: ScheduleEvent) -> None:
        hanging.append(event.id)
        release.wait()

    @on("schedule.changed")
    def note(event: ScheduleEvent) -> None:
        got.append(event.id)

    await scene.change(*KEYS)
    async with scene.delivering(scene.deliverer(hangs, note)):
        await scene.change(*KEYS)
        await eventually(lambda: len(hanging) == AT_ONCE)
        await eventually(lambda: len(got) == len(KEYS))
        await scene.change(*KEYS)
        await eventually(lambda: len(got) == 2 * len(KEYS))
        release.set()


async def cancelled(deliverer: Deliverer) -> None:
    """End a replica that was killed: nothing of it may outlive the test."""
    lanes = [lane.task for each in deliverer._subscribers.values() for lane in each._running]
    tasks = [task for task in (*lanes, *deliverer._tasks.values()) if task]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_replica_that_stops_lets_attempts_end_and_leaves_the_rest(scene: Scene):
    begun = asyncio.Event()
    got: list[str] = []

    @on("schedule.changed")
    async def note(event: ScheduleEvent) -> None:
        begun.set()
        await asyncio.sleep(0.05)
        got.append(event.id)

    await scene.change("a")
    first, second = scene.deliverer(note), scene.deliverer(note, holder="b")
    async with scene.delivering(first):
        await scene.change("a")
        await begun.wait()
    assert got == ["a:changed:2"]
    async with scene.delivering(second):
        await scene.change("a")
        await eventually(lambda: len(got) == 2)
    assert got == ["a:changed:2", "a:changed:3"], "the second takes over at once, and repeats none"


async def test_a_delivery_that_is_killed_is_made_again_by_another_replica(scene: Scene):
    """The lease of the first has to end; what it had not settled comes a second time."""
    got: list[tuple[str, str]] = []

    def listener(holder: str) -> Listener:
        async def note(event: ScheduleEvent) -> None:
            got.append((holder, event.id))
            if holder == "a":
                await asyncio.Event().wait()  # killed in the middle

        return Listener("one", note, ("schedule.changed",))

    await scene.change("a")
    first = scene.deliverer(listener("a"))
    second = scene.deliverer(listener("b"), holder="b")
    await first.run_once()
    await scene.change("a")
    await first.run_once()
    await eventually(lambda: got == [("a", "a:changed:2")])
    scene.clock.advance(LEASE)
    async with scene.delivering(second):
        await eventually(lambda: got == [("a", "a:changed:2"), ("b", "a:changed:2")])
    await cancelled(first)


async def test_a_listener_that_hangs_is_a_failure(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(delivery, "PATIENCE", 0.01)
    tries = []

    @on("schedule.changed")
    async def note(event: ScheduleEvent) -> None:
        tries.append(event.id)
        if len(tries) == 1:
            await asyncio.Event().wait()

    await scene.change("a")
    async with scene.delivering(scene.deliverer(note)):
        await scene.change("a")
        await eventually(lambda: len(tries) == 2)
    assert "does not end within" in scene.reports[0][0]


async def cancelled_elsewhere() -> None:
    waiting = asyncio.ensure_future(asyncio.Event().wait())
    waiting.cancel()
    await waiting


async def exits() -> None:
    raise SystemExit(2)


@pytest.mark.parametrize("fails", [cancelled_elsewhere, exits])
async def test_a_cancelled_wait_and_an_exit_of_a_listener_are_failures_that_end_nothing(
    scene: Scene, fails: Callable[[], Awaitable[None]]
):
    tries = []

    @on("schedule.changed")
    async def note(event: ScheduleEvent) -> None:
        tries.append(event.id)
        if len(tries) == 1:
            await fails()

    deliverer = scene.deliverer(note)
    await scene.change("a")
    await deliverer.run_once()
    await scene.change("a")

    while len(tries) < 2:
        await deliverer.run_once()
        await asyncio.sleep(0.001)
        scene.clock.advance(TICK)
    await deliverer.end()
    assert tries == ["a:changed:2", "a:changed:2"]
    text, good = scene.reports[0]
    assert ("SystemExit: 2" if fails is exits else "CancelledError: what it waited for") in text
    assert not good


async def test_an_exit_of_a_plain_listener_is_a_failure():
    def note(event: ScheduleEvent) -> None:
        raise SystemExit(2)

    its = Listener("shop.note", note, ("schedule.*",))
    with ThreadPoolExecutor(1) as threads:
        error = await delivery.call(threads, its, cast("ScheduleEvent", None))
    assert error == "shop.note: SystemExit: 2"


async def test_a_worker_that_is_cancelled_cancels_its_listener():
    called = asyncio.Event()

    async def note(event: ScheduleEvent) -> None:
        called.set()
        await asyncio.Event().wait()

    its = Listener("shop.note", note, ("schedule.*",))
    threads = ThreadPoolExecutor(1)
    calling = asyncio.create_task(delivery.call(threads, its, cast("ScheduleEvent", None)))
    await called.wait()
    calling.cancel()
    await asyncio.wait({calling})
    assert calling.cancelled()


async def test_a_delivery_that_was_cancelled_does_not_end_the_loop(scene: Scene):
    begun = []

    @on("schedule.changed")
    async def note(event: ScheduleEvent) -> None:
        begun.append(event.id)
        if len(begun) == 1:
            task = asyncio.current_task()
            assert task
            task.cancel()
            await asyncio.Event().wait()

    deliverer = scene.deliverer(note)
    await scene.change("a")
    await deliverer.run_once()
    await scene.change("a")
    while len(begun) < 2:
        await deliverer.run_once()
        await asyncio.sleep(0.001)
        scene.clock.advance(TICK)
    await deliverer.end()
    assert begun == ["a:changed:2", "a:changed:2"]


async def test_a_topic_without_a_listener_is_reported_once(scene: Scene):
    """Seed 000, events: an `arrived` event without any listener."""
    deliverer = scene.deliverer()
    await deliverer.run_once()
    for _ in range(3):
        deliverer.note_start(WITH_TOPIC)
    (report,) = scene.reports
    assert report[0].startswith("no listener and no hook gets schedule.bills.due.arrived of a;")


async def test_a_listener_of_another_topic_is_none(scene: Scene):
    @on("schedule.other.arrived")
    async def note(event: ScheduleEvent) -> None: ...

    deliverer = scene.deliverer(note)
    async with scene.delivering(deliverer):
        deliverer.note_start(WITH_TOPIC)
    assert "schedule.bills.due.arrived of a" in scene.reports[0][0]


async def test_what_a_listener_gets_is_not_reported(scene: Scene):
    @on("schedule.*.arrived")
    async def note(event: ScheduleEvent) -> None: ...

    deliverer = scene.deliverer(note)
    async with scene.delivering(deliverer):
        deliverer.note_start(WITH_TOPIC)
    assert scene.reports == []


# --- what is marked ---


def test_a_listener_is_marked_with_names_that_exist():
    with pytest.raises(ValueError, match="did you mean arrived"):
        on("schedule.arived")
    with pytest.raises(ValueError, match="keys of @on has B"):
        on("schedule.arrived", keys=["B"])
    with pytest.raises(TypeError, match="@on needs the names"):
        on(print)  # type: ignore[arg-type] # what a beginner writes
    with pytest.raises(TypeError, match="give it one argument"):

        @on("schedule.arrived")
        def none() -> None: ...

    with pytest.raises(TypeError, match="is no listener; mark it with @on"):
        listener_of(print)


def test_two_listeners_of_one_name_are_refused():
    def made():
        @on("schedule.arrived")
        def twin(event: ScheduleEvent) -> None: ...

        return listener_of(twin)

    with pytest.raises(ValueError, match=r"two listeners are named .*twin"):
        listeners_by_name([made(), made()])
