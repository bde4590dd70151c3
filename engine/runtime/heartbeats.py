"""Speaks for steps while they run: their workers are known to live, and they hear of a cancel.

A worker with the plugin expects a sign of life from the steps it schedules, and gives it for those
it runs. A plain worker does neither. Limits: on a task queue that both kinds share, a plain worker
may run a step that is expected to be heard, and a step that is completed from outside
(``activity.raise_complete_async``) is not spoken for; declare such steps ``@step(heartbeat=None)``.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle

from engine.flow import step_named
from engine.flow.queues import queue_of
from engine.runtime.step_calls import passing

HEARD_WITHIN = timedelta(seconds=5)
"""How long a step under way takes at most to hear that it is cancelled."""

_EVERY = timedelta(seconds=1)
"""The SDK passes on one of these signs in ``HEARD_WITHIN``; the others cost next to nothing."""


class StepHeartbeats(Interceptor):
    """Sets the heartbeat timeout that a step was declared with, and heartbeats for it."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """See the base class."""
        return _Speaking(next)

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002, ARG002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        """See the base class."""
        return passing(_Expecting)


class _Expecting(WorkflowOutboundInterceptor):
    """Runs in the workflow, so it must decide alike on every replay: by declarations only."""

    def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:  # noqa: A002 - the SDK's name
        step = step_named(input.activity)
        if step and input.heartbeat_timeout is None and _is_ours(input.task_queue):
            input.heartbeat_timeout = step.heartbeat
        return super().start_activity(input)


def _is_ours(task_queue: str | None) -> bool:
    """Any other task queue than this one and its queues may have workers without the plugin."""
    mine = workflow.info().task_queue
    return task_queue is None or queue_of(task_queue, mine) is not None


class _Speaking(ActivityInboundInterceptor):
    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self._voice = _Voice(outbound)
        super().init(self._voice)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        info = activity.info()
        step = step_named(info.activity_type)
        if info.heartbeat_timeout is None or step is None or step.heartbeat is None:
            return await super().execute_activity(input)
        self._voice.said = info.heartbeat_details  # an attempt inherits them from the last one
        speaking = asyncio.create_task(self._speak(min(_EVERY, info.heartbeat_timeout / 4)))
        try:
            return await super().execute_activity(input)
        finally:
            speaking.cancel()

    async def _speak(self, every: timedelta) -> None:
        while True:
            await asyncio.sleep(every.total_seconds())
            self._voice.repeat()


class _Voice(ActivityOutboundInterceptor):
    """Remembers what the step itself said last, so that the next sign of life says it again."""

    said: Sequence[Any] = ()

    def repeat(self) -> None:
        super().heartbeat(*self.said)

    def heartbeat(self, *details: Any) -> None:
        self.said = copy.deepcopy(details)  # a sync step may go on changing its own
        super().heartbeat(*details)
