"""The shapes of steps, for type checkers; at run time a step is the function that it was.

A function that was not marked has none of these shapes, so that ``ctx.step(lambda: 3)`` is found.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Called_co = TypeVar("Called_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class Step(Generic[P, Called_co, R_co]):
    """A function or method marked with ``@step``: its parameters, what a call returns, its result.

    No object is of this class.
    """

    @property
    def __sched_result__(self) -> R_co:
        raise NotImplementedError

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Called_co:
        """Call the function itself, as in a unit test."""
        raise NotImplementedError

    @overload
    def __get__(
        self: Step[Concatenate[Any, Q], Called_co, R_co], instance: object, owner: Any = None
    ) -> Step[Q, Called_co, R_co]: ...

    @overload
    def __get__(self, instance: object, owner: Any = None) -> Step[P, Called_co, R_co]: ...

    def __get__(self, instance: object, owner: Any = None) -> Any:
        """A method is called without ``self``, also by the name of its class in ``ctx.step``."""
        raise NotImplementedError


class UndoStep(Step[P, Called_co, R_co]):
    """A function or method marked with ``@undo``."""

    @property
    def __sched_undoes__(self) -> bool:
        raise NotImplementedError

    @overload
    def __get__(
        self: UndoStep[Concatenate[Any, Q], Called_co, R_co], instance: object, owner: Any = None
    ) -> UndoStep[Q, Called_co, R_co]: ...

    @overload
    def __get__(self, instance: object, owner: Any = None) -> UndoStep[P, Called_co, R_co]: ...

    def __get__(self, instance: object, owner: Any = None) -> Any:
        """See ``Step``."""
        raise NotImplementedError


class StepAlone(Protocol[R_co]):
    """A step that needs no input."""

    @property
    def __sched_result__(self) -> R_co:
        """Its result; for type checkers alone."""

    def __call__(self) -> Any:
        """See ``step``."""


class StepWithInput(Protocol[T_contra, R_co]):
    """A step that takes an input."""

    @property
    def __sched_result__(self) -> R_co:
        """Its result; for type checkers alone."""

    def __call__(self, input: T_contra, /) -> Any:
        """See ``step``."""


class UndoAlone(Protocol):
    """An undo step that needs no input."""

    @property
    def __sched_undoes__(self) -> bool:
        """Its mark; for type checkers alone."""

    def __call__(self) -> Any:
        """See ``undo``."""


class UndoOf(Protocol[T_contra]):
    """An undo step that takes the input of its step, or an ``Undo``."""

    @property
    def __sched_undoes__(self) -> bool:
        """Its mark; for type checkers alone."""

    def __call__(self, input: T_contra, /) -> Any:
        """See ``undo``."""


class StepDecorator(Protocol):
    """A decorator: ``@step(...)`` with options."""

    @overload
    def __call__(
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Step[P, Coroutine[Any, Any, R], R]: ...

    @overload
    def __call__(self, fn: Callable[P, R], /) -> Step[P, R, R]: ...


class UndoDecorator(Protocol):
    """A decorator: ``@undo(...)`` with options."""

    @overload
    def __call__(
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> UndoStep[P, Coroutine[Any, Any, R], R]: ...

    @overload
    def __call__(self, fn: Callable[P, R], /) -> UndoStep[P, R, R]: ...
