"""How a failing step or child looks to the workflow that waits for it."""

from __future__ import annotations

from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    FailureError,
    RetryState,
)


def step_failed(name: str, place: str, error: Exception) -> ActivityError:
    """Return what ``ctx.step`` raises when a step has failed for good, its cause included."""
    failure = ActivityError(
        "Activity task failed",
        scheduled_event_id=0,
        started_event_id=0,
        identity="test",
        activity_type=name,
        activity_id=place,
        retry_state=RetryState.MAXIMUM_ATTEMPTS_REACHED,
    )
    failure.__cause__ = _as_failure(error)
    return failure


def child_failed(name: str, error: Exception) -> ChildWorkflowError:
    """Return what ``ctx.child`` raises when a child has ended badly, its cause included."""
    failure = ChildWorkflowError(
        "Child Workflow execution failed",
        namespace="default",
        workflow_id=f"child:{name}",
        run_id="stand-in",
        workflow_type=name,
        initiated_event_id=0,
        started_event_id=0,
        retry_state=RetryState.RETRY_POLICY_NOT_SET,
    )
    failure.__cause__ = _as_failure(error)
    return failure


def _as_failure(error: Exception) -> FailureError:
    if isinstance(error, FailureError):
        return error
    failure = ApplicationError(str(error), type=type(error).__name__)
    failure.__cause__ = error
    return failure.with_traceback(error.__traceback__)
