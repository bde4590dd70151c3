"""What holds for every run of a workflow, in JSON: whoever starts one may not have its class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from temporalio.common import RetryPolicy

from engine.flow.definition import WorkflowDefinition

_TIMED_OUT: Final = "TemporalTimeout:StartToClose"
"""What Temporal's retry policy calls a run that ran into its timeout."""


@dataclass(frozen=True)
class RunRules:
    """How long a run may take, how it is begun again, and whether it is undone from outside."""

    timeout: timedelta | None = None
    retry: RetryPolicy | None = None
    compensate_on_terminate: bool = False

    @classmethod
    def of(cls, definition: WorkflowDefinition) -> RunRules:
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
    def from_json(cls, value: Mapping[str, Any] | None) -> RunRules:
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
