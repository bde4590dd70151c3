"""One more worker for each queue: the same steps, on the task queue in which they wait."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from weakref import WeakSet

from temporalio.worker import (
    FixedSizeSlotSupplier,
    PollerBehaviorSimpleMaximum,
    Worker,
    WorkerTuner,
)

from engine.runtime.queue_steps import SlotGate
from engine.runtime.slots import SlotBook, SlotSupplier

_POLLS = 2
"""Polls at once on a queue with slots: each holds one while it waits, which others cannot use."""

_UNUSED = FixedSizeSlotSupplier(1)

_lane_workers: WeakSet[Worker] = WeakSet()


def is_lane(worker: Worker) -> bool:
    """Whether a worker serves a queue beside another one, which has the replica."""
    return worker in _lane_workers


class Lane:
    """The steps of one queue, as they run in this process.

    Args:
        beside: the worker whose steps these are.
        name: the Temporal task queue in which they wait.
        book: the slots they run on; None where only their rate is limited.
        patience: see ``SlotGate``.
    """

    def __init__(
        self, beside: Worker, name: str, book: SlotBook | None, patience: timedelta
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


def _worker(beside: Worker, name: str, book: SlotBook | None, patience: timedelta) -> Worker:
    config = beside.config()
    config["task_queue"] = name
    config["workflows"], config["nexus_service_handlers"] = [], []
    # A rate of the worker beside is not this queue's.
    config["max_task_queue_activities_per_second"] = None
    if book is not None:
        config["interceptors"] = [*config.get("interceptors", ()), SlotGate(book, patience)]
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
