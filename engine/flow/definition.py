"""Workflow definitions, their run options, and the registry."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from temporalio.common import RetryPolicy
from temporalio.workflow import unsafe

from engine.flow.retries import Retry

# --- definitions ---
# What ``@workflow`` knows about a class.

MARK: Final = "__sched_workflow__"


@dataclass(frozen=True)
class WorkflowDefinition:
    """Definition of a workflow class, as ``@workflow`` recorded it.

    Attributes:
        name: The name schedules use.
        version: Dotted integers.
        cls: The user's class.
        accepts_input: ``run`` has a second parameter.
        requires_input: That parameter has no default.
        input_type: Its annotation, resolved; None where it has none.
        result_type: The annotation of what ``run`` returns, resolved; None where it has none.
        timeout: How long one run may take; None means without end.
        retry: How a failed run is begun again; None means never.
        compensate_on_terminate: What an ended run could not undo itself is undone for it.
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

    @property
    def type(self) -> str:
        """The Temporal workflow type."""
        return f"{self.name}@{self.version}"


def definition_of(cls: type) -> WorkflowDefinition | None:
    """Return what ``@workflow`` noted on this very class; None for any other (also a subclass)."""
    found: WorkflowDefinition | None = vars(cls).get(MARK)
    return found


# --- run options ---
# What holds for every run of a workflow, in JSON: whoever starts one may not have its class.

_TIMED_OUT: Final = "TemporalTimeout:StartToClose"
"""What Temporal's retry policy calls a run that ran into its timeout."""


@dataclass(frozen=True)
class RunOptions:
    """Run options: timeout, retries, and undo after termination."""

    timeout: timedelta | None = None
    retry: RetryPolicy | None = None
    compensate_on_terminate: bool = False

    @classmethod
    def of(cls, definition: WorkflowDefinition) -> RunOptions:
        """Return what the class declares.

        A run that is undone from outside when its time is over is not begun again then: nobody
        would undo what the first one did.
        """
        policy = definition.retry.to_policy() if definition.retry else None
        if policy and definition.compensate_on_terminate:
            policy.non_retryable_error_types = [
                *(policy.non_retryable_error_types or ()), _TIMED_OUT,
            ]  # fmt: skip
        return cls(definition.timeout, policy, definition.compensate_on_terminate)

    def to_json(self) -> dict[str, Any]:
        """Return what is declared, and nothing of what is not."""
        said = {
            "timeout": self.timeout and self.timeout.total_seconds(),
            "retry": self.retry and policy_to_json(self.retry),
            "compensate_on_terminate": self.compensate_on_terminate,
        }
        return {name: value for name, value in said.items() if value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> RunOptions:
        """Read it back; what this version does not know is left out."""
        said = value or {}
        timeout, retry = said.get("timeout"), said.get("retry")
        return cls(
            timeout=None if timeout is None else timedelta(seconds=timeout),
            retry=None if retry is None else policy_from_json(retry),
            compensate_on_terminate=bool(said.get("compensate_on_terminate")),
        )


def policy_to_json(policy: RetryPolicy) -> dict[str, Any]:
    """Return a retry policy with its spans in seconds."""
    longest = policy.maximum_interval
    return {
        "maximum_attempts": policy.maximum_attempts,
        "initial_interval": policy.initial_interval.total_seconds(),
        "backoff_coefficient": policy.backoff_coefficient,
        "maximum_interval": None if longest is None else longest.total_seconds(),
        "non_retryable_error_types": list(policy.non_retryable_error_types or ()),
    }


def policy_from_json(said: Mapping[str, Any]) -> RetryPolicy:
    """Read back what ``policy_to_json`` wrote."""
    longest = said.get("maximum_interval")
    return RetryPolicy(
        maximum_attempts=said.get("maximum_attempts", 0),
        initial_interval=timedelta(seconds=said.get("initial_interval", 1.0)),
        backoff_coefficient=said.get("backoff_coefficient", 2.0),
        maximum_interval=None if longest is None else timedelta(seconds=longest),
        non_retryable_error_types=said.get("non_retryable_error_types") or None,
    )


# --- registry ---
# Which workflows and steps this process knows, by name.

NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
"""What a workflow or a step may be called. No ``@``: it parts a workflow's name and version."""

T = TypeVar("T")


def checked_name(name: object, what: str) -> str:
    """Return ``name`` if it may name a workflow or a step.

    Raises:
        TypeError: It is not text.
        ValueError: It has characters that could not be told apart in a Temporal type.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of {what} is text; got {name!r}")
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot name {what}: use up to 200 letters, digits, '.', '_' and '-', "
            "beginning with a letter, a digit or '_'",
        )
    return name


class Registry(Generic[T]):
    """Names and what they stand for, written on ordinary imports only.

    Inside the workflow sandbox user modules are imported again for every run; those copies live
    as long as the run and must not replace, or be compared with, the ones the worker serves.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._entries: dict[str, tuple[str, T]] = {}

    def add(self, name: str, owner: type | Callable[..., Any], entry: T) -> None:
        """Remember ``entry``; the same module and qualified name may come again (a re-import).

        Raises:
            ValueError: Something else in this process already has the name.
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

    def get(self, name: str) -> T | None:
        """Return what the name stands for, None when nothing does."""
        found = self._entries.get(name)
        return found[1] if found else None

    def snapshot(self) -> dict[str, T]:
        """Return a copy, in the order of registration."""
        return {name: entry for name, (_, entry) in self._entries.items()}
