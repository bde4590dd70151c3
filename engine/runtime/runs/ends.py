"""Ends of runs, read from Temporal: which one, why it failed, and how often it was tried."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from temporalio import activity
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHistoryEventFilterType,
)
from temporalio.common import RawValue
from temporalio.converter import DataConverter
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    FailureError,
    RetryState,
    TerminatedError,
    TimeoutError,
    TimeoutType,
)
from temporalio.service import RPCError, RPCStatusCode

from engine.flow import ENDED_CHILD, OWN_CHILD, CompensationFailed, FireInfo, payload_text, text_of
from engine.ledger import (
    ENDED_BADLY,
    UNREAD,
    ClosedStatus,
    Evidence,
    Failure,
    FailureLink,
    GivenUp,
    RunCounts,
    Try,
)
from engine.runtime.runs.histories import RUN_ENDS
from engine.runtime.runs.memo import UnreadableHere
from engine.runtime.settings import Settings
from engine.schedules import storable

# --- why a run failed ---
# One value, from which every text, label and column about the failure is derived.

_ENCODED: Final = "the text is encoded in Temporal"
_LONGEST = 2000
"""Limit on the characters of an error in the ledger."""
_KEY = "idempotency_key"
_NAMED = ("step", "undo", "error", _KEY)
"""What is kept of a step that is not undone. Its input stays in Temporal, below the codec."""
_GIVEN_UP: Final[Mapping[RetryState, GivenUp]] = {
    RetryState.MAXIMUM_ATTEMPTS_REACHED: "retries_exhausted",
    RetryState.TIMEOUT: "retries_exhausted",
    RetryState.NON_RETRYABLE_FAILURE: "fatal",
}
_MOST_LEFT = 100
"""Limit on the listed steps that could not be undone."""


def failure_of(error: BaseException, attempts: Mapping[int, int] | None = None) -> Failure:
    """Return why a run failed.

    Args:
        error: the error that ended it, with its causes.
        attempts: the attempt that each event of its history began, by the number of the event.
    """
    chain = tuple(_chain(error, attempts or {}))
    innermost = [*_causes(error)][-1]
    last = f"{chain[-1].type}: {_ENCODED}" if _is_encoded(innermost) else text_of(innermost)
    text = ": ".join([*_places(chain), last])
    if not isinstance(error, ApplicationError) or error.type != CompensationFailed.__name__:
        return Failure(chain, one_line(text))
    message, hidden = error.message, {}
    if _is_encoded(error):
        message, hidden = f"{error.type}: {_ENCODED}", {"error": _ENCODED}
    message += f", after: {text}" if error.__cause__ is not None else ""
    left = [
        {
            name: one_line(str(noted.get(name, "")))
            for name in _NAMED
            if name != _KEY or noted.get(name)
        }
        for each in error.details[:_MOST_LEFT]
        if isinstance(each, dict) and (noted := {**each, **hidden})
    ]
    return Failure(chain, one_line(message), json.dumps(left, ensure_ascii=False) if left else None)


def _chain(error: BaseException, attempts: Mapping[int, int]) -> Iterator[FailureLink]:
    """Yield the links of a chain; ``attempts`` are of the run alone, not of its children."""
    for each in _causes(error):
        yield _link(each, attempts)
        if isinstance(each, ChildWorkflowError):
            attempts = {}


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, the outermost first.

    A cancel below a TimeoutError only shows how asyncio times out.
    """
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__
        if isinstance(cause, ApplicationError) and cause.type == asyncio.CancelledError.__name__:
            return


def _link(error: BaseException, attempts: Mapping[int, int]) -> FailureLink:
    application = error if isinstance(error, ApplicationError) else None
    step = error if isinstance(error, ActivityError) else None
    known = error.failure if isinstance(error, FailureError) else None
    message = error.message if isinstance(error, FailureError) else text_of(error)
    encoded = _is_encoded(error)
    return FailureLink(
        type=(application.type if application else None) or type(error).__name__,
        message=_ENCODED if encoded else message,
        step=step.activity_type if step else None,
        child=error.workflow_type if isinstance(error, ChildWorkflowError) else None,
        attempt=attempts.get(step.started_event_id) if step else None,
        stack=known.stack_trace if known and not encoded else "",
        given_up=_GIVEN_UP.get(step.retry_state) if step and step.retry_state else None,
    )


def _is_encoded(error: BaseException) -> bool:
    """Return whether Temporal has the text of an error encoded; then it stays there alone."""
    failure = error.failure if isinstance(error, FailureError) else None
    return failure is not None and failure.HasField("encoded_attributes")


def _places(chain: tuple[FailureLink, ...]) -> Iterator[str]:
    """Yield the children and the step in which the innermost error of a chain occurred."""
    for link in chain[:-1]:
        if link.child is not None:
            yield f"child {link.child}"
        if link.step is not None:
            yield f"step {link.step}"


_CONTROLS: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x1f\x7f-\x9f]")
"""Colours, and whatever else would act on the terminal of an operator."""


def one_line(text: str) -> str:
    """Return the text as one line that a database can store and a terminal can show."""
    words = " ".join(storable(text[: _LONGEST * 4]).split())
    return _CONTROLS.sub("", words)[:_LONGEST]


# --- histories ---
# The history of one run, as far as its end and the attempts of its steps are concerned.

SHORT: Final = 250
"""Events up to which a history is read as a whole to learn why a run failed: the server sends as
many in one answer."""
_MOST_EVENTS: Final = 5_000
"""Events up to which a history is read to count the attempts of steps."""
_MOST_TRIES: Final = 20
"""The number of tries that are read, the newest ones."""

Turn = Callable[[], Awaitable[None]]
"""Waits until one more call may be made."""


@dataclass(slots=True)
class RunEvents:
    """Contents of the history of one run.

    Attributes:
        began_at: when its first attempt could begin.
        number: its number among the tries of its chain, from 1; 0 if its start was not read.
        previous: the run before it in the chain, if any.
        attempts: the attempt that each event began which began one.
        close: its last event, if that closes it.
        is_whole: whether every event up to the close was read.
    """

    began_at: datetime | None = None
    number: int = 0
    previous: str | None = None
    attempts: dict[int, int] = field(default_factory=dict)
    close: HistoryEvent | None = None
    is_whole: bool = False

    def add(self, event: HistoryEvent) -> None:
        """Take in the next event."""
        if event.HasField("workflow_execution_started_event_attributes"):
            started = event.workflow_execution_started_event_attributes
            waited = started.first_workflow_task_backoff.ToTimedelta()
            self.began_at = event.event_time.ToDatetime(UTC) + waited
            self.number = started.attempt
            self.previous = started.continued_execution_run_id or None
            self.is_whole = True
        elif event.HasField("activity_task_started_event_attributes"):
            begun = event.activity_task_started_event_attributes
            self.attempts[event.event_id] = begun.attempt
        self.close = event

    @property
    def step_retries(self) -> int:
        """The attempts of its steps after the first of each."""
        return sum(attempt - 1 for attempt in self.attempts.values())

    async def error(self, converter: DataConverter) -> BaseException | None:
        """Return the error that ended the run; None if it was completed, cancelled or is open."""
        event = self.close
        if event is None:
            return None
        if event.HasField("workflow_execution_failed_event_attributes"):
            failed = event.workflow_execution_failed_event_attributes
            return await converter.decode_failure(failed.failure)
        if event.HasField("workflow_execution_terminated_event_attributes"):
            ended = event.workflow_execution_terminated_event_attributes
            return TerminatedError(ended.reason or "Workflow terminated")
        if event.HasField("workflow_execution_timed_out_event_attributes"):
            return TimeoutError(
                "Workflow timed out", type=TimeoutType.START_TO_CLOSE, last_heartbeat_details=[]
            )
        return None


async def _no_turn() -> None:
    return


async def read_events(
    client: Client,
    workflow_id: str,
    run_id: str,
    settings: Settings,
    *,
    most: int,
    turn: Turn = _no_turn,
) -> RunEvents:
    """Read the history of a run; of one with more than ``most`` events its first ones and its end.

    ``turn`` is called before each further call to the server.

    Raises:
        RPCError: the server does not answer, or has forgotten the run.
    """
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    every = partial(
        handle.fetch_history_events, skip_archival=True, rpc_timeout=settings.rpc_timeout
    )
    run, count = RunEvents(), 0
    if most:
        async for event in every():
            run.add(event)
            count += 1
            if count == most:
                break
            if count % SHORT == 0:
                await turn()
        else:
            return run
    async for event in every(event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT):
        run.close = event
    run.is_whole = False
    return run


# --- the end of one run ---


async def with_failure(evidence: Evidence, client: Client, settings: Settings) -> Evidence:
    """Return the evidence of a bad end with its cause, which takes a call or two.

    If its history has at most ``SHORT`` events, the same call has the counts.

    Raises:
        UnreadableHere: the cause cannot be read here; see ``without_failure``.
        RPCError: the server does not answer, or has forgotten the run.
    """
    workflow_id, run_id = evidence.workflow_id, evidence.run_id
    try:
        run = await read_events(client, workflow_id, run_id, settings, most=SHORT + 1)
        found = await run.error(client.data_converter)
    except RPCError:
        raise
    except Exception as error:
        raise UnreadableHere(f"{type(error).__name__}: {error}", run_id) from error
    evidence = replace(evidence, error=None, unread=False)
    if found is None:
        return evidence
    failure = failure_of(found, run.attempts)
    return replace(
        evidence,
        failure=failure,
        error=failure.error,
        not_undone=failure.not_undone,
        counts=_counts_of_one(evidence, run, failure),
    )


def without_failure(evidence: Evidence, why: Exception) -> Evidence:
    """Return the evidence of a bad end, with the reason why its cause is not known."""
    name = "" if isinstance(why, UnreadableHere) else f"{type(why).__name__}: "
    text = one_line(f"its failure could not be read: {name}{why}")
    return replace(evidence, error=text, unread=False)


def _counts_of_one(evidence: Evidence, run: RunEvents, failure: Failure) -> RunCounts | None:
    """Return the counts of a run that is the whole of its chain; None if others precede it."""
    if not run.is_whole or run.began_at is None or run.previous is not None:
        return None
    only = Try(
        number=run.number,
        run_id=evidence.run_id,
        started_at=run.began_at,
        closed_at=evidence.closed_at,
        error=failure.error,
    )
    return RunCounts(
        workflow_id=evidence.workflow_id,
        run_id=evidence.run_id,
        tries=run.number,
        step_retries=run.step_retries,
        tried=(only,),
    )


# --- the end of a child ---

_LARGEST: Final = 1_000_000
"""Limit on the characters of a result that is read again for a parent."""


@activity.defn(name=ENDED_CHILD)
async def ended_child(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``result`` of a child, or the ``error`` of its end and whether it is ``undone``.

    Nothing is returned while the child is open.

    Args:
        asked: ``workflow_id`` of the child, and ``run_id``, the first run of its chain.
    """
    client, workflow_id, run_id = activity.client(), asked["workflow_id"], asked["run_id"]
    try:
        newest = await client.get_workflow_handle(workflow_id).describe()
        first = newest.raw_description.workflow_execution_info.first_run_id
        if first == run_id and newest.status is WorkflowExecutionStatus.RUNNING:
            return {}
        handle = client.get_workflow_handle(workflow_id, run_id=run_id, result_type=RawValue)
        result = await handle.result()
    except WorkflowFailureError as failure:
        undone = not isinstance(failure.cause, TerminatedError | TimeoutError)
        return {"error": failure_of(failure.cause).error, "undone": undone}
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return {"error": "Temporal has forgotten it", "undone": False}
    text = payload_text(result.payload) if result is not None else None
    if text and len(text) > _LARGEST:
        return {"error": "its result is too large to be read again", "undone": False}
    return {"result": text}


@activity.defn(name=OWN_CHILD)
async def own_child(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether an open run is one's ``own``: a child of ``parent``.

    Args:
        asked: ``workflow_id`` of the run, and ``parent``, a workflow id.
    """
    try:
        run = await activity.client().get_workflow_handle(asked["workflow_id"]).describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return {"own": False}
    return {"own": run.parent_id == asked["parent"]}


# --- the tries of a run ---


async def read_counts(
    client: Client, workflow_id: str, run_id: str, settings: Settings, *, turn: Turn = _no_turn
) -> RunCounts:
    """Read the tries of a run, closed or open, and the retries of its steps, from the newest on.

    ``run_id`` is the newest run of the chain; ``turn`` is called before each call to the server. A
    run that Temporal has forgotten ends the reading: what is known then is returned.

    Raises:
        RPCError: the server does not answer.
    """
    tried: list[Try] = []
    retries: int | None = 0
    wanted: str | None = run_id
    number = None
    while wanted is not None and len(tried) < _MOST_TRIES:
        await turn()
        run = await _read_or_forgotten(client, workflow_id, wanted, settings, turn)
        if run is None or run.began_at is None:
            retries = None
            break
        number = number or run.number
        retries = retries + run.step_retries if retries is not None and run.is_whole else None
        tried.append(await _try_of(run, wanted, run.began_at, client.data_converter))
        wanted = run.previous
        if run.number == 1:  # before it the chain was continued as new
            break
    return RunCounts(
        workflow_id=workflow_id,
        run_id=run_id,
        tries=number,
        step_retries=retries if wanted is None else None,
        tried=tuple(tried[::-1]),
    )


async def _read_or_forgotten(
    client: Client, workflow_id: str, run_id: str, settings: Settings, turn: Turn
) -> RunEvents | None:
    try:
        return await read_events(
            client, workflow_id, run_id, settings, most=_MOST_EVENTS, turn=turn
        )
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return None


async def _try_of(run: RunEvents, run_id: str, began_at: datetime, converter: DataConverter) -> Try:
    close: Any = run.close
    kind = (close.WhichOneof("attributes") if close else None) or ""
    is_closed = kind in RUN_ENDS
    try:
        error = await run.error(converter)
        told = failure_of(error).error if error is not None else None
    except Exception as why:  # noqa: BLE001 - a codec may raise anything
        told = one_line(f"its failure could not be read: {type(why).__name__}: {why}")
    return Try(
        number=run.number,
        run_id=run_id,
        started_at=began_at,
        closed_at=close.event_time.ToDatetime(UTC) if is_closed else None,
        error=told,
    )


# --- evidence ---

_CLOSED: dict[WorkflowExecutionStatus, ClosedStatus] = {
    WorkflowExecutionStatus.COMPLETED: "completed",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "terminated",
    WorkflowExecutionStatus.TIMED_OUT: "timed_out",
}
"""Continue-as-new is not included: the run continues under the same id."""


def evidence_of(
    run: WorkflowExecution, info: FireInfo | None = None, *, listed: bool = False
) -> Evidence:
    """Return the run as evidence for its fire.

    Args:
        run: the run.
        info: what its memo says of the window, if it was read.
        listed: the run is from visibility, which does not know chains. Of one that was terminated,
            perhaps by a reset, or may be retried, only the start is certain.
    """
    closed = _CLOSED.get(run.status) if run.status else None
    if listed and not (closed == "completed" or (info and _is_final(closed, info))):
        closed = None
    return Evidence(
        workflow_id=run.id,
        run_id=run.run_id,
        started_at=run.start_time,
        closed=closed,
        closed_at=run.close_time if closed else None,
        workflow_type=run.workflow_type,
        error=UNREAD if closed in ENDED_BADLY else None,
        timeout=info.timeout if info else None,
        unread=closed in ENDED_BADLY,
    )


def _is_final(closed: ClosedStatus | None, info: FireInfo) -> bool:
    """Return whether no run of its chain follows one that ended so."""
    return closed == "cancelled" or (closed in {"failed", "timed_out"} and not info.retries)
