"""Step queues: limits, workers, rates and slots of queues of steps."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Any
from weakref import WeakSet

from google.protobuf.field_mask_pb2 import FieldMask
from temporalio import activity, workflow
from temporalio.api.activity.v1 import ActivityOptions
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import RateLimit, TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    UpdateActivityOptionsRequest,
    UpdateTaskQueueConfigRequest,
)
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import (
    ActivityInboundInterceptor,
    CustomSlotSupplier,
    ExecuteActivityInput,
    FixedSizeSlotSupplier,
    Interceptor,
    PollerBehaviorSimpleMaximum,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    StartActivityInput,
    Worker,
    WorkerTuner,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle

from engine.errors import Code, EngineError, did_you_mean
from engine.flow import SERVED, StepNote, lane_of, queue_of, step_named
from engine.ledger import Ledger, QueueRow, Serving, SlotAsk, key_lane
from engine.runtime.clock import boottime, wait_for
from engine.runtime.events import Alert, Notice, OnEvent, logger
from engine.runtime.measurements import temporal_call
from engine.runtime.runs.calls import RunInterceptor
from engine.runtime.settings import Settings
from engine.runtime.temporal_client import level_of
from engine.schedules import Queue, Rate

# --- slots ---
# A slot in the ledger is the right to run one step. The SDK reserves one before it polls, so that a
# step that may not run yet stays in Temporal. Each step checks again before it begins, because the
# slot may have been lost during the poll.

_EARLIER = 6
"""The replica ends a lease 1/6 of its length before the ledger does."""


_REST = 20
"""A replica leaves a key to others for 1/20 of each lease."""

_MOST_PARKED = 200
"""Steps of one lane that wait for their key on a replica. Of a longer line only so many come, and a
step of another key has to wait until one of them begins."""


class SlotLost(Exception):
    """Error of a step whose slot another replica may hold by now."""


class NotBegun(Exception):
    """Error of a step that has waited for its key on a replica which closes."""


def _until(asked: float, lease: timedelta) -> float:
    """Return until when slots may be used that were asked for at ``asked``."""
    length = lease.total_seconds()
    return asked + length - length / _EARLIER


class SlotPool:
    """Slots of one lane that one replica holds, uses and wants.

    Args:
        lane: the Temporal task queue of the steps.
        queue: the queue that sets the limit.
        want: called when the ledger must be asked before the next renewal.
        patience: how long a step waits for a slot after the lease has ended.
    """

    def __init__(
        self, lane: str, queue: str, want: Callable[[], None], *, patience: timedelta
    ) -> None:
        self.lane, self.queue, self.want = lane, queue, want
        self._patience = patience.total_seconds()
        self._held, self._until = 0, 0.0
        self._permits = self._waiting = self._parked = 0
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

    @property
    def waiting(self) -> int:
        """Number of polls that wait for a slot."""
        return self._waiting

    @property
    def has_room(self) -> bool:
        """Whether a step may begin."""
        return self._entered < self.held

    @property
    def news(self) -> asyncio.Event:
        """Set when slots or steps have changed; then it is another one."""
        return self._news

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
        self._held, self._until = count, _until(asked, lease)
        self._short = count < ask.wanted
        if max(count, self._entered) < ask.running:
            self.want()  # the queue was made smaller: give unused slots back
        self.notify()

    def give_up(self) -> None:
        """Cancel steps on slots whose lease has ended, before another replica takes the slots.

        A step in a thread cannot be cancelled; it continues beside the next holder of its slot.
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
            self.want()
        try:
            while self._permits >= self.held or self._parked >= _MOST_PARKED:
                await self._news.wait()
            self._permits += 1
        finally:
            self._waiting -= 1

    def release(self) -> None:
        """Release a slot that was reserved for a poll."""
        self._permits -= 1
        self.notify()

    @contextmanager
    def parked(self) -> Iterator[None]:
        """Lend the slot of a step that waits for its key to other polls."""
        self._permits -= 1
        self._parked += 1
        self.notify()
        try:
            yield
        finally:
            self._permits += 1
            self._parked -= 1
            self.notify()

    @asynccontextmanager
    async def slot(self, *, can_be_ended: bool) -> AsyncIterator[None]:
        """Run a step on a slot, which is free at once unless slots were lost or the queue shrank.

        Raises:
            SlotLost: no lease was renewed in time, or the step's own slot was lost.
        """
        await self._wait_for_slot()
        with self.entered(can_be_ended=can_be_ended):
            yield

    @contextmanager
    def entered(self, *, can_be_ended: bool) -> Iterator[None]:
        """Run a step on a slot that is free now.

        Raises:
            SlotLost: the slot was lost.
        """
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
            self.notify()

    async def _wait_for_slot(self) -> None:
        """Wait for a free slot: without limit while the lease lasts, because other steps end."""
        gone_since: float | None = None
        while self._entered >= self.held:
            lasts = boottime() < self._until
            gone_since = None if lasts else gone_since or boottime()
            if gone_since is not None and boottime() - gone_since >= self._patience:
                raise SlotLost
            await wait_for(self._news, self._patience / 4)

    def notify(self) -> None:
        """Wake all waiters; those that find no slot wait for the next news."""
        self._news.set()
        self._news = asyncio.Event()


_UNNOTICED = 1.0
"""Seconds of a wait that may as well count as the step's own time, and between two looks."""

_AGAIN = timedelta(seconds=1)
"""The wait before another replica tries a step that has not begun, or has lost its slot, here."""


class ParkedStep:
    """The current step while it waits for its key, which costs it neither time nor an attempt.

    Args:
        client: the worker's; a step in a thread has none of its own.
        patience: of a call.
    """

    def __init__(self, client: Client, patience: timedelta) -> None:
        info = activity.info()
        note: StepNote | None = getattr(info, "note", None)
        self._client, self._patience = client, patience
        self._since, self._moved = boottime(), 0.0
        self._now = info.start_to_close_timeout
        # Of an attempt before this one the timeout may have been moved.
        self._own = timedelta(seconds=note.timeout) if note and note.timeout else self._now
        self._retry = info.retry_policy
        self._named: dict[str, Any] = {
            "namespace": info.namespace,
            "execution": WorkflowExecution(
                workflow_id=info.workflow_id or "", run_id=info.workflow_run_id or ""
            ),
            "id": info.activity_id,
        }

    @property
    def is_late(self) -> bool:
        """Whether its timeout has to be moved before it begins."""
        return self._own != self._now or self._waited - self._moved >= _UNNOTICED

    @property
    def is_at_risk(self) -> bool:
        """Whether half of its time has passed since its timeout was moved."""
        own = self._own
        return own is not None and self._waited - self._moved >= own.total_seconds() / 2

    @property
    def _waited(self) -> float:
        return boottime() - self._since

    async def extend(self) -> None:
        """Have its timeout count from now on."""
        waited = self._waited
        if self._own is not None:
            options = ActivityOptions()
            options.start_to_close_timeout.FromTimedelta(self._own + timedelta(seconds=waited))
            await self._update(options, "start_to_close_timeout")
        self._moved, self._now = waited, self._own

    async def leave(self) -> None:
        """Give it one more attempt, for the one that ends without having begun."""
        if self._retry is not None and self._retry.maximum_attempts:
            options = ActivityOptions()
            options.retry_policy.maximum_attempts = self._retry.maximum_attempts + 1
            await self._update(options, "retry_policy.maximum_attempts")

    async def _update(self, options: ActivityOptions, field: str) -> None:
        request = UpdateActivityOptionsRequest(
            **self._named, activity_options=options, update_mask=FieldMask(paths=[field])
        )
        try:
            with temporal_call("UpdateActivityOptions"):
                await self._client.workflow_service.update_activity_options(
                    request, retry=True, timeout=self._patience
                )
        except RPCError as error:
            text = "the wait of a step for its key counts as if it had run: %s"
            logger.warning(text, error.message)


class KeySlots:
    """Slots of the fairness keys of one lane, as many for each as steps of it may run at once.

    A step learns whose turn it takes only when it has come here. If its key has no slot left, it
    waits here, and its slot of the lane goes to the next poll meanwhile, which the server serves
    from another key. It begins at a moment at which both have a slot.

    Args:
        lane: the slots of the lane.
        lease: after which a key's slots are offered to other replicas, between two steps.
    """

    def __init__(self, lane: SlotPool, *, lease: timedelta) -> None:
        self._lane, self._lease = lane, lease
        self._keys: dict[str, _KeySlots] = {}
        self._closed = False

    def asks(self) -> dict[_KeySlots, SlotAsk]:
        """Return a request to the ledger for each key that has steps here, or still has slots."""
        self._keys = {name: each for name, each in self._keys.items() if each.steps or each.held}
        return {each: each.ask() for each in self._keys.values()}

    @property
    def wants(self) -> bool:
        """Whether a step waits for a slot of its key that another replica may have."""
        return any(each.wants for each in self._keys.values())

    def close(self) -> None:
        """Have the steps that wait be tried again on another replica."""
        self._closed = True
        self._lane.notify()

    @asynccontextmanager
    async def slot(self, key: str, step: ParkedStep, *, can_be_ended: bool) -> AsyncIterator[None]:
        """Run a step on a slot of its fairness key, and one of the lane.

        Raises:
            NotBegun: the replica closes, and the step has not begun.
            SlotLost: the slots were lost while it ran.
            CancelledError: it was cancelled before it began.
        """
        mine = self._keys.setdefault(key, _KeySlots(self._lane, key, self._lease))
        mine.steps += 1
        try:
            if not mine.is_free or step.is_late:
                with self._lane.parked():
                    await self._until_free(mine, step)
            mine.used += 1
            try:
                with self._lane.entered(can_be_ended=can_be_ended):
                    yield
            finally:
                mine.used -= 1
                mine.rest_if_due()
        finally:
            mine.steps -= 1
            self._lane.notify()
            # Slots that nobody here waits for go back, and a key without any gets one.
            if not mine.steps or any(each.wants and not each.held for each in self._keys.values()):
                self._lane.want()

    async def _until_free(self, mine: _KeySlots, step: ParkedStep) -> None:
        """Wait until the step may begin; nothing else runs between that and the return."""
        if mine.wants:
            self._lane.want()
        while not mine.is_free or step.is_late:
            if activity.is_cancelled():  # a step in a thread is not interrupted
                raise asyncio.CancelledError
            if self._closed:
                raise NotBegun
            if step.is_at_risk or (mine.is_free and step.is_late):
                await step.extend()
            else:
                await wait_for(self._lane.news, _UNNOTICED)


class _KeySlots:
    """Slots of one key."""

    def __init__(self, lane: SlotPool, key: str, lease: timedelta) -> None:
        self._lane, self._lease = lane, lease.total_seconds()
        self.lane = key_lane(lane.lane, key)
        self.steps = self.used = self._held = 0
        self._until = self._rests_until = 0.0
        self._since = boottime()

    @property
    def held(self) -> int:
        """Number of slots that are certainly this replica's."""
        return self._held if boottime() < self._until else 0

    @property
    def is_free(self) -> bool:
        """Whether a step may begin."""
        return self.used < self.held and self._lane.has_room

    @property
    def wants(self) -> bool:
        """Whether a step waits for a slot of the key, and for nothing else."""
        is_short = self.steps > max(self.used, self.held)
        return is_short and self._lane.has_room and boottime() >= self._rests_until

    def ask(self) -> SlotAsk:
        """Return the request to the ledger; see ``SlotPool.ask``."""
        rests = boottime() < self._rests_until or not self._lane.has_room
        wanted = self.used if rests else self.steps
        self._held = min(self._held, wanted)
        running = max(self.used, self.held)
        return SlotAsk(self.lane, self._lane.queue, running, wanted, of_key=True)

    def hold(self, count: int, ask: SlotAsk, asked: float, lease: timedelta) -> None:
        """Apply the answer; see ``SlotPool.hold``."""
        self._held, self._until = count, _until(asked, lease)
        if max(count, self.used) < ask.running:
            self._lane.want()
        self._lane.notify()

    def rest_if_due(self) -> None:
        """Leave the slots to other replicas for a moment, if they were had for a lease."""
        now = boottime()
        if now - self._since >= self._lease:
            self._held = min(self._held, self.used)
            self._since, self._rests_until = now, now + self._lease / _REST


class SlotSupplier(CustomSlotSupplier):
    """Slot supplier that lets a worker poll for as many steps as it has slots.

    It must be created in the event loop of its ``SlotPool``. The SDK reserves there, but releases
    in its own threads, where the pool must not be touched: a waiter could miss the news for good.
    """

    def __init__(self, pool: SlotPool) -> None:
        self._pool, self._loop = pool, asyncio.get_running_loop()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:  # noqa: ARG002 - the SDK's name
        """See the base class."""
        await self._pool.reserve()
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:  # noqa: ARG002 - the SDK's name
        """Return None: no step may begin eagerly, past the queue."""
        return None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """See the base class."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:  # noqa: ARG002 - the SDK's name
        """See the base class."""
        with suppress(RuntimeError):  # the loop and its pool have ended
            self._loop.call_soon_threadsafe(self._pool.release)


# --- interceptors ---

_REMEMBERED = 1000


class SeenQueues(RunInterceptor):
    """Recorder of the queues that the steps of runs name, to report undeclared ones."""

    def __init__(self) -> None:
        # Written by workflow threads, read by the loop; a deque needs no lock.
        self.seen: deque[tuple[str, str, str]] = deque(maxlen=_REMEMBERED)

    def _through(self, following: WorkflowOutboundInterceptor) -> WorkflowOutboundInterceptor:
        return _QueueNoteInterceptor(following, self.seen)


class _QueueNoteInterceptor(WorkflowOutboundInterceptor):
    def __init__(
        self, following: WorkflowOutboundInterceptor, seen: deque[tuple[str, str, str]]
    ) -> None:
        super().__init__(following)
        self._seen = seen

    def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:
        if input.task_queue is not None and not workflow.unsafe.is_replaying():
            info = workflow.info()
            queue = queue_of(input.task_queue, info.task_queue)
            if queue is not None:
                self._seen.append((queue, input.activity, info.workflow_id))
        return super().start_activity(input)


class SlotInterceptor(Interceptor):
    """Interceptor that begins a step only on a slot, and cancels it when the slot is lost.

    It must be the innermost, so that heartbeats continue while a step waits here.

    Args:
        pool: the slots of the worker's lane.
        keys: those of its fairness keys; None if the queue has no limit for one.
        client: the worker's.
        patience: of a call to Temporal.
    """

    def __init__(
        self, pool: SlotPool, keys: KeySlots | None, client: Client, patience: timedelta
    ) -> None:
        self.pool, self.keys, self._client, self._patience = pool, keys, client, patience

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See the base class."""
        if self.keys is None:
            return _OnSlot(next, self.pool)
        return _OnSlotOfKey(next, self.pool, self.keys, self._client, self._patience)


class _OnSlot(ActivityInboundInterceptor):
    def __init__(self, following: ActivityInboundInterceptor, pool: SlotPool) -> None:
        super().__init__(following)
        self._pool = pool

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        can_be_ended = inspect.iscoroutinefunction(input.fn)
        try:
            async with self._slot(can_be_ended=can_be_ended):
                return await super().execute_activity(input)
        except SlotLost:
            raise ApplicationError(
                f"this worker lost its slots of queue {self._pool.queue}: it could not reach the"
                " ledger for a lease; the step is tried again",
                type="SlotLost",
                next_retry_delay=_AGAIN,
            ) from None

    def _slot(self, *, can_be_ended: bool) -> AbstractAsyncContextManager[None]:
        return self._pool.slot(can_be_ended=can_be_ended)


class _OnSlotOfKey(_OnSlot):
    def __init__(
        self,
        following: ActivityInboundInterceptor,
        pool: SlotPool,
        keys: KeySlots,
        client: Client,
        patience: timedelta,
    ) -> None:
        super().__init__(following, pool)
        self._keys, self._client, self._patience = keys, client, patience

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        self._step = ParkedStep(self._client, self._patience)
        try:
            return await super().execute_activity(input)
        except NotBegun:
            await self._step.leave()
            raise ApplicationError(
                "this worker stops, and the step is tried on another",
                type="SlotLost",
                next_retry_delay=_AGAIN,
            ) from None

    def _slot(self, *, can_be_ended: bool) -> AbstractAsyncContextManager[None]:
        key = activity.info().priority.fairness_key or ""
        return self._keys.slot(key, self._step, can_be_ended=can_be_ended)


# --- rates ---
# The Temporal server enforces the rate of a task queue across all replicas; no replica counts.

_CLOSE = 1e-3
"""Relative tolerance: the server stores a rate with fewer digits."""

_ACTIVITY = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY


async def limit_rate(client: Client, lane: str, rate: Rate | None, *, patience: timedelta) -> bool:
    """Make ``rate`` the limit of a lane, or remove its limit; return whether it changed.

    Raises:
        RPCError: the server did not answer, or does not support rate limits of task queues.
    """
    per_second = rate.per_second if rate else 0.0
    asked = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=lane),
        task_queue_type=_ACTIVITY,
        report_config=True,
    )
    with temporal_call("DescribeTaskQueue"):
        described = await client.workflow_service.describe_task_queue(asked, timeout=patience)
    now = described.config.queue_rate_limit.rate_limit.requests_per_second
    if abs(now - per_second) <= _CLOSE * per_second:
        return False
    update = UpdateTaskQueueConfigRequest.RateLimitUpdate(reason="queues of sched-engine")
    if rate:
        update.rate_limit.CopyFrom(RateLimit(requests_per_second=per_second))
    await client.workflow_service.update_task_queue_config(
        UpdateTaskQueueConfigRequest(
            namespace=client.namespace,
            identity=client.identity,
            task_queue=lane,
            task_queue_type=_ACTIVITY,
            update_queue_rate_limit=update,
        ),
        timeout=patience,
    )
    return True


# --- workers of queues ---
# Each queue has an additional worker with the same steps, on the queue's own task queue.

_POLLS = 2
"""Concurrent polls on a queue with slots; a waiting poll occupies a slot."""

_UNUSED = FixedSizeSlotSupplier(1)

_lane_workers: WeakSet[Worker] = WeakSet()


def is_lane(worker: Worker) -> bool:
    """Return whether a worker serves a step queue, beside the replica's main worker."""
    return worker in _lane_workers


class QueueWorker:
    """Worker for the steps of one queue in this process.

    Args:
        beside: the main worker, whose steps it runs.
        name: the queue's Temporal task queue.
        on_slot: begins its steps on slots; None if only their rate is limited.
        rate: the rate of the task queue, which each poll repeats. The server learns of the limit
            that was set with ``limit_rate`` a moment after its answer, of a poll's at once.
    """

    def __init__(
        self, beside: Worker, name: str, on_slot: SlotInterceptor | None, rate: Rate | None
    ) -> None:
        self.name, self._on_slot = name, on_slot
        self._worker = _worker(beside, name, on_slot, rate)
        self._work = asyncio.create_task(self._worker.run(), name=f"lane {name}")

    @property
    def pool(self) -> SlotPool | None:
        """The slots for its steps; None if only their rate is limited."""
        return self._on_slot.pool if self._on_slot else None

    @property
    def keys(self) -> KeySlots | None:
        """The slots of each fairness key; None without a limit for one."""
        return self._on_slot.keys if self._on_slot else None

    @property
    def broken(self) -> BaseException | None:
        """The error that ended the worker, if it ended by itself."""
        return self._work.exception() if self._work.done() else None

    async def close(self) -> None:
        """Stop polling, and let running steps end within the worker's drain timeout."""
        # A worker that is shut down before it runs would never end.
        while not self._worker.is_running and not self._work.done():  # noqa: ASYNC110 - no signal
            await asyncio.sleep(0.01)
        if self.keys is not None:
            self.keys.close()
        if not self._work.done():
            await self._worker.shutdown()
        await asyncio.wait({self._work})


def _worker(
    beside: Worker, name: str, on_slot: SlotInterceptor | None, rate: Rate | None
) -> Worker:
    config = beside.config()
    config["task_queue"] = name
    active = beside.config(active_config=True)["activities"]
    # The users' steps, as the main worker gives them their resources.
    config["activities"] = [
        each for each in active if each in config["activities"] or hasattr(each, SERVED)
    ]
    config["workflows"], config["nexus_service_handlers"] = [], []
    # In place of the main worker's limit, which does not apply to this queue.
    config["max_task_queue_activities_per_second"] = rate.per_second if rate else None
    if on_slot is not None:
        config["interceptors"] = [*config.get("interceptors", ()), on_slot]
        config["tuner"] = WorkerTuner.create_composite(
            workflow_supplier=_UNUSED,
            activity_supplier=SlotSupplier(on_slot.pool),
            local_activity_supplier=_UNUSED,
            nexus_supplier=_UNUSED,
        )
        config["activity_task_poller_behavior"] = PollerBehaviorSimpleMaximum(_POLLS)
        for limit in ("workflow_tasks", "activities", "local_activities", "nexus_tasks"):
            config[f"max_concurrent_{limit}"] = None  # type: ignore[literal-required] # four known names
    worker = Worker(**config)
    _lane_workers.add(worker)
    return worker


# --- queue manager ---

_RENEWALS = 3
"""Renewals per lease, so that two may fail."""

_LOOKS = 30
"""Checks per lease of whether it has ended."""


class QueueManager:
    """Manager of the step queues of a replica's project, on its task queue.

    Args:
        worker: the main worker, whose steps the queues run.
        epoch: returns the configuration epoch that the poller saw last; when it moves, the queues
            are read again.
        seen: the queues that the steps of runs name.
    """

    def __init__(
        self,
        worker: Worker,
        client: Client,
        ledger: Ledger,
        serving: Serving,
        settings: Settings,
        *,
        epoch: Callable[[], int],
        seen: SeenQueues,
        on_event: OnEvent,
    ) -> None:
        self._worker, self._client, self._ledger = worker, client, ledger
        self._serving, self._settings, self._emit = serving, settings, on_event
        self._epoch, self._seen = epoch, seen
        self._read_at: int | None = None
        self._limits: dict[str, Queue] = {}
        self._limited: dict[str, Queue] = {}
        self._lanes: dict[str, QueueWorker] = {}
        self._wanted = asyncio.Event()
        self._held_at = self._touched_since = -settings.lease.total_seconds()
        self._asked = 0
        self._reported: set[tuple[str, str]] = set()

    @property
    def pools(self) -> list[SlotPool]:
        """Slots of all queues that limit how many steps run at once."""
        return [lane.pool for lane in self._lanes.values() if lane.pool]

    @property
    def _keys(self) -> list[KeySlots]:
        return [lane.keys for lane in self._lanes.values() if lane.keys]

    async def run_once(self) -> timedelta:
        """Do the due work and wait for the next; without any, no SQL statement is run."""
        # First, so that no failure of one lane costs the others their slots.
        await self._hold_if_due()
        if self._read_at != (epoch := self._epoch()):
            await self._read()
            self._read_at = epoch
        self._report_unknown()
        for queue, limits in self._limits.items():
            if self._limited.get(queue) != limits:
                await self._serve(queue, limits)
        self._look_after_lanes()
        await self._hold_if_due()
        await wait_for(self._wanted, min(self._settings.tick.total_seconds(), self._period))
        return timedelta(0)

    async def watch(self) -> timedelta:
        """Cancel steps on slots whose lease has ended; return the wait until the next check."""
        for pool in self.pools:
            pool.give_up()
        return self._settings.lease / _LOOKS

    @property
    def _period(self) -> float:
        return self._settings.lease.total_seconds() / _RENEWALS

    async def _hold_if_due(self) -> None:
        if not self.pools:
            self._wanted.clear()
        elif (
            self._wanted.is_set()
            or boottime() >= self._held_at + self._period
            or any(keys.wants for keys in self._keys)
        ):
            await self.hold()

    async def hold(self) -> None:
        """Renew, take and give back slots, in one statement for all lanes."""
        self._wanted.clear()
        lease, asked = self._settings.lease, boottime()
        if asked - self._held_at > lease.total_seconds():
            self._touched_since = asked
        in_touch = asked - self._touched_since >= lease.total_seconds()
        self._asked += 1
        asks: dict[Any, SlotAsk] = {pool: pool.ask() for pool in self.pools}
        for keys in self._keys:
            asks |= keys.asks()
        held = await self._ledger.hold_slots(
            self._serving.replica,
            list(asks.values()),
            lease,
            take_over=in_touch,
            number=self._asked,
        )
        self._held_at = asked
        for pool, ask in asks.items():
            pool.hold(held.get(pool.lane, 0), ask, asked, lease)

    def wake(self) -> None:
        """End the wait of the current turn."""
        self._wanted.set()

    async def end(self) -> None:
        """Let running steps end, renew their slots meanwhile, and give the slots back."""
        had_slots = bool(self.pools)
        await self._close(list(self._lanes.values()))
        self._lanes.clear()
        try:
            if had_slots:
                await self._ledger.give_back_slots(self._serving.replica)
        except EngineError as error:
            logger.log(level_of(error), "slots are left to end by themselves: %s", error)

    async def _close(self, lanes: Sequence[QueueWorker]) -> None:
        """Close these lanes and renew the slots meanwhile: it may take longer than a lease."""
        closing = asyncio.gather(*(lane.close() for lane in lanes))
        while not closing.done():
            await asyncio.wait({closing}, timeout=self._period)
            try:
                if not closing.done() and self.pools:
                    await self.hold()
            except EngineError as error:
                logger.log(level_of(error), "slots could not be renewed: %s", error)
            await self.watch()

    async def _read(self) -> None:
        async with self._ledger.transaction() as transaction:
            rows = await transaction.queues()
        mine = {name: row for name, row in rows.items() if row.project == self._serving.project}
        self._limits = {name: row.limits for name, row in mine.items()}
        self._wanted.set()
        self._mention(mine)

    async def _serve(self, queue: str, limits: Queue) -> None:
        """Run the steps of a queue here, by these limits."""
        name = lane_of(self._serving.task_queue, queue)
        lane, before = self._lanes.get(queue), self._limited.get(queue)
        # The rate comes first: no step may begin under another one.
        await limit_rate(self._client, name, limits.rate, patience=self._settings.rpc_timeout)
        had = (before and before.concurrency is None, before and before.per_key is None)
        # The polls of a worker that began with a rate limit the queue until it stops.
        unlimited = before is not None and before.rate is not None and limits.rate is None
        if lane is not None and (
            unlimited or had != (limits.concurrency is None, limits.per_key is None)
        ):
            await self._close([lane])
            lane = None
        if lane is None:
            self._lanes[queue] = self._lane(queue, name, limits)
        self._limited[queue] = limits

    def _lane(self, queue: str, name: str, limits: Queue) -> QueueWorker:
        on_slot = None
        if limits.concurrency is not None:
            lease, client = self._settings.lease, self._worker.client
            pool = SlotPool(name, queue, self.wake, patience=lease / 2)
            keys = None if limits.per_key is None else KeySlots(pool, lease=lease)
            on_slot = SlotInterceptor(pool, keys, client, self._settings.rpc_timeout)
        return QueueWorker(self._worker, name, on_slot, limits.rate)

    def _look_after_lanes(self) -> None:
        """Remove a lane whose worker has failed and raise its error; the next turn recreates it."""
        for queue, lane in list(self._lanes.items()):
            if (error := lane.broken) is not None:
                del self._lanes[queue], self._limited[queue]
                raise error

    def _mention(self, rows: Mapping[str, QueueRow]) -> None:
        """Report the steps of this worker that name a queue which no file declares."""
        for fn in self._worker.config(active_config=True).get("activities", ()):
            definition = getattr(fn, "__temporal_activity_definition", None)
            step = step_named(definition.name) if definition and definition.name else None
            if step is None or step.queue is None:
                continue
            row = rows.get(step.queue)
            if row is None:
                self._alert_unknown(step.queue, step.name, "its calls wait until one does")
            elif row.dropped_at is not None:
                text = f"queue {step.queue} of step {step.name} is in no file any more; its limits"
                self._emit(Notice(f"{text} continue to hold: {row.limits}", good=False))

    def _report_unknown(self) -> None:
        while self._seen.seen:
            queue, step, run = self._seen.seen.popleft()
            if queue not in self._limits:
                self._alert_unknown(queue, step, f"run {run} waits until one does")
        self._reported = {each for each in self._reported if each[0] not in self._limits}

    def _alert_unknown(self, queue: str, step: str, what: str) -> None:
        if (queue, step) in self._reported:
            return
        self._reported.add((queue, step))
        mine = f"project {self._serving.project}"
        meant = did_you_mean(queue, self._limits)
        hint = f" ({meant})" if meant else ""
        text = f"step {step} names queue {queue}, which no file of {mine} declares{hint}; {what}"
        self._emit(Alert(Code.QUEUE_UNKNOWN, text))
