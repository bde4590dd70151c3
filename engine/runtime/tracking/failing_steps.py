"""Detection of steps that keep failing in open runs, and of runs that cannot continue.

Temporal retries a step without a word until its attempts are used up, and some have no limit. The
description of an open run lists its pending steps, so the looks of the tracker suffice; only its
open children are described besides, a few in each turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeVar

from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from engine.errors import Code
from engine.ledger import FailingNote, FailingStep, Ledger, as_failing, failing_text
from engine.runtime.clock import boottime
from engine.runtime.dispatch.backpressure import Budget
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


def failing_steps(
    run_id: str, pending: Iterable[PendingActivityInfo], *, child: str | None = None
) -> list[FailingStep]:
    """Return the pending steps whose last attempt has failed, in the order of their places.

    ``child``: the workflow id of the run, if it is a child.
    """
    found = [
        _failing(run_id, child, each)
        for each in pending
        if each.attempt > 1 and each.HasField("last_failure")
    ]
    return sorted(found, key=lambda step: step.place)


def _failing(run_id: str, child: str | None, pending: PendingActivityInfo) -> FailingStep:
    one = pending.attempt == 2 and pending.HasField("last_attempt_complete_time")  # noqa: PLR2004 - the attempt after the first
    since = pending.last_attempt_complete_time if one else pending.scheduled_time
    waits = pending.HasField("next_attempt_schedule_time") and not pending.paused
    return FailingStep(
        step=pending.activity_type.name,
        place=pending.activity_id,
        run_id=run_id,
        child=child,
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


# --- children ---
# A child has no row of its own: its steps are those of the run that has one. Families may be large,
# so each is walked through in as many turns as that takes.

_REMEMBERED: Final = 10_000
_CHILDREN: Final = 8
"""Children that one turn describes: two seconds of the tracker's calls."""
_RESTED: Final = 60.0
"""Seconds after which a walk that rested begins anew, because what it has found is old."""


@dataclass(slots=True)
class _Walk:
    """A walk through the open children of a run, and of these children.

    Attributes:
        left: workflow ids that are still to be described.
        seen: all that are known.
        steps: the failing steps of those that were described.
    """

    left: deque[str] = field(default_factory=deque)
    seen: set[str] = field(default_factory=set)
    steps: list[FailingStep] = field(default_factory=list)

    def add(self, parent: WorkflowExecutionDescription) -> None:
        """Add the open children of a run that was described."""
        for child in parent.raw_description.pending_children:
            if child.workflow_id not in self.seen:
                self.seen.add(child.workflow_id)
                self.left.append(child.workflow_id)


class ChildSteps:
    """Failing steps of the children of open runs."""

    def __init__(self, client: Client, settings: Settings, *, budget: Budget) -> None:
        self._client, self._settings, self._budget = client, settings, budget
        self._walks: dict[str, _Walk] = {}
        self._found: dict[str, list[FailingStep]] = {}
        self._went_on = boottime()

    def notice(self, run: WorkflowExecutionDescription) -> None:
        """Begin a walk through the family of an open run, unless one is in progress."""
        walk = _Walk()
        walk.add(run)
        if not walk.left:
            self._walks.pop(run.id, None)
            _remember(self._found, run.id, [])
        elif run.id not in self._walks:
            _remember(self._walks, run.id, walk)

    def of(self, workflow_id: str, noted: Iterable[FailingStep]) -> list[FailingStep]:
        """Return what a walk has just found; otherwise what the ledger has noted.

        It is used once: later another replica may have the duty, and note more.
        """
        found = self._found.pop(workflow_id, None)
        return [step for step in noted if step.child] if found is None else found

    async def go_on(self) -> None:
        """Describe some more children. A child that cannot be described is left to a later turn."""
        now = boottime()
        if now - self._went_on > max(_RESTED, 3 * self._settings.track.total_seconds()):
            self._walks.clear()  # another replica has had the duty
        self._went_on = now
        for _ in range(_CHILDREN):
            if not self._walks:
                return
            root = next(iter(self._walks))
            walk = self._walks.pop(root)
            child = walk.left.popleft()
            try:
                await self._describe(walk, child)
            except RPCError:
                walk.left.append(child)
                self._walks[root] = walk  # behind the others
                return
            if walk.left:
                self._walks = {root: walk, **self._walks}
            else:
                _remember(self._found, root, walk.steps)

    async def _describe(self, walk: _Walk, child: str) -> None:
        await self._budget.call(tracking=True)
        try:
            # Its newest run: it may have been retried, or have continued as new.
            run = await self._client.get_workflow_handle(child).describe(
                rpc_timeout=self._settings.rpc_timeout
            )
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return
            raise
        if run.status == WorkflowExecutionStatus.RUNNING:
            pending = run.raw_description.pending_activities
            walk.steps += failing_steps(run.run_id, pending, child=child)
            walk.add(run)


# --- reports ---
# The ledger has what was reported last of each open run. Of replicas that look at one run at the
# same time, that which replaces the note reports the difference.


class FailingSteps:
    """Reporter of steps that keep failing, once in a fleet per step and type of error.

    Args:
        children: the failing steps of the children of the same runs.
        now: the clock that the ages of failures are measured with.
        task_of: returns the workflow task of a run that cannot continue; see ``StuckRuns``.
    """

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        children: ChildSteps,
        *,
        now: Callable[[], datetime],
        task_of: Callable[[WorkflowExecutionDescription], Awaitable[FailingStep | None]],
        on_event: OnEvent,
    ) -> None:
        self._ledger, self._settings, self._now, self._emit = ledger, settings, now, on_event
        self._children, self._task_of = children, task_of
        self._seen: dict[str, tuple[str, list[FailingStep] | None]] = {}
        self._failing: dict[str, list[FailingStep]] = {}

    async def notice(self, run: WorkflowExecutionDescription) -> None:
        """Take what fails from the description of an open run, for ``compare``."""
        steps = failing_steps(run.run_id, run.raw_description.pending_activities)
        self._children.notice(run)
        try:
            task = await self._task_of(run)
        except RPCError:
            _remember(self._seen, run.id, (run.workflow_type, None))
            return
        _remember(self._seen, run.id, (run.workflow_type, [task, *steps] if task else steps))

    async def compare(self, noted: Mapping[str, str | None], *, tracking: bool) -> None:
        """Note what has changed in runs that were described just now, and report it.

        Args:
            noted: the open runs, with what the ledger has of each; see ``Ledger.seen_open``.
            tracking: whether this replica is on tracker duty, and so looks at children too.
        """
        if tracking:
            await self._children.go_on()
        changes: dict[str, _Change] = {}
        notes: list[FailingNote] = []
        for name, text in noted.items():
            kind, own = self._seen.pop(name, ("", []))
            if own is None:
                continue  # it was not found out
            before = as_failing(text)
            change = self._change(kind, before, own + self._children.of(name, before))
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
            text = f"{name}: {step.named} is not retried any more"
            if step.is_stuck:
                text = f"{name} continues"
            self._emit(Notice(f"{text}, after {step.attempts} failed attempts or more", good=True))

    def on_event(self, event: Event) -> None:
        """Report that a run has ended one of whose steps kept failing."""
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
        text = f"{run}) cannot continue, attempt {step.attempts + 1}: {step.error}"
        return Alert(Code.RUN_STUCK, text)
    run_id = "" if step.child else f", run {step.run_id}"
    return Alert(Code.STEP_FAILING, f"{run}{run_id}): {step}")


def _remember(places: dict[str, T], name: str, value: T | None) -> None:
    """Write or remove one entry of a dictionary that drops its oldest beyond a limit."""
    places.pop(name, None)
    if value is not None:
        places[name] = value
        if len(places) > _REMEMBERED:
            del places[next(iter(places))]
