"""Retry rules of steps and runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.common import RetryPolicy


def duration(value: timedelta | float, name: str) -> timedelta:
    """Return ``value`` as a timedelta; a bare number means seconds.

    Raises:
        TypeError: It is neither.
        ValueError: It is not positive.
    """
    if isinstance(value, bool) or not isinstance(value, (timedelta, int, float)):
        raise TypeError(f"{name} is a timedelta or a number of seconds; got {value!r}")
    span = value if isinstance(value, timedelta) else timedelta(seconds=value)
    if span <= timedelta(0):
        raise ValueError(f"{name} is longer than zero; got {value!r}")
    return span


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Retry policy of a step or a whole run.

    ``Retry(max_attempts=4, intervals=[60, 300, 900])`` waits 1, 5 and 15 minutes, and then gives
    up. A ``FatalError`` ends the attempts at once.

    Attributes:
        max_attempts: Maximum attempts, including the first; None means no limit.
        intervals: The waits in order (timedeltas or seconds), the last one repeating, instead of
            ``initial_interval``, ``backoff`` and ``max_interval``. They are accurate to about a
            second, counted from the failure, whatever crashes in between.
        initial_interval: The wait before the second attempt (timedelta or seconds).
        backoff: The factor by which each further wait grows; at least 1.
        max_interval: The longest wait; None means 100 times ``initial_interval``.
        jitter: The fraction of each wait, from 0 to 1, by which it is randomly longer or shorter.
        give_up_on: Errors that are not retried: exception classes (including their subclasses),
            or names of classes.

    The worker that ran the attempt applies ``intervals``, ``jitter`` and subclasses in
    ``give_up_on``, so it needs the plugin. If no worker can report any more (it was killed, or the
    attempt timed out), the next attempt follows after the first wait. A run takes neither
    ``intervals`` nor ``jitter``, because only the server retries it.

    Raises:
        TypeError, ValueError: A value is invalid (at construction).
    """

    max_attempts: int | None = None
    intervals: Sequence[timedelta | float] = ()
    initial_interval: timedelta | float = 1.0
    backoff: float = 2.0
    max_interval: timedelta | float | None = None
    jitter: float = 0.0
    give_up_on: Sequence[type[BaseException] | str] = ()

    def __post_init__(self) -> None:
        """Refuse at import the values that Temporal would refuse in the middle of a run."""
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError(f"max_attempts counts the first attempt too; got {self.max_attempts}")
        if self.backoff < 1:
            raise ValueError(
                f"backoff is at least 1, so that waits do not shrink; got {self.backoff}"
            )
        first = duration(self.initial_interval, "initial_interval")
        if self.max_interval is not None and duration(self.max_interval, "max_interval") < first:
            raise ValueError("max_interval is not shorter than initial_interval")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter is a part of the wait, from 0 to 1; got {self.jitter}")
        for name, kind in (("intervals", "durations"), ("give_up_on", "exceptions")):
            if isinstance(getattr(self, name), (str, type)) or not _is_listed(getattr(self, name)):
                raise TypeError(f"{name} is a list of {kind}; got {getattr(self, name)!r}")
        object.__setattr__(self, "intervals", _spans(self.intervals))
        object.__setattr__(self, "give_up_on", tuple(map(_error_name, self.give_up_on)))
        if self.intervals and (self.max_interval, self.backoff, self.initial_interval) != _UNSAID:
            raise ValueError(
                "intervals says every wait; leave out initial_interval, backoff and max_interval"
            )

    def to_policy(self) -> RetryPolicy:
        """Return Temporal's retry policy, where the first of ``intervals`` stands for all."""
        given_up = [str(name) for name in self.give_up_on] or None
        attempts = self.max_attempts or 0
        if self.intervals:
            first = duration(self.intervals[0], "intervals")
            return RetryPolicy(
                maximum_attempts=attempts,
                initial_interval=first,
                backoff_coefficient=1.0,
                maximum_interval=first,
                non_retryable_error_types=given_up,
            )
        longest = self.max_interval
        return RetryPolicy(
            maximum_attempts=attempts,
            initial_interval=duration(self.initial_interval, "initial_interval"),
            backoff_coefficient=self.backoff,
            maximum_interval=None if longest is None else duration(longest, "max_interval"),
            non_retryable_error_types=given_up,
        )

    def told_to_worker(self) -> dict[str, Any]:
        """Return the rules that the worker of an attempt applies (see ``StepNote``)."""
        told: dict[str, Any] = {"give_up_on": tuple(map(str, self.give_up_on))}
        if self.intervals:
            told["intervals"] = tuple(_seconds(each) for each in self.intervals)
        if self.jitter:
            told["jitter"] = self.jitter
            if not self.intervals:
                first = _seconds(self.initial_interval)
                longest = 100 * first if self.max_interval is None else _seconds(self.max_interval)
                told["backoff"] = (first, self.backoff, longest)
        return told


_UNSAID = (None, 2.0, 1.0)


def _seconds(span: timedelta | float) -> float:
    return duration(span, "an interval").total_seconds()


def _is_listed(value: object) -> bool:
    return isinstance(value, Sequence)


def _spans(intervals: Sequence[timedelta | float]) -> tuple[timedelta, ...]:
    return tuple(duration(each, "each of intervals") for each in intervals)


def _error_name(error: Any) -> str:
    if isinstance(error, str):
        return error
    if isinstance(error, type) and issubclass(error, BaseException):
        return error.__name__
    raise TypeError(f"give_up_on lists exception classes or their names; got {error!r}")
