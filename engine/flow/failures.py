"""Failures of steps and runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.common import RetryPolicy
from temporalio.converter import PayloadConverter
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    FailureError,
    is_cancelled_exception,
)

from engine.errors import Code
from engine.flow.restrictions import refused_text

# --- failures ---
# Failures of a step or a run that have a meaning for the engine.


class FatalError(ApplicationError):
    """Error of a step or of ``run`` that a retry cannot hint.

    Neither the step nor the run is retried, whatever their retry rules; a run still undoes its
    work. A subclass works the same way, on any Temporal worker.

    Args:
        message: The reason, for people.
        details: Values that are stored with the failure.
    """

    def __init__(self, message: str, *details: Any) -> None:
        super().__init__(message, *details, type=type(self).__name__, non_retryable=True)


@dataclass(frozen=True)
class NotUndone:
    """A step that could not be undone.

    Attributes:
        step: The step, which had an effect or may have had one.
        undo: Its undo step.
        error: Why the undo step failed.
        input: The input of the undo step as JSON, cut off if it is long; None if it has none.
        idempotency_key: The key of the step, for an undo by hand; None if unknown.
    """

    step: str
    undo: str
    error: str
    input: str | None = None
    idempotency_key: str | None = None

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> NotUndone:
        """Return what the details of a failure say; a run of plain Temporal may lack fields."""
        step, undo, error = (str(value.get(name)) for name in ("step", "undo", "error"))
        return cls(step, undo, error, value.get("input"), value.get("idempotency_key"))


class CompensationFailed(ApplicationError):
    """Failure of a run that could not undo all its work, which needs an operator's attention.

    Its ``__cause__`` is the error that ended the run in the first place. ``not_undone`` lists the
    steps that are left, as do the failure's details in Temporal, one object each.
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


_HINT = "Give the call idempotency_key="


def refusal(why: str, hint: str = _HINT) -> ApplicationError:
    """Return the failure of a call, or of a run, that cannot be made safely after a reset."""
    return ApplicationError(
        f"{why}. {hint}, or undo by hand what the earlier run did and start a new run",
        type=Code.RESET_UNSAFE,
        non_retryable=True,
    )


_OF_PYDANTIC = re.compile(r"\n *For further information visit \S+")


def plain_text(error: BaseException | str | None) -> str:
    """Return the text of an error without the addresses that pydantic puts into it."""
    return _OF_PYDANTIC.sub("", str(error))


def require_written(value: object, converter: PayloadConverter, what: str) -> None:
    """Refuse a value that cannot be written: no further attempt could write it.

    Raises:
        ApplicationError: it cannot be; it is not retryable.
    """
    if value is None or isinstance(value, str | int | float):
        return
    try:
        converter.to_payloads([value])
    except Exception as error:
        raise ApplicationError(
            f"{what} cannot be written as JSON: {plain_text(error)}; use plain values, a"
            " dataclass or a pydantic model",
            type=Code.RESULT_INVALID,
            non_retryable=True,
        ) from error


def require_read(args: Sequence[Any], converter: PayloadConverter, wanted: Any) -> None:
    """Refuse the input of a next run that is of another type: that run could only wait.

    Raises:
        ApplicationError: it cannot be written.
        TypeError: it would be read as no ``wanted``.
    """
    for each in args:
        require_written(each, converter, "the input of the next run")
        try:
            read_as(converter, converter.to_payload(each), wanted)
        except Exception as error:
            raise TypeError(
                f"the input of the next run is no {shown_type(wanted)}: {plain_text(error)}"
            ) from error


def read_as(converter: PayloadConverter, payload: Payload, wanted: Any) -> Any:
    """Return the value of a payload; ``wanted`` is its type, or None if it has none."""
    return converter.from_payloads([payload], None if wanted is None else [wanted])[0]


def shown_type(wanted: Any) -> str:
    """Return a type as users write it."""
    return str(getattr(wanted, "__name__", wanted))


def was_refused(error: BaseException | None) -> bool:
    """Return whether a step, or one of a child, was not made because of an unclear reset."""
    while error is not None:
        if isinstance(error, ApplicationError) and error.type == Code.RESET_UNSAFE:
            return True
        error = _cause_of(error)
    return False


# --- endings of a run ---

_SEVERAL = 5
"""The number of errors of a group that its text names."""


def ending_of(
    error: BaseException,
    policy: RetryPolicy | None,
    wait: timedelta | None = None,
    *,
    is_last: bool = False,
) -> BaseException:
    """Return the exception to raise instead of the one that left ``run``, or the same one.

    With an ordinary exception Temporal would retry the workflow task forever. Listing Exception in
    `failure_exception_types` would avoid that, but would also permanently fail every run whose
    history no longer fits an edit. So only exceptions that leave `run` become failures.

    Args:
        error: the exception that left ``run``.
        policy: the run's retry policy. Temporal itself checks the outermost failure only.
        wait: the time until the next try, if a list of intervals gives it.
        is_last: whether there must be no next try, whatever the policy says.
    """
    if isinstance(error, asyncio.CancelledError):
        return error
    # Of a step or a child that was cancelled: Temporal retries a run that fails with it.
    if is_cancelled_exception(error) and not is_last:
        return error
    known = isinstance(error, FailureError)
    if isinstance(error, ApplicationError) and error.non_retryable:
        return error
    final = policy is not None and (is_last or any(_ends(each, policy) for each in _reasons(error)))
    if known and not final and (wait is None or getattr(error, "next_retry_delay", None)):
        return error
    reason = error if isinstance(error, ApplicationError) else _cause_of(error)
    if isinstance(reason, ApplicationError):
        message, kind, details = reason.message, reason.type, reason.details
    else:
        message, kind, details = text_of(error), type(error).__name__, ()
        if refused_text(error):
            error.args = (message,)  # readers of a failure follow its causes
    failure = ApplicationError(
        message,
        *details,
        type=kind,
        non_retryable=final,
        next_retry_delay=None if final else wait,
    )
    # Readers of a failure follow its causes, and a group has none.
    failure.__cause__ = next(_reasons(error)) if isinstance(error, BaseExceptionGroup) else error
    return failure.with_traceback(error.__traceback__)


def caused_by(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Return whether an error, or what made its step or child fail, is of one of these classes.

    ``except ActivityError as error: if caused_by(error, CardDeclined): ...``. A failure that comes
    from a worker has the name of its class and nothing else, so the name decides: that of the class
    itself, or of a subclass that the workflow's module imports.

    Args:
        error: What ``ctx.step``, ``ctx.child`` or ``ctx.parallel`` raised; of a group, any of it.
        kinds: The classes that are asked for.
    """
    wanted = set[str]().union(*map(_names_below, kinds))
    return any(not wanted.isdisjoint(_names_of(each)) for each in _reasons(error))


def _cause_of(error: BaseException) -> BaseException | None:
    """Return the failure of a step or child; None for any other error."""
    return error.__cause__ if isinstance(error, ActivityError | ChildWorkflowError) else None


def _reasons(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, or each error of a group, and the causes of failed steps and children."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _reasons(each)
        return
    behind: BaseException | None = error
    while behind is not None:
        yield behind
        behind = _cause_of(behind)


def _ends(error: BaseException, policy: RetryPolicy) -> bool:
    """Return whether the policy forbids a retry of a run that failed with this error."""
    ends = set(policy.non_retryable_error_types or ())
    if isinstance(error, ApplicationError) and error.non_retryable:
        ends |= _names_below(FatalError)
    return not _names_of(error).isdisjoint(ends)


def _names_of(error: BaseException) -> set[str]:
    """Return the names of an error's classes, and of the one that it had on its worker."""
    names = {cls.__name__ for cls in type(error).__mro__}
    return {*names, error.type or ""} if isinstance(error, ApplicationError) else names


def _names_below(kind: type[BaseException]) -> set[str]:
    """Return the names of a class and its subclasses; only names survive serialization."""
    return {kind.__name__}.union(*map(_names_below, kind.__subclasses__()))


def _is_silent(error: ApplicationError) -> bool:
    """Return whether an error has no text; the SDK gives one of its own to those that it reads."""
    return not (error.message if error.failure is None else error.failure.message)


def text_of(error: BaseException) -> str:
    """Return what an error says, or its type's name if it says nothing."""
    try:
        text = refused_text(error) or str(error) or type(error).__name__
        if isinstance(error, ApplicationError) and _is_silent(error):
            text = error.type or text
        if isinstance(error, SystemExit):
            text = f"sys.exit({error.code!r}) was called"
    except Exception:  # noqa: BLE001 - it would hold the run up for ever
        text = "its text could not be made"
    if not isinstance(error, BaseExceptionGroup):
        return text
    inner = [each for each in _reasons(error) if _cause_of(each) is None]
    notes = (
        # Its text already begins with its type.
        text_of(each)
        if isinstance(each, ApplicationError)
        else f"{type(each).__name__}: {text_of(each)}"
        for each in inner[:_SEVERAL]
    )
    return f"{text}: {'; '.join(notes)}"
