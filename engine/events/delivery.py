"""Delivery of events: at least once to each subscription, in the order of each schedule.

Every replica has a deliverer. Whichever comes first gives committed events their positions; then
each subscription has one holder at a time, which delivers behind the subscription's position. A
subscription has tasks, places and threads of its own, so that a slow one delays no other.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Literal, cast

from engine.errors import extra_missing
from engine.events.addresses import Allowed
from engine.events.listeners import Listener
from engine.events.messages import AT_ONCE, FAILING_AT_ONCE, MOST_AT_ONCE, PATIENCE, ScheduleEvent
from engine.ledger import Attempt, EventRow, EventStore, EventWork, Subscription
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


# --- context ---

Send = Callable[[ScheduleEvent], Awaitable[str | None]]
"""Delivers an event; returns why it failed, or None."""


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


# --- events in work ---

_LIMIT: Final = 100
"""Fresh events, and deliveries that are due, of one round."""
_LIMIT_BUSY: Final = 10
"""The same while the replica has more starts to send than it can."""
_BEGIN_WITHIN: Final = 5.0
"""Seconds of a round in which attempts begin. With the patience it stays far below the lease."""
_SETTLED_WITHIN: Final = 0.25
"""Seconds for which a round waits for its attempts, once none of them waits for a place."""
_BEGIN_TO_FAIL: Final = 3
"""Schedules that begin to fail, with no event accepted in between, until the breaker opens."""
_ALL_FAIL: Final = 5
"""Events that fail until it opens, where no schedule is known to be accepted."""
_LONGEST_REST: Final = 30.0
LEASE: Final = timedelta(seconds=30)
_DEAD_HINT: Final = "`sched events --dead` lists them"

_Id = tuple[int, str]
"""Position and name of an event."""


@dataclass(frozen=True, slots=True)
class _Item:
    """An event under one name: one that was due again, or a fresh one, which has no row."""

    event: EventRow
    name: str
    attempts: int = 0
    is_fresh: bool = False

    @property
    def id(self) -> _Id:
        return self.event.position or 0, self.name

    @property
    def is_ordered(self) -> bool:
        """Whether later events of its schedule wait for it: until its first retry."""
        return self.attempts <= 1

    def result(
        self,
        attempts: int,
        *,
        done: bool = False,
        wait: timedelta | None = None,
        error: str | None = None,
    ) -> Attempt:
        position, name = self.id
        return Attempt(
            position=position,
            name=name,
            key=self.event.key,
            attempts=attempts,
            done=done,
            wait=wait,
            error=error,
        )


@dataclass(eq=False)
class _Lane:
    """Events of a schedule in their order, or one later retry, which keeps no order.

    Attributes:
        is_failing: whether it takes one of the places for schedules that fail.
    """

    items: deque[_Item]
    is_failing: bool
    sending: _Item | None = None
    task: asyncio.Task[None] | None = None


class Subscriber:
    """Deliveries of one subscription by the replica that holds it.

    A round reads what is due and what is fresh, and sends the events of each schedule in their
    order, those of different schedules beside each other. What does not end soon goes on beside the
    next rounds: its schedule waits for it, and no other one. A receiver that refuses event after
    event gets one at a time until it accepts one.

    Args:
        name: of the subscription.
        book: the events of the ledger.
        around: what the deliverer knows of its process.
        pause: returns the pause after a number of failed attempts; None gives up.
        lease: for which the subscription belongs to its holder alone.
        open_send: returns the sender of the subscription.
        on_end: is called when an attempt has ended, whether or not a round waits for it.
    """

    def __init__(
        self,
        name: str,
        book: EventStore,
        around: DeliveryContext,
        *,
        pause: Callable[[int], timedelta | None],
        lease: timedelta,
        open_send: Callable[[Subscription], Send],
        on_end: Callable[[], None],
    ) -> None:
        self.name = name
        self._book, self._around, self._pause, self._lease = book, around, pause, lease
        self._open_send, self._on_end = open_send, on_end
        self._queues: dict[bool, deque[_Lane]] = {False: deque(), True: deque()}
        self._running: set[_Lane] = set()
        self._ended = asyncio.Event()
        self._until = 0.0
        self._send: Send
        # Results that are not settled yet.
        self._fresh: list[Attempt] = []
        self._again: list[Attempt] = []
        self._finished: dict[_Id, _Item] = {}
        self._attempted, self._error = 0, ""
        # What is known of the receiver.
        self._holds = self._stopping = self._reported = False
        self._failing: set[str] = set()
        self._failed: set[_Id] = set()
        self._accepted: set[str] = set()
        # Since the last event that was accepted.
        self._begin_to_fail: set[str] = set()
        self._in_a_row: set[_Id] = set()
        self._breaker: str | None = None
        self._probes = 0
        self._rest: timedelta | None = None

    async def deliver(self) -> None:
        """Deliver until nothing is due, or another replica has it.

        Raises:
            LedgerUnavailable: the ledger is away; what is not settled is delivered again.
        """
        try:
            while not self._stopping:
                is_busy = self._around.is_busy()
                its = await self._book.take(self.name, self._around.holder, self._lease)
                if its is None:
                    self._forget()
                    return
                if not await self._round(its, _LIMIT_BUSY if is_busy else _LIMIT) or is_busy:
                    return  # the next look continues
        except BaseException:
            self._forget()
            raise

    def stop(self) -> None:
        """Begin no more attempts."""
        self._stopping, self._until = True, 0.0
        self._ended.set()

    async def end(self) -> None:
        """Let the attempts under way end, and settle them."""
        tasks = [lane.task for lane in self._running if lane.task]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=PATIENCE + 1)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._finished:
            await self._settle(0)

    # --- a round ---

    async def _round(self, its: Subscription, limit: int) -> bool:
        """Deliver what is due and what is fresh; return whether there may be more."""
        self._until = 0.0 if self._stopping else time.monotonic() + _BEGIN_WITHIN
        if not self._holds:
            self._holds, self._breaker = True, its.failing_error
        self._send, carried = self._open_send(its), set(self._running)
        due = await self._due(limit)
        room = limit - sum(item.is_ordered and not self._is_failing(item) for item in due)
        rows = await self._book.read(its.position, room) if room > 0 else []
        if not due and not rows and not self._finished and self._breaker is None:
            return False
        fresh = [_Item(row, name, is_fresh=True) for row in rows for name in its.wanted(row)]
        lanes = self._lanes([*due, *await self._unblocked(fresh)])
        if self._breaker is not None:
            lanes = await self._probe(lanes, its, limit)
        for lane in lanes:
            self._queues[lane.is_failing].append(lane)
        self._begin()
        await self._wait(carried)
        attempted = self._attempted
        kept = await self._settle(rows[-1].position or 0 if rows else 0)
        return kept and bool(rows or attempted or self._finished)

    def _held(self) -> dict[_Id, _Item]:
        """Return what is under way, and what has ended and is not settled."""
        sending = (lane.sending for lane in self._running if lane.sending)
        return {**self._finished, **{item.id: item for item in sending}}

    def _held_keys(self) -> set[str]:
        return {item.event.key for item in self._held().values() if item.is_ordered}

    def _is_failing(self, item: _Item) -> bool:
        return item.attempts > 0 or item.event.key in self._failing

    def _places(self, *, failing: bool) -> int:
        taken = sum(lane.is_failing is failing for lane in self._running)
        return (FAILING_AT_ONCE if failing else AT_ONCE) - taken

    async def _due(self, limit: int, *, probe: bool = False) -> list[_Item]:
        """Return what is due and can be sent: of schedules that fail, only if there is a place."""
        failing = probe or (self._breaker is None and self._places(failing=True) > 0)
        but = self._held_keys() | (set() if failing else self._failing)
        found = await self._book.due(self.name, limit, retries=limit if failing else 0, but=but)
        held = self._held()
        items = [_Item(each.event, each.name, each.attempts) for each in found]
        return [item for item in items if item.id not in held]

    async def _unblocked(self, fresh: Sequence[_Item]) -> list[_Item]:
        """Return the fresh events that wait for no earlier one, and put back the others."""
        if not fresh:
            return []
        blocked = await self._book.blocked(self.name) | self._held_keys()
        if self._breaker is not None:
            blocked |= self._failing
        self._put_back(item for item in fresh if item.event.key in blocked)
        return [item for item in fresh if item.event.key not in blocked]

    def _lanes(self, items: Iterable[_Item]) -> list[_Lane]:
        lanes: dict[object, _Lane] = {}
        for item in items:
            of = item.event.key if item.is_ordered else item.id
            lane = lanes.setdefault(of, _Lane(deque(), self._is_failing(item)))
            lane.items.append(item)
        return [*lanes.values()]

    async def _probe(self, lanes: list[_Lane], its: Subscription, limit: int) -> list[_Lane]:
        """Leave one event, if none is under way: of a schedule that has not failed, if there is.

        What has failed is tried again after a rest, which grows to half a minute.
        """
        if not lanes and its.may_retry and not self._running:
            lanes = self._lanes((await self._due(limit, probe=True))[:1])
            self._probes += len(lanes)
        chosen = [] if self._running else lanes[:1]
        for lane in lanes:
            first = [lane.items.popleft()] if lane in chosen else []
            self._put_back(lane.items)
            lane.items = deque(first)
        return chosen

    def _put_back(self, items: Iterable[_Item]) -> None:
        """Give fresh events a row; others have one."""
        no_wait = timedelta(0)
        self._fresh += [item.result(0, wait=no_wait) for item in items if item.is_fresh]

    # --- attempts ---

    @property
    def _is_late(self) -> bool:
        return time.monotonic() > self._until

    def _begin(self) -> None:
        """Begin lanes as far as there are places."""
        for failing, queue in self._queues.items():
            while queue and not self._is_late and self._places(failing=failing) > 0:
                lane = queue.popleft()
                self._running.add(lane)
                lane.task = asyncio.create_task(self._run(lane))

    async def _run(self, lane: _Lane) -> None:
        """Deliver the events of a lane one after the other.

        Behind one that failed once the others wait for its first retry, and no longer.
        """
        try:
            goes_on = True
            while goes_on and lane.items and not self._is_late:
                lane.sending = lane.items.popleft()
                try:
                    error = await self._sent(lane.sending)
                except asyncio.CancelledError:
                    error = f"the attempt was cancelled ({self.name})"
                    goes_on = False
                item, lane.sending = lane.sending, None  # it may have got a row meanwhile
                goes_on = self._note(item, error) and goes_on
            self._put_back(lane.items)
        finally:
            self._running.discard(lane)
            self._begin()
            self._ended.set()
            self._on_end()

    async def _sent(self, item: _Item) -> str | None:
        try:
            event = ScheduleEvent.of(item.event, item.name, self._around.namespace)
            return await self._send(event)
        except Exception as error:  # noqa: BLE001 - an event that cannot be sent delays no other
            return f"{item.event.event_id} cannot be sent: {type(error).__name__}"

    def _note(self, item: _Item, error: str | None) -> bool:
        """Note the result of an attempt; return whether the next event of its schedule may pass."""
        attempts, key = item.attempts + 1, item.event.key
        self._attempted += 1
        self._finished[item.id] = item
        if error is None:
            _count("delivered")
            self._failing.discard(key)
            self._failed.discard(item.id)
            self._accepted.add(key)
            self._begin_to_fail.clear()
            self._in_a_row.clear()
            self._breaker = None
            if not item.is_fresh:
                self._again.append(item.result(attempts, done=True))
            return True
        pause = self._pause(attempts)
        result = item.result(attempts, wait=pause, error=error)
        (self._fresh if item.is_fresh else self._again).append(result)
        _count("failed" if pause is not None else "dead")
        self._note_failure(item, error)
        return attempts > 1

    def _note_failure(self, item: _Item, error: str) -> None:
        """Note what a failure says of the receiver; a schedule that fails anyway says little."""
        key = item.event.key
        if key not in self._failing:
            self._begin_to_fail.add(key)
        self._error = error
        self._failing.add(key)
        self._accepted.discard(key)
        self._failed.add(item.id)
        self._in_a_row.add(item.id)
        many = len(self._begin_to_fail) >= _BEGIN_TO_FAIL
        if self._breaker is None and (
            many or (not self._accepted and len(self._in_a_row) >= _ALL_FAIL)
        ):
            self._probes, self._until = 0, 0.0  # nothing more of this round
            text = f"{self.name} gets one event at a time until it accepts one: {error}"
            self._around.report(text, False)
            self._breaker = error
        if self._breaker is not None:
            self._breaker = error
            self._rest = timedelta(seconds=min(2.0**self._probes, _LONGEST_REST))

    async def _wait(self, carried: set[_Lane]) -> None:
        """Wait for the lanes of this round: all that wait for a place, and the others a little."""
        began = time.monotonic()
        while True:
            waits = self._queues[False] and not self._is_late
            within = _BEGIN_WITHIN if waits else _SETTLED_WITHIN
            left = began + within - time.monotonic()
            if left <= 0 or not (waits or self._running - carried):
                return
            self._ended.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._ended.wait()

    # --- results ---

    async def _settle(self, position: int) -> bool:
        """Write all results; return False if another replica has the subscription now."""
        for lane in (*self._running, *self._queues[False], *self._queues[True]):
            if lane.sending is not None:
                self._put_back([lane.sending])
                lane.sending = replace(lane.sending, is_fresh=False)
            self._put_back(lane.items)
            lane.items.clear()
        self._clear_queues()
        fresh, again, settled = self._fresh, self._again, [*self._finished]
        self._fresh, self._again = [], []
        rest, self._rest = self._rest, None
        kept = await self._book.settle(
            self.name,
            self._around.holder,
            position=position,
            fresh=fresh,
            again=again,
            failing=self._breaker,
            rest=rest,
        )
        if not kept:
            self._forget()
            return False
        for each in settled:
            del self._finished[each]
        failed = [each for each in (*fresh, *again) if each.error is not None]
        self._report(failed)
        if failed:
            await self._give_up([each.key for each in failed])
        return True

    async def _give_up(self, keys: Sequence[str]) -> None:
        """Give up what has waited for a day behind failures of its schedule, or of the receiver."""
        of = None if self._breaker is not None else keys
        if number := await self._book.give_up(self.name, self._error, keys=of):
            _count("dead", number)
            if of is None:
                self._failed.clear()
            text = f"{number} events of {self.name} were given up after a day: {self._error}"
            self._around.report(f"{text}; {_DEAD_HINT}", False)

    def _report(self, failed: Sequence[Attempt]) -> None:
        """Report the first failure, the success after the last one, and deaths."""
        if failed and not self._reported:
            self._reported = True
            text = f"events of {self.name} are not delivered: {self._error}; they are tried again"
            self._around.report(text, False)
        elif self._reported and self._attempted and not self._failed:
            self._reported = False
            self._around.report(f"events of {self.name} are delivered again", True)
        if dead := [each for each in failed if each.wait is None]:
            self._failed -= {(each.position, each.name) for each in dead}
            which = f"{len(dead)} events of {self.name} were given up after {dead[0].attempts}"
            self._around.report(f"{which} attempts: {dead[0].error}; {_DEAD_HINT}", False)
        self._attempted = 0

    def _clear_queues(self) -> None:
        for queue in self._queues.values():
            queue.clear()

    def _forget(self) -> None:
        """Forget what is not settled; its holder reads it again."""
        self._clear_queues()
        for lane in self._running:
            lane.items.clear()
            lane.sending = lane.sending and replace(lane.sending, is_fresh=False)
        self._fresh, self._again, self._holds, self._rest = [], [], False, None
        self._finished.clear()
        for kept in (self._failing, self._accepted, self._begin_to_fail):
            kept.clear()
        for items in (self._failed, self._in_a_row):
            items.clear()


def _count(outcome: Literal["delivered", "failed", "dead"], number: int = 1) -> None:
    measures().count(instruments.EVENT_DELIVERIES, number, outcome=outcome)


# --- senders ---

OpenHook = Callable[[Subscription, Allowed], Send]

_LONGEST_ERROR: Final = 500


async def call(threads: Executor, listener: Listener, event: ScheduleEvent) -> str | None:
    """Call a listener, a plain one in one of its threads; return why it failed, or None."""
    try:
        async with asyncio.timeout(PATIENCE):
            if asyncio.iscoroutinefunction(listener.function):
                await cast("Awaitable[None]", listener.function(event))
            else:
                context, loop = contextvars.copy_context(), asyncio.get_running_loop()
                await loop.run_in_executor(threads, context.run, listener.function, event)
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
    """Load what the first event would wait for, in a thread of its own."""
    from engine.events.webhooks import trusted  # noqa: PLC0415 - see open_hook

    trusted()


# --- deliverer ---

_ANNOUNCED: Final = timedelta(days=7)
"""How long the events of a listener are kept after the last worker that had it."""
_ANNOUNCE_AGAIN: Final = 3600.0
_PLACED_AT_ONCE: Final = 500
_ANY_TIME: Final = datetime.min.replace(tzinfo=UTC)


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
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._subscribers: dict[str, Subscriber] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._errors: list[BaseException] = []
        self._announced_at: float | None = None
        self._subscriptions: list[Subscription] = []
        self._warned = self._stopping = False
        self._subscribed: bool | None = None
        self._missing = extra_missing("webhooks", "a webhook")
        self._loaded = False
        self._learnt_at: float | None = None
        self._wanted: dict[str, bool] = {}

    async def run_once(self) -> timedelta:
        """Place new events and begin what is due; return the wait until the next look.

        Raises:
            LedgerUnavailable: the ledger is away; what was being delivered is delivered again.
        """
        wait = await self._look()
        if self._errors:  # of one subscriber: all others have begun
            error = self._errors[0]
            self._errors.clear()
            raise error
        return wait

    async def _look(self) -> timedelta:
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
            if self._missing is None or name in self._listeners:
                self._begin(name)
        return self._around.tick

    def _begin(self, name: str) -> None:
        """Deliver to a subscription, unless that is under way."""
        if name in self._tasks or self._stopping:
            return
        if name not in self._subscribers:
            self._subscribers[name] = Subscriber(
                name,
                self._book,
                self._around,
                pause=self._pause,
                lease=self._lease,
                open_send=self._send_of,
                on_end=partial(self._begin, name),
            )
        task = self._tasks[name] = asyncio.create_task(self._subscribers[name].deliver())
        task.add_done_callback(partial(self._note_end, name))

    def _note_end(self, name: str, task: asyncio.Task[None]) -> None:
        del self._tasks[name]
        # What a cancelled task had under way is delivered again; its exception() would raise.
        if not task.cancelled() and (error := task.exception()) is not None:
            self._errors.append(error)

    async def _work(self) -> EventWork:
        around = self._around
        return await self._book.work(around.holder, list(self._listeners), project=around.project)

    async def end(self) -> None:
        """Let the attempts under way end, and leave the rest to other replicas."""
        self._stopping = True
        for each in self._subscribers.values():
            each.stop()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        ends = [each.end() for each in self._subscribers.values()]
        await asyncio.gather(*ends, return_exceptions=True)  # what is not settled comes again
        for send in self._hooks.values():
            if close := getattr(send, "close", None):
                await close()
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)
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
                if self._missing is None:
                    await asyncio.to_thread(load_hooks)
                else:
                    self._around.report(f"{self._missing}; other workers call it", False)
            self._wanted.clear()
            self._learnt_at = now

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

    def _send_of(self, its: Subscription) -> Send:
        if its.kind == "listener":
            # One whose calls hang leaves the threads of others alone.
            if its.name not in self._threads:
                self._threads[its.name] = ThreadPoolExecutor(MOST_AT_ONCE)
            return partial(call, self._threads[its.name], self._listeners[its.name])
        made = (its.name, its.url, its.secret)
        if made not in self._hooks:
            self._hooks[made] = self._open_hook(its, self._around.allowed)
        return self._hooks[made]


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
