"""The @step decorator, step info, step notes and queues."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from types import NoneType
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, overload

import temporalio.workflow
from temporalio import activity

from engine.errors import EngineError
from engine.flow.definition import (
    Registry,
    Retry,
    checked_name,
    duration,
    refuse_unknown,
    require_retry,
)
from engine.flow.fire import MEMO_KEY, FireInfo
from engine.flow.resources import Need, hints_of, is_given, need_of
from engine.flow.step_types import P, R, Step, StepDecorator, UndoDecorator, UndoStep

# --- step notes ---
# A note is data that a step call passes to its worker beside the input, in one header. The workflow
# side writes it (``noted``), the plugin's interceptors carry it, and the step side reads it. Calls
# of Temporal's own API carry no header. A worker without the plugin loses the note; the step then
# has Temporal's ids only.

HEADER: Final = "sched"
"""The name of the Temporal header."""

UNDO_HEADER: Final = "sched.undo"
"""The header with undo instructions for a child; ``HEADER`` says that it repeats another one."""


@dataclass(frozen=True)
class StepNote:
    """Note of one step call.

    Attributes:
        intervals: The waits between attempts in seconds, the last one repeating.
        backoff: First wait in seconds, factor and longest wait, if ``jitter`` needs them.
        jitter: The random fraction of a wait, from 0 to 1.
        give_up_on: Names of exception classes that end the attempts.
        origin: The run that this one began as, from which its steps' keys derive; another one only
            if it was reset.
        redo: Whether the run may repeat calls of earlier runs, so that the worker has to look up
            the key.
        key: The idempotency key that the workflow chose.
        undoes: The idempotency key of the step that this one undoes.
        undo: Undo instructions for this step, for when the run can no longer undo it itself.
        timeout: Of one attempt in seconds, if it is in a queue, where it may be moved.
    """

    intervals: tuple[float, ...] = ()
    backoff: tuple[float, float, float] | None = None
    jitter: float = 0.0
    give_up_on: tuple[str, ...] = ()
    origin: str | None = None
    redo: bool = False
    key: str | None = None
    undoes: str | None = None
    undo: Mapping[str, Any] | None = None
    timeout: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are set."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_json(cls, value: object) -> StepNote:
        """Parse what ``to_json`` returned; unknown fields are ignored."""
        if not isinstance(value, Mapping):
            return NOTHING
        known = {each.name for each in fields(cls)}
        options = {name: _frozen(given) for name, given in value.items() if name in known}
        return cls(**options)


NOTHING: Final = StepNote()

_current: ContextVar[StepNote | None] = ContextVar("sched_step_note", default=None)


@contextmanager
def noted(note: StepNote) -> Iterator[None]:
    """Attach the note to the call of Temporal's API inside this block."""
    token = _current.set(note)
    try:
        yield
    finally:
        _current.reset(token)


def note_of_this_call() -> StepNote | None:
    """Return the note of the current call; None if it has none or an empty one."""
    note = _current.get()
    return note if note is not None and note.to_json() else None


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# --- step info ---


@dataclass(frozen=True)
class NotedInfo(activity.Info):
    """Temporal's information on an attempt, with the note of the call."""

    note: StepNote = NOTHING


@dataclass(frozen=True)
class StepInfo:
    """The call of a step, seen from inside the step.

    Attributes:
        idempotency_key: The same for every attempt of this call, and unique to it. Pass it to the
            system that does the work, so that a second attempt does not repeat the work.
        attempt: The number of this attempt, from 1.
        undoes: In an undo step, the idempotency key of the step that it undoes; else None.
        workflow_id: The run's id, such as ``sched:<key>:<bucket>``; None outside a run.
    """

    idempotency_key: str
    attempt: int
    undoes: str | None
    workflow_id: str | None


def step_info() -> StepInfo:
    """Return information on the call that this step serves.

    The idempotency key consists of the run, the step's name and the place of the call in the run.
    It is the same for every attempt, even on another worker or after a crash. After an operator's
    reset a call that equals one of the earlier run has the key of that one, unless it was undone.
    A run that continues as new, or is retried as a whole, has new keys. The key of an undo step
    follows from that of the step that it undoes, whichever run undoes it.

    Raises:
        EngineError: Called outside a step, or on a worker without the plugin: the run's note, with
            the key that may not be the one of this place, did not arrive.
    """
    if not activity.in_activity():
        raise EngineError(
            "step_info() was called outside of a step",
            hint="in a unit test run the step with temporalio.testing.ActivityEnvironment",
        )
    info = activity.info()
    # Not isinstance: another copy of this module may have created it.
    note: StepNote | None = getattr(info, "note", None)
    if note is None and info.activity_id.startswith(f"{info.activity_type}/"):
        raise EngineError(
            f"step_info() of {info.activity_id}: this worker has no SchedulePlugin, so the key that"
            " the run gave the call did not reach the step",
            hint="give the worker plugins=[SchedulePlugin(None)]",
        )
    note = note or NOTHING
    return StepInfo(
        idempotency_key=key_of(
            note, info.activity_type, note.origin or info.workflow_run_id or "", info.activity_id
        ),
        attempt=info.attempt,
        undoes=note.undoes,
        workflow_id=info.workflow_id,
    )


def step_key(run: str, place: str) -> str:
    """Return the key of the call at this place (Temporal's activity id) of a run."""
    return f"{run}/{place}"


def undo_key(undone: str, step: str) -> str:
    """Return the key of the undo step of a call that has the key ``undone``.

    A clean-up run, or a run after a reset, may repeat an undo that was interrupted: it has the
    same key wherever it is called.
    """
    return f"{undone}/undo/{step}"


def key_of(note: StepNote, step: str, run: str, place: str) -> str:
    """Return the idempotency key of a call, as its run knows it.

    Args:
        note: its note.
        step: the step's name.
        run: the run that its run began as.
        place: of the call in the run.
    """
    return note.key or (undo_key(note.undoes, step) if note.undoes else step_key(run, place))


# --- queues ---
# Step queues as a workflow sees them: the lane of a step, and its fairness key.

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
_LONGEST_KEY: Final = 64
"""The server's limit for a fairness key, in bytes."""


def lane_of(task_queue: str, queue: str) -> str:
    """Return the Temporal task queue on which steps of a queue wait."""
    return f"{task_queue}/{queue}"


def queue_of(lane: str, task_queue: str) -> str | None:
    """Return the queue whose lane this is; None for any other task queue."""
    before, slash, queue = lane.rpartition("/")
    return queue if slash and before == task_queue else None


def checked_queue(name: str | None) -> str | None:
    """Return ``name`` if it is None or valid for a queue.

    Raises:
        ValueError: It is not valid.
    """
    if name is not None and not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot name a queue: use up to 200 of a-z, 0-9, '.', '_' and '-', "
            "beginning with a letter or digit"
        )
    return name


def turn_key() -> str:
    """Return the fairness key of this run's steps: its schedule's key or its workflow type."""
    try:
        key = FireInfo.from_memo(temporalio.workflow.memo_value(MEMO_KEY, None)).key
    except ValueError:
        key = temporalio.workflow.info().workflow_type
    return fairness_key(key)


def fairness_key(key: str) -> str:
    """Return a fairness key that Temporal takes; long ones with a common prefix stay distinct."""
    data = key.encode()
    if len(data) <= _LONGEST_KEY:
        return key
    digest = hashlib.sha256(data).hexdigest()[:16]
    return f"{data[: _LONGEST_KEY - 20].decode(errors='ignore')}-{digest}"


# --- steps ---
# ``@step`` makes a Temporal activity of an ordinary function, which stays an ordinary function.

DEFAULT_TIMEOUT: Final = timedelta(minutes=10)
"""Timeout of one attempt, unless the step or the call sets another."""

DEFAULT_HEARTBEAT: Final = timedelta(seconds=30)
"""Time without a heartbeat from the worker before a step is retried, perhaps elsewhere."""

_MARK: Final = "__sched_step__"
_TEMPORAL_MARK: Final = "__temporal_activity_definition"

SERVED: Final = "__sched_served__"
"""Mark of what a worker registers for a step that needs resources; its value opens them."""

I_co = TypeVar("I_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Undo(Generic[I_co, R_co]):
    """The input of an undo step that needs the result of the step that it undoes.

    ``async def refund(undo: Undo[Order, Receipt | None])``, for a step that takes an ``Order`` and
    returns a ``Receipt``. In the history it is two values, so each may be of any type.

    Attributes:
        input: The step's input; None if it has none.
        result: The step's result; None if the run has not received one: the step failed, was
            cancelled, or had an effect of which nothing was reported.
    """

    input: I_co
    result: R_co


@dataclass(frozen=True)
class StepDefinition:
    """Definition of a step function, as ``@step`` recorded it.

    Attributes:
        name: The Temporal activity type.
        fn: The function itself.
        timeout: How long one attempt may take (start to close).
        heartbeat: How long its worker may send no heartbeat; None leaves it to ``timeout``.
        retry: None means ``DEFAULT_RETRY``, and for an undo step ``FOREVER``.
        queue: The queue of its calls unless they name another; None means no queue.
        is_async: Whether it is async. A sync step needs a worker with an ``activity_executor``.
        accepts_input: Whether it has a parameter for an input.
        requires_input: Whether that parameter has no default.
        sees_result: Whether it is an undo step whose parameter is an ``Undo``.
        takes_self: Whether it is a method, so that the worker needs an object that has it.
        needs: Its other parameters: resources, which the worker gives.
    """

    name: str
    fn: Callable[..., Any]
    timeout: timedelta
    heartbeat: timedelta | None
    retry: Retry | None
    is_async: bool
    accepts_input: bool
    requires_input: bool
    queue: str | None = None
    sees_result: bool = False
    takes_self: bool = False
    needs: tuple[Need, ...] = ()


_registry: Registry[StepDefinition] = Registry("step")


def registered_steps() -> dict[str, StepDefinition]:
    """Return every step imported into this process, by activity type."""
    return _registry.snapshot()


def step_named(name: str) -> StepDefinition | None:
    """Return the step with this activity type, if it was imported into this process."""
    return _registry.get(name)


def step_definition_of(fn: Callable[..., Any]) -> StepDefinition | None:
    """Return the definition that ``@step`` recorded on ``fn``; None for any other callable."""
    found: StepDefinition | None = getattr(fn, _MARK, None)
    return found


@overload
def step(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, Coroutine[Any, Any, R], R]: ...


@overload
def step(fn: Callable[P, R], /) -> Step[P, R, R]: ...


@overload
def step(
    *,
    name: str | None = None,
    timeout: timedelta | float = DEFAULT_TIMEOUT,
    heartbeat: timedelta | float | None = DEFAULT_HEARTBEAT,
    retry: Retry | None = None,
    queue: str | None = None,
) -> StepDecorator: ...


def step(fn: Any = None, /, **options: Any) -> Any:
    """Make a function or method a step: work that may fail, is retried, and is recorded once done.

    The function stays what it is: call it directly in a unit test, register it as an activity
    of a plain Temporal worker, or call it from a workflow with ``ctx.step``. A step runs at least
    once; make it idempotent.

    Args:
        fn: An async or sync function or method with no argument or one, and resources besides
            (see ``given``). The worker of a method needs an object that has it: one that a
            ``@resource`` yields, or of ``SchedulePlugin(steps=[...])``.
        **options: All by their names.

            - ``name``: The Temporal activity type; by default the function's own name, and for a
              method also that of its class: ``Payments.charge``.
            - ``timeout``: How long one attempt may take (timedelta or seconds); 10 minutes by
              default.
            - ``heartbeat``: How long its worker may send no heartbeat (timedelta or seconds) before
              the attempt is abandoned and the next one begins, perhaps elsewhere; 30 seconds by
              default, None leaves it to ``timeout``. A worker with the plugin sends heartbeats for
              its steps, and thereby learns of a cancel; the details that a step sends with
              ``activity.heartbeat`` are kept. An async step that blocks its event loop blocks the
              heartbeats, too. With None only the step itself sends heartbeats: for steps that plain
              workers share, or that should be abandoned when they are stuck.
            - ``retry``: The retry rule; by default five attempts, after 1, 2, 4 and 8 seconds.
              ``FOREVER`` has no limit; an undo step without a rule of its own has none either (see
              ``Retry``).
            - ``queue``: The queue in which its calls wait for their turn, as declared in
              ``queues:`` of the schedule file; a call may name another.

    Raises:
        TypeError: The function cannot be a step, or there is no such option.
        ValueError: The name, the queue or a duration is invalid, or another step has the name.
    """
    return _decorated("@step", fn, options)


@overload
def undo(fn: Callable[P, Coroutine[Any, Any, R]], /) -> UndoStep[P, Coroutine[Any, Any, R], R]: ...


@overload
def undo(fn: Callable[P, R], /) -> UndoStep[P, R, R]: ...


@overload
def undo(
    *,
    name: str | None = None,
    timeout: timedelta | float = DEFAULT_TIMEOUT,
    heartbeat: timedelta | float | None = DEFAULT_HEARTBEAT,
    retry: Retry | None = None,
    queue: str | None = None,
) -> UndoDecorator: ...


def undo(fn: Any = None, /, **options: Any) -> Any:
    """Make a function or method an undo step: a step that ``compensate=`` may name.

    It takes the input of the step that it undoes, an ``Undo`` of input and result, or nothing. It
    may be called by ``ctx.step`` too. At run time it is a step like any other: the mark is for type
    checkers, which find a step that would undo itself.

    Args:
        fn: As for ``step``.
        **options: As for ``step``. Without a retry rule, undo steps are tried for ever.

    Raises:
        TypeError, ValueError: As for ``step``.
    """
    return _decorated("@undo", fn, options)


@overload
def as_step(
    fn: Callable[P, Coroutine[Any, Any, R]], /
) -> UndoStep[P, Coroutine[Any, Any, R], R]: ...


@overload
def as_step(fn: Callable[P, R], /) -> UndoStep[P, R, R]: ...


def as_step(fn: Any, /) -> Any:
    """Return an activity of plain Temporal as it is, so that type checkers take it for a step.

    Raises:
        TypeError: It is not marked with ``@activity.defn``.
    """
    if not hasattr(fn, _TEMPORAL_MARK):
        raise TypeError(f"as_step takes a function marked with @activity.defn; got {fn!r}")
    return fn


_OPTIONS: Final = ("name", "timeout", "heartbeat", "retry", "queue")


def _decorated(mark: str, fn: Any, options: Mapping[str, Any]) -> Any:
    """Return the function as a step, or with options what makes one of it."""
    refuse_unknown(mark, options, _OPTIONS)
    retry, heartbeat = options.get("retry"), options.get("heartbeat", DEFAULT_HEARTBEAT)
    require_retry(mark, retry)
    rules = {
        "timeout": duration(options.get("timeout", DEFAULT_TIMEOUT), "timeout"),
        "heartbeat": None if heartbeat is None else duration(heartbeat, "heartbeat"),
        "retry": retry,
        "queue": checked_queue(options.get("queue")),
    }

    def decorate(function: Any) -> Any:
        return _marked(function, options.get("name"), **rules)

    return decorate if fn is None else decorate(fn)


def _marked(fn: Any, name: str | None, **rules: Any) -> Any:
    """Return the function as a step."""
    if isinstance(fn, staticmethod | classmethod):
        raise TypeError(_WRAPPED[type(fn)].format(fn.__func__.__qualname__))
    if not inspect.isfunction(fn):
        raise TypeError(f"@step marks a function; got {fn!r} (write @step(name=...) with keywords)")
    place = f"{fn.__module__}.{fn.__qualname__}"
    if hasattr(fn, _TEMPORAL_MARK):
        raise TypeError(f"{place} is already a step or an activity; decorate it once")
    shape = _Shape.of(fn, place)
    undoes = shape.undoes(place)
    called: Any = _takes_both(fn, is_method=shape.takes_self) if undoes else fn
    definition = StepDefinition(
        name=checked_name(shape.default_name(fn) if name is None else name, f"the step {place}"),
        fn=called,
        is_async=inspect.iscoroutinefunction(fn),
        accepts_input=shape.input is not None,
        requires_input=shape.input is not None and shape.input.default is inspect.Parameter.empty,
        sees_result=undoes is not None,
        takes_self=shape.takes_self,
        needs=shape.needs,
        **rules,
    )
    bearer = _with_input_only(fn, shape, is_async=definition.is_async)
    activity.defn(name=definition.name)(bearer)
    mark = getattr(bearer, _TEMPORAL_MARK)
    setattr(called, _TEMPORAL_MARK, replace(mark, arg_types=list(undoes)) if undoes else mark)
    setattr(called, _MARK, definition)
    _registry.add(definition.name, fn, definition)
    return called


_UNDO: Final = (Undo.__module__, Undo.__qualname__)


def _takes_both(fn: Callable[..., Any], *, is_method: bool) -> Callable[..., Any]:
    """Return an undo step that takes an ``Undo``, or its two values as Temporal passes them."""

    def call(*args: Any, **named: Any) -> Any:
        return fn(*args[:is_method], *_joined(args[is_method:]), **named)

    async def call_async(*args: Any, **named: Any) -> Any:
        return await fn(*args[:is_method], *_joined(args[is_method:]), **named)

    return functools.wraps(fn)(call_async if inspect.iscoroutinefunction(fn) else call)


def _joined(args: tuple[Any, ...]) -> tuple[Any, ...]:
    if not args or isinstance(args[0], Undo):
        return args  # a direct call
    return (Undo(args[0], args[1] if args[1:] else None),)


def as_declared(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the input of a step's activity as the step's function declares it."""
    definition = step_definition_of(fn)
    return _joined(args) if definition is not None and definition.sees_result else args


_WRAPPED: Final[dict[type, str]] = {
    staticmethod: "{} is a staticmethod already: write @staticmethod above @step",
    classmethod: "{} is a classmethod, which cannot be a step; make it a method or a function",
}


@dataclass(frozen=True)
class _Shape:
    """Parameters of a step by their meaning, and its resolved types."""

    takes_self: bool
    input: inspect.Parameter | None
    needs: tuple[Need, ...]
    hints: dict[str, Any]

    @classmethod
    def of(cls, fn: Callable[..., Any], place: str) -> _Shape:
        """Return the shape of a function.

        Raises:
            TypeError: it cannot be a step.
        """
        hints = hints_of(fn, place)
        parameters = list(inspect.signature(fn).parameters.values())
        inside = fn.__qualname__.rpartition(".")[0]
        is_method = bool(inside) and not inside.endswith("<locals>")
        takes_self = bool(parameters) and parameters[0].name == "self"
        if takes_self and not is_method:
            raise TypeError(f"{place} is no method; call its parameter otherwise than self")
        if is_method and parameters and parameters[0].name == "cls":
            raise TypeError(_WRAPPED[classmethod].format(place))
        rest = parameters[1:] if takes_self else parameters
        inputs = [each for each in rest if not is_given(each.default)]
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if len(inputs) > 1 or any(each.kind not in positional for each in inputs):
            raise TypeError(
                f"{place}{inspect.signature(fn)} has to take no argument or one; put several values"
                " into a dataclass, and mark a pool or a client: `*, pool: Pool = given()`",
            )
        if inputs and inputs[0] is not rest[0]:
            raise TypeError(f"{place}: the input {inputs[0].name} comes before what is given()")
        needs = tuple(need_of(each, hints, place) for each in rest if is_given(each.default))
        return cls(takes_self, inputs[0] if inputs else None, needs, hints)

    def undoes(self, place: str) -> tuple[Any, Any] | None:
        """Return the types of input and result of a step that takes an ``Undo``; None for others.

        Raises:
            TypeError: the type of the result does not allow for a missing one.
        """
        hint = self.hints.get(self.input.name) if self.input else None
        kind = get_origin(hint) or hint
        # Not by identity: another copy of this module may have created it.
        if (getattr(kind, "__module__", ""), getattr(kind, "__qualname__", "")) != _UNDO:
            return None
        given, result = get_args(hint) or (Any, Any)
        if result is not Any and result is not NoneType and NoneType not in get_args(result):
            name = getattr(result, "__name__", str(result))
            raise TypeError(
                f"{place} may have to undo a step whose result is unknown: write Undo[...,"
                f" {name} | None]"
            )
        return given, result

    def default_name(self, fn: Callable[..., Any]) -> str:
        """Return the name of a step that is given none; methods of two classes may share one."""
        return ".".join(fn.__qualname__.split(".")[-2:]) if self.takes_self else fn.__name__


def _with_input_only(
    fn: Callable[..., Any], shape: _Shape, *, is_async: bool
) -> Callable[..., Any]:
    """Return what Temporal reads the types from, which would take resources for inputs."""
    if not shape.takes_self and not shape.needs:
        return fn

    async def in_loop(*_: Any) -> None: ...

    def in_thread(*_: Any) -> None: ...

    bearer: Any = in_loop if is_async else in_thread
    bearer.__qualname__ = fn.__qualname__
    wanted = {"return", shape.input.name if shape.input else "return"}
    bearer.__annotations__ = {name: hint for name, hint in shape.hints.items() if name in wanted}
    known = shape.hints.get(shape.input.name, inspect.Parameter.empty) if shape.input else None
    inputs = [shape.input.replace(annotation=known)] if shape.input else []
    bearer.__signature__ = inspect.Signature(inputs)
    return bearer  # type: ignore[no-any-return] # it was assigned attributes
