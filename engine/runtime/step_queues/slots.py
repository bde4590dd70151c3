"""Slots of step queues, and the interceptors that enforce them."""

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
# A slot in the ledger is the right to run one step. The SDK reserves one before it polls, so that a
# step that may not run yet stays in Temporal. Each step checks again before it begins, because the
# slot may have been lost during the poll.

_EARLIER = 6
"""The replica ends a lease 1/6 of its length before the ledger does."""


class SlotLost(Exception):
    """Error of a step whose slot another replica may hold by now."""


class SlotPool:
    """Slots of one lane that one replica holds, uses and wants.

    Args:
        lane: the Temporal task queue of the steps.
        queue: the queue that sets the limit.
        want: called when the ledger must be asked before the next renewal.
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
        """Number of slots that steps may use: certainly held by this replica, within the limit."""
        return self._held if boottime() < self._until else 0

    @property
    def running(self) -> int:
        """Number of steps that run here."""
        return self._entered

    def ask(self) -> SlotAsk:
        """Return the request to the ledger for this lane.

        Slots that it gives back are unused from now on: another replica may get them before the
        answer arrives. Slots that it takes are used only after the answer.
        """
        wanted = max(self._permits, self._entered) + self._waiting
        self._held = min(self._held, wanted)
        self._short = False
        return SlotAsk(self.lane, self.queue, max(self._entered, self.held), wanted)

    def hold(self, count: int, ask: SlotAsk, asked: float, lease: timedelta) -> None:
        """Apply the ledger's answer to the request ``ask`` that was made at ``asked``."""
        length = lease.total_seconds()
        self._held, self._until = count, asked + length - length / _EARLIER
        self._short = count < ask.wanted
        if max(count, self._entered) < ask.running:
            self._want()  # the queue was made smaller: give unused slots back
        self._tell()

    def give_up(self) -> None:
        """Cancel steps on slots whose lease has ended, before another replica takes the slots.

        A step in a thread cannot be cancelled; it goes on beside the next holder of its slot.
        """
        if boottime() >= self._until:
            self._held = 0
            for task in self._running - self._lost:
                self._lost.add(task)
                task.cancel()

    async def reserve(self) -> None:
        """Wait for a slot to poll with."""
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
        """Release a slot that was reserved for a poll."""
        self._permits -= 1
        self._tell()

    @asynccontextmanager
    async def slot(self, *, patience: timedelta, can_be_ended: bool) -> AsyncIterator[None]:
        """Run a step on a slot, which is free at once unless slots were lost or the queue shrank.

        Raises:
            SlotLost: no lease was renewed for ``patience``, or the step's own slot was lost.
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
        """Wait for a free slot: without limit while the lease lasts, because other steps end."""
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
        """Wake all waiters; those that find no slot wait for the next news."""
        self._news.set()
        self._news = asyncio.Event()


class SlotSupplier(CustomSlotSupplier):
    """Slot supplier that lets a worker poll for as many steps as it has slots.

    It must be created in the event loop of its ``SlotPool``. The SDK reserves there, but releases
    in its own threads, where the pool must not be touched: a waiter could miss the news for good.
    """

    def __init__(self, book: SlotPool) -> None:
        self._book, self._loop = book, asyncio.get_running_loop()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:  # noqa: ARG002 - the SDK's name
        """See the base class."""
        await self._book.reserve()
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:  # noqa: ARG002 - the SDK's name
        """Return None: no step may begin eagerly, past the queue."""
        return None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """See the base class."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:  # noqa: ARG002 - the SDK's name
        """See the base class."""
        with suppress(RuntimeError):  # the loop and its pool have ended
            self._loop.call_soon_threadsafe(self._book.release)


# --- interceptors ---

_REMEMBERED = 1000


class SeenQueues(Interceptor):
    """Recorder of the queues that the steps of runs name, to report undeclared ones."""

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
    """Interceptor that begins a step only on a slot, and cancels it when the slot is lost.

    It must be the innermost, so that heartbeats go on while a step waits here.

    Args:
        book: the slots of the worker's lane.
        patience: how long a step waits for a slot after the lease has ended.
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
