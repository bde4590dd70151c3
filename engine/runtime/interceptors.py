"""Worker interceptors for steps."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, CancelledError
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
from engine.flow.steps import HEADER, NotedInfo, StepNote, note_of_this_call, queue_of

# --- interceptor base ---
# Where the plugin stands between a workflow and what it asks Temporal for.


def passing(
    through: Callable[[WorkflowOutboundInterceptor], WorkflowOutboundInterceptor],
) -> type[WorkflowInboundInterceptor]:
    """Return what lets the calls of every workflow pass through an interceptor made by ``through``.

    The SDK asks for a class, of which it makes one for each run.
    """

    class Inside(WorkflowInboundInterceptor):
        def init(self, outbound: WorkflowOutboundInterceptor) -> None:
            super().init(through(outbound))

    return Inside


# --- step notes and retries ---
# Carries what a call of a step says beside its input, and keeps to its retry rule.
#
# Temporal's retry policy knows one first wait and a factor. Waits in a row, chance, and subclasses
# of what is given up on are therefore the worker's to say, with each failure. What the next wait is
# follows from the number of the attempt, which the server counts: no crash makes it begin anew.


class StepNotes(Interceptor):
    """Brings the note of a call to the worker that runs it."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """See the base class."""
        return _StepNoteReader(next)

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002, ARG002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        """See the base class."""
        return passing(_StepNoteWriter)


class _StepNoteWriter(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:  # noqa: A002 - the SDK's name
        note = note_of_this_call()
        if note is not None:
            said = PayloadConverter.default.to_payload(note.to_json())
            input.headers = {**input.headers, HEADER: said}
        return super().start_activity(input)


class _StepNoteReader(ActivityInboundInterceptor):
    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self._known = _StepInfoProvider(outbound)
        super().init(self._known)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        said = input.headers.get(HEADER)
        if said is None:
            return await super().execute_activity(input)
        note = StepNote.from_json(PayloadConverter.default.from_payload(said))
        self._known.note = note
        try:
            return await super().execute_activity(input)
        except CancelledError:
            raise
        except Exception as error:
            answer = answer_to(error, note, activity.info().attempt)
            if answer is None:
                raise
            raise answer from error.__cause__


class _StepInfoProvider(ActivityOutboundInterceptor):
    """Answers ``activity.info()``, in threads and processes too."""

    note: StepNote | None = None

    def info(self) -> activity.Info:
        info = super().info()
        if self.note is None:
            return info
        known = {each.name: getattr(info, each.name) for each in dataclasses.fields(info)}
        return NotedInfo(**known, note=self.note)


def answer_to(error: Exception, note: StepNote, attempt: int) -> ApplicationError | None:
    """Return the failure that says when to try again, or not to; None where Temporal knows.

    Args:
        error: what the attempt raised.
        note: what the call said.
        attempt: which attempt this was, from 1.
    """
    told = error if isinstance(error, ApplicationError) else None
    if told is not None and (told.non_retryable or told.next_retry_delay is not None):
        return None  # the step's own word
    final = any(cls.__name__ in note.give_up_on for cls in type(error).__mro__)
    wait = None if final else wait_after(note, attempt)
    if not final and wait is None:
        return None
    answer = ApplicationError(
        told.message if told else str(error),
        *(told.details if told else ()),
        type=(told.type if told else None) or type(error).__name__,
        non_retryable=final,
        next_retry_delay=wait,
        category=told.category if told else ApplicationErrorCategory.UNSPECIFIED,
    )
    return answer.with_traceback(error.__traceback__)


def wait_after(note: StepNote, attempt: int) -> timedelta | None:
    """Return how long to wait after this attempt; None where Temporal's policy says it all."""
    if note.intervals:
        seconds = note.intervals[min(attempt, len(note.intervals)) - 1]
    elif note.backoff:
        first, factor, longest = note.backoff
        try:
            seconds = min(first * factor ** (attempt - 1), longest)
        except OverflowError:
            seconds = longest
    else:
        return None
    chance = note.jitter * random.uniform(-1, 1)
    return timedelta(seconds=seconds * (1 + chance))


# --- heartbeats ---
# Speaks for steps while they run: their workers are known to live, and they hear of a cancel.
#
# A worker with the plugin expects a sign of life from the steps it schedules, and gives it for
# those it runs. A plain worker does neither. Limits: on a task queue that both kinds share, a plain
# worker may run a step that is expected to be heard, and a step that is completed from outside
# (``activity.raise_complete_async``) is not spoken for; declare such steps
# ``@step(heartbeat=None)``.

HEARD_WITHIN = timedelta(seconds=5)
"""How long a step under way takes at most to hear that it is cancelled."""

_EVERY = timedelta(seconds=1)
"""The SDK passes on one of these signs in ``HEARD_WITHIN``; the others cost next to nothing."""


class StepHeartbeats(Interceptor):
    """Sets the heartbeat timeout that a step was declared with, and heartbeats for it."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """See the base class."""
        return _HeartbeatInterceptor(next)

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


class _HeartbeatInterceptor(ActivityInboundInterceptor):
    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self._voice = _HeartbeatInfo(outbound)
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


class _HeartbeatInfo(ActivityOutboundInterceptor):
    """Remembers what the step itself said last, so that the next sign of life says it again."""

    said: Sequence[Any] = ()

    def repeat(self) -> None:
        super().heartbeat(*self.said)

    def heartbeat(self, *details: Any) -> None:
        self.said = copy.deepcopy(details)  # a sync step may go on changing its own
        super().heartbeat(*details)
