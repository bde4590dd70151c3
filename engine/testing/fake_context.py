"""A workflow context without a server."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final
from uuid import UUID

from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import PayloadConverter
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    FailureError,
    RetryState,
)
from temporalio.testing import ActivityEnvironment
from temporalio.workflow import ContinueAsNewError

from engine.errors import EngineError
from engine.flow import (
    NOT_GIVEN,
    STAND_IN,
    ChildOptions,
    CompensationFailed,
    Context,
    FireInfo,
    NotedInfo,
    NotUndone,
    StepCall,
    StepNote,
    Timing,
    UndoScope,
    args_of,
    as_declared,
    definition_of,
    progress_line,
    read_as,
    refuse_forgotten,
    step_key,
    text_of,
    to_await,
    undo_of,
)
from engine.runtime.steps.resources import WorkerResources
from engine.testing.fakes import Fakes, by_name, name_of, settled
from engine.testing.server import FrozenClock, instant

# --- failures ---
# The failures of steps and children as the waiting workflow receives them.


def step_failed(name: str, place: str) -> ActivityError:
    """Return the error that ``ctx.step`` raises for a step that failed for good."""
    return ActivityError(
        "Activity task failed",
        scheduled_event_id=0,
        started_event_id=0,
        identity="test",
        activity_type=name,
        activity_id=place,
        retry_state=RetryState.MAXIMUM_ATTEMPTS_REACHED,
    )


def child_failed(name: str) -> ChildWorkflowError:
    """Return the error that ``ctx.child`` raises for a failed child."""
    return ChildWorkflowError(
        "Child Workflow execution failed",
        namespace="default",
        workflow_id=f"child:{name}",
        run_id="stand-in",
        workflow_type=name,
        initiated_event_id=0,
        started_event_id=0,
        retry_state=RetryState.RETRY_POLICY_NOT_SET,
    )


def cause_of(error: Exception) -> FailureError:
    """Return an error as the cause of a failed step or child."""
    if isinstance(error, FailureError):
        return error
    failure = ApplicationError(str(error), type=type(error).__name__)
    failure.__cause__ = error
    return failure.with_traceback(error.__traceback__)


class ResultUnreadable(BaseException):
    """The result of a step or child does not fit its type.

    A run waits then for code that can read it, and neither ``except Exception`` nor an undo step
    runs: the test fails instead.
    """


# --- attempts of a step ---
# One attempt of a step without a server: its Temporal environment, and its values as JSON.

_RUN: Final = "stand-in"
_converter: Final = PydanticPayloadConverter()


async def attempt(
    call: StepCall, act: Callable[..., Any], note: StepNote, place: str, workflow_id: str
) -> Any:
    """Call a step, or the ``act`` that replaces it, and return its result as a run receives it.

    ``step_info()`` and Temporal's ``activity`` functions read the note, the activity id ``place``
    and the run's id.

    Raises:
        TypeError: the input cannot be written as JSON, or does not fit.
        ActivityError: the step failed, for the reason in the cause.
    """

    async def called(*args: Any) -> Any:
        return await settled(act(*args))

    signature = inspect.signature(call.fn, eval_str=True)
    hints = getattr(call.fn, "__temporal_activity_definition").arg_types or [None] * len(call.args)
    args = [through_json(arg, hint) for arg, hint in zip(call.args, hints, strict=False)]
    there = ActivityEnvironment()
    known = {each.name: getattr(there.info, each.name) for each in dataclasses.fields(there.info)}
    known |= {
        "activity_id": place,
        "activity_type": call.name,
        "workflow_id": workflow_id,
        "workflow_run_id": _RUN,
    }
    there.info = NotedInfo(**known, note=note)
    try:
        found = await there.run(called, *args)
        hint = signature.return_annotation
        wanted = None if hint is inspect.Signature.empty else hint
        return _received(found, wanted, f"the result of the step {call.name}")
    except Exception as error:  # noqa: BLE001 - whatever it is, it ends the step
        raise step_failed(name_of(call.fn), place) from cause_of(error)


def through_json(value: Any, wanted: Any = None) -> Any:
    """Return a value as it comes out of a run's history.

    Raises:
        TypeError: it cannot be written as JSON, or does not fit ``wanted``.
    """
    return read_as(_converter, _converter.to_payload(value), wanted)


def _received(found: Any, wanted: Any, of: str) -> Any:
    """Return a result as a run receives it.

    Raises:
        TypeError: it cannot be written as JSON.
        ResultUnreadable: it does not fit.
    """
    payload = _converter.to_payload(found)
    try:
        return read_as(_converter, payload, wanted)
    except Exception as error:
        raise ResultUnreadable(f"a run would wait for code that reads {of}: {error}") from error


# --- context ---

_BEGIN: Final = "2026-01-01T00:00:00Z"
_HAND: Final = "by-hand"


class ContinuedAsNew(ContinueAsNewError):
    """End of a run under test that ``ctx.continue_as_new`` continues.

    Attributes:
        input: the input of the next run; None if it has none.
    """

    def __init__(self, given: Any) -> None:
        super().__init__("continued as new")
        self.input = given


class FakeContext(Context):
    """A stand-in for ``ctx`` in a test that calls a workflow as a function: ``run(ctx, input)``.

    Steps run at once, with one attempt each: retries, timeouts, heartbeats, replay and the sandbox
    need a server (``run_workflow``). Inputs and results pass through JSON, and a failing step
    raises an ``ActivityError``, as in a run.

    The newest one of a test is ``Context.current()``, for handlers that the test calls.

    Args:
        fire: the value of ``ctx.fire``, see ``fire_for``; without it the run was started by hand.
        clock: the run's time; by default it stands at the fire time. ``sleep`` moves it.
        fakes: replaced steps; see ``fake``.
        signals: the values that ``wait_for`` returns, by name, in order; then it times out.
        children: replacements of children by class or type: a value, or a function of the input.
            Other classes run as they are, with a similar context.
        unpatched: changes for which ``patched`` is false, as in a run that began with old code.
        resources: what steps are given, by ``@resource`` function or by class; nothing is opened.

    Attributes:
        steps: the names of the called steps, including undo steps, in order.
        told: the lines of ``progress``, in order.
    """

    def __init__(
        self,
        fire: FireInfo | None = None,
        *,
        clock: FrozenClock | None = None,
        fakes: Fakes = (),
        signals: Mapping[str, Sequence[Any]] | None = None,
        children: Mapping[type | str, Any] | None = None,
        unpatched: Iterable[str] = (),
        resources: Mapping[Any, Any] | None = None,
    ) -> None:
        super().__init__()
        self.clock = clock or FrozenClock(fire.fire_time if fire else _BEGIN)
        self.steps: list[str] = []
        self.told: list[str] = []
        self._fire = fire
        self._fakes = by_name(fakes)
        self._waiting = defaultdict(deque, {n: deque(v) for n, v in (signals or {}).items()})
        self._stand_ins = dict(children or {})
        self._unpatched = frozenset(unpatched)
        self._resources = dict(resources or {})
        self._chance = Random(_RUN)
        self._calls: Counter[str] = Counter()
        self._started: Counter[str] = Counter()
        self._left_by_scopes: list[NotUndone] = []
        self._logger = logging.LoggerAdapter(logging.getLogger("engine.testing"), {})
        STAND_IN.set(self)

    async def run(self, workflow: type, input: Any = NOT_GIVEN) -> Any:
        """Run a workflow as a worker would: if it raises, undo its work.

        A direct call of ``TheClass().run(ctx, input)`` undoes nothing.

        Raises:
            CompensationFailed: a step could not be undone.
            Exception: the exception that left ``run``.
        """
        try:
            result = await workflow().run(self, *args_of(input))
            self._unawaited.refuse()
        except (Exception, asyncio.CancelledError) as error:
            not_undone = await self._unwind()
            if not_undone:
                definition = definition_of(workflow)
                name = definition.type if definition else workflow.__name__
                raise CompensationFailed(name, not_undone) from error
            raise
        return result

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """The logger ``engine.testing``; see ``Context``."""
        return self._logger

    def now(self) -> datetime:
        """See ``Context``: returns the time of the test's clock."""
        return self.clock.now()

    async def _run_child(
        self,
        child: Any,
        given: Any,
        options: ChildOptions,
        result_type: Any,
        undo: Any,
    ) -> Any:
        """Run the replacement, or the class itself, at once: queue, timeout and retry are moot."""
        if isinstance(child, str) and child not in self._stand_ins:
            raise EngineError(
                f"nothing stands for the child {child}",
                hint=f"say it: FakeContext(children={{{child!r}: ...}})",
            )
        definition = definition_of(child) if isinstance(child, type) else None
        declared = definition.result_type if definition else None
        name = definition.name if definition else str(getattr(child, "__name__", child))
        entry = None
        if undo is not None:
            self._started[name] += 1
            own_id = options.get("id") or f"child:{self._workflow_id}:{name}:{self._started[name]}"
            call = undo_of(undo, name, args_of(given))
            entry = call.undoing(name, step_key(_RUN, own_id), _converter)
        try:
            came = await self._result_of(child, given)
            found = _received(came, result_type or declared, f"the result of the child {name}")
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends the child
            raise child_failed(name) from cause_of(error)
        if entry:
            entry.keep(_converter, found)
            self._scope.current.add(entry)
        return found

    async def _result_of(self, child: Any, given: Any) -> Any:
        if child not in self._stand_ins:
            return await self._like_this().run(child, given)
        stands = self._stand_ins[child]
        return await settled(stands(*args_of(given)) if callable(stands) else stands)

    async def _continue(self, args: list[Any], undo: str) -> None:
        refuse_forgotten([each.undone for each in self._scope.left], undo)
        raise ContinuedAsNew(args[0] if args else None)

    @property
    def _converter(self) -> PayloadConverter:
        return _converter

    def _note_undo(self, undo: StepCall) -> None:
        self._scope.current.add(undo.undoing(undo.name, "", _converter))

    def _forget_undos(self) -> None:
        self._scope.clear()

    async def _count_signals(self, signal: str) -> int:
        return len(self._waiting[signal])

    async def _next_signal(self, signal: str, wanted: Any, longest: timedelta | None) -> Any:
        """Return the next of the given signals, or time out at once.

        Raises:
            TimeoutError: no signal is left; the clock has moved by the timeout.
            EngineError: no signal is left, and without a timeout a run would wait forever.
        """
        waiting = self._waiting[signal]
        if waiting:
            return through_json(waiting.popleft(), wanted)
        if longest is None:
            raise EngineError(
                f"no signal {signal} is left, and ctx.wait_for without timeout waits for ever",
                hint=f"say it: FakeContext(signals={{{signal!r}: [...]}})",
            )
        self.clock.advance(longest)
        raise TimeoutError

    @to_await
    async def sleep(self, span: timedelta | float) -> None:
        """See ``Context``: moves the clock, without a wait."""
        seconds = span.total_seconds() if isinstance(span, timedelta) else span
        if seconds > 0:
            self.clock.advance(seconds)

    def random(self) -> Random:
        """See ``Context``: returns the same numbers in each test."""
        return self._chance

    def uuid(self) -> UUID:
        """See ``Context``: returns the same UUIDs in each test."""
        return UUID(int=self._chance.getrandbits(128), version=4)

    def patched(self, change: str) -> bool:
        """See ``Context``: returns True, except for the changes in ``unpatched``."""
        return change not in self._unpatched

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """See ``Context``: appends a line to ``told``."""
        self.told.append(progress_line(done, total, note))

    def _read_fire(self) -> FireInfo:
        if self._fire is None:
            raise ValueError("it was given none")
        return self._fire

    @property
    def fire(self) -> FireInfo:
        """The given fire; see ``Context``."""
        if self._fire is None:
            raise EngineError(
                "ctx.fire: this FakeContext was given no fire",
                hint="ask ctx.scheduled first, or give it one: FakeContext(fire_for(...))",
            )
        return self._fire

    def _like_this(self) -> FakeContext:
        """Return the context of a child, with the same window, clock, fakes and records."""
        other = FakeContext(self._fire, clock=self.clock, unpatched=self._unpatched)
        other.steps, other.told = self.steps, self.told
        other._fakes, other._stand_ins = self._fakes, self._stand_ins
        other._resources = self._resources
        return other

    async def _run_step(self, call: StepCall, undo: StepCall | None) -> Any:
        """Call the step, or its fake, at once."""
        entry = None
        if undo is not None:
            place = f"{call.name}/{self._calls[call.name] + 1}"
            entry = undo.undoing(call.name, call.key or step_key(_RUN, place), _converter)
            self._scope.current.add(entry)
        result = await self._call(call)
        if entry:
            entry.keep(_converter, result)
        return result

    async def _call(self, call: StepCall) -> Any:
        name = name_of(call.fn)
        self.steps.append(name)
        self._calls[call.name] += 1
        place = f"{call.name}/{self._calls[call.name]}"
        act = self._act_of(call.fn)
        note = StepNote(key=call.key, undoes=call.undoes or None)
        return await attempt(call, act, note, place, self._workflow_id)

    @property
    def _workflow_id(self) -> str:
        return f"sched:{self._fire.key}:{self._fire.bucket}" if self._fire else _HAND

    def _act_of(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return what an attempt calls: the step or its fake, with the resources of the step."""
        found = self._fakes.get(name_of(step))
        if found is not None and not found.acts_itself:
            return found.attempt
        holder = WorkerResources(self._resources)
        holder.serve([step])
        owner, resources = holder.given_to(step)
        if found is not None:
            return partial(found.attempt, owner=owner, **resources)
        if owner:  # a subclass may have its own
            method = getattr(owner[0], step.__name__)
            return lambda *args: method(*as_declared(step, args), **resources)
        return partial(step, **resources)

    async def _unwind(self) -> list[NotUndone]:
        return self._left_by_scopes + await self._undone(self._scope)

    async def _unwind_scope(self, scope: UndoScope) -> list[NotUndone]:
        left = await self._undone(scope)
        self._left_by_scopes += left
        return left

    async def _undone(self, scope: UndoScope) -> list[NotUndone]:
        not_undone: list[NotUndone] = []

        async def undo(call: StepCall) -> None:
            try:
                await self._call(call)
            except Exception as error:  # noqa: BLE001 - the others are undone all the same
                given = call.args[0].payload.data.decode() if call.args else None
                why = text_of(error.__cause__ or error)
                undoes = call.undoes or None
                not_undone.append(NotUndone(call.undone, call.name, why, given, undoes))

        scope.end()
        await scope.unwind(undo)
        return not_undone


# --- windows ---


def fire_for(
    key: str,
    fire_time: datetime | str,
    *,
    bucket: int | None = None,
    timezone: str = "UTC",
    timing: Timing = "on_time",
    project: str = "default",
    missed: int = 0,
    data_from: datetime | str | None = None,
    topic: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> FireInfo:
    """Return a window for a test: the ``ctx.fire`` of a run that was started for it.

    Args:
        key: the schedule's key.
        fire_time: when the window opened; aware, or ISO 8601 text with an offset.
        bucket: its number; by default that of a cron schedule, the fire time in milliseconds.
        timezone: the schedule's zone.
        timing: why the run started when it did.
        project: the owner of the schedule.
        missed: how many further windows a caught-up run covers.
        data_from: the start of its data; see ``FireInfo``.
        topic: the schedule's topic.
        metadata: the schedule's metadata, with the names of ``FireInfo``'s identities.

    Raises:
        ValueError: a moment has no timezone, or ``timing`` is unknown.
    """
    moment = instant(fire_time)
    return FireInfo(
        key=key,
        series=1,
        bucket=int(moment.timestamp() * 1000) if bucket is None else bucket,
        fire_time=moment,
        timezone=timezone,
        timing=timing,
        definition_version=1,
        project=project,
        ledger="test",
        token="test",  # noqa: S106 - a claim's number, not a secret
        missed=missed,
        data_from=None if data_from is None else instant(data_from),
        topic=topic,
        metadata=metadata or {},
    )
