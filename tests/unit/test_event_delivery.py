"""Delivery of events: at least once, in the order of each schedule, and nothing waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import pytest

from engine.events import ScheduleEvent, delivery, on
from engine.events.delivery import (
    MOST_ATTEMPTS,
    Deliverer,
    DeliveryContext,
    listeners_by_name,
    pause_after,
)
from engine.events.listeners import Listener, listener_of
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
        assert "were given up after 5 attempts" in scene.reports[-1][0]
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
    for task in first._tasks.values():
        task.cancel()
    scene.clock.advance(delivery.LEASE)
    async with scene.delivering(second):
        await eventually(lambda: got == [("a", "a:changed:2"), ("b", "a:changed:2")])


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
    assert await delivery.call(its, cast("ScheduleEvent", None)) == "shop.note: SystemExit: 2"


async def test_a_worker_that_is_cancelled_cancels_its_listener():
    called = asyncio.Event()

    async def note(event: ScheduleEvent) -> None:
        called.set()
        await asyncio.Event().wait()

    its = Listener("shop.note", note, ("schedule.*",))
    calling = asyncio.create_task(delivery.call(its, cast("ScheduleEvent", None)))
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
