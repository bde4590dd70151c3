"""Delivery of events: at least once to each subscription, in the order of each schedule.

Every replica has a deliverer. Whichever comes first gives committed events their positions; then
each subscription has one holder at a time, which delivers behind the subscription's position. A
subscription is a task of its own, so that a slow one delays no other.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Literal, cast

from engine.events.addresses import Allowed
from engine.events.listeners import Listener
from engine.events.messages import PATIENCE, ScheduleEvent
from engine.ledger import Attempt, Delivery, EventRow, EventStore, EventWork, Subscription
from engine.schedules import Schedule
from engine.telemetry import instruments
from engine.telemetry.instruments import measures

# --- retries ---

_LONGEST_PAUSE: Final = 3600.0
MOST_ATTEMPTS: Final = 36
"""The first and 35 retries, after 1 s, 2 s, 4 s and so on, at most an hour: about a day."""


def pause_after(attempts: int) -> timedelta | None:
    """Return the pause before the next attempt; None if there is none any more."""
    if attempts >= MOST_ATTEMPTS:
        return None
    pause = min(2.0 ** (attempts - 1), _LONGEST_PAUSE)
    return timedelta(seconds=pause * random.uniform(0.9, 1.1))


# --- senders ---

Send = Callable[[ScheduleEvent], Awaitable[str | None]]
"""Delivers an event; returns why it failed, or None."""
OpenHook = Callable[[Subscription, Allowed], Send]

_LONGEST_ERROR: Final = 500


async def call(listener: Listener, event: ScheduleEvent) -> str | None:
    """Call a listener; return why it failed, or None."""
    try:
        async with asyncio.timeout(PATIENCE):
            if asyncio.iscoroutinefunction(listener.function):
                await cast("Awaitable[None]", listener.function(event))
            else:
                await asyncio.to_thread(listener.function, event)
    except TimeoutError:
        return f"{listener.name} does not end within {PATIENCE:.0f} s"
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        return f"{listener.name}: CancelledError: what it waited for was cancelled"
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever user code raises
        # Code made for a command line exits; that is not to end a worker.
        return f"{listener.name}: {type(error).__name__}: {error}"[:_LONGEST_ERROR]
    return None


def _is_cancelled() -> bool:
    """Whether the task at hand is cancelled itself, not only something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def open_hook(hook: Subscription, allowed: Allowed) -> Send:
    """Return the sender of a webhook."""
    # What it needs costs 100 ms to load, and few replicas have hooks.
    from engine.events.webhooks import HookSender  # noqa: PLC0415

    return HookSender(hook, allowed)


def load_hooks() -> None:
    """Load what webhooks need, in a thread of its own."""
    from engine.events.webhooks import load  # noqa: PLC0415 - see open_hook

    load()


# --- one turn of a subscription ---

_LIMIT: Final = 100
"""Events, and deliveries that are due, of one turn."""
_AT_ONCE: Final = 8
"""Schedules of a subscription whose events are under way at once."""
_LIMIT_BUSY: Final = 10
"""The same while the replica has more starts to send than it can."""
_BEGIN_WITHIN: Final = 5.0
"""Seconds of a turn in which attempts begin. With the patience it stays far below the lease."""
LEASE: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class _Item:
    """An event under one name in a turn: one that was due again, or a fresh one."""

    event: EventRow
    name: str
    attempts: int = 0
    is_fresh: bool = False


@dataclass
class _Turn:
    """Results of a turn."""

    send: Callable[[_Item], Awaitable[str | None]]
    pause: Callable[[int], timedelta | None]
    blocked: frozenset[str]
    until: float
    fresh: list[Attempt] = field(default_factory=list)
    again: list[Attempt] = field(default_factory=list)
    attempted: int = 0
    error: str | None = None

    async def lane(self, items: Sequence[_Item]) -> None:
        """Deliver the events of one schedule in their order.

        Behind one that failed once the others wait for its first retry, and no longer.
        """
        stalled = False
        for item in items:
            late = time.monotonic() > self.until
            if item.is_fresh and (stalled or late or item.event.key in self.blocked):
                self.fresh.append(self._result(item, 0, wait=timedelta(0)))
                stalled = True
                continue
            if not item.is_fresh and (late or (stalled and not item.attempts)):
                stalled = stalled or item.attempts <= 1
                continue  # it stays as it is
            error = await self.send(item)
            attempts = item.attempts + 1
            self.attempted += 1
            if error is not None:
                self.error = error
                stalled = stalled or attempts == 1
                pause = self.pause(attempts)
                result = self._result(item, attempts, wait=pause, error=error)
                (self.fresh if item.is_fresh else self.again).append(result)
                _count("failed" if pause is not None else "dead")
                continue
            _count("delivered")
            if not item.is_fresh:
                self.again.append(self._result(item, attempts, done=True))

    @staticmethod
    def _result(
        item: _Item,
        attempts: int,
        *,
        done: bool = False,
        wait: timedelta | None = None,
        error: str | None = None,
    ) -> Attempt:
        event = item.event
        return Attempt(
            position=event.position or 0,
            name=item.name,
            key=event.key,
            attempts=attempts,
            done=done,
            wait=wait,
            error=error,
        )

    @property
    def dead(self) -> list[Attempt]:
        """The attempts after which there is none."""
        return [each for each in (*self.fresh, *self.again) if not each.done and each.wait is None]


def _count(outcome: Literal["delivered", "failed", "dead"]) -> None:
    measures().count(instruments.EVENT_DELIVERIES, outcome=outcome)


def _lanes(due: Sequence[Delivery], fresh: Sequence[_Item]) -> dict[str, list[_Item]]:
    lanes: dict[str, list[_Item]] = {}
    for each in due:
        item = _Item(each.event, each.name, each.attempts)
        lanes.setdefault(each.event.key, []).append(item)
    for item in fresh:
        lanes.setdefault(item.event.key, []).append(item)
    return lanes


# --- deliverer ---

_ANNOUNCED: Final = timedelta(days=7)
"""How long the events of a listener are kept after the last worker that had it."""
_ANNOUNCE_AGAIN: Final = 3600.0
_PLACED_AT_ONCE: Final = 500
_ANY_TIME: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DeliveryContext:
    """Knowledge of a deliverer about its process.

    Attributes:
        holder: the replica.
        namespace: of Temporal.
        project: whose events its listeners get, and whose hooks it delivers.
        tick: the longest time until it looks for events again.
        idle: the same while there is no subscription.
        allowed: addresses that hooks may reach although they are not public.
        is_busy: returns whether windows or starts wait, which come first: then each look delivers
            a little.
        report: emits a sentence; the second argument says whether it is good news.
    """

    holder: str
    namespace: str
    project: str
    tick: timedelta
    idle: timedelta
    report: Callable[[str, bool], None]
    allowed: Allowed = field(default_factory=Allowed)
    is_busy: Callable[[], bool] = lambda: False


class Deliverer:
    """Deliverer of one replica.

    Args:
        book: the events of the ledger.
        around: what it knows of its process.
        listeners: the functions of this worker.
        open_hook: returns the sender of a webhook.
        pause: returns the pause after a number of failed attempts; None gives up.
        lease: for which a subscription belongs to its holder alone.
    """

    def __init__(
        self,
        book: EventStore,
        around: DeliveryContext,
        listeners: Sequence[Listener] = (),
        *,
        open_hook: OpenHook = open_hook,
        pause: Callable[[int], timedelta | None] = pause_after,
        lease: timedelta = LEASE,
    ) -> None:
        self._book, self._around, self._pause, self._lease = book, around, pause, lease
        self._listeners = {_name_of(each, around.project): each for each in listeners}
        self._open_hook = open_hook
        self._hooks: dict[tuple[object, ...], Send] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._announced_at: float | None = None
        self._subscriptions: list[Subscription] = []
        self._failing: set[str] = set()
        self._warned = self._stopping = False
        self._subscribed: bool | None = None
        self._loaded = False
        self._learnt_at: float | None = None
        self._wanted: dict[str, bool] = {}

    async def run_once(self) -> timedelta:
        """Place new events and begin what is due; return the wait until the next look.

        Raises:
            LedgerUnavailable: the ledger is away; what was being delivered is delivered again.
        """
        self._collect()
        await self._announce()
        work = await self._work()
        self._subscribed = work.subscribed
        await self._learn_subscriptions()
        if not work.subscribed and not work.due:
            return self._around.idle
        if work.fresh:
            while await self._book.place(_PLACED_AT_ONCE) == _PLACED_AT_ONCE:
                pass
            work = await self._work()
        for name in work.due:
            if name not in self._tasks and not self._stopping:
                self._tasks[name] = asyncio.create_task(self._deliver(name))
        return self._around.tick

    async def _work(self) -> EventWork:
        around = self._around
        return await self._book.work(around.holder, list(self._listeners), project=around.project)

    async def end(self) -> None:
        """Let the attempts under way end, and leave the rest to other replicas."""
        self._stopping = True
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=PATIENCE + 1)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for send in self._hooks.values():
            if close := getattr(send, "close", None):
                await close()
        await self._book.give_back(self._around.holder)

    @property
    def has_subscriptions(self) -> bool:
        """Whether there were any when it looked last."""
        return bool(self._subscribed)

    def note_start(self, schedule: Schedule) -> None:
        """Note a run that has started; its ``arrived`` event may be one that no subscription gets.

        Subscriptions of the last few seconds are not known here yet.
        """
        if self._subscribed is None:
            return
        if schedule.key not in self._wanted:
            event = EventRow(
                event_id="",
                project=self._around.project,
                key=schedule.key,
                type="arrived",
                at=_ANY_TIME,
                definition_version=0,
                schedule=schedule,
            )
            wanted = any(each.wanted(event) for each in self._subscriptions)
            self._wanted[schedule.key] = wanted
        if self._wanted[schedule.key]:
            return
        measures().count(instruments.EVENTS_UNMATCHED)
        if schedule.topic is not None and not self._warned:
            self._warned = True
            text = f"no listener and no hook gets schedule.{schedule.topic}.arrived"
            count = "sched_events_unmatched_total counts them"
            self._around.report(f"{text} of {schedule.key}; {count}", False)

    async def _learn_subscriptions(self) -> None:
        """Read from time to time who subscribes, to find events without a subscription."""
        now = time.monotonic()
        if self._learnt_at is None or now - self._learnt_at >= self._around.idle.total_seconds():
            self._subscriptions = await self._book.subscriptions() if self._subscribed else []
            if not self._loaded and any(each.kind == "hook" for each in self._subscriptions):
                self._loaded = True
                await asyncio.to_thread(load_hooks)
            self._wanted.clear()
            self._learnt_at = now

    def _collect(self) -> None:
        """Forget tasks that have ended, and raise the error of one that failed."""
        ended = {name: task for name, task in self._tasks.items() if task.done()}
        for name in ended:
            del self._tasks[name]
        for task in ended.values():
            # What a cancelled task had under way is delivered again; its exception() would raise.
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _announce(self) -> None:
        """Subscribe the listeners, and renew that from time to time."""
        now = time.monotonic()
        if self._announced_at is not None and now - self._announced_at < _ANNOUNCE_AGAIN:
            return
        for name, each in self._listeners.items():
            its = Subscription(
                name=name,
                kind="listener",
                events=each.events,
                keys=each.keys,
                project=self._around.project,
            )
            await self._book.subscribe(its, lasts=_ANNOUNCED, by=self._around.holder)
        self._announced_at = now

    # --- subscriptions ---

    async def _deliver(self, name: str) -> None:
        """Deliver to a subscription until nothing is due, or another replica has it."""
        while not self._stopping:
            is_busy = self._around.is_busy()
            its = await self._book.take(name, self._around.holder, self._lease)
            if its is None or not await self._turn(its, _LIMIT_BUSY if is_busy else _LIMIT):
                return
            if is_busy:
                return  # the next look continues

    async def _turn(self, its: Subscription, limit: int) -> bool:
        """Deliver what is due and what is fresh; return whether there may be more."""
        due = await self._book.due(its.name, limit)
        rows = await self._book.read(its.position, limit)
        if not due and not rows:
            return False
        fresh = [_Item(row, name, is_fresh=True) for row in rows for name in its.wanted(row)]
        turn = _Turn(
            self._sender(its),
            self._pause,
            blocked=frozenset(await self._book.blocked(its.name) if fresh else ()),
            until=time.monotonic() + _BEGIN_WITHIN,
        )
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(items: Sequence[_Item]) -> None:
            async with places:
                await turn.lane(items)

        await asyncio.gather(*map(one, _lanes(due, fresh).values()))
        position = rows[-1].position if rows else None
        kept = await self._book.settle(
            its.name,
            self._around.holder,
            position=position or its.position,
            fresh=turn.fresh,
            again=turn.again,
        )
        self._report(its, turn)
        return kept and bool(rows or turn.attempted)

    def _sender(self, its: Subscription) -> Callable[[_Item], Awaitable[str | None]]:
        send = self._send_of(its)

        async def sent(item: _Item) -> str | None:
            event = ScheduleEvent.of(item.event, item.name, self._around.namespace)
            return await send(event)

        return sent

    def _send_of(self, its: Subscription) -> Send:
        if its.kind == "listener":
            return partial(call, self._listeners[its.name])
        made = (its.name, its.url, its.secret)
        if made not in self._hooks:
            self._hooks[made] = self._open_hook(its, self._around.allowed)
        return self._hooks[made]

    def _report(self, its: Subscription, turn: _Turn) -> None:
        """Report the first failure of a subscription, its first success after that, and deaths."""
        if turn.error is not None and its.name not in self._failing:
            self._failing.add(its.name)
            text = f"events of {its.name} are not delivered: {turn.error}; they are tried again"
            self._around.report(text, False)
        elif turn.error is None and turn.attempted and its.name in self._failing:
            self._failing.discard(its.name)
            self._around.report(f"events of {its.name} are delivered again", True)
        if dead := turn.dead:
            which = f"{len(dead)} events of {its.name} were given up after {dead[0].attempts}"
            text = f"{which} attempts: {dead[0].error}; `sched events --dead` lists them"
            self._around.report(text, False)


def _name_of(listener: Listener, project: str) -> str:
    return f"listener:{project}:{listener.name}"


def listeners_by_name(listeners: Iterable[Listener]) -> Mapping[str, Listener]:
    """Return listeners by their names.

    Raises:
        ValueError: two have the same name.
    """
    found: dict[str, Listener] = {}
    for each in listeners:
        if found.setdefault(each.name, each) is not each:
            raise ValueError(f"two listeners are named {each.name}")
    return found
