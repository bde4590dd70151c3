"""Failures of a step or a run that mean something to the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.exceptions import ApplicationError


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
