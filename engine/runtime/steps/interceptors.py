"""Worker interceptors for steps: notes, retries and heartbeats."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import random
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NoReturn, Self

from temporalio import activity, workflow
from temporalio.api.failure.v1 import Failure
from temporalio.converter import (
    ActivitySerializationContext,
    DefaultFailureConverter,
    PayloadConverter,
    SerializationContext,
    WithSerializationContext,
)
from temporalio.exceptions import (
    ApplicationError,
    ApplicationErrorCategory,
    CancelledError,
    FailureError,
)
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    ContinueAsNewInput,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    StartActivityInput,
    StartChildWorkflowInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle, NondeterminismError

from engine.errors import Code, LedgerUnavailable
from engine.flow import (
    HEADER,
    NOTHING,
    UNDO_HEADER,
    Handlers,
    NotedInfo,
    StepNote,
    note_of_this_call,
    plain_text,
    queue_of,
    read_inputs,
    repeats,
    require_written,
    step_named,
    text_of,
)
from engine.ledger import Ledger, RetryNote
from engine.runtime.runs.calls import RunInterceptor
from engine.runtime.runs.reset_keys import ResetKeys
from engine.schedules import parse_workflow_id
from engine.telemetry.instruments import STEP_RETRIES, measures

# --- endings of handlers ---


class HandlerEndings(Interceptor):
    """Interceptor that ends a run with what leaves its handlers; see ``engine.flow.signals``."""

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: ARG002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        """See the base class."""
        return _HandlerEndings


class _HandlerEndings(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        with suppress(Exception):  # the run itself ends with it, or waits
            input.args = read_inputs(workflow.instance(), input.args)  # others expect typed ones
        return await super().execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:
        try:
            await Handlers.ready(workflow.instance())
            await super().handle_signal(input)
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            if not Handlers.end_run(workflow.instance(), error):
                raise

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        try:
            await Handlers.ready(workflow.instance())
            return await super().handle_update_handler(input)
        except FailureError:
            raise  # for the caller of the update alone
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            if not Handlers.end_run(workflow.instance(), error):
                raise
            why = text_of(error) if str(error) else "the run ended before its update"
            raise ApplicationError(why, type=type(error).__name__) from error


# --- reports of retries ---
# No event of a run's history says that a step was retried, and a completed run is not read. So the
# workers that run its steps count, and their replicas add it up in the ledger.

_EVERY_REPORT = timedelta(seconds=1)
_MOST_REPORTED = 10_000
"""Runs whose retries are remembered while the ledger does not answer."""


class RetryReports:
    """Reports of one worker: retries of steps, and runs with steps that no such worker counts.

    Workflows and steps report from any thread.
    """

    def __init__(self) -> None:
        self._news: deque[RetryNote] = deque(maxlen=_MOST_REPORTED)

    def retried(self, workflow_id: str) -> None:
        """Report that a further attempt of a step begins here."""
        self._report(RetryNote(workflow_id, 1))

    def elsewhere(self, workflow_id: str) -> None:
        """Report that a run calls a step on a task queue whose workers may report nothing."""
        self._report(RetryNote(workflow_id, 0, elsewhere=True))

    def _report(self, note: RetryNote) -> None:
        if parse_workflow_id(note.workflow_id) is not None:
            self._news.append(note)

    async def run_once(self, ledger: Ledger) -> timedelta:
        """Write what was reported since the last time; return the wait until the next time."""
        await self.flush(ledger)
        return _EVERY_REPORT

    async def flush(self, ledger: Ledger) -> None:
        """Write what was reported since the last time.

        Raises:
            LedgerUnavailable: the reports are kept for the next time.
        """
        news = [self._news.popleft() for _ in range(len(self._news))]
        if news:
            try:
                await ledger.note_retries(_added_up(news))
            except LedgerUnavailable:
                self._news.extendleft(reversed(news))
                raise


def _added_up(notes: Sequence[RetryNote]) -> list[RetryNote]:
    """Return one note for each run."""
    runs: dict[str, RetryNote] = {}
    for note in notes:
        before = runs.get(note.workflow_id, RetryNote(note.workflow_id, 0))
        runs[note.workflow_id] = RetryNote(
            note.workflow_id, before.retries + note.retries, before.elsewhere or note.elsewhere
        )
    return [*runs.values()]


# --- step notes and retries ---
# Transport of the note of a step call beside its input, and enforcement of its retry rule.
#
# Temporal's retry policy has one first wait and a factor. So lists of waits, jitter, and subclasses
# of non-retryable exceptions are applied by the worker, with each failure. The next wait follows
# from the attempt number, which the server counts: a crash does not restart the sequence.


class StepNotes(RunInterceptor):
    """Interceptor that carries the note of a call to the worker that runs it.

    Args:
        keys: looks up the keys of calls of runs that repeat others; a replay needs none.

    Attributes:
        reports: the reports of retries.
    """

    def __init__(self, keys: ResetKeys | None = None) -> None:
        self._keys = keys
        self.reports = RetryReports()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See the base class."""
        return _StepNoteReader(next, self._keys, self.reports)

    def _through(self, following: WorkflowOutboundInterceptor) -> WorkflowOutboundInterceptor:
        return _StepNoteWriter(following, self.reports)


class _StepNoteWriter(WorkflowOutboundInterceptor):
    def __init__(self, following: WorkflowOutboundInterceptor, reports: RetryReports) -> None:
        super().__init__(following)
        self._reports = reports

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        _carry_note(input)
        if not _is_ours(input.task_queue) and not workflow.unsafe.is_replaying():
            self._reports.elsewhere(workflow.info().workflow_id)
        return super().start_activity(input)

    def start_local_activity(self, input: StartLocalActivityInput) -> workflow.ActivityHandle[Any]:
        _carry_note(input)
        return super().start_local_activity(input)

    async def start_child_workflow(
        self,
        input: StartChildWorkflowInput,
    ) -> workflow.ChildWorkflowHandle[Any, Any]:
        _mark_repeating(input)
        note = note_of_this_call()
        if note is not None:
            payload = PayloadConverter.default.to_payload(note.to_json())
            input.headers = {**input.headers, UNDO_HEADER: payload}
        return await super().start_child_workflow(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        _mark_repeating(input)
        super().continue_as_new(input)


def _carry_note(call: StartActivityInput | StartLocalActivityInput) -> None:
    """Put the note of the current call into its header."""
    note = note_of_this_call()
    if note is not None:
        payload = PayloadConverter.default.to_payload(note.to_json())
        call.headers = {**call.headers, HEADER: payload}


def _mark_repeating(following: StartChildWorkflowInput | ContinueAsNewInput) -> None:
    """Mark a child, or the next run of the chain, as one that repeats an earlier one."""
    if repeats(workflow.info()):
        payload = PayloadConverter.default.to_payload({"redo": True})
        following.headers = {**following.headers, HEADER: payload}


class _StepNoteReader(ActivityInboundInterceptor):
    def __init__(
        self,
        following: ActivityInboundInterceptor,
        keys: ResetKeys | None,
        reports: RetryReports,
    ) -> None:
        super().__init__(following)
        self._keys, self._reports = keys, reports

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self._known = _StepInfoProvider(outbound)
        super().init(self._known)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        if info.attempt > 1:
            measures().count(STEP_RETRIES, step=info.activity_type)
            self._reports.retried(info.workflow_id or "")
        payload = input.headers.get(HEADER)
        note = NOTHING
        if payload is not None:
            note = StepNote.from_json(PayloadConverter.default.from_payload(payload))
        if self._keys is not None:
            note = await self._keys.resolve(note, info)
        if note is NOTHING:
            return await super().execute_activity(input)
        self._known.note = note
        try:
            result = await super().execute_activity(input)
        except CancelledError:
            raise
        except Exception as error:
            answer = answer_to(error, note, info.attempt)
            if answer is None:
                raise
            raise answer from error.__cause__
        what = f"the result of the step {info.activity_type!r}"
        require_written(result, activity.payload_converter(), what)
        return result


class _StepInfoProvider(ActivityOutboundInterceptor):
    """Provider of ``activity.info()`` with the note, in threads and processes too."""

    note: StepNote | None = None

    def info(self) -> activity.Info:
        info = super().info()
        if self.note is None:
            return info
        known = {each.name: getattr(info, each.name) for each in dataclasses.fields(info)}
        return NotedInfo(**known, note=self.note)


def answer_to(error: Exception, note: StepNote, attempt: int) -> ApplicationError | None:
    """Return a failure that sets or forbids the next retry; None leaves it to Temporal's policy.

    Args:
        error: the error that the attempt raised.
        note: the note of the call.
        attempt: the number of this attempt, from 1.
    """
    raised = error if isinstance(error, ApplicationError) else None
    if raised is not None and (raised.non_retryable or raised.next_retry_delay is not None):
        return None  # the step has decided itself
    final = any(cls.__name__ in note.give_up_on for cls in type(error).__mro__)
    wait = None if final else wait_after(note, attempt)
    if not final and wait is None:
        return None
    answer = ApplicationError(
        raised.message if raised else str(error),
        *(raised.details if raised else ()),
        type=(raised.type if raised else None) or type(error).__name__,
        non_retryable=final,
        next_retry_delay=wait,
        category=raised.category if raised else ApplicationErrorCategory.UNSPECIFIED,
    )
    return answer.with_traceback(error.__traceback__)


def wait_after(note: StepNote, attempt: int) -> timedelta | None:
    """Return how long to wait after this attempt; None leaves it to Temporal's policy."""
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


class EndingFailures(DefaultFailureConverter, WithSerializationContext):
    """Failure converter that ends the attempts of a step whose input cannot be read.

    The SDK reads the input before any interceptor, and reports that as a failure like any other.
    An undo step with an ``Undo`` waits, like a run, for code that can read what another version
    has recorded. Failures of what a workflow must not call say what to write instead, in queries
    too.
    """

    def __init__(self, step: str = "") -> None:
        super().__init__()
        self._step = step_named(step)

    def with_context(self, context: SerializationContext) -> Self:
        """See the base class."""
        if isinstance(context, ActivitySerializationContext) and context.activity_type:
            return type(self)(context.activity_type)
        return self

    def to_failure(
        self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
    ) -> None:
        """See the base class."""
        super().to_failure(exception, payload_converter, failure)
        if isinstance(exception, NondeterminismError):
            failure.message = text_of(exception)
        if not isinstance(exception, ApplicationError) or exception.message != _UNREADABLE:
            return
        # A codec that cannot reach its keys raises other errors; it may read the input later.
        if isinstance(exception.__cause__, TypeError | ValueError):
            hint = "call it with what its annotations say"
            waits = self._step is not None and self._step.sees_result
            if waits:
                hint = "it waits for a worker whose code can"
            why = plain_text(exception.__cause__)
            failure.message = f"the input of the step cannot be read: {why}; {hint}"
            failure.application_failure_info.type = Code.INPUT_INVALID
            failure.application_failure_info.non_retryable = not waits


_UNREADABLE = "Failed decoding arguments"


# --- heartbeats ---
# Heartbeats for running steps show that their workers live, and let the steps learn of a cancel.
#
# A worker with the plugin sets a heartbeat timeout on the steps it schedules, and heartbeats for
# those it runs. A plain worker does neither. Limits: on a task queue that both kinds share, a plain
# worker may run a step with a heartbeat timeout; and a step that is completed from outside
# (``activity.raise_complete_async``) gets no heartbeats. Declare such steps
# ``@step(heartbeat=None)``.

HEARD_WITHIN = timedelta(seconds=5)
"""The longest time until a running step learns that it is cancelled."""

_EVERY = timedelta(seconds=1)
"""The SDK sends one of these heartbeats per ``HEARD_WITHIN``; the others cost next to nothing."""


class StepHeartbeats(RunInterceptor):
    """Interceptor that sets the heartbeat timeout a step declares, and heartbeats for it."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See the base class."""
        return _HeartbeatInterceptor(next)

    def _through(self, following: WorkflowOutboundInterceptor) -> WorkflowOutboundInterceptor:
        return _Expecting(following)


class _Expecting(WorkflowOutboundInterceptor):
    """Setter of heartbeat timeouts in the workflow; for replays it reads declarations only."""

    def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:
        step = step_named(input.activity)
        if step and input.heartbeat_timeout is None and _is_ours(input.task_queue):
            input.heartbeat_timeout = step.heartbeat
        return super().start_activity(input)


def _is_ours(task_queue: str | None) -> bool:
    """Return whether it is this task queue or one of its queues; others may lack the plugin."""
    mine = workflow.info().task_queue
    return task_queue is None or queue_of(task_queue, mine) is not None


class _HeartbeatInterceptor(ActivityInboundInterceptor):
    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self._heartbeats = _HeartbeatInfo(outbound)
        super().init(self._heartbeats)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        step = step_named(info.activity_type)
        if info.heartbeat_timeout is None or step is None or step.heartbeat is None:
            return await super().execute_activity(input)
        self._heartbeats.details = (
            info.heartbeat_details
        )  # an attempt inherits them from the last one
        repeating = asyncio.create_task(self._repeat(min(_EVERY, info.heartbeat_timeout / 4)))
        try:
            return await super().execute_activity(input)
        finally:
            repeating.cancel()

    async def _repeat(self, every: timedelta) -> None:
        while True:
            await asyncio.sleep(every.total_seconds())
            self._heartbeats.repeat()


class _HeartbeatInfo(ActivityOutboundInterceptor):
    """Heartbeats that repeat the details of the step's own last heartbeat."""

    details: Sequence[Any] = ()

    def repeat(self) -> None:
        super().heartbeat(*self.details)

    def heartbeat(self, *details: Any) -> None:
        self.details = copy.deepcopy(details)  # a sync step may change them later
        super().heartbeat(*details)
