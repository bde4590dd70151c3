"""Resources: pools, clients and other objects that a worker opens once and gives to its steps.

``@resource`` declares how one is opened and closed, ``given()`` where a step wants it. Both are
declarations only, because a workflow's module, and with it its steps, is also read in the
workflow sandbox; the worker opens, gives and closes (``engine.runtime.steps.resources``).
"""

from __future__ import annotations

import inspect
import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints, overload

from engine.flow.definition import Registry, duration

# --- stand-ins ---

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., AsyncIterator[Any]])


class Given:
    """Stand-in for a resource; made by ``given``.

    The stand-in for an object has the object's steps, so that a workflow can name them.
    """

    sched_given: Final = True

    def __init__(self, wanted: Any) -> None:
        self.__dict__["wanted"] = wanted

    def __getattr__(self, name: str) -> Any:
        wanted = self.__dict__["wanted"]
        found = getattr(wanted, name, None) if inspect.isclass(wanted) else None
        if found is not None and hasattr(found, "__temporal_activity_definition"):
            return found
        if inspect.isclass(wanted):
            raise AttributeError(
                f"{self!r} has no step {name!r}; only a step of a worker sees more"
            )
        raise AttributeError(
            f"{self!r} has no {name!r}: it stands for a resource that a worker gives to its steps; "
            "a direct call of the step has to give one itself"
        )

    def __repr__(self) -> str:
        wanted = self.__dict__["wanted"]
        return f"given({getattr(wanted, '__qualname__', wanted) if wanted else ''})"


@overload
def given() -> Any: ...


@overload
def given(wanted: type[R], /) -> R: ...


@overload
def given(wanted: Callable[..., AsyncIterator[R]], /) -> R: ...


def given(wanted: Any = None, /) -> Any:
    """Mark a parameter of a step as a resource, which its worker gives.

    ``async def charge(order: Order, *, pool: asyncpg.Pool = given()) -> Receipt``

    The parameter's type selects the resource; where several have that type, name the one:
    ``given(replica)``. ``given(Payments)`` is also how a workflow names the steps of an object:
    ``payments = given(Payments)`` and ``await ctx.step(payments.charge, order)``.

    Args:
        wanted: an ``@resource`` function or a class; by default the parameter's own type decides.

    Raises:
        TypeError: ``wanted`` is neither.
    """
    known = wanted is None or inspect.isclass(wanted) or resource_definition_of(wanted)
    if not known:
        raise TypeError(f"given() takes an @resource function or a class; got {wanted!r}")
    return Given(wanted)


def is_given(value: object) -> bool:
    """Return whether a parameter's default is a stand-in, also one of another copy of this."""
    return hasattr(type(value), "sched_given")


# --- needs ---


@dataclass(frozen=True)
class Need:
    """A parameter that the worker fills.

    Attributes:
        parameter: its name.
        wanted: the type of the resource.
        source: the ``@resource`` function that it names; None if the type selects one.
    """

    parameter: str
    wanted: Any
    source: Callable[..., Any] | None = None


def need_of(parameter: inspect.Parameter, hints: Mapping[str, Any], place: str) -> Need:
    """Return the need that a parameter states.

    Raises:
        TypeError: neither its annotation nor its default says what it wants.
    """
    wanted = parameter.default.__dict__["wanted"] if is_given(parameter.default) else None
    definition = None if wanted is None else resource_definition_of(wanted)
    if definition is not None:
        return Need(parameter.name, definition.type, definition.fn)
    wanted = hints.get(parameter.name) if wanted is None else wanted
    if wanted is None or wanted is Any:
        raise TypeError(
            f"the parameter {parameter.name} of {place} does not say which resource it is: give it "
            "a type, or name the resource as in given(pool)"
        )
    return Need(parameter.name, wanted)


def hints_of(fn: Callable[..., Any], place: str) -> dict[str, Any]:
    """Return the types in the signature of a step or resource.

    Raises:
        TypeError: one of them does not exist at run time.
    """
    try:
        return get_type_hints(fn)
    except NameError as error:
        raise TypeError(
            f"a type in the signature of {place} does not exist at run time ({error}): import it "
            "above the function, and not under TYPE_CHECKING",
        ) from None


def where(fn: Callable[..., Any]) -> str:
    """Return ``file:line`` of a function, below the working directory without the path to it."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is None:
        return repr(fn)
    here = os.path.join(os.getcwd(), "")  # noqa: PTH109, PTH118 - pathlib does more than a prefix
    return f"{code.co_filename.removeprefix(here)}:{code.co_firstlineno}"


# --- declarations ---

_MARK: Final = "__sched_resource__"
_YIELDS: Final = (AsyncIterator, AsyncGenerator, AsyncIterable)
DEFAULT_PATIENCE: Final = timedelta(seconds=30)
"""How long one attempt to open a resource may take, and its closing, unless it sets another."""


@dataclass(frozen=True)
class ResourceDefinition:
    """Definition of a resource, as ``@resource`` recorded it.

    Attributes:
        fn: the async generator function.
        type: the type of what it yields.
        needs: its parameters, which are resources too.
        timeout: how long one attempt to open it may take, and closing it.
        retry_on: the errors of opening it that may pass.
    """

    fn: Callable[..., AsyncIterator[Any]]
    type: Any
    needs: tuple[Need, ...]
    timeout: timedelta
    retry_on: tuple[type[Exception], ...]

    @property
    def name(self) -> str:
        """The function's name."""
        return self.fn.__name__


_registry: Registry[ResourceDefinition] = Registry("resource")


def registered_resources() -> list[ResourceDefinition]:
    """Return every resource imported into this process, in the order of import."""
    return list(_registry.snapshot().values())


def resource_definition_of(fn: Any) -> ResourceDefinition | None:
    """Return the definition that ``@resource`` recorded on ``fn``; None for anything else."""
    found: ResourceDefinition | None = getattr(fn, "__dict__", {}).get(_MARK)
    return found


@overload
def resource(fn: F, /) -> F: ...


@overload
def resource(
    *,
    timeout: timedelta | float = DEFAULT_PATIENCE,
    retry_on: Sequence[type[Exception]] = (),
) -> Callable[[F], F]: ...


def resource(
    fn: F | None = None,
    /,
    *,
    timeout: timedelta | float = DEFAULT_PATIENCE,
    retry_on: Sequence[type[Exception]] = (),
) -> F | Callable[[F], F]:
    """Declare a resource: an async generator that opens it, yields it once and closes it.

    ::

        @resource
        async def pool() -> AsyncIterator[asyncpg.Pool]:
            async with asyncpg.create_pool(os.environ["DATABASE_URL"]) as opened:
                yield opened

    A worker whose steps need it opens it once, before it takes work, and closes it after its last
    step has ended. While opening fails with an ``OSError`` (a server that is away, a timeout) the
    worker waits and tries again, and reports that; any other error ends the worker's start, unless
    it is one of ``retry_on``.
    The function stays as it is: call it in a test with ``contextlib.asynccontextmanager``.

    Args:
        fn: the function. Its parameters are resources, selected by type or by ``given(...)``.
        timeout: how long one attempt to open it may take, and closing it (timedelta or seconds);
            30 seconds by default.
        retry_on: errors, besides ``OSError``, that mean that something is away for a while.

    Raises:
        TypeError: it is no async generator function, or does not say what it yields; or
            ``retry_on`` has something else than exceptions.
        ValueError: ``timeout`` is not positive.
    """
    span = duration(timeout, "timeout")
    passing: tuple[type[Exception], ...] = (OSError, *retry_on)
    for each in passing:
        if not issubclass(each, Exception):
            raise TypeError(f"retry_on lists classes of Exception; got {each!r}")

    def decorate(function: F) -> F:
        _mark(function, span, passing)
        return function

    return decorate if fn is None else decorate(fn)


def _mark(fn: Any, timeout: timedelta, retry_on: tuple[type[Exception], ...]) -> None:
    if not inspect.isasyncgenfunction(fn):
        raise TypeError(
            f"@resource marks an async generator function, `async def` with one `yield`; got {fn!r}"
        )
    place = f"{fn.__module__}.{fn.__qualname__}"
    hints = hints_of(fn, place)
    yields = hints.get("return")
    if get_origin(yields) not in _YIELDS or not get_args(yields):
        raise TypeError(
            f"{place} does not say what it yields: write `-> AsyncIterator[Pool]`, with the class "
            "by which steps ask for it"
        )
    needs = tuple(need_of(each, hints, place) for each in inspect.signature(fn).parameters.values())
    definition = ResourceDefinition(fn, get_args(yields)[0], needs, timeout, retry_on)
    setattr(fn, _MARK, definition)
    # Many modules have a `pool`: the place is the name.
    _registry.add(place, fn, definition)
