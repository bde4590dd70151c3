"""Detection of steps that go on failing in open runs, and of runs that cannot go on.

Temporal retries a step without a word until its attempts are used up, and some have no limit. The
description of an open run lists its pending steps, so the looks of the tracker suffice: no further
call is made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar

from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import WorkflowExecutionDescription
from temporalio.service import RPCError

from engine.errors import Code
from engine.ledger import FailingNote, FailingStep, Ledger, as_failing, failing_text
from engine.runtime.events import Alert, Closed, Event, Notice, OnEvent
from engine.runtime.settings import Settings

# --- decision ---
# Pure: the pending steps of one description and the time decide.

T = TypeVar("T")

_LONGEST: Final = 300
"""Limit on the characters of an error in an alert."""


def goes_on_failing(step: FailingStep, now: datetime, settings: Settings) -> bool:
    """Return whether a step is to be reported: too many failures, or for too long."""
    return (
        step.is_stuck
        or step.attempts >= settings.failing_attempts
        or now - step.since >= settings.failing_after
    )


def failing_steps(run_id: str, pending: Iterable[PendingActivityInfo]) -> list[FailingStep]:
    """Return the pending steps whose last attempt has failed, in the order of their places."""
    found = [
        _failing(run_id, each)
        for each in pending
        if each.attempt > 1 and each.HasField("last_failure")
    ]
    return sorted(found, key=lambda step: step.place)


def _failing(run_id: str, pending: PendingActivityInfo) -> FailingStep:
    one = pending.attempt == 2 and pending.HasField("last_attempt_complete_time")  # noqa: PLR2004 - the attempt after the first
    since = pending.last_attempt_complete_time if one else pending.scheduled_time
    waits = pending.HasField("next_attempt_schedule_time") and not pending.paused
    return FailingStep(
        step=pending.activity_type.name,
        place=pending.activity_id,
        run_id=run_id,
        attempts=pending.attempt - 1,
        max_attempts=pending.maximum_attempts or None,
        error_type=_kind(pending.last_failure),
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
    # No database keeps the character U+0000.
    return ": ".join(parts)[:_LONGEST].replace("\0", "\ufffd") or "an error without a text"


# --- reports ---
# The ledger has what was reported last of each open run. Of replicas that look at one run at the
# same time, that which replaces the note reports the difference.

_REMEMBERED: Final = 10_000


class FailingSteps:
    """Reporter of steps that go on failing, once in a fleet per step and type of error.

    Args:
        now: the clock that the ages of failures are measured with.
        task_of: returns the workflow task of a run that cannot go on; see ``StuckRuns``.
    """

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        *,
        now: Callable[[], datetime],
        task_of: Callable[[WorkflowExecutionDescription], Awaitable[FailingStep | None]],
        on_event: OnEvent,
    ) -> None:
        self._ledger, self._settings, self._now, self._emit = ledger, settings, now, on_event
        self._task_of = task_of
        self._seen: dict[str, tuple[str, list[FailingStep] | None]] = {}
        self._failing: dict[str, list[FailingStep]] = {}

    async def notice(self, run: WorkflowExecutionDescription) -> None:
        """Take what fails from the description of an open run, for ``compare``."""
        steps = failing_steps(run.run_id, run.raw_description.pending_activities)
        try:
            task = await self._task_of(run)
        except RPCError:
            _remember(self._seen, run.id, (run.workflow_type, None))
            return
        steps = [task, *steps] if task else steps
        _remember(self._seen, run.id, (run.workflow_type, steps) if steps else None)

    async def compare(self, noted: Mapping[str, str | None]) -> None:
        """Note what has changed in runs that were described just now, and report it.

        Args:
            noted: the open runs, with what the ledger has of each; see ``Ledger.seen_open``.
        """
        changes: dict[str, _Change] = {}
        notes: list[FailingNote] = []
        for name, text in noted.items():
            kind, steps = self._seen.pop(name, ("", []))
            if steps is None:
                continue  # it was not found out
            change = self._change(kind, as_failing(text), steps)
            _remember(self._failing, name, change.after or None)
            if change.after != change.before:
                changes[name] = change
                notes.append(FailingNote(name, text, failing_text(change.after)))
        written = await self._ledger.note_failing(notes) if notes else set()
        for name, change in changes.items():
            if name in written:
                self._report(name, change)

    def _change(
        self, kind: str, before: Iterable[FailingStep], steps: Iterable[FailingStep]
    ) -> _Change:
        was = {(step.run_id, step.place): step for step in before}
        now = self._now()
        after = [
            step
            for step in steps
            if (step.run_id, step.place) in was or goes_on_failing(step, now, self._settings)
        ]
        return _Change(kind, [*was.values()], after)

    def _report(self, name: str, change: _Change) -> None:
        was = {(step.run_id, step.place): step for step in change.before}
        for step in change.after:
            known = was.pop((step.run_id, step.place), None)
            if known is None or known.error_type != step.error_type:
                self._emit(_alert(f"{name} ({change.workflow_type}", step))
        for step in was.values():
            text = f"{name}: step {step.step} ({step.place}) is not retried any more"
            if step.is_stuck:
                text = f"{name} goes on"
            self._emit(Notice(f"{text}, after {step.attempts} failed attempts or more", good=True))

    def on_event(self, event: Event) -> None:
        """Report that a run has ended one of whose steps went on failing."""
        if isinstance(event, Closed) and (
            steps := self._failing.pop(event.evidence.workflow_id, None)
        ):
            names = ", ".join(sorted({step.step for step in steps}))
            text = f"{event.evidence.workflow_id} {event.evidence.closed}"
            self._emit(Notice(f"{text}, after its step {names} had gone on failing", good=True))


@dataclass(frozen=True, slots=True)
class _Change:
    """The failing steps that the ledger has of a run, and those that it has now."""

    workflow_type: str
    before: list[FailingStep]
    after: list[FailingStep]


def _alert(run: str, step: FailingStep) -> Alert:
    if step.is_stuck:
        text = f"{run}) cannot go on, attempt {step.attempts + 1}: {step.error}"
        return Alert(Code.RUN_STUCK, text)
    return Alert(Code.STEP_FAILING, f"{run}, run {step.run_id}): {step}")


def _remember(places: dict[str, T], name: str, value: T | None) -> None:
    """Write or remove one entry of a dictionary that drops its oldest beyond a limit."""
    places.pop(name, None)
    if value is not None:
        places[name] = value
        if len(places) > _REMEMBERED:
            del places[next(iter(places))]
