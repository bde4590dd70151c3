"""Slots of step queues."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ActivityInboundInterceptor,
    CustomSlotSupplier,
    ExecuteActivityInput,
    Interceptor,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle

from engine.flow.steps import queue_of
from engine.ledger.records import SlotAsk
from engine.runtime.clock import boottime
from engine.runtime.interceptors import passing

# --- slots ---
# The slots of one queue that one replica holds: what may run here, and what may ask for more.
#
# A slot in the ledger is the right to run one step. The SDK asks for one before it polls, so that a
# step that may not run yet stays in Temporal; and each step asks once more before it begins, since
# a slot may have been lost while its worker was still polling.

_EARLIER = 6
"""This side ends a lease this part of it before the ledger does."""


class SlotLost(Exception):
    """The slot of this step may be another's by now."""


class SlotPool:
    """Slots of one lane that one replica holds, uses and wants.

    Args:
        lane: the Temporal task queue of the steps.
        queue: whose limit it is.
        want: called when the ledger is to be asked before the next renewal.
    """

    def __init__(self, lane: str, queue: str, want: Callable[[], None]) -> None:
        self.lane, self.queue, self._want = lane, queue, want
        self._held, self._until = 0, 0.0
        self._permits = self._waiting = 0
        self._running: set[asyncio.Task[object]] = set()
        self._entered = 0
        self._lost: set[asyncio.Task[object]] = set()
        self._short = False
        self._news = asyncio.Event()

    @property
    def held(self) -> int:
        """On how many slots steps may run: those that are surely ours, and within the limit."""
        return self._held if boottime() < self._until else 0

    @property
    def running(self) -> int:
        """Number of steps that run here."""
        return self._entered

    def ask(self) -> SlotAsk:
        """Return what is to be asked of the ledger for this lane.

        What it gives back is out of use from here on: another replica can have it before the
        answer arrives. What it takes is used with the answer, and after none not at all.
        """
        wanted = max(self._permits, self._entered) + self._waiting
        self._held = min(self._held, wanted)
        self._short = False
        return SlotAsk(self.lane, self.queue, max(self._entered, self.held), wanted)

    def hold(self, count: int, ask: SlotAsk, asked: float, lease: timedelta) -> None:
        """Note what the ledger answered to what was asked at ``asked``."""
        length = lease.total_seconds()
        self._held, self._until = count, asked + length - length / _EARLIER
        self._short = count < ask.wanted
        if max(count, self._entered) < ask.running:
            self._want()  # the queue was made smaller: what nothing runs on goes back
        self._tell()

    def give_up(self) -> None:
        """End the steps that run on slots whose lease has ended, before anybody takes those.

        A step in a thread cannot be ended; it goes on beside whoever takes its slot.
        """
        if boottime() >= self._until:
            self._held = 0
            for task in self._running - self._lost:
                self._lost.add(task)
                task.cancel()

    async def reserve(self) -> None:
        """Wait until there is a slot to poll with."""
        self._waiting += 1
        if not self._short:
            self._want()
        try:
            while self._permits >= self.held:
                await self._next_news()
            self._permits += 1
        finally:
            self._waiting -= 1

    def release(self) -> None:
        """Poll with it no more."""
        self._permits -= 1
        self._tell()

    @asynccontextmanager
    async def slot(self, *, patience: timedelta, can_be_ended: bool) -> AsyncIterator[None]:
        """Run a step on a slot; it is there at once, unless slots were lost or a queue shrank.

        Raises:
            SlotLost: leases have ended and none came back for so long, or the step's was lost.
        """
        await self._wait_for_slot(patience)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this is a coroutine
        self._entered += 1
        if can_be_ended:
            self._running.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._lost:
                raise
            task.uncancel()
            raise SlotLost from None
        finally:
            self._entered -= 1
            self._running.discard(task)
            self._lost.discard(task)
            self._tell()

    async def _wait_for_slot(self, patience: timedelta) -> None:
        """Wait in any case while the ledger is in reach: whoever has a slot will be done."""
        gone_since: float | None = None
        while self._entered >= self.held:
            lasts = boottime() < self._until
            gone_since = None if lasts else gone_since or boottime()
            if gone_since is not None and boottime() - gone_since >= patience.total_seconds():
                raise SlotLost
            await self._next_news(within=patience.total_seconds() / 4)

    async def _next_news(self, within: float | None = None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._news.wait()

    def _tell(self) -> None:
        """Wake everybody who waits; whoever finds nothing waits for the next news."""
        self._news.set()
        self._news = asyncio.Event()


class SlotSupplier(CustomSlotSupplier):
    """Lets a worker poll for as many steps as it has slots.

    It is made in the event loop of the book. The SDK reserves there, but releases in threads of its
    own, where the book must not be touched: who waits for news could miss it for good.
    """

    def __init__(self, book: SlotPool) -> None:
        self._book, self._loop = book, asyncio.get_running_loop()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:  # noqa: ARG002 - the SDK's name
        """See the base class."""
        await self._book.reserve()
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:  # noqa: ARG002 - the SDK's name
        """Nothing begins past the queue."""
        return None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """See the base class."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:  # noqa: ARG002 - the SDK's name
        """See the base class."""
        with suppress(RuntimeError):  # the loop has ended, and its book with it
            self._loop.call_soon_threadsafe(self._book.release)


# --- interceptors ---
# What the plugin does around steps that name a queue, in the workflow and on the worker.

_REMEMBERED = 1000


class SeenQueues(Interceptor):
    """Notes which queues the steps of runs name, so that an undeclared one is told of."""

    def __init__(self) -> None:
        # Written by workflow threads, read by the loop; a deque needs no lock.
        self.seen: deque[tuple[str, str, str]] = deque(maxlen=_REMEMBERED)

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002, ARG002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        """See the base class."""
        return passing(lambda following: _QueueNoteInterceptor(following, self.seen))


class _QueueNoteInterceptor(WorkflowOutboundInterceptor):
    def __init__(
        self, following: WorkflowOutboundInterceptor, seen: deque[tuple[str, str, str]]
    ) -> None:
        super().__init__(following)
        self._seen = seen

    def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:  # noqa: A002 - the SDK's name
        if input.task_queue is not None and not workflow.unsafe.is_replaying():
            info = workflow.info()
            queue = queue_of(input.task_queue, info.task_queue)
            if queue is not None:
                self._seen.append((queue, input.activity, info.workflow_id))
        return super().start_activity(input)


class SlotInterceptor(Interceptor):
    """Lets a step begin only on a slot, and ends it when the slot is lost.

    It must be the innermost: while a step waits here its heartbeats go on.

    Args:
        book: of the worker's lane.
        patience: how long a step that came while slots were lost waits for one.
    """

    def __init__(self, book: SlotPool, patience: timedelta) -> None:
        self._book, self._patience = book, patience

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """See the base class."""
        return _OnSlot(next, self._book, self._patience)


class _OnSlot(ActivityInboundInterceptor):
    def __init__(
        self, following: ActivityInboundInterceptor, book: SlotPool, patience: timedelta
    ) -> None:
        super().__init__(following)
        self._book, self._patience = book, patience

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        can_be_ended = inspect.iscoroutinefunction(input.fn)
        try:
            async with self._book.slot(patience=self._patience, can_be_ended=can_be_ended):
                return await super().execute_activity(input)
        except SlotLost:
            raise ApplicationError(
                f"this worker lost its slots of queue {self._book.queue}: it could not reach the"
                " ledger for a lease; the step is tried again",
                type="SlotLost",
            ) from None
