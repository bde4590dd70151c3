"""Histories of runs: the keys of steps after a reset, and what an ended run has left to undo.

A run that an operator resets is executed again from some event on, by a new run. Its calls must
not repeat an effect that the earlier run had, nor take the key of another call: a branch that is
faster this time, or mended code, would otherwise exchange them. The workflow cannot know what the
earlier run did after that event. So the worker of each step asks the histories:

- A call that was copied with the history keeps its key.
- A call that equals one of an earlier run (same step, same input), and that this line of runs has
  not repeated yet, gets the key of that one; a new key if that one was undone.
- A call without an equal gets a new key, unless calls of the same step remain that nothing has
  repeated: it might be one of them with another input. Then it is refused, and the run fails.

An undo finds the key of its step the same way. A child of such a run repeats the child that the
earlier run started with the same input. ``idempotency_key=`` of a call settles all of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
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

from engine.flow.failures import FatalError, refusal
from engine.flow.saga import CHECK_RESET, COMMITTED, LEFT_TO_UNDO, payload_text
from engine.flow.steps import HEADER, NOTHING, StepNote, step_key

_MOST_BYTES = 1_000_000
"""Limit on the inputs in one answer; Temporal refuses results of more than two million bytes."""
_PLAIN = b"json/plain"
_COMPLETED = "activity_task_completed_event_attributes"
_ENDS = {_COMPLETED, *(f"activity_task_{end}_event_attributes" for end in (
    "failed", "timed_out", "canceled",
))}  # fmt: skip
"""The attributes of events that end a step call for good."""
_OPENING = {f"{kind}_event_attributes" for kind in (
    "activity_task_scheduled", "start_child_workflow_execution_initiated", "timer_started",
    "workflow_task_scheduled",
)}  # fmt: skip
_CLOSING = {
    **dict.fromkeys(_ENDS, "scheduled_event_id"),
    **{f"workflow_task_{end}_event_attributes": "scheduled_event_id" for end in (
        "completed", "failed", "timed_out",
    )},
    **{f"timer_{end}_event_attributes": "started_event_id" for end in ("fired", "canceled")},
    "start_child_workflow_execution_failed_event_attributes": "initiated_event_id",
    **{f"child_workflow_execution_{end}_event_attributes": "initiated_event_id" for end in (
        "completed", "failed", "timed_out", "canceled", "terminated",
    )},
}  # fmt: skip
"""Where the events that end something name the event that began it."""
_RUN_ENDS = {f"workflow_execution_{end}_event_attributes" for end in (
    "completed", "failed", "timed_out", "canceled", "terminated", "continued_as_new",
)}  # fmt: skip
_KEPT = 200
"""Histories of closed runs, and ids of runs without a reset, that one worker remembers."""
_NAMED = 3
_PAUSE = 1.0
"""Seconds between two looks for the key of a call that waits."""
_NEVER = datetime.min.replace(tzinfo=UTC)


# --- histories ---


@dataclass
class RecordedStep:
    """A call of a step, from the history of its run.

    Attributes:
        event_id: number of the event that scheduled it.
        place: its activity id, unique in the run.
        given: digest of its input, without the codec.
        patience: how long its worker may be silent.
        inputs: the input itself, if it was asked for.
        ended: whether it has ended for good; ``completed``: whether that was a success.
    """

    event_id: int
    place: str
    step: str
    given: str
    note: StepNote
    patience: timedelta
    inputs: Sequence[Payload] = ()
    ended: bool = False
    completed: bool = False


@dataclass
class RecordedChild:
    """A start of a child, from the history of its parent.

    Attributes:
        repeats: whether the parent said that it may repeat an earlier child.
    """

    event_id: int
    type: str
    given: str
    repeats: bool
    workflow_id: str
    run_id: str | None = None


@dataclass
class RunHistory:
    """The calls of one run.

    Attributes:
        first_run_id: the first run of its chain.
        base: the run that it was reset from; ``fork``: events before that number are copies.
        continued_from: the run before it in the chain, if it was continued or retried.
        repeats: whether its parent said that it repeats an earlier child.
        parent: workflow id, run id and the event number of its start there.
        began_at: when its own part of the history begins.
        committed: the event of its last commit; nothing before is undone.
        open: the events that began what has not ended: steps, children, timers, a task of its own.
    """

    workflow_id: str
    run_id: str
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

    def __init__(self, client: Client, *, inputs: bool = False) -> None:
        self._client, self._inputs = client, inputs
        self._converter: DataConverter = client.data_converter

    async def read(self, workflow_id: str, run_id: str | None) -> RunHistory | None:
        """Return a run's calls; None if Temporal has forgotten the run.

        Raises:
            RPCError: Temporal could not answer.
        """
        handle = self._client.get_workflow_handle(workflow_id, run_id=run_id)
        run = RunHistory(workflow_id, run_id or "")
        try:
            async for event in handle.fetch_history_events():
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
        elif kind == "activity_task_scheduled_event_attributes":
            scheduled = event.activity_task_scheduled_event_attributes
            run.calls[event.event_id] = await self._call(event.event_id, scheduled)
        elif kind in _ENDS:
            call = run.calls[getattr(event, kind).scheduled_event_id]
            call.ended, call.completed = True, kind == _COMPLETED
        elif kind == "start_child_workflow_execution_initiated_event_attributes":
            initiated = event.start_child_workflow_execution_initiated_event_attributes
            run.children[event.event_id] = await self._child(event.event_id, initiated)
        elif kind == "child_workflow_execution_started_event_attributes":
            started = event.child_workflow_execution_started_event_attributes
            run.children[started.initiated_event_id].run_id = started.workflow_execution.run_id
        elif kind == "workflow_properties_modified_event_attributes":
            if (
                COMMITTED
                in event.workflow_properties_modified_event_attributes.upserted_memo.fields
            ):
                run.committed = event.event_id
        elif kind == "workflow_task_failed_event_attributes":
            failed = event.workflow_task_failed_event_attributes
            if failed.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW:
                # The copied part may contain earlier resets: the last one is this run's own.
                run.base, run.fork, run.began_at = failed.base_run_id, event.event_id, run.last_at
                run.run_id = failed.new_run_id

    async def _started(
        self, run: RunHistory, started: WorkflowExecutionStartedEventAttributes
    ) -> None:
        run.run_id = run.run_id or started.original_execution_run_id
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
            number, event.activity_id, event.activity_type.name, await self._digest(given),
            await self._note_of(event.header),
            patience, inputs=given if self._inputs else (),
        )  # fmt: skip

    async def _child(
        self, number: int, event: StartChildWorkflowExecutionInitiatedEventAttributes
    ) -> RecordedChild:
        given = await self._digest(list(event.input.payloads))
        repeats = HEADER in event.header.fields
        return RecordedChild(number, event.workflow_type.name, given, repeats, event.workflow_id)

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

    async def _note_of(self, header: Header) -> StepNote:
        if HEADER not in header.fields:
            return NOTHING
        payload = header.fields[HEADER]
        codec = self._converter.payload_codec
        if codec and payload.metadata.get("encoding") != _PLAIN:
            (payload,) = await codec.decode([payload])  # a client may encode headers too
        return StepNote.from_json(PayloadConverter.default.from_payload(payload))


def _note_open(run: RunHistory, event: HistoryEvent, kind: str) -> None:
    if kind in _OPENING:
        run.open.add(event.event_id)
    elif kind in _CLOSING:
        run.open.discard(getattr(getattr(event, kind), _CLOSING[kind]))
    elif kind in _RUN_ENDS:
        run.closed = True


# --- keys ---


@dataclass
class _Effect:
    """A call that may have had an effect.

    Attributes:
        undos: its undo calls by their keys, and whether each completed.
    """

    key: str
    call: RecordedStep
    run_id: str
    undos: dict[str, bool] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The call, as an operator finds it in the Web UI."""
        return f"{self.call.place} of run {self.run_id}"


@dataclass(eq=False)
class _KnownChild:
    """A child that one or several runs started: the same, as far as keys are concerned."""

    call: RecordedChild
    runs: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class RunKeys:
    """Keys of the calls of one run.

    Attributes:
        keys: the keys of its calls, by event number.
        undoes: for undo calls, the key of the step that each undoes.
        refused: why a call may not be made, by event number.
        unmatched: the same of calls that have no equal, while others wait for theirs.
        children: its children, by event number.
        taken: the keys of this line of runs: copied, its own, and those before a continue-as-new.
        taken_children: the same of children.
        inherited: of ``taken`` and ``taken_children``, those before the continue-as-new.
        spoiled: why the run may not complete: something that its copied part did is undone.
        left: calls of earlier runs that this one has neither repeated nor undone.
    """

    keys: dict[int, str] = field(default_factory=dict)
    undoes: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    unmatched: dict[int, str] = field(default_factory=dict)
    children: dict[int, _KnownChild] = field(default_factory=dict)
    refused_children: dict[int, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    taken_children: set[_KnownChild] = field(default_factory=set)
    inherited: tuple[set[str], set[_KnownChild]] = field(default_factory=lambda: (set(), set()))
    spoiled: str | None = None
    left: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    """The key that the workflow assumed → the key that the step had."""

    def until(self, fork: int) -> RunKeys:
        """Return what a run that copies the events before ``fork`` has from this one."""
        keys = {at: key for at, key in self.keys.items() if at < fork}
        copied = set(keys.values())
        return RunKeys(
            keys,
            undoes={at: key for at, key in self.undoes.items() if at < fork},
            refused={
                at: why for at, why in {**self.refused, **self.unmatched}.items() if at < fork
            },
            children={at: child for at, child in self.children.items() if at < fork},
            inherited=self.inherited,
            named={assumed: key for assumed, key in self.named.items() if key in copied},
        )


class KeyMatcher:
    """Keys of several runs, which are added in the order in which they began.

    Args:
        refused: why none of the calls may be made; None if they may.
    """

    def __init__(self, refused: str | None = None) -> None:
        self.of_runs: dict[str, RunKeys] = {}
        self._refused = refused
        self._effects: dict[str, _Effect] = {}
        self._children: list[_KnownChild] = []

    def add(self, run: RunHistory) -> RunKeys:
        """Add the next run, and return what is known of its calls."""
        line = self.of_runs[run.run_id] = self._begin(run)
        new = [
            call for call in run.calls.values()
            if call.event_id not in line.keys and call.event_id not in line.refused
        ]  # fmt: skip
        steps = [call for call in new if call.note.undoes is None]
        # Equals first: a call that is made later may be the one with which an earlier one is
        # confused, if parallel branches are faster or slower than before.
        others = [call for call in steps if not self._found(line, run, call)]
        for call in others:
            self._without_equal(line, run, call)
        for call in new:
            if call.note.undoes is not None:
                self._undo(line, run, call, call.note.undoes)
        for child in run.children.values():
            if child.event_id not in line.children:
                self._child(line, child)
        line.left = [
            each.name for each in self._effects.values()
            if each.key not in line.taken and not each.undos
            and (each.call.completed or not each.call.ended)
        ]  # fmt: skip
        return line

    def undone_elsewhere(self, run: RunHistory) -> None:
        """Add the undo calls of a clean-up run."""
        for call in run.calls.values():
            effect = self._effects.get(call.note.undoes or "")
            if effect:
                effect.undos[_assumed(run, call)] = call.completed

    def _begin(self, run: RunHistory) -> RunKeys:
        """Return the line of a run with what was copied from others."""
        line = RunKeys()
        if run.base is not None:
            base = self.of_runs.get(run.base)
            if base is None:
                self._refused = self._refused or (
                    f"the history of run {run.base} is gone, from which run {run.run_id} was"
                    " reset: whether it had made this call is not known"
                )
            else:
                line = base.until(run.fork)
        elif run.continued_from in self.of_runs:
            before = self.of_runs[run.continued_from]
            line.inherited = before.taken, before.taken_children
            line.named = dict(before.named)  # of undo steps that were carried over
        line.taken = line.inherited[0] | set(line.keys.values())
        line.taken_children = line.inherited[1] | set(line.children.values())
        line.spoiled = self._spoiled(line)
        return line

    def _spoiled(self, line: RunKeys) -> str | None:
        undoes = set(line.undoes.values())
        for key in line.keys.values():
            effect = self._effects.get(key)
            if effect and key not in undoes and effect.undos:
                return (
                    f"{effect.name} was undone after the place of the reset: reset the run to an"
                    " earlier place, before that step"
                )
        return None

    def _found(self, line: RunKeys, run: RunHistory, call: RecordedStep) -> bool:
        """Enter or refuse a call; return False if it equals no earlier one."""
        by_name = call.note.key is not None or not call.note.redo or call.event_id < run.fork
        if line.spoiled and call.event_id >= run.fork:
            line.refused[call.event_id] = line.spoiled
        elif by_name:  # also of an earlier version, and copied from a run that is gone
            self._enter(line, run, call, _assumed(run, call))
        elif self._refused:
            line.unmatched[call.event_id] = self._refused
        else:
            equal = next((e for e in self._others(line, call) if e.call.given == call.given), None)
            if equal is None:
                return False
            line.taken.add(equal.key)
            if not equal.undos:
                self._enter(line, run, call, equal.key)
            elif any(equal.undos.values()):
                self._enter(line, run, call, step_key(run.run_id, call.place))
            else:
                line.refused[call.event_id] = (
                    f"the undo of {equal.name} was begun, and its outcome is not known"
                )
        return True

    def _without_equal(self, line: RunKeys, run: RunHistory, call: RecordedStep) -> None:
        standing = [e.name for e in self._others(line, call) if not any(e.undos.values())]
        if standing:
            line.unmatched[call.event_id] = (
                f"this call of {call.step} has another input than {_some(standing)}, made before"
                " the reset: it may be the same with a changed input"
            )
        else:
            self._enter(line, run, call, step_key(run.run_id, call.place))

    def _others(self, line: RunKeys, call: RecordedStep) -> list[_Effect]:
        """Return the calls of the same step that the line has not repeated."""
        return [
            each for each in self._effects.values()
            if each.call.step == call.step and each.key not in line.taken
        ]  # fmt: skip

    def _undo(self, line: RunKeys, run: RunHistory, call: RecordedStep, assumed: str) -> None:
        target = line.named.get(assumed, assumed)
        effect = self._effects.get(target)
        key = call.note.key or _assumed(run, call)
        if call.note.redo and not call.note.key:
            before = (each for each in (effect.undos if effect else ()) if each not in line.taken)
            key = next(before, step_key(run.run_id, call.place))
        line.undoes[call.event_id] = target
        line.keys[call.event_id] = key
        line.taken.add(key)
        if effect:
            effect.undos[key] = effect.undos.get(key, False) or call.completed

    def _enter(self, line: RunKeys, run: RunHistory, call: RecordedStep, key: str) -> None:
        line.keys[call.event_id] = line.named[_assumed(run, call)] = key
        line.taken.add(key)
        if call.note.undoes is None:
            self._effects.setdefault(key, _Effect(key, call, run.run_id))

    def _child(self, line: RunKeys, call: RecordedChild) -> None:
        known = None
        if call.repeats:
            others = [
                each for each in self._children
                if each.call.type == call.type and each not in line.taken_children
            ]  # fmt: skip
            known = next((each for each in others if each.call.given == call.given), None)
            if known is None and others:
                names = [f"{each.call.workflow_id} ({each.call.run_id})" for each in others]
                line.refused_children[call.event_id] = (
                    f"this child {call.workflow_id} has another input than {_some(names)}, started"
                    " before the reset: it may be the same with a changed input"
                )
        if known is None:
            known = _KnownChild(call)
            self._children.append(known)
        if call.run_id:
            known.runs.append((call.workflow_id, call.run_id))
        line.children[call.event_id] = known
        line.taken_children.add(known)


def _assumed(run: RunHistory, call: RecordedStep) -> str:
    """Return the key that the workflow assumes, and that workers of earlier versions used."""
    return call.note.key or step_key(call.note.origin or run.run_id, call.place)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


# --- the worker's side ---


@dataclass
class FoundKeys:
    """Keys of the calls of a run, as far as they are known.

    Attributes:
        busy: whether calls without an equal may still find out what they are.
    """

    run: RunHistory
    line: RunKeys
    busy: bool

    def note_of(self, note: StepNote, place: str) -> StepNote | str:
        """Return the note of the call at this place with its true keys, or what it waits for.

        Raises:
            ApplicationError: the call may not be made.
        """
        line = self.line
        here = max(at for at, call in self.run.calls.items() if call.place == place)
        if here in line.keys:
            return replace(note, key=line.keys[here], undoes=line.undoes.get(here))
        if here in line.refused or not self.busy:
            raise refusal(line.refused.get(here) or line.unmatched[here])
        return f"the other calls of the run: {line.unmatched[here]}"


class ResetKeys:
    """Keys of the steps that one worker executes, looked up where a run repeats another."""

    def __init__(self, client: Client) -> None:
        self._client, self._reader = client, HistoryReader(client)
        self._closed: OrderedDict[tuple[str, str], RunHistory] = OrderedDict()
        self._plain: OrderedDict[str, None] = OrderedDict()

    async def resolve(self, note: StepNote, info: activity.Info) -> StepNote:
        """Return the note of a call with its true keys.

        Raises:
            ApplicationError: the call may not be made; it is not retryable.
        """
        run_id = info.workflow_run_id
        if run_id is None or info.workflow_id is None or run_id in self._plain:
            return note
        if not _is_concerned(note, info):
            return note
        for look in itertools.count():
            try:
                found = await self.line_of(info.workflow_id, run_id)
                answer = found.note_of(note, info.activity_id) if found else note
            except RPCError as error:
                answer = f"the histories of earlier runs: {error}"
            if isinstance(answer, StepNote):
                return answer
            if look == 0:
                activity.logger.warning("waits for %s", answer)
            # The timeout of the attempt ends the wait.
            await asyncio.sleep(_PAUSE)
        raise AssertionError("the loop has no end")

    async def line_of(self, workflow_id: str, run_id: str) -> FoundKeys | None:
        """Return what is known of a run's calls; None if it repeats no other.

        Raises:
            RPCError: Temporal could not answer.
        """
        run = await self._read(workflow_id, run_id)
        if run is None:
            return None
        chain = [each async for each in self._chain(run)]
        if not any(each.concerned for each in chain):
            _remember(self._plain, run_id, None)
            return None
        refused, busy, before = await self._repeated(run)
        lines = KeyMatcher(refused)
        for each in sorted([*before, *chain], key=lambda each: each.began_at):
            if each.began_at <= run.began_at:
                await self._add(lines, each)
        line = lines.of_runs[run.run_id]
        return FoundKeys(run, line, busy or bool(run.open - {*line.unmatched, *line.refused}))

    async def _add(self, lines: KeyMatcher, run: RunHistory) -> None:
        lines.add(run)
        if any(call.note.undo for call in run.calls.values()):
            undone = await self._read(f"{run.workflow_id}:undo", None)
            if undone is not None:
                lines.undone_elsewhere(undone)

    async def _repeated(self, run: RunHistory) -> tuple[str | None, bool, list[RunHistory]]:
        """Return why a child may not run, whether that may change, and the runs it repeats."""
        if not run.repeats or run.parent is None:
            return None, False, []
        workflow_id, parent_id, initiated = run.parent
        parent = await self.line_of(workflow_id, parent_id)
        if parent is None:
            return f"its parent {workflow_id} ({parent_id}) cannot be read", False, []
        line = parent.line
        if why := line.refused_children.get(initiated):
            refused = {*line.refused, *line.unmatched, *line.refused_children}
            return why, bool(parent.run.open - refused), []
        known = line.children.get(initiated)
        found: list[RunHistory] = []
        for earlier, first in known.runs if known else ():
            if first == run.first_run_id:
                continue
            began = await self._read(earlier, first)
            if began is None:
                return f"the child {earlier} ({first}) that it repeats is gone", False, []
            found += [each async for each in self._chain(began)]
        return None, False, found

    async def _chain(self, run: RunHistory) -> AsyncIterator[RunHistory]:
        """Yield the runs of the same chain, with this one, as far as Temporal has them."""
        escaped = run.workflow_id.replace("\\", "\\\\").replace('"', '\\"')
        listed = self._client.list_workflows(f'WorkflowId = "{escaped}"')
        ids = dict.fromkeys([run.run_id, *[each.run_id async for each in listed]])
        waiting = list(ids)
        while waiting:
            each = run if (run_id := waiting.pop(0)) == run.run_id else (
                await self._read(run.workflow_id, run_id)
            )  # fmt: skip
            if each is None or each.first_run_id != run.first_run_id:
                continue
            for link in (each.base, each.continued_from):  # visibility may be late
                if link is not None and link not in ids:
                    ids[link] = None
                    waiting.append(link)
            yield each

    async def _read(self, workflow_id: str, run_id: str | None) -> RunHistory | None:
        known = self._closed.get((workflow_id, run_id or ""))
        if known is not None:
            return known
        found = await self._reader.read(workflow_id, run_id)
        if found is not None and found.closed and run_id is not None:
            _remember(self._closed, (workflow_id, run_id), found)
        return found


def _is_concerned(note: StepNote, info: activity.Info) -> bool:
    """Return whether the keys of a call may be others than the workflow assumes."""
    if note.redo or note.origin:
        return note.redo or note.origin != info.workflow_run_id
    # No call of ``ctx.step``, or scheduled by an earlier version, which did not note the origin.
    return info.activity_id.rpartition("/")[0] == info.activity_type


def _remember(kept: OrderedDict[Any, Any], key: object, value: object) -> None:
    kept[key] = value
    if len(kept) > _KEPT:
        kept.popitem(last=False)


@activity.defn(name=CHECK_RESET)
async def check_reset(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether a run that repeats another may complete.

    Args:
        asked: ``workflow_id`` and ``run_id`` of the run.
    """
    keys = ResetKeys(activity.client())
    found = await keys.line_of(asked["workflow_id"], asked["run_id"])
    return {"spoiled": found.line.spoiled, "left": found.line.left} if found else {}


# --- steps left to undo ---
# What the clean-up run of a terminated or timed-out run has to do.


@activity.defn(name=LEFT_TO_UNDO)
async def left_to_undo(dead: dict[str, Any]) -> dict[str, Any]:
    """Return some of the steps left to undo, the newest first, and when undoing may begin.

    Args:
        dead: ``workflow_id`` and ``run_id`` of the run, and how many to ``skip``.

    Raises:
        FatalError: Temporal has forgotten the run.
    """
    client = activity.client()
    workflow_id, run_id = dead["workflow_id"], dead["run_id"]
    run = await HistoryReader(client, inputs=True).read(workflow_id, run_id)
    if run is None:
        raise FatalError(f"Temporal has forgotten {workflow_id} ({run_id}): undo by hand")
    left = await _left(run, ResetKeys(client))
    undos: list[dict[str, Any]] = []
    size = 0
    for step, key in left[dead.get("skip", 0) :]:
        given = await _input_of(step, client.data_converter)
        size += len(given or "")
        if undos and size > _MOST_BYTES:
            break
        undos.append(
            {"step": step.step, "undo": {**(step.note.undo or {}), "key": key}, "input": given}
        )
    quiet = _quiet_at(run)
    return {"undos": undos, "quiet_at": quiet.isoformat() if quiet else None}


async def _left(run: RunHistory, reset_keys: ResetKeys) -> list[tuple[RecordedStep, str]]:
    """Return the steps that were begun and are not undone, with their keys, the newest first."""
    keys = {
        at: call.note.undo["key"] for at, call in run.calls.items()
        if call.note.undo and at > run.committed
    }  # fmt: skip
    undoes = {at: call.note.undoes for at, call in run.calls.items()}
    if found := await reset_keys.line_of(run.workflow_id, run.run_id):
        # A call that has no key was refused, and had no effect.
        keys = {at: found.line.keys[at] for at in keys if at in found.line.keys}
        undoes = {at: found.line.undoes.get(at) for at in undoes}
    undone = {undoes[at] for at, call in run.calls.items() if call.completed}
    return [(run.calls[at], key) for at, key in reversed(keys.items()) if key not in undone]


def _quiet_at(run: RunHistory) -> datetime | None:
    """Return by when steps in flight at the close notice it; None if there were none."""
    patience = [call.patience for call in run.calls.values() if not call.ended]
    return run.last_at + max(patience) if patience and run.last_at else None


async def _input_of(step: RecordedStep, converter: DataConverter) -> str | None:
    """Return the step's input for its undo, decoded by the codec; the sender encodes it again."""
    if not (step.note.undo or {}).get("takes_input") or not step.inputs:
        return None
    (raw,) = await converter.decode(step.inputs[:1], [RawValue])
    return payload_text(raw.payload)
