"""``@step``: an ordinary function becomes a Temporal activity and stays an ordinary function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar, overload

from temporalio import activity

from engine.flow.queues import checked_queue
from engine.flow.registry import Registry, checked_name
from engine.flow.retries import Retry, duration

DEFAULT_TIMEOUT: Final = timedelta(minutes=10)
"""How long one attempt of a step may take unless the step or the call says otherwise."""

DEFAULT_HEARTBEAT: Final = timedelta(seconds=30)
"""How long a worker may be silent about a step before the step is tried again elsewhere."""

_MARK: Final = "__sched_step__"

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class StepDefinition:
    """What ``@step`` knows about a function.

    Attributes:
        name: The Temporal activity type.
        fn: The function itself.
        timeout: How long one attempt may take (start to close).
        heartbeat: How long its worker may be silent; None means as long as ``timeout``.
        retry: None means Temporal's default: without end, waits of 1 s doubling up to 100 s.
        queue: Where its calls wait unless they name another; None means nowhere.
        is_async: A sync step needs a worker with an ``activity_executor``.
        accepts_input: It has a parameter.
        requires_input: That parameter has no default.
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


_registry: Registry[StepDefinition] = Registry("step")


def registered_steps() -> dict[str, StepDefinition]:
    """Return every step imported into this process, by activity type."""
    return _registry.snapshot()


def step_named(name: str) -> StepDefinition | None:
    """Return the step with this activity type, if it was imported into this process."""
    return _registry.get(name)


def step_definition_of(fn: Callable[..., Any]) -> StepDefinition | None:
    """Return what ``@step`` noted on ``fn``; None for any other callable."""
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
    """Make a function a step: work that may fail, is retried, and is remembered once done.

    The function is returned as it is: call it directly in a unit test, hand it to a plain
    Temporal worker as an activity, or call it from a workflow with ``ctx.step``. A step runs at
    least once; make it idempotent.

    Args:
        fn: An async or sync function with no argument or one.
        name: The Temporal activity type; the function's own name by default.
        timeout: How long one attempt may take (timedelta or seconds); 10 minutes by default.
        heartbeat: How long its worker may be silent (timedelta or seconds) before the attempt is
            given up and the next one begins, perhaps elsewhere; 30 seconds by default, None
            leaves it to ``timeout``. A worker with the plugin speaks for its steps by itself,
            and thereby learns of a cancel; what a step says with ``activity.heartbeat`` is kept.
            An async step that blocks its event loop is silent, too. With None nobody speaks for
            it but itself: for steps that plain workers share, or that should be given up when
            they are stuck.
        retry: How it is retried; by default as Temporal does, without end (see ``Retry``).
        queue: The queue in which its calls wait for their turn, as ``queues:`` of the schedule
            file declares it; a call may name another.

    Raises:
        TypeError: The function does not have the shape of a step.
        ValueError: The name, the queue or a duration is not valid, or another step has the name.
    """
    spans = {
        "timeout": duration(timeout, "timeout"),
        "heartbeat": None if heartbeat is None else duration(heartbeat, "heartbeat"),
    }

    def decorate(function: F) -> F:
        _mark(function, name, retry=retry, queue=checked_queue(queue), **spans)
        return function

    return decorate if fn is None else decorate(fn)


def _mark(fn: Callable[..., Any], name: str | None, **rules: Any) -> None:
    if not inspect.isfunction(fn):
        raise TypeError(f"@step marks a function; got {fn!r} (write @step(name=...) with keywords)")
    place = f"{fn.__module__}.{fn.__qualname__}"
    accepts_input, requires_input = _inputs(fn, place)
    definition = StepDefinition(
        name=checked_name(fn.__name__ if name is None else name, f"the step {place}"),
        fn=fn,
        is_async=inspect.iscoroutinefunction(fn),
        accepts_input=accepts_input,
        requires_input=requires_input,
        **rules,
    )
    try:
        activity.defn(name=definition.name)(fn)
    except NameError as error:
        # Temporal reads the hints to decode the input, now, at run time.
        raise TypeError(
            f"a type in the signature of {place} is not there at run time ({error}): import it "
            "above the step, and not under TYPE_CHECKING",
        ) from None
    except ValueError:
        raise TypeError(f"{place} is already a step or an activity; decorate it once") from None
    setattr(fn, _MARK, definition)
    _registry.add(definition.name, fn, definition)


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
