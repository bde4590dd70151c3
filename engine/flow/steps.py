"""The @step decorator, step info, step notes and queues."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from types import NoneType
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints, overload

import temporalio.workflow
from temporalio import activity

from engine.errors import EngineError
from engine.flow.definition import Registry, Retry, checked_name, duration
from engine.flow.fire import MEMO_KEY, FireInfo

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
    A run that continues as new, or is retried as a whole, has new keys.

    Raises:
        EngineError: Called outside a step.
    """
    if not activity.in_activity():
        raise EngineError(
            "step_info() was called outside of a step",
            cure="in a unit test run the step with temporalio.testing.ActivityEnvironment",
        )
    info = activity.info()
    # Not isinstance: another copy of this module may have created it.
    note: StepNote = getattr(info, "note", None) or NOTHING
    return StepInfo(
        idempotency_key=note.key
        or step_key(note.origin or info.workflow_run_id or "", info.activity_id),
        attempt=info.attempt,
        undoes=note.undoes,
        workflow_id=info.workflow_id,
    )


def step_key(run: str, place: str) -> str:
    """Return the key of the call at this place (Temporal's activity id) of a run."""
    return f"{run}/{place}"


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
    data = key.encode()
    if len(data) <= _LONGEST_KEY:
        return key
    # Long keys with a common prefix must stay distinct.
    digest = hashlib.sha256(data).hexdigest()[:16]
    return f"{data[: _LONGEST_KEY - 20].decode(errors='ignore')}-{digest}"


# --- steps ---
# ``@step`` makes a Temporal activity of an ordinary function, which stays an ordinary function.

DEFAULT_TIMEOUT: Final = timedelta(minutes=10)
"""Timeout of one attempt, unless the step or the call sets another."""

DEFAULT_HEARTBEAT: Final = timedelta(seconds=30)
"""Time without a heartbeat from the worker before a step is retried, perhaps elsewhere."""

_MARK: Final = "__sched_step__"

F = TypeVar("F", bound=Callable[..., Any])
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
        accepts_input: Whether it has a parameter.
        requires_input: Whether that parameter has no default.
        sees_result: Whether it is an undo step whose parameter is an ``Undo``.
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
def step(fn: F, /) -> F: ...


@overload
def step(
    *,
    name: str | None = None,
    timeout: timedelta | float = DEFAULT_TIMEOUT,
    heartbeat: timedelta | float | None = DEFAULT_HEARTBEAT,
    retry: Retry | None = None,
    queue: str | None = None,
) -> Callable[[F], F]: ...


def step(
    fn: F | None = None,
    /,
    *,
    name: str | None = None,
    timeout: timedelta | float = DEFAULT_TIMEOUT,
    heartbeat: timedelta | float | None = DEFAULT_HEARTBEAT,
    retry: Retry | None = None,
    queue: str | None = None,
) -> F | Callable[[F], F]:
    """Make a function a step: work that may fail, is retried, and is recorded once done.

    The function stays what it is: call it directly in a unit test, register it as an activity
    of a plain Temporal worker, or call it from a workflow with ``ctx.step``. A step runs at least
    once; make it idempotent.

    Args:
        fn: An async or sync function with no argument or one.
        name: The Temporal activity type; the function's own name by default.
        timeout: How long one attempt may take (timedelta or seconds); 10 minutes by default.
        heartbeat: How long its worker may send no heartbeat (timedelta or seconds) before the
            attempt is abandoned and the next one begins, perhaps elsewhere; 30 seconds by
            default, None leaves it to ``timeout``. A worker with the plugin sends heartbeats for
            its steps, and thereby learns of a cancel; the details that a step sends with
            ``activity.heartbeat`` are kept. An async step that blocks its event loop blocks the
            heartbeats, too. With None only the step itself sends heartbeats: for steps that plain
            workers share, or that should be abandoned when they are stuck.
        retry: The retry rule; by default five attempts, after 1, 2, 4 and 8 seconds. ``FOREVER``
            has no limit; an undo step without a rule of its own has none either (see ``Retry``).
        queue: The queue in which its calls wait for their turn, as declared in ``queues:`` of the
            schedule file; a call may name another.

    Raises:
        TypeError: The function cannot be a step.
        ValueError: The name, the queue or a duration is invalid, or another step has the name.
    """
    spans = {
        "timeout": duration(timeout, "timeout"),
        "heartbeat": None if heartbeat is None else duration(heartbeat, "heartbeat"),
    }

    def decorate(function: F) -> F:
        return _marked(function, name, retry=retry, queue=checked_queue(queue), **spans)

    return decorate if fn is None else decorate(fn)


def _marked(fn: F, name: str | None, **rules: Any) -> F:
    """Return the function as a step."""
    if not inspect.isfunction(fn):
        raise TypeError(f"@step marks a function; got {fn!r} (write @step(name=...) with keywords)")
    place = f"{fn.__module__}.{fn.__qualname__}"
    accepts_input, requires_input = _inputs(fn, place)
    undoes = _undo_types(fn, place)
    called: Any = _takes_both(fn) if undoes else fn
    definition = StepDefinition(
        name=checked_name(fn.__name__ if name is None else name, f"the step {place}"),
        fn=called,
        is_async=inspect.iscoroutinefunction(fn),
        accepts_input=accepts_input,
        requires_input=requires_input,
        sees_result=undoes is not None,
        **rules,
    )
    try:
        activity.defn(name=definition.name)(called)
    except NameError as error:
        # Temporal reads the hints now, at run time, to decode the input.
        raise TypeError(
            f"a type in the signature of {place} does not exist at run time ({error}): import it "
            "above the step, and not under TYPE_CHECKING",
        ) from None
    except ValueError:
        raise TypeError(f"{place} is already a step or an activity; decorate it once") from None
    if undoes:
        known = getattr(called, _ACTIVITY)
        setattr(called, _ACTIVITY, replace(known, arg_types=list(undoes)))
    setattr(called, _MARK, definition)
    _registry.add(definition.name, fn, definition)
    return called  # type: ignore[no-any-return] # called as before


_UNDO: Final = (Undo.__module__, Undo.__qualname__)
_ACTIVITY: Final = "__temporal_activity_definition"


def _undo_types(fn: Callable[..., Any], place: str) -> tuple[Any, Any] | None:
    """Return the types of input and result of a step that takes an ``Undo``; None for others."""
    parameters = list(inspect.signature(fn).parameters)
    try:
        hint = get_type_hints(fn).get(parameters[0]) if parameters else None
    except NameError:
        return None  # refused with its sentence by the caller
    kind = get_origin(hint) or hint
    # Not by identity: another copy of this module may have created it.
    if (getattr(kind, "__module__", ""), getattr(kind, "__qualname__", "")) != _UNDO:
        return None
    given, result = get_args(hint) or (Any, Any)
    if result is not Any and result is not NoneType and NoneType not in get_args(result):
        name = getattr(result, "__name__", str(result))
        raise TypeError(
            f"{place} may have to undo a step whose result is unknown: write Undo[..., {name} |"
            " None]"
        )
    return given, result


def _takes_both(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return an undo step that takes an ``Undo``, or its two values as Temporal passes them."""

    def call(*args: Any, **named: Any) -> Any:
        return fn(*_joined(args), **named)

    async def call_async(*args: Any, **named: Any) -> Any:
        return await fn(*_joined(args), **named)

    return functools.wraps(fn)(call_async if inspect.iscoroutinefunction(fn) else call)


def _joined(args: tuple[Any, ...]) -> tuple[Any, ...]:
    if not args or isinstance(args[0], Undo):
        return args  # a direct call
    return (Undo(args[0], args[1] if args[1:] else None),)


def as_declared(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a step's activity as the step's function declares them."""
    definition = step_definition_of(fn)
    return _joined(args) if definition is not None and definition.sees_result else args


def _inputs(fn: Callable[..., Any], place: str) -> tuple[bool, bool]:
    parameters = list(inspect.signature(fn).parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if parameters and parameters[0].name == "self":
        raise TypeError(
            f"{place} is a method: a step is a plain function (ctx.step also takes a bound method "
            "marked with temporalio's @activity.defn)",
        )
    if len(parameters) > 1 or any(parameter.kind not in positional for parameter in parameters):
        raise TypeError(
            f"{place}{inspect.signature(fn)} has to take no argument or one; put several values "
            "into a dataclass",
        )
    required = any(parameter.default is inspect.Parameter.empty for parameter in parameters)
    return bool(parameters), required
