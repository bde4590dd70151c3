"""One call of a step: checked before anything is sent, started at most once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import temporalio.workflow

from engine.flow.steps import (
    DEFAULT_TIMEOUT,
    Retry,
    StepDefinition,
    duration,
    step_definition_of,
)

NOT_GIVEN: Final[Any] = object()  # None is an input like any other


@dataclass(frozen=True)
class StepCall:
    """A step with its input and its rules, ready to start."""

    fn: Callable[..., Any]
    args: list[Any]
    timeout: timedelta
    retry: Retry | None

    @property
    def name(self) -> str:
        """The step's name, for people."""
        definition = step_definition_of(self.fn)
        return definition.name if definition else getattr(self.fn, "__name__", repr(self.fn))

    def start(self, summary: str | None = None) -> temporalio.workflow.ActivityHandle[Any]:
        """Start it. A cancel waits until the step says that it has stopped."""
        return temporalio.workflow.start_activity(
            self.fn,
            args=self.args,
            start_to_close_timeout=self.timeout,
            retry_policy=None if self.retry is None else self.retry.to_policy(),
            # With Temporal's default an undo could run while the step still works.
            cancellation_type=temporalio.workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=summary,
        )


def call_of(
    fn: Callable[..., Any],
    given: Any,
    *,
    retry: Retry | None = None,
    timeout: timedelta | float | None = None,
) -> StepCall:
    """Return the call ``ctx.step`` was asked for; ``given`` is its input or ``NOT_GIVEN``.

    Raises:
        TypeError: ``fn`` is not a step, or its signature and the input do not fit.
    """
    definition = _checked(fn, "ctx.step needs")
    if definition is not None:
        if given is not NOT_GIVEN and not definition.accepts_input:
            raise TypeError(f"the step {definition.name!r} takes no input")
        if given is NOT_GIVEN and definition.requires_input:
            raise TypeError(f"the step {definition.name!r} needs an input")
        retry = retry or definition.retry
        timeout = definition.timeout if timeout is None else timeout
    return StepCall(
        fn,
        [] if given is NOT_GIVEN else [given],
        duration(DEFAULT_TIMEOUT if timeout is None else timeout, "timeout"),
        retry,
    )


def undo_of(fn: Callable[..., Any], call: StepCall) -> StepCall:
    """Return the call that undoes ``call``: with the same input, or none where it takes none.

    Raises:
        TypeError: ``fn`` is not a step, or needs an input that ``call`` does not have.
    """
    definition = _checked(fn, "compensate= needs")
    takes_input = definition is None or definition.accepts_input
    return call_of(fn, call.args[0] if call.args and takes_input else NOT_GIVEN)


def _checked(fn: Callable[..., Any], who_needs: str) -> StepDefinition | None:
    definition = step_definition_of(fn)
    if definition is None and not hasattr(fn, "__temporal_activity_definition"):
        raise TypeError(f"{who_needs} a function marked with @step: {_cure(fn)}")
    return definition


def _cure(fn: object) -> str:
    name, module = getattr(fn, "__qualname__", None), getattr(fn, "__module__", None)
    if callable(fn) and name and module:
        return f"mark {name} in {module} with @step"
    # Most likely the step was called: what it returned is here, not the step.
    return f"got a {type(fn).__name__}; pass the function itself, and its input as an argument"
