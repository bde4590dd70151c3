"""Histories of runs, as far as keys and undo steps are concerned: calls of steps, and children."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from temporalio.api.common.v1 import Header, Payload
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import (
    ActivityTaskScheduledEventAttributes,
    HistoryEvent,
    StartChildWorkflowExecutionInitiatedEventAttributes,
    WorkflowExecutionStartedEventAttributes,
)
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.converter import DataConverter, PayloadConverter
from temporalio.service import RPCError, RPCStatusCode

from engine.flow import COMMITTED, HEADER, NOTHING, UNDO_HEADER, StepNote

_PLAIN = b"json/plain"


def _kinds(of: str, words: str) -> set[str]:
    """Return the names of the attributes of events: ``of`` with each of the words."""
    return {f"{of}_{word}_event_attributes" for word in words.split()}


_COMPLETED = "activity_task_completed_event_attributes"
_ENDS = _kinds("activity_task", "completed failed timed_out canceled")
"""The attributes of events that end a step call for good."""
_INITIATED = "start_child_workflow_execution_initiated_event_attributes"
_CHILD_STARTED = "child_workflow_execution_started_event_attributes"
_CHILD_COMPLETED = "child_workflow_execution_completed_event_attributes"
_UNSTARTED_CHILD = "start_child_workflow_execution_failed_event_attributes"
_UNDONE_CHILDREN = {_UNSTARTED_CHILD, *_kinds("child_workflow_execution", "failed canceled")}
_CHILD_ENDS = _UNDONE_CHILDREN | _kinds(
    "child_workflow_execution", "completed timed_out terminated"
)
_OF_CHILDREN = {_INITIATED, _CHILD_STARTED, *_CHILD_ENDS}
_OPENING = {
    "activity_task_scheduled_event_attributes",
    "timer_started_event_attributes",
    "workflow_task_scheduled_event_attributes",
    _INITIATED,
}
_CLOSING = {
    **dict.fromkeys(
        _ENDS | _kinds("workflow_task", "completed failed timed_out"), "scheduled_event_id"
    ),
    **dict.fromkeys(_kinds("timer", "fired canceled"), "started_event_id"),
    **dict.fromkeys(_CHILD_ENDS, "initiated_event_id"),
}
"""Where the events that end something name the event that began it."""
RUN_ENDS = _kinds(
    "workflow_execution", "completed failed timed_out canceled terminated continued_as_new"
)
"""The attributes of events that close a run."""
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass
class RecordedStep:
    """A call of a step, from the history of its run.

    Attributes:
        event_id: number of the event that scheduled it.
        place: its activity id, unique in the run.
        given: digest of its input, without the codec.
        patience: how long its worker may be silent.
        inputs, result: the input and the result themselves, if they were asked for.
        ended: whether it has ended for good; ``completed``: whether that was a success.
    """

    event_id: int
    place: str
    step: str
    given: str
    note: StepNote
    patience: timedelta
    inputs: Sequence[Payload] = ()
    result: Payload | None = None
    ended: bool = False
    completed: bool = False


@dataclass
class RecordedChild:
    """A start of a child, from the history of its parent.

    Attributes:
        repeats: whether the parent noted that it may repeat an earlier child.
        note: how a clean-up run undoes it, if it does.
        ended: whether it has ended, or was not started.
        undone: whether it ended by itself without success, and so has undone its work.
    """

    event_id: int
    type: str
    given: str
    repeats: bool
    workflow_id: str
    note: StepNote = NOTHING
    inputs: Sequence[Payload] = ()
    result: Payload | None = None
    run_id: str | None = None
    ended: bool = False
    undone: bool = False

    @property
    def step(self) -> str:
        """The name of the workflow, in the place of that of a step."""
        return self.type.partition("@")[0]


@dataclass
class RunHistory:
    """The calls of one run.

    Attributes:
        origin: the run that it began as.
        first_run_id: the first run of its chain.
        base: the run that it was reset from; ``fork``: events before that number are copies.
        continued_from: the run before it in the chain, if it was continued or retried.
        repeats: whether its parent noted that it repeats an earlier child.
        parent: workflow id, run id and the event number of its start there.
        began_at: when its own part of the history begins.
        committed: the event of its last commit; nothing before is undone.
        open: the events that began what has not ended: steps, children, timers, a task of its own.
    """

    workflow_id: str
    run_id: str
    origin: str = ""
    first_run_id: str = ""
    base: str | None = None
    fork: int = 0
    continued_from: str | None = None
    repeats: bool = False
    parent: tuple[str, str, int] | None = None
    began_at: datetime = _NEVER
    last_at: datetime | None = None
    closed: bool = False
    committed: int = 0
    open: set[int] = field(default_factory=set)
    calls: dict[int, RecordedStep] = field(default_factory=dict)
    children: dict[int, RecordedChild] = field(default_factory=dict)

    @property
    def concerned(self) -> bool:
        """Whether keys of it may be those of earlier runs."""
        return self.base is not None or self.repeats


class HistoryReader:
    """Reader of histories, through a client's codec.

    Args:
        inputs: whether to keep the inputs of the calls.
    """

    def __init__(
        self, client: Client, *, inputs: bool = False, patience: timedelta | None = None
    ) -> None:
        self._client, self._inputs, self._patience = client, inputs, patience
        self._converter: DataConverter = client.data_converter

    async def read(self, workflow_id: str, run_id: str | None) -> RunHistory | None:
        """Return a run's calls; None if Temporal has forgotten the run.

        Raises:
            RPCError: Temporal could not answer.
        """
        handle = self._client.get_workflow_handle(workflow_id, run_id=run_id)
        run = RunHistory(workflow_id, run_id or "")
        try:
            async for event in handle.fetch_history_events(rpc_timeout=self._patience):
                await self._add(run, event)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return None
            raise
        return run

    async def _add(self, run: RunHistory, event: HistoryEvent) -> None:
        kind = event.WhichOneof("attributes") or ""
        run.last_at = event.event_time.ToDatetime(tzinfo=UTC)
        _note_open(run, event, kind)
        if event.event_id == 1:
            await self._started(run, event.workflow_execution_started_event_attributes)
            run.began_at = run.last_at
        elif kind in _OF_CHILDREN:
            await self._child(run, event, kind)
        elif kind == "activity_task_scheduled_event_attributes":
            scheduled = event.activity_task_scheduled_event_attributes
            run.calls[event.event_id] = await self._call(event.event_id, scheduled)
        elif kind in _ENDS:
            call = run.calls[getattr(event, kind).scheduled_event_id]
            call.ended, call.completed = True, kind == _COMPLETED
            call.result = self._result(event, kind) if call.completed else None
        elif kind == "workflow_properties_modified_event_attributes":
            memo = event.workflow_properties_modified_event_attributes.upserted_memo
            run.committed = event.event_id if COMMITTED in memo.fields else run.committed
        elif kind == "workflow_task_failed_event_attributes":
            failed = event.workflow_task_failed_event_attributes
            if failed.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW:
                # The copied part may contain earlier resets: the last one is this run's own.
                run.base, run.fork, run.began_at = failed.base_run_id, event.event_id, run.last_at
                run.run_id = failed.new_run_id

    async def _child(self, run: RunHistory, event: HistoryEvent, kind: str) -> None:
        if kind == _INITIATED:
            initiated = event.start_child_workflow_execution_initiated_event_attributes
            run.children[event.event_id] = await self._begun_child(event.event_id, initiated)
            return
        child = run.children[getattr(event, kind).initiated_event_id]
        if kind == _CHILD_STARTED:
            started = event.child_workflow_execution_started_event_attributes
            child.run_id = started.workflow_execution.run_id
            return
        child.ended, child.undone = True, kind in _UNDONE_CHILDREN
        if kind == _CHILD_COMPLETED:
            child.result = self._result(event, kind)

    async def _started(
        self, run: RunHistory, started: WorkflowExecutionStartedEventAttributes
    ) -> None:
        run.run_id = run.run_id or started.original_execution_run_id
        run.origin = started.original_execution_run_id
        run.first_run_id = started.first_execution_run_id
        run.continued_from = started.continued_execution_run_id or None
        run.repeats = HEADER in started.header.fields
        if started.HasField("parent_workflow_execution"):
            parent = started.parent_workflow_execution
            run.parent = parent.workflow_id, parent.run_id, started.parent_initiated_event_id

    async def _call(self, number: int, event: ActivityTaskScheduledEventAttributes) -> RecordedStep:
        patience = (
            event.heartbeat_timeout.ToTimedelta() or event.start_to_close_timeout.ToTimedelta()
        )
        given = list(event.input.payloads)
        return RecordedStep(
            number,
            event.activity_id,
            event.activity_type.name,
            await self._digest(given),
            await self._note_of(event.header),
            patience,
            inputs=given if self._inputs else (),
        )

    async def _begun_child(
        self, number: int, event: StartChildWorkflowExecutionInitiatedEventAttributes
    ) -> RecordedChild:
        given = list(event.input.payloads)
        return RecordedChild(
            number,
            event.workflow_type.name,
            await self._digest(given),
            HEADER in event.header.fields,
            event.workflow_id,
            await self._note_of(event.header, UNDO_HEADER),
            inputs=given if self._inputs else (),
        )

    def _result(self, event: HistoryEvent, kind: str) -> Payload | None:
        found = getattr(event, kind).result.payloads if self._inputs else ()
        return found[0] if found else None

    async def _digest(self, payloads: list[Payload]) -> str:
        """Return a digest of an input: a codec may encrypt the same input in many ways."""
        plain = await self._converter.decode(payloads, [RawValue] * len(payloads))
        digest = hashlib.sha256()
        for raw in plain:
            data = raw.payload.data
            if raw.payload.metadata.get("encoding") == _PLAIN:
                # The order of a dataclass's fields is not part of its value.
                data = json.dumps(json.loads(data), sort_keys=True).encode()
            digest.update(hashlib.sha256(data).digest())
        return digest.hexdigest()

    async def _note_of(self, header: Header, name: str = HEADER) -> StepNote:
        if name not in header.fields:
            return NOTHING
        payload = header.fields[name]
        codec = self._converter.payload_codec
        if codec and payload.metadata.get("encoding") != _PLAIN:
            (payload,) = await codec.decode([payload])  # a client may encode headers too
        return StepNote.from_json(PayloadConverter.default.from_payload(payload))


def _note_open(run: RunHistory, event: HistoryEvent, kind: str) -> None:
    if kind in _OPENING:
        run.open.add(event.event_id)
    elif kind in _CLOSING:
        run.open.discard(getattr(getattr(event, kind), _CLOSING[kind]))
    elif kind in RUN_ENDS:
        run.closed = True
