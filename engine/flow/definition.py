"""Workflow definitions, their run options and retry policies, and the registry."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from temporalio.common import RetryPolicy
from temporalio.workflow import unsafe

from engine.errors import RetryPolicyInvalid, did_you_mean

# --- retry policies ---
# Retry rules of steps and runs.


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


class _Unsaid(int):
    """A default that is distinguished from the same number written by a user."""


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Retry policy of a step or a whole run.

    ``Retry(intervals=[60, 300, 900])`` waits 1, 5 and 15 minutes, and then gives up. A
    ``FatalError`` ends the attempts at once.

    Attributes:
        max_attempts: Maximum attempts, including the first; None means no limit. By default five,
            or with ``intervals`` one after each of them.
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
        RetryPolicyInvalid: A value is invalid (at construction).
    """

    max_attempts: int | None = _Unsaid(5)
    intervals: Sequence[timedelta | float] = ()
    initial_interval: timedelta | float = 1.0
    backoff: float = 2.0
    max_interval: timedelta | float | None = None
    jitter: float = 0.0
    give_up_on: Sequence[type[BaseException] | str] = ()

    def __post_init__(self) -> None:
        """Refuse at import the values that Temporal would refuse in the middle of a run."""
        try:
            self._check()
        except (TypeError, ValueError) as error:
            raise RetryPolicyInvalid(str(error)) from None

    def _check(self) -> None:
        self._check_attempts()
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
            given = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, Sequence):
                raise TypeError(f"{name} is a list of {kind}; got {given!r}")
        spans = tuple(duration(each, "each of intervals") for each in self.intervals)
        object.__setattr__(self, "intervals", spans)
        object.__setattr__(self, "give_up_on", tuple(map(_error_name, self.give_up_on)))
        if self.intervals and (self.max_interval, self.backoff, self.initial_interval) != _UNSAID:
            raise ValueError(
                "intervals gives every wait; leave out initial_interval, backoff and max_interval"
            )
        if isinstance(self.max_attempts, _Unsaid):
            attempts = len(self.intervals) + 1 if self.intervals else int(self.max_attempts)
            object.__setattr__(self, "max_attempts", attempts)

    def _check_attempts(self) -> None:
        if self.max_attempts is None:
            return
        if isinstance(self.max_attempts, bool) or not isinstance(self.max_attempts, int):
            raise TypeError(f"max_attempts is a whole number or None; got {self.max_attempts!r}")
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts counts the first attempt too; got {self.max_attempts}")

    def to_policy(self) -> RetryPolicy:
        """Return Temporal's retry policy, where the first of ``intervals`` stands for all."""
        first, factor, longest = self.initial_interval, self.backoff, self.max_interval
        if self.intervals:
            first, factor, longest = self.intervals[0], 1.0, self.intervals[0]
        return RetryPolicy(
            maximum_attempts=self.max_attempts or 0,
            initial_interval=duration(first, "initial_interval"),
            backoff_coefficient=factor,
            maximum_interval=None if longest is None else duration(longest, "max_interval"),
            non_retryable_error_types=[str(name) for name in self.give_up_on] or None,
        )

    def for_worker(self) -> dict[str, Any]:
        """Return the rules that the worker of an attempt applies (see ``StepNote``)."""
        given: dict[str, Any] = {"give_up_on": tuple(map(str, self.give_up_on))}
        if self.intervals:
            given["intervals"] = tuple(_seconds(each) for each in self.intervals)
        if self.jitter:
            given["jitter"] = self.jitter
            if not self.intervals:
                first = _seconds(self.initial_interval)
                longest = 100 * first if self.max_interval is None else _seconds(self.max_interval)
                given["backoff"] = (first, self.backoff, longest)
        return given


_UNSAID = (None, 2.0, 1.0)


def _seconds(span: timedelta | float) -> float:
    return duration(span, "an interval").total_seconds()


def _error_name(error: Any) -> str:
    if isinstance(error, str):
        return error
    if isinstance(error, type) and issubclass(error, BaseException):
        return error.__name__
    raise TypeError(f"give_up_on lists exception classes or their names; got {error!r}")


DEFAULT_RETRY: Final = Retry()
"""The retry rule of steps that have none: five attempts, after 1, 2, 4 and 8 seconds."""

FOREVER: Final = Retry(max_attempts=None)
"""No limit: waits of 1 s doubling up to 100 s. The rule of undo steps that have none."""


def require_retry(where: str, given: object) -> None:
    """Refuse what is no retry rule where it is written: every run would meet it.

    Raises:
        RetryPolicyInvalid: it is none.
    """
    # Not isinstance: another copy of this module may have created it.
    if given is not None and type(given).__name__ != Retry.__name__:
        raise RetryPolicyInvalid(
            f"{where}: retry is a rule, such as Retry(max_attempts=3); got {given!r}"
        )


def refuse_unknown(where: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse misspelt options, which a call would do without unnoticed.

    Args:
        where: the call, as users write it.
        given: the names that were given.
        known: those that there are.

    Raises:
        TypeError: there is one.
    """
    for name in given:
        if name not in known:
            meant = did_you_mean(name, known)
            raise TypeError("; ".join(filter(None, [f"{where} has no option {name!r}", meant])))


# --- definitions ---

MARK: Final = "__sched_workflow__"


@dataclass(frozen=True)
class WorkflowDefinition:
    """Definition of a workflow class, as ``@workflow`` recorded it.

    Attributes:
        name: The workflow's name in schedules.
        version: Dotted integers.
        cls: The user's class.
        accepts_input: Whether ``run`` has a second parameter.
        requires_input: Whether that parameter has no default.
        input_type: Its resolved annotation; None if it has none.
        result_type: The resolved return annotation of ``run``; None if it has none.
        timeout: How long one run may take; None means no limit.
        retry: How a failed run is retried; None means never.
        compensate_on_terminate: Whether another run undoes a terminated or timed-out run's work.
        schedules: Those that stand beside the class, see ``DeclaredSchedule``.
    """

    name: str
    version: str
    cls: type
    accepts_input: bool
    requires_input: bool
    input_type: Any = None
    result_type: Any = None
    timeout: timedelta | None = None
    retry: Retry | None = None
    compensate_on_terminate: bool = False
    schedules: tuple[Any, ...] = ()

    @property
    def type(self) -> str:
        """The Temporal workflow type."""
        return f"{self.name}@{self.version}"


def definition_of(cls: type) -> WorkflowDefinition | None:
    """Return the definition of this very class; None for any other, subclasses included."""
    found: WorkflowDefinition | None = vars(cls).get(MARK)
    return found


# --- run options ---
# Serialized as JSON, because the process that starts a run may not have its class.

_TIMED_OUT: Final = "TemporalTimeout:StartToClose"
"""The error type of a timed-out run in Temporal's retry policy."""


@dataclass(frozen=True)
class RunOptions:
    """Run options: timeout, retries, and undo after termination."""

    timeout: timedelta | None = None
    retry: RetryPolicy | None = None
    compensate_on_terminate: bool = False

    @classmethod
    def of(cls, definition: WorkflowDefinition) -> RunOptions:
        """Return the options that the class declares.

        With ``compensate_on_terminate``, a timed-out run is not retried: after a retry, the work
        of the first attempt would never be undone.
        """
        policy = definition.retry.to_policy() if definition.retry else None
        if policy and definition.compensate_on_terminate:
            policy.non_retryable_error_types = [
                *(policy.non_retryable_error_types or ()),
                _TIMED_OUT,
            ]
        return cls(definition.timeout, policy, definition.compensate_on_terminate)

    def overridden(self, *, timeout: timedelta | None, retry: Retry | None) -> RunOptions:
        """Return the options of a schedule that has a timeout or a retry policy of its own.

        The errors that are not retried stay those of the class.
        """
        policy = self.retry
        if retry is not None:
            policy = retry.to_policy()
            if retry.intervals:  # Temporal cuts the wait that a failing run asks for to this one
                policy.maximum_interval = max(duration(each, "each") for each in retry.intervals)
            ends = self.retry.non_retryable_error_types if self.retry else None
            if ends is None and self.compensate_on_terminate:
                ends = [_TIMED_OUT]
            policy.non_retryable_error_types = ends
        return replace(self, timeout=timeout or self.timeout, retry=policy)

    def to_json(self) -> dict[str, Any]:
        """Return the declared options only."""
        options = {
            "timeout": self.timeout and self.timeout.total_seconds(),
            "retry": self.retry and policy_to_json(self.retry),
            "compensate_on_terminate": self.compensate_on_terminate,
        }
        return {name: value for name, value in options.items() if value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> RunOptions:
        """Parse what ``to_json`` returned."""
        options = value or {}
        timeout, retry = options.get("timeout"), options.get("retry")
        return cls(
            timeout=None if timeout is None else timedelta(seconds=timeout),
            retry=None if retry is None else policy_from_json(retry),
            compensate_on_terminate=bool(options.get("compensate_on_terminate")),
        )


def policy_to_json(policy: RetryPolicy) -> dict[str, Any]:
    """Return a retry policy as JSON, with durations in seconds."""
    longest = policy.maximum_interval
    return {
        "maximum_attempts": policy.maximum_attempts,
        "initial_interval": policy.initial_interval.total_seconds(),
        "backoff_coefficient": policy.backoff_coefficient,
        "maximum_interval": None if longest is None else longest.total_seconds(),
        "non_retryable_error_types": list(policy.non_retryable_error_types or ()),
    }


def policy_from_json(options: Mapping[str, Any]) -> RetryPolicy:
    """Parse what ``policy_to_json`` returned."""
    longest = options["maximum_interval"]
    return RetryPolicy(
        maximum_attempts=options["maximum_attempts"],
        initial_interval=timedelta(seconds=options["initial_interval"]),
        backoff_coefficient=options["backoff_coefficient"],
        maximum_interval=None if longest is None else timedelta(seconds=longest),
        non_retryable_error_types=options["non_retryable_error_types"] or None,
    )


# --- registry ---

NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
"""Valid names of workflows and steps. No ``@``: it separates a workflow's name and version."""

T = TypeVar("T")


def checked_name(name: object, what: str) -> str:
    """Return ``name`` if it is valid for a workflow or a step.

    Raises:
        TypeError: It is not text.
        ValueError: It is too long, or has characters that are ambiguous in a Temporal type.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of {what} is text; got {name!r}")
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot name {what}: use up to 200 letters, digits, '.', '_' and '-', "
            "beginning with a letter, a digit or '_'",
        )
    return name


_registries: list[Registry[Any]] = []


def forget_modules(modules: Collection[str]) -> Callable[[], None]:
    """Forget the workflows, steps and resources of modules that are about to be imported again.

    Their names are free then, also for other modules. The function that is returned brings back
    all that was registered before.
    """
    undo = [each.without(modules) for each in _registries]

    def restore() -> None:
        for each in undo:
            each()

    return restore


class Registry(Generic[T]):
    """Workflows or steps of this process by name, registered on ordinary imports only.

    The workflow sandbox imports user modules again for every run; those copies live as long as
    the run and must not replace, or be compared with, the ones that the worker serves.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._entries: dict[str, tuple[str, T]] = {}
        self._modules: dict[str, str] = {}
        _registries.append(self)

    def add(self, name: str, owner: type | Callable[..., Any], entry: T) -> None:
        """Add ``entry``; a re-import of the same module and qualified name replaces it.

        Raises:
            ValueError: Another object in this process already has the name.
        """
        if unsafe.in_sandbox():
            return
        place = f"{owner.__module__}.{owner.__qualname__}"
        known, _ = self._entries.get(name, (place, entry))
        if known != place:
            raise ValueError(
                f"two {self._what}s are called {name!r}: {known} and {place}; "
                "give one of them another name",
            )
        self._entries[name] = (place, entry)
        self._modules[name] = owner.__module__

    def without(self, modules: Collection[str]) -> Callable[[], None]:
        """Forget what these modules registered; see ``forget_modules``."""
        before = dict(self._entries)
        gone = {name for name, module in self._modules.items() if module in modules}
        self._entries = {name: each for name, each in before.items() if name not in gone}

        def restore() -> None:
            self._entries = before

        return restore

    def get(self, name: str) -> T | None:
        """Return the entry of this name, or None."""
        found = self._entries.get(name)
        return found[1] if found else None

    def snapshot(self) -> dict[str, T]:
        """Return a copy, in the order of registration."""
        return {name: entry for name, (_, entry) in self._entries.items()}
