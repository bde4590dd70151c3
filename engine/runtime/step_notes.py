"""Carries what a call of a step says beside its input, and keeps to its retry rule.

Temporal's retry policy knows one first wait and a factor. Waits in a row, chance, and subclasses of
what is given up on are therefore the worker's to say, with each failure. What the next wait is
follows from the number of the attempt, which the server counts: no crash makes it begin anew.
"""

from __future__ import annotations

import dataclasses
import random
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

from engine.flow.notes import HEADER, StepNote, note_of_this_call
from engine.flow.step_info import NotedInfo
from engine.runtime.step_calls import passing


class StepNotes(Interceptor):
    """Brings the note of a call to the worker that runs it."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """See the base class."""
        return _Reading(next)

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002, ARG002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        """See the base class."""
        return passing(_Writing)


class _Writing(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:  # noqa: A002 - the SDK's name
        note = note_of_this_call()
        if note is not None:
            said = PayloadConverter.default.to_payload(note.to_json())
            input.headers = {**input.headers, HEADER: said}
        return super().start_activity(input)


class _Reading(ActivityInboundInterceptor):
    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self._known = _Knowing(outbound)
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


class _Knowing(ActivityOutboundInterceptor):
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
