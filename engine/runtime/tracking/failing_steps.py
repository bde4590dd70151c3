"""Detection of steps that go on failing in open runs.

Temporal retries a step without a word until its attempts are used up, and some have no limit. The
description of an open run lists its pending steps, so the looks of the tracker suffice: no further
call is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import WorkflowExecutionDescription

from engine.errors import Code
from engine.runtime.events import Alert, Closed, Event, Notice, OnEvent
from engine.runtime.settings import Settings

# --- decision ---
# Pure: the pending steps of one description and the time decide.

_LONGEST: Final = 300
"""Limit on the characters of an error in an alert."""


@dataclass(frozen=True, slots=True)
class FailingStep:
    """A step of an open run whose last attempt has failed.

    Attributes:
        step: the name of the step.
        place: the activity id, unique in the run.
        failed: the number of failed attempts, from 1.
        most: the number of attempts that its retry rule allows; 0 is no limit.
        kind: the type of the last error. If it changes, the step fails in another way.
        error: the first line of the last error.
        since: when it first failed, if one attempt has; otherwise when the step was scheduled.
        next_attempt_at: when the next attempt begins; None if it runs now, or is paused.
    """

    step: str
    place: str
    failed: int
    most: int
    kind: str
    error: str
    since: datetime
    next_attempt_at: datetime | None

    def goes_on_failing(self, now: datetime, settings: Settings) -> bool:
        """Return whether the step is to be reported: too many failures, or for too long."""
        return (
            self.failed >= settings.failing_attempts or now - self.since >= settings.failing_after
        )

    def __str__(self) -> str:
        times = "once" if self.failed == 1 else f"{self.failed} times"
        of = f" of {self.most}" if self.most else ""
        begins = "has begun"
        if self.next_attempt_at is not None:
            begins = f"comes at {self.next_attempt_at:%Y-%m-%d %H:%M:%SZ}"
        return (
            f"step {self.step} ({self.place}) has failed {times}, attempt {self.failed + 1}{of}"
            f" {begins}: {self.error}"
        )


def failing_steps(pending: Iterable[PendingActivityInfo]) -> list[FailingStep]:
    """Return the pending steps whose last attempt has failed, in the order of their places."""
    found = [
        _failing(each) for each in pending if each.attempt > 1 and each.HasField("last_failure")
    ]
    return sorted(found, key=lambda step: step.place)


def _failing(pending: PendingActivityInfo) -> FailingStep:
    one = pending.attempt == 2 and pending.HasField("last_attempt_complete_time")  # noqa: PLR2004 - the attempt after the first
    since = pending.last_attempt_complete_time if one else pending.scheduled_time
    waits = pending.HasField("next_attempt_schedule_time") and not pending.paused
    return FailingStep(
        step=pending.activity_type.name,
        place=pending.activity_id,
        failed=pending.attempt - 1,
        most=pending.maximum_attempts,
        kind=_kind(pending.last_failure),
        error=_first_line(pending.last_failure),
        since=since.ToDatetime(UTC),
        next_attempt_at=pending.next_attempt_schedule_time.ToDatetime(UTC) if waits else None,
    )


def _kind(failure: Failure) -> str:
    return failure.application_failure_info.type or failure.WhichOneof("failure_info") or ""


def _first_line(failure: Failure) -> str:
    """Return the type and the first line of an error; the type alone if it has no text."""
    lines = failure.message.strip().splitlines()
    kind = failure.application_failure_info.type
    parts = [each for each in (kind, lines[0] if lines else "") if each]
    return ": ".join(parts)[:_LONGEST] or "an error without a text"


# --- reports ---

_REMEMBERED: Final = 10_000


class FailingSteps:
    """Reporter of steps that go on failing, once per step and kind of error.

    Args:
        now: the clock that the ages of failures are measured with.
    """

    def __init__(
        self, settings: Settings, *, now: Callable[[], datetime], on_event: OnEvent
    ) -> None:
        self._settings, self._now, self._emit = settings, now, on_event
        self._reported: dict[str, dict[tuple[str, str], FailingStep]] = {}

    async def notice(self, run: WorkflowExecutionDescription) -> None:
        """Check the description of an open run."""
        before = self._reported.pop(run.id, {})
        after: dict[tuple[str, str], FailingStep] = {}
        for step in failing_steps(run.raw_description.pending_activities):
            place = (run.run_id, step.place)
            known = before.pop(place, None)
            if known is None and not step.goes_on_failing(self._now(), self._settings):
                continue
            after[place] = step
            if known is None or known.kind != step.kind:
                text = f"{run.id} ({run.workflow_type}, run {run.run_id}): {step}"
                self._emit(Alert(Code.STEP_FAILING, text))
        for step in before.values():
            text = f"{run.id}: step {step.step} ({step.place}) is not retried any more"
            self._emit(Notice(f"{text}, after {step.failed} failed attempts or more", good=True))
        if after:
            self._reported[run.id] = after
            if len(self._reported) > _REMEMBERED:
                del self._reported[next(iter(self._reported))]

    def on_event(self, event: Event) -> None:
        """Report that a run has ended one of whose steps went on failing."""
        if isinstance(event, Closed) and (
            steps := self._reported.pop(event.evidence.workflow_id, None)
        ):
            names = ", ".join(sorted({step.step for step in steps.values()}))
            text = f"{event.evidence.workflow_id} {event.evidence.closed}"
            self._emit(Notice(f"{text}, after its step {names} had gone on failing", good=True))
