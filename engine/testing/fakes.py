"""Fakes of steps: replacements and failures for one test."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from engine.flow import as_declared, step_definition_of

Fn: TypeAlias = Callable[..., Any]
Fakes: TypeAlias = "Mapping[Any, Any] | Iterable[Fake]"
"""Type of ``fakes`` in ``run_schedule``, ``run_workflow`` and ``FakeContext``: a list of fakes, or
a function or a value for each step."""

_UNSAID: Final[Any] = object()
_TEMPORAL_MARK: Final = "__temporal_activity_definition"


class Fake:
    """Replacement of a step; made by ``fake``, ``fail_once`` and ``fail_times``.

    Use a fake in one test only, because it counts attempts.

    Attributes:
        name: the step's name.
        step: the replaced step.
        calls: the input of each attempt in order, including failed ones; None if there is none.
    """

    def __init__(self, step: Fn, act: Callable[..., Any], failures: Sequence[Exception]) -> None:
        self.name = name_of(step)
        self.step = step
        self.calls: list[Any] = []
        self._act, self._failures = act, list(failures)

    @property
    def acts_itself(self) -> bool:
        """Whether the step itself runs when no failure is left."""
        return self._act is self.step

    def attempt(self, *args: Any, owner: Sequence[Any] = (), **resources: Any) -> Any:
        """Record an attempt of the step, then fail or act. May return an awaitable.

        Args:
            *args: the input, if there is one.
            owner: the object of a method.
            **resources: those of the step, for when it acts itself.
        """
        args = as_declared(self.step, args)
        self.calls.append(args[0] if args else None)
        if self._failures:
            raise self._failures.pop(0)
        if self.acts_itself:
            return self._act(*owner, *args, **resources)
        return self._act(*args)


def fake(
    step: Fn,
    does: Callable[..., Any] | None = None,
    *,
    returns: Any = _UNSAID,
    raises: Any = None,
) -> Fake:
    """Replace a step by a function, a return value or an exception.

    ``fake(charge, returns=receipt)``, ``fake(charge, lambda order: Receipt(order.id))``,
    ``fake(charge, raises=FatalError("no"))``. The step's name, input type, timeout and retries
    stay the same.

    Args:
        step: a ``@step`` function or any Temporal activity.
        does: a function to call instead, sync or async, with the step's input or no parameter.
        returns: the result of each attempt; None by default.
        raises: the exception of each attempt.

    Raises:
        TypeError: ``step`` is not a step, or more than one replacement is given.
    """
    given = [does is not None, returns is not _UNSAID, raises is not None]
    if sum(given) > 1:
        raise TypeError("fake() takes a function, returns= or raises=, one of them")
    if does is not None and not callable(does):
        raise TypeError(
            f"fake({name_of(step)}, {does!r}): what replaces a step is a function; write"
            f" returns={does!r} for a value"
        )
    if raises is not None:
        return Fake(step, _raising(raises), ())
    if does is None:
        value = None if returns is _UNSAID else returns
        return Fake(step, lambda *_: value, ())
    return Fake(step, _fitting(does), ())


def fail_once(step: Fn, error: Exception, *, then: Fake | None = None) -> Fake:
    """Make the first attempt fail, and the real step (or ``then``) run the others."""
    return fail_times(step, 1, error, then=then)


def fail_times(step: Fn, n: int, error: Exception, *, then: Fake | None = None) -> Fake:
    """Make the first ``n`` attempts fail, and the real step (or ``then``) run the others.

    Attempts are counted over the whole test, across all runs.

    Raises:
        TypeError: ``step`` is not a step.
        ValueError: ``n`` is below 1.
    """
    if n < 1:
        raise ValueError(f"n is at least 1; got {n!r}")
    return Fake(step, then.attempt if then else step, [error] * n)


def by_name(fakes: Fakes) -> dict[str, Fake]:
    """Return the fakes by the name of the step that each replaces.

    Raises:
        TypeError: an entry is not a fake, or not for a step.
        ValueError: two fakes replace the same step, or a fake is listed for another step.
    """
    if isinstance(fakes, Mapping):
        fakes = [_shorthand(step, value) for step, value in fakes.items()]
    found: dict[str, Fake] = {}
    for each in fakes:
        if not isinstance(each, Fake):
            raise TypeError(f"fakes= takes what fake() returns; got {each!r}")
        if each.name in found:
            raise ValueError(f"two fakes for the step {each.name!r}")
        found[each.name] = each
    return found


def name_of(step: Fn) -> str:
    """Return the Temporal type of a step or activity.

    Raises:
        TypeError: it is neither.
    """
    found = getattr(step, _TEMPORAL_MARK, None)
    if found is None or not found.name:
        raise TypeError(f"{step!r} is not a step: mark the function with @step")
    return str(found.name)


async def settled(found: Any) -> Any:
    """Return what a sync or async function returned, awaited if need be."""
    return await found if inspect.isawaitable(found) else found


def activities(steps: Iterable[Fn], fakes: Mapping[str, Fake]) -> list[Fn]:
    """Return the activities for a worker: each step, or its replacement."""
    served = {name_of(step): step for step in steps}
    for name, each in fakes.items():
        served[name] = _stand_in(each)
    return list(served.values())


def _shorthand(step: Fn, value: Any) -> Fake:
    if isinstance(value, Fake):
        if value.name != name_of(step):
            raise ValueError(f"the fake of {value.name!r} cannot stand for {name_of(step)!r}")
        return value
    return fake(step, value) if callable(value) else fake(step, returns=value)


def _raising(error: Any) -> Callable[..., Any]:
    def act(*_: Any) -> Any:
        raise error

    return act


def _fitting(does: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt a function without parameters to a step that has one."""
    try:
        takes_none = not inspect.signature(does).parameters
    except ValueError:  # a builtin without a signature
        takes_none = False
    return (lambda *_: does()) if takes_none else does


def _stand_in(each: Fake) -> Fn:
    """Return an activity with the step's name and types that calls the fake."""
    real = each.step
    definition = step_definition_of(real)
    is_async = definition.is_async if definition else inspect.iscoroutinefunction(real)

    async def in_loop(*args: Any, **resources: Any) -> Any:
        return await settled(attempt(*args, **resources))

    def in_thread(*args: Any, **resources: Any) -> Any:
        found = attempt(*args, **resources)
        return asyncio.run(settled(found)) if inspect.isawaitable(found) else found

    def attempt(*args: Any, **resources: Any) -> Any:
        if definition and definition.takes_self and each.acts_itself:
            return each.attempt(*args[1:], owner=args[:1], **resources)
        return each.attempt(*args, **resources)

    # A sync step blocks, so its replacement, which may call it after failures, has a thread too.
    step: Any = in_loop if is_async else in_thread
    marks = vars(real) if each.acts_itself else {_TEMPORAL_MARK: getattr(real, _TEMPORAL_MARK)}
    vars(step).update(marks)  # Temporal decodes the input by them, and the worker gives resources
    step.__name__ = step.__qualname__ = real.__name__
    step.__module__ = real.__module__
    return step  # type: ignore[no-any-return] # untyped above
