"""Idempotency keys of steps after a reset, and what an ended run has left to undo.

A run that an operator resets is executed again from some event on, by a new run. Its calls must
not repeat an effect that the earlier run had, nor take the key of another call: a branch that is
faster this time, or mended code, would otherwise exchange them. The workflow cannot know what the
earlier run did after that event. So the worker of each step asks the histories:

- A call that was copied with the history keeps its key.
- A call that equals one of an earlier run (same step, same input), and that this line of runs has
  not repeated yet, gets the key of that one; a new key if all such calls were undone.
- A call without an equal gets a new key, unless calls of the same step remain that nothing has
  repeated: it might be one of them with another input. Then it is refused, and the run fails.

An undo finds the key of its step the same way, and its own key follows from that. A child of such a
run repeats the child that the earlier run started with the same input, unless that one was undone.
``idempotency_key=`` of a call settles all of it, unless the call that had it was undone.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.service import RPCError

from engine.flow import (
    CHECK_RESET,
    DEFAULT_HEARTBEAT,
    LEFT_TO_UNDO,
    FatalError,
    StepNote,
    key_of,
    payload_text,
    refusal,
    step_key,
    undo_key,
)
from engine.runtime.runs.histories import HistoryReader, RecordedChild, RecordedStep, RunHistory
from engine.schedules import first_of

_MOST_BYTES = 1_000_000
"""Limit on the inputs in one answer; Temporal refuses results of more than two million bytes."""
_KEPT = 200
"""Histories of closed runs, and ids of runs without a reset, that one worker remembers."""
_NAMED = 3
_PAUSE = 1.0
"""Seconds between two looks for the key of a call that waits."""


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
    """A child that one or several runs started: the same, as far as keys are concerned.

    Attributes:
        key: names it in undo calls.
        undos: the undo calls of its parents by their keys, and whether each completed.
    """

    key: str
    call: RecordedChild
    runs: list[tuple[str, str]] = field(default_factory=list)
    undos: dict[str, bool] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The child, as an operator finds it in the Web UI."""
        return f"{self.call.workflow_id} ({self.call.run_id})"


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

    named_children: dict[str, _KnownChild] = field(default_factory=dict)
    """The same of children."""

    def until(self, fork: int) -> RunKeys:
        """Return what a run that copies the events before ``fork`` has from this one."""
        keys = {at: key for at, key in self.keys.items() if at < fork}
        copied = set(keys.values())
        children = {at: child for at, child in self.children.items() if at < fork}
        return RunKeys(
            keys,
            undoes={at: key for at, key in self.undoes.items() if at < fork},
            refused={
                at: why for at, why in {**self.refused, **self.unmatched}.items() if at < fork
            },
            children=children,
            inherited=self.inherited,
            named={assumed: key for assumed, key in self.named.items() if key in copied},
            named_children={
                assumed: child
                for assumed, child in self.named_children.items()
                if child in children.values()
            },
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
            call
            for call in run.calls.values()
            if call.event_id not in line.keys and call.event_id not in line.refused
        ]
        steps = [call for call in new if call.note.undoes is None]
        # Equals first: a call that is made later may be the one with which an earlier one is
        # confused, if parallel branches are faster or slower than before.
        others = [call for call in steps if not self._found(line, run, call)]
        for call in others:
            self._without_equal(line, run, call)
        for child in run.children.values():
            if child.event_id not in line.children:
                self._child(line, run, child)
        for call in new:
            if call.note.undoes is not None:
                self._undo(line, call, call.note.undoes)
        line.left = [
            each.name
            for each in self._effects.values()
            if each.key not in line.taken
            and not each.undos
            and (each.call.completed or not each.call.ended)
        ]
        return line

    def undone_elsewhere(self, run: RunHistory) -> None:
        """Add the undo calls of a clean-up run."""
        children = {child.key: child for child in self._children}
        for call in run.calls.values():
            key = call.note.undoes or ""
            effect = self._effects.get(key) or children.get(key)
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
            # Of undo steps that were carried over.
            line.named, line.named_children = dict(before.named), dict(before.named_children)
        line.taken = line.inherited[0] | set(line.keys.values())
        line.taken_children = line.inherited[1] | set(line.children.values())
        line.spoiled = self._spoiled(line)
        return line

    def _spoiled(self, line: RunKeys) -> str | None:
        undoes = set(line.undoes.values())
        steps = (self._effects.get(key) for key in line.keys.values())
        for effect in (*steps, *line.children.values()):
            if effect and effect.key not in undoes and effect.undos:
                return (
                    f"{effect.name} was undone after the place of the reset: reset the run to an"
                    " earlier place, before that step"
                )
        return None

    def _found(self, line: RunKeys, run: RunHistory, call: RecordedStep) -> bool:
        """Enter or refuse a call; return False if it equals no earlier one."""
        by_name = call.note.key is not None or not call.note.redo or call.event_id < run.fork
        given = self._effects.get(call.note.key or "")
        why = line.spoiled
        if given and any(given.undos.values()):
            why = f"{given.name} had the key {given.key!r} and was undone: this call needs another"
        if why and call.event_id >= run.fork:
            line.refused[call.event_id] = why
        elif by_name:  # also copied from a run that is gone
            self._enter(line, run, call, _assumed(run, call))
        elif self._refused:
            line.unmatched[call.event_id] = self._refused
        else:
            equals = [e for e in self._others(line, call) if e.call.given == call.given]
            if not equals:
                return False
            # A run may have undone a call and made it again (``ctx.saga()``): the second stands.
            equal = next((each for each in equals if not each.undos), equals[0])
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
            names = first_of(standing, _NAMED)
            line.unmatched[call.event_id] = (
                f"this call of {call.step} has another input than {names}, made"
                " before the reset: it may be the same with a changed input"
            )
        else:
            self._enter(line, run, call, step_key(run.run_id, call.place))

    def _others(self, line: RunKeys, call: RecordedStep) -> list[_Effect]:
        """Return the calls of the same step that the line has not repeated."""
        return [
            each
            for each in self._effects.values()
            if each.call.step == call.step and each.key not in line.taken
        ]

    def _undo(self, line: RunKeys, call: RecordedStep, assumed: str) -> None:
        target = line.named.get(assumed, assumed)
        effect = line.named_children.get(assumed) or self._effects.get(target)
        undone = effect.key if effect else target
        key = call.note.key or undo_key(undone, call.step)
        line.undoes[call.event_id] = undone
        line.keys[call.event_id] = key
        line.taken.add(key)
        if effect:
            effect.undos[key] = effect.undos.get(key, False) or call.completed

    def _enter(self, line: RunKeys, run: RunHistory, call: RecordedStep, key: str) -> None:
        line.keys[call.event_id] = line.named[_assumed(run, call)] = key
        line.taken.add(key)
        if call.note.undoes is None:
            self._effects.setdefault(key, _Effect(key, call, run.run_id))

    def _child(self, line: RunKeys, run: RunHistory, call: RecordedChild) -> None:
        known = self._repeated_child(line, call) if call.repeats else None
        if known is None:
            # Of a run that was not reset, the key that its workflow assumes.
            known = _KnownChild(step_key(run.run_id, call.workflow_id), call)
            self._children.append(known)
        if call.run_id:
            known.runs.append((call.workflow_id, call.run_id))
        line.children[call.event_id] = known
        line.named_children[step_key(run.origin, call.workflow_id)] = known
        line.taken_children.add(known)

    def _repeated_child(self, line: RunKeys, call: RecordedChild) -> _KnownChild | None:
        """Return the child that this one repeats; None if it is a new one, or may not run."""
        others = [
            each
            for each in self._children
            if each.call.type == call.type and each not in line.taken_children
        ]
        standing = [each for each in others if not any(each.undos.values())]
        known = next((each for each in standing if each.call.given == call.given), None)
        if known is not None and known.undos:
            line.refused_children[call.event_id] = (
                f"the undo of {known.name} was begun, and its outcome is not known"
            )
        elif known is None and any(each.call.given == call.given for each in others):
            return None  # the equal one was undone
        elif known is None and standing:
            names = first_of([each.name for each in standing], _NAMED)
            line.refused_children[call.event_id] = (
                f"this child {call.workflow_id} has another input than {names}, started"
                " before the reset: it may be the same with a changed input"
            )
        return known


def _assumed(run: RunHistory, call: RecordedStep) -> str:
    """Return the key that the workflow assumes."""
    return key_of(call.note, call.step, call.note.origin or run.run_id, call.place)


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
        notes = [call.note for call in run.calls.values()]
        notes += [call.note for call in run.children.values()]
        if any(note.undo for note in notes):
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
            run_id = waiting.pop(0)
            each = run if run_id == run.run_id else await self._read(run.workflow_id, run_id)
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
    # A call without an origin is none of ``ctx.step``.
    return note.redo or note.origin not in {None, info.workflow_run_id}


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
    for call, key in left[dead["skip"] :]:
        note = {**(call.note.undo or {}), "key": key}
        given = await _text_of(call.inputs[:1] if note["takes_input"] else (), client)
        result = [call.result] if call.result and note["takes_result"] else []
        reported = await _text_of(result, client)
        size += len(given or "") + len(reported or "")
        if undos and size > _MOST_BYTES:
            break
        undos.append({"step": call.step, "undo": note, "input": given, "result": reported})
    quiet = _quiet_at(run)
    return {"undos": undos, "quiet_at": quiet.isoformat() if quiet else None}


async def _left(
    run: RunHistory, reset_keys: ResetKeys
) -> list[tuple[RecordedStep | RecordedChild, str]]:
    """Return what was begun and is not undone, with its keys, the newest first."""
    every: list[RecordedStep | RecordedChild] = [*run.calls.values(), *run.children.values()]
    every.sort(key=lambda call: call.event_id)
    begun = {
        call.event_id: call for call in every if call.note.undo and call.event_id > run.committed
    }
    keys = {at: str((call.note.undo or {})["key"]) for at, call in begun.items()}
    undoes = {at: call.note.undoes for at, call in run.calls.items()}
    if found := await reset_keys.line_of(run.workflow_id, run.run_id):
        # A call that has no key was refused, and had no effect.
        known = {**found.line.keys, **{at: each.key for at, each in found.line.children.items()}}
        keys = {at: known[at] for at in keys if at in known}
        undoes = {at: found.line.undoes.get(at) for at in undoes}
    undone = {undoes[at] for at, call in run.calls.items() if call.completed}
    undone |= {keys.get(at) for at, child in run.children.items() if child.undone}
    return [(begun[at], key) for at, key in reversed(keys.items()) if key not in undone]


def _quiet_at(run: RunHistory) -> datetime | None:
    """Return by when steps in flight at the close notice it; None if there were none."""
    patience = [call.patience for call in run.calls.values() if not call.ended]
    # The steps of a child that was ended with its parent are not in this history.
    noted = (child for child in run.children.values() if child.note.undo)
    patience += [DEFAULT_HEARTBEAT for child in noted if not child.ended]
    return run.last_at + max(patience) if patience and run.last_at else None


async def _text_of(payloads: Sequence[Payload], client: Client) -> str | None:
    """Return a value for an undo step, decoded by the codec; the sender encodes it again."""
    if not payloads:
        return None
    (raw,) = await client.data_converter.decode(payloads, [RawValue])
    return payload_text(raw.payload)
