"""What the plugin does around steps that name a queue, in the workflow and on the worker."""

from __future__ import annotations

import inspect
from collections import deque
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle

from engine.flow.queues import queue_of
from engine.runtime.slots import SlotBook, SlotLost
from engine.runtime.step_calls import passing

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
        return passing(lambda following: _Noting(following, self.seen))


class _Noting(WorkflowOutboundInterceptor):
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


class SlotGate(Interceptor):
    """Lets a step begin only on a slot, and ends it when the slot is lost.

    It must be the innermost: while a step waits here its heartbeats go on.

    Args:
        book: of the worker's lane.
        patience: how long a step that came while slots were lost waits for one.
    """

    def __init__(self, book: SlotBook, patience: timedelta) -> None:
        self._book, self._patience = book, patience

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """See the base class."""
        return _OnSlot(next, self._book, self._patience)


class _OnSlot(ActivityInboundInterceptor):
    def __init__(
        self, following: ActivityInboundInterceptor, book: SlotBook, patience: timedelta
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
