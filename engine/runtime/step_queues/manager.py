"""Queue manager: limits, workers and rates of step queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from weakref import WeakSet

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import RateLimit, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, UpdateTaskQueueConfigRequest
from temporalio.client import Client
from temporalio.worker import (
    FixedSizeSlotSupplier,
    PollerBehaviorSimpleMaximum,
    Worker,
    WorkerTuner,
)

from engine.errors import Code, EngineError
from engine.flow import step_named
from engine.flow.steps import lane_of
from engine.ledger import Ledger
from engine.ledger.records import QueueRow, Serving
from engine.runtime.clock import boottime
from engine.runtime.events import Alert, Degraded, Notice, OnEvent
from engine.runtime.settings import Settings
from engine.runtime.step_queues.slots import SeenQueues, SlotInterceptor, SlotPool, SlotSupplier
from engine.schedules.ids import nearest_name
from engine.schedules.model import Queue
from engine.schedules.units import Rate

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
    per_second = rate.count / rate.per.total_seconds() if rate else 0.0
    described = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=lane),
            task_queue_type=_ACTIVITY,
            report_config=True,
        ),
        timeout=patience,
    )
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
        book: the slots for its steps; None if only their rate is limited.
        patience: see ``SlotInterceptor``.
    """

    def __init__(
        self, beside: Worker, name: str, book: SlotPool | None, patience: timedelta
    ) -> None:
        self.name, self.book = name, book
        self._worker = _worker(beside, name, book, patience)
        self._work = asyncio.create_task(self._worker.run(), name=f"lane {name}")

    @property
    def broken(self) -> BaseException | None:
        """The error that ended the worker, if it ended by itself."""
        return self._work.exception() if self._work.done() else None

    async def close(self) -> None:
        """Stop polling, and let running steps end within the worker's drain timeout."""
        # A worker that is shut down before it runs would never end.
        while not self._worker.is_running and not self._work.done():  # noqa: ASYNC110 - no signal
            await asyncio.sleep(0.01)
        if not self._work.done():
            await self._worker.shutdown()
        await asyncio.wait({self._work})


def _worker(beside: Worker, name: str, book: SlotPool | None, patience: timedelta) -> Worker:
    config = beside.config()
    config["task_queue"] = name
    config["workflows"], config["nexus_service_handlers"] = [], []
    # The main worker's rate limit does not apply to this queue.
    config["max_task_queue_activities_per_second"] = None
    if book is not None:
        config["interceptors"] = [*config.get("interceptors", ()), SlotInterceptor(book, patience)]
        config["tuner"] = WorkerTuner.create_composite(
            workflow_supplier=_UNUSED,
            activity_supplier=SlotSupplier(book),
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
        self._told: set[tuple[str, str]] = set()

    @property
    def _books(self) -> list[SlotPool]:
        return [lane.book for lane in self._lanes.values() if lane.book]

    async def run_once(self) -> timedelta:
        """Do the due work and wait for the next; without any, no SQL statement is run."""
        # First, so that no failure of one lane costs the others their slots.
        await self._hold_if_due()
        if self._read_at != (epoch := self._epoch()):
            await self._read()
            self._read_at = epoch
        self._tell_of_unknown()
        for queue, limits in self._limits.items():
            if self._limited.get(queue) != limits:
                await self._serve(queue, limits)
        self._look_after_lanes()
        await self._hold_if_due()
        await self._next_turn()
        return timedelta(0)

    async def watch(self) -> timedelta:
        """Cancel steps on slots whose lease has ended; return the wait until the next check."""
        for book in self._books:
            book.give_up()
        return self._settings.lease / _LOOKS

    @property
    def _period(self) -> float:
        return self._settings.lease.total_seconds() / _RENEWALS

    async def _hold_if_due(self) -> None:
        if not self._books:
            self._wanted.clear()
        elif self._wanted.is_set() or boottime() >= self._held_at + self._period:
            await self.hold()

    async def hold(self) -> None:
        """Renew, take and give back slots, in one statement for all lanes."""
        self._wanted.clear()
        lease, asked = self._settings.lease, boottime()
        if asked - self._held_at > lease.total_seconds():
            self._touched_since = asked
        in_touch = asked - self._touched_since >= lease.total_seconds()
        self._asked += 1
        asks = {book: book.ask() for book in self._books}
        held = await self._ledger.hold_slots(
            self._serving.replica,
            list(asks.values()),
            lease,
            take_over=in_touch,
            number=self._asked,
        )
        self._held_at = asked
        for book, ask in asks.items():
            book.hold(held.get(book.lane, 0), ask, asked, lease)

    def wake(self) -> None:
        """End the wait of the current turn."""
        self._wanted.set()

    async def end(self) -> None:
        """Let running steps end, renew their slots meanwhile, and give the slots back."""
        had_slots = bool(self._books)
        await self._close(list(self._lanes.values()))
        self._lanes.clear()
        try:
            if had_slots:
                await self._ledger.give_back_slots(self._serving.replica)
        except EngineError as error:
            self._emit(Degraded("queues", str(error)))

    async def _close(self, lanes: Sequence[QueueWorker]) -> None:
        """Close these lanes and renew the slots meanwhile: it may take longer than a lease."""
        closing = asyncio.gather(*(lane.close() for lane in lanes))
        while not closing.done():
            await asyncio.wait({closing}, timeout=self._period)
            try:
                if not closing.done() and self._books:
                    await self.hold()
            except EngineError as error:
                self._emit(Degraded("queues", str(error)))
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
        had_slots = before is not None and before.concurrency is not None
        if lane is not None and had_slots != (limits.concurrency is not None):
            await self._close([lane])
            lane = None
        if lane is None:
            self._lanes[queue] = self._lane(queue, name, limits)
        self._limited[queue] = limits

    def _lane(self, queue: str, name: str, limits: Queue) -> QueueWorker:
        book = None if limits.concurrency is None else SlotPool(name, queue, self.wake)
        return QueueWorker(self._worker, name, book, self._settings.lease / 2)

    def _look_after_lanes(self) -> None:
        """Remove a lane whose worker has failed and raise its error; the next turn recreates it."""
        for queue, lane in list(self._lanes.items()):
            if (error := lane.broken) is not None:
                del self._lanes[queue], self._limited[queue]
                raise error

    async def _next_turn(self) -> None:
        """Wait at most a tick; ``wake`` ends the wait at once."""
        tick = min(self._settings.tick.total_seconds(), self._period)
        with suppress(TimeoutError):
            async with asyncio.timeout(tick):
                await self._wanted.wait()

    def _mention(self, rows: Mapping[str, QueueRow]) -> None:
        """Report the steps of this worker that name a queue which no file declares."""
        for fn in self._worker.config(active_config=True).get("activities", ()):
            definition = getattr(fn, "__temporal_activity_definition", None)
            step = step_named(definition.name) if definition and definition.name else None
            if step is None or step.queue is None:
                continue
            row = rows.get(step.queue)
            if row is None:
                self._tell_unknown(step.queue, step.name, "its calls wait until one does")
            elif row.dropped_at is not None:
                text = f"queue {step.queue} of step {step.name} is in no file any more; its limits"
                self._emit(Notice(f"{text} go on holding: {row.limits}", good=False))

    def _tell_of_unknown(self) -> None:
        while self._seen.seen:
            queue, step, run = self._seen.seen.popleft()
            if queue not in self._limits:
                self._tell_unknown(queue, step, f"run {run} waits until one does")
        self._told = {each for each in self._told if each[0] not in self._limits}

    def _tell_unknown(self, queue: str, step: str, what: str) -> None:
        if (queue, step) in self._told:
            return
        self._told.add((queue, step))
        mine = f"project {self._serving.project}"
        near = nearest_name(queue, self._limits)
        hint = f" (did you mean {near}?)" if near else ""
        text = f"step {step} names queue {queue}, which no file of {mine} declares{hint}; {what}"
        self._emit(Alert(Code.QUEUE_UNKNOWN, text))
