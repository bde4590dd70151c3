"""The queue manager: limits, workers and rates of step queues."""

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
# Tells the Temporal server how fast the steps of a queue may begin.
#
# The server limits a task queue as a whole, wherever its steps are taken from; no replica counts.

_CLOSE = 1e-3
"""The server keeps a rate in fewer digits than we do."""

_ACTIVITY = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY


async def limit_rate(client: Client, lane: str, rate: Rate | None, *, patience: timedelta) -> bool:
    """Make ``rate`` the limit of a lane, or take its limit away; return whether that was news.

    Raises:
        RPCError: the server did not answer, or cannot limit a task queue.
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
# One more worker for each queue: the same steps, on the task queue in which they wait.

_POLLS = 2
"""Polls at once on a queue with slots: each holds one while it waits, which others cannot use."""

_UNUSED = FixedSizeSlotSupplier(1)

_lane_workers: WeakSet[Worker] = WeakSet()


def is_lane(worker: Worker) -> bool:
    """Whether a worker serves a queue beside another one, which has the replica."""
    return worker in _lane_workers


class QueueWorker:
    """The steps of one queue, as they run in this process.

    Args:
        beside: the worker whose steps these are.
        name: the Temporal task queue in which they wait.
        book: the slots they run on; None where only their rate is limited.
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
        """Why it ended by itself, if it did."""
        return self._work.exception() if self._work.done() else None

    async def close(self) -> None:
        """Poll no more, and let what runs end within the worker's time to drain."""
        # Asked to end before it has begun, it would never end.
        while not self._worker.is_running and not self._work.done():  # noqa: ASYNC110 - no signal
            await asyncio.sleep(0.01)
        if not self._work.done():
            await self._worker.shutdown()
        await asyncio.wait({self._work})


def _worker(beside: Worker, name: str, book: SlotPool | None, patience: timedelta) -> Worker:
    config = beside.config()
    config["task_queue"] = name
    config["workflows"], config["nexus_service_handlers"] = [], []
    # A rate of the worker beside is not this queue's.
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
# Serves the queues of steps: their limits, their workers, and this replica's slots of them.

_RENEWALS = 3
"""In each lease, so that two may fail."""

_LOOKS = 30
"""In each lease, whether it has ended."""


class QueueManager:
    """The queues of one replica's project, on its task queue.

    Args:
        worker: whose steps they are.
        epoch: the configuration epoch that the poller saw last; when it moves, the queues are
            read again.
        seen: which queues the steps of runs name.
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
        """Do what is due, and wait for what is due next; where nothing is, that is no statement."""
        # Before anything else can fail: a lane in order must not lose its slots by another's fault.
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
        """End what runs on slots whose lease has ended; returns the wait until the next look."""
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
        """Renew, take and give back slots, by one statement for all lanes."""
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
        """Let the turn under way end."""
        self._wanted.set()

    async def end(self) -> None:
        """Let the steps that run here end, on slots that stay theirs, and give those back."""
        had_slots = bool(self._books)
        await self._close(list(self._lanes.values()))
        self._lanes.clear()
        try:
            if had_slots:
                await self._ledger.give_back_slots(self._serving.replica)
        except EngineError as error:
            self._emit(Degraded("queues", str(error)))

    async def _close(self, lanes: Sequence[QueueWorker]) -> None:
        """Let the steps of these lanes end; that may take longer than a lease."""
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
        """Let the steps of a queue run here, by these limits."""
        name = lane_of(self._serving.task_queue, queue)
        lane, before = self._lanes.get(queue), self._limited.get(queue)
        # First the rate: no step may begin by another one.
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
        """A worker that ended by itself is begun again at the next turn."""
        for queue, lane in list(self._lanes.items()):
            if (error := lane.broken) is not None:
                del self._lanes[queue], self._limited[queue]
                raise error

    async def _next_turn(self) -> None:
        """Wait a tick at most: what was asked for is asked at once, unless it just was."""
        tick = min(self._settings.tick.total_seconds(), self._period)
        with suppress(TimeoutError):
            async with asyncio.timeout(tick):
                await self._wanted.wait()

    def _mention(self, rows: Mapping[str, QueueRow]) -> None:
        """Say which steps of this worker name a queue that no file declares."""
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
