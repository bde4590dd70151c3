"""Delivery of events: at least once to each subscription, in the order of each schedule.

Every replica has a deliverer. Whichever comes first gives committed events their positions; then
each subscription has one holder at a time, which delivers behind the subscription's position. A
subscription has tasks, places and threads of its own, so that a slow one delays no other.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, cast

from engine.events.addresses import Allowed
from engine.events.listeners import Listener
from engine.events.messages import MOST_AT_ONCE, PATIENCE, ScheduleEvent
from engine.events.subscriber import (
    LEASE,
    DeliveryContext as DeliveryContext,  # noqa: PLC0414 - for who makes a deliverer
    Send,
    Subscriber,
    pause_after,
)
from engine.ledger import EventRow, EventStore, EventWork, Subscription
from engine.schedules import Schedule
from engine.telemetry import instruments
from engine.telemetry.instruments import measures

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
    """Load what webhooks need, in a thread of its own."""
    from engine.events.webhooks import load  # noqa: PLC0415 - see open_hook

    load()


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
                await asyncio.to_thread(load_hooks)
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
