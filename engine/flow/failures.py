"""Failures of steps and runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.common import RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    FailureError,
    is_cancelled_exception,
)

# --- failures ---
# Failures of a step or a run that mean something to the engine.


class FatalError(ApplicationError):
    """Raised by a step or by ``run``: trying again would not help.

    Neither the step nor the run is tried again, whatever their retry rules say; a run still undoes
    what it did. A subclass works alike, on any worker of Temporal.

    Args:
        message: What is wrong, for people.
        details: Values that are kept with the failure.
    """

    def __init__(self, message: str, *details: Any) -> None:
        super().__init__(message, *details, type=type(self).__name__, non_retryable=True)


@dataclass(frozen=True)
class NotUndone:
    """A step that could not be taken back.

    Attributes:
        step: What had been done, or may have been.
        undo: The step that should have taken it back.
        error: Why it did not.
    """

    step: str
    undo: str
    error: str


class CompensationFailed(ApplicationError):
    """Ends a run of which not everything could be undone; somebody has to look at it.

    What ended the run in the first place is its ``__cause__``. ``not_undone`` says what is left,
    as do the failure's details in Temporal, one object for each.
    """

    def __init__(self, run: str, not_undone: Sequence[NotUndone]) -> None:
        self.not_undone = tuple(not_undone)
        lost = "; ".join(f"{each.step!r} (by {each.undo!r}: {each.error})" for each in not_undone)
        super().__init__(
            f"{run} ended badly, and could not undo {lost}",
            *(vars(each) for each in not_undone),
            type=type(self).__name__,
            non_retryable=True,
        )


# --- endings of a run ---
# What a run that ends badly ends with, for Temporal and for people.

_SEVERAL = 5
"""Errors of a group that its text names."""


def ending_of(error: BaseException, policy: RetryPolicy | None) -> BaseException:
    """Return what is to be raised instead of what left ``run``, or the same.

    An ordinary exception would retry the workflow task for ever. Listing Exception in
    `failure_exception_types` would end that, but also fail for good every run whose history an
    edit no longer fits; so only what leaves `run` is turned into a failure.

    Args:
        error: what left ``run``.
        policy: how the run is begun again. Temporal itself looks at the outermost failure only.
    """
    if isinstance(error, asyncio.CancelledError) or is_cancelled_exception(error):
        return error
    known = isinstance(error, FailureError)
    if isinstance(error, ApplicationError) and error.non_retryable:
        return error
    final = policy is not None and any(_ends(each, policy) for each in _reasons(error))
    if known and not final:
        return error
    reason = error if isinstance(error, ApplicationError) else _cause_of(error)
    if isinstance(reason, ApplicationError):
        said, kind, details = reason.message, reason.type, reason.details
    else:
        said, kind, details = _text(error), type(error).__name__, ()
    failure = ApplicationError(said, *details, type=kind, non_retryable=final)
    # Whoever looks for the reason goes by the causes, and a group has none.
    failure.__cause__ = next(_reasons(error)) if isinstance(error, BaseExceptionGroup) else error
    return failure.with_traceback(error.__traceback__)


def _cause_of(error: BaseException) -> BaseException | None:
    """Return the failure of a step or child; None for any other error."""
    return error.__cause__ if isinstance(error, ActivityError | ChildWorkflowError) else None


def _reasons(error: BaseException) -> Iterator[BaseException]:
    """The error, or each of those in a group, and what is behind them."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _reasons(each)
        return
    behind: BaseException | None = error
    while behind is not None:
        yield behind
        behind = _cause_of(behind)


def _ends(error: BaseException, policy: RetryPolicy) -> bool:
    """Whether a run that failed for this reason is not to be begun again."""
    names = {cls.__name__ for cls in type(error).__mro__}
    if isinstance(error, ApplicationError):
        names.add(error.type or "")
        if error.non_retryable and error.type in _fatal(FatalError):
            return True
    return not names.isdisjoint(policy.non_retryable_error_types or ())


def _fatal(kind: type[FatalError]) -> set[str]:
    """The names of ``FatalError`` and its subclasses: all that is left of them across a wire."""
    return {kind.__name__}.union(*map(_fatal, kind.__subclasses__()))


def _text(error: BaseException) -> str:
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - it would hold the run up for ever
        said = "its text could not be made"
    if not isinstance(error, BaseExceptionGroup):
        return said
    inner = [each for each in _reasons(error) if _cause_of(each) is None]
    told = (
        # Its text begins with its type already.
        str(each) if isinstance(each, ApplicationError) else f"{type(each).__name__}: {_text(each)}"
        for each in inner[:_SEVERAL]
    )
    return f"{said}: {'; '.join(told)}"
