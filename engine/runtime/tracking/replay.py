"""Detection of stuck runs, and description and export of run histories."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Final

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from engine.errors import TemporalUnavailable
from engine.flow import plain_text
from engine.ledger import FailingStep
from engine.runtime.dispatch.backpressure import Budget
from engine.runtime.settings import Settings

# --- histories in words ---
# Temporal reports a nondeterminism error in terms of events and state machines. The author of the
# workflow thinks in steps, so the message is built from the history and the commands of the replay.

HINT: Final = "give the workflow a new version, or ask ctx.patched() before the changed part"

_EVENT_NUMBER: Final = re.compile(r"HistoryEvent\(id: (\d+)")
_STEPS: Final = re.compile(
    r"scheduled event '([^']*)' does not match \S+ \S+ of activity command '([^']*)'"
)
_SAID: Final = re.compile(r'message: "(\[TMPRL[^"]*)"')
_MACHINE: Final = re.compile(r"(\w+(?: \w+)?) machine does not handle")
_DONE_INSTEAD: Final = {
    "Timer": "waits",
    "Complete workflow": "ends",
    "Fail workflow": "fails",
    "Child workflow": "starts a child",
}


@dataclass(frozen=True)
class HistoryStep:
    """An event of a run, or a command of its code.

    Attributes:
        number: the event's id; 0 for a command.
        text: the description.
        place: a step's activity id; empty for others.
    """

    number: int
    text: str
    place: str = ""


def history_steps(history: WorkflowHistory) -> list[HistoryStep]:
    """Return the run's steps, waits, children, markers and end, in order."""
    found = (_deed(event) for event in history.events)
    return [each for each in found if each is not None]


def history_step(name: str, place: str, number: int = 0) -> HistoryStep:
    """Return the ``HistoryStep`` of a step that begins."""
    return HistoryStep(number, f"the step {name} ({place})", place)


def workflow_type(history: WorkflowHistory) -> str:
    """Return the Temporal type of the run."""
    started = history.events[0].workflow_execution_started_event_attributes
    return started.workflow_type.name


def explain_nondeterminism(
    history: WorkflowHistory, error: str, asked: Sequence[HistoryStep]
) -> str:
    """Return one sentence: the event, what the history has there, and what the code does.

    Args:
        history: the run's history.
        error: Temporal's error message.
        asked: the steps that the code began in the replay, in order.
    """
    past = history_steps(history)
    where = _where(past, error)
    if where is None:
        match = _SAID.search(error)
        return match[1] if match else error
    instead = _instead(past, where, error, asked)
    return f"event {where.number}: the history has {where.text}, the code {instead}"


def _where(past: Sequence[HistoryStep], error: str) -> HistoryStep | None:
    if named := _STEPS.search(error):
        # Two different steps: find the first history step that the message names.
        return next((each for each in past if each.place == named[1]), None)
    if numbered := _EVENT_NUMBER.search(error):
        number = int(numbered[1])
        return next((each for each in past if each.number == number), None)
    return None


def _instead(
    past: Sequence[HistoryStep], where: HistoryStep, error: str, asked: Sequence[HistoryStep]
) -> str:
    if named := _STEPS.search(error):
        other = next((each for each in asked if each.place == named[2]), None)
        return f"begins {other.text if other else named[2]}"
    machine = _MACHINE.search(error)
    if machine and (ending := _DONE_INSTEAD.get(machine[1])):
        return f"{ending} there"
    begun = {each.place for each in past if each.place and each.number < where.number}
    new = next((each for each in asked if each.place not in begun), None)
    return f"begins {new.text}" if new else "does something else there"


def _deed(event: HistoryEvent) -> HistoryStep | None:
    number, kind = event.event_id, event.event_type
    if kind == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
        step = event.activity_task_scheduled_event_attributes
        return history_step(step.activity_type.name, step.activity_id, number)
    if kind == EventType.EVENT_TYPE_TIMER_STARTED:
        wait = event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta()
        return HistoryStep(number, f"a wait of {wait}")
    if kind == EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
        child = event.start_child_workflow_execution_initiated_event_attributes
        return HistoryStep(number, f"the child {child.workflow_type.name} ({child.workflow_id})")
    if kind == EventType.EVENT_TYPE_MARKER_RECORDED:
        return HistoryStep(
            number, f"the marker {event.marker_recorded_event_attributes.marker_name}"
        )
    return HistoryStep(number, _ENDS[kind]) if kind in _ENDS else None


_ENDS: Final[dict[int, str]] = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: "its end",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: "its failure",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: "its end as cancelled",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW: "its continue-as-new",
}


# --- stuck runs ---
# A run is stuck if workers repeatedly fail its workflow task, usually because its code was changed
# while it was open. Temporal retries forever and shows this only on the run's page. It is reported,
# and noted in the ledger, like a step that keeps failing.

_ATTEMPTS: Final = 3
"""Attempts after which a run counts as stuck; one failure may be a deploy or a killed worker."""
_REMEMBERED: Final = 10_000
_DIFFERS: Final = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR


class StuckRuns:
    """Detector of stuck runs among described ones; it reads the history of each once."""

    def __init__(self, client: Client, settings: Settings, *, budget: Budget | None = None) -> None:
        self._budget = budget or Budget()
        self._client, self._settings = client, settings
        self._known: dict[str, tuple[str, str]] = {}

    async def task_of(self, run: WorkflowExecutionDescription) -> FailingStep | None:
        """Return the workflow task of an open run if it keeps failing.

        Raises:
            RPCError: the history could not be read; a later description checks it again.
        """
        task = run.raw_description.pending_workflow_task
        if task.attempt < _ATTEMPTS:
            self._known.pop(run.run_id, None)
            return None
        if run.run_id not in self._known:
            handle = self._client.get_workflow_handle(run.id, run_id=run.run_id)
            await self._budget.call()
            history = await handle.fetch_history(rpc_timeout=self._settings.rpc_timeout)
            why = task_failure(history)
            if why is None:
                return None  # its tasks are lost, not failed: no worker, or one that is killed
            self._known[run.run_id] = why
            while len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]
        kind, error = self._known[run.run_id]
        return FailingStep(
            step="workflow task",
            place="",
            run_id=run.run_id,
            attempts=task.attempt - 1,
            max_attempts=None,
            error_type=kind,
            error=error.replace("\0", "\ufffd"),
            since=task.original_scheduled_time.ToDatetime(UTC),
            next_attempt_at=None,
        )


def task_failure(history: WorkflowHistory) -> tuple[str, str] | None:
    """Return the cause of the last workflow task's failure, and what was said.

    None if none has failed since the last one that completed.
    """
    for event in reversed(history.events):
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            return None
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            failed = event.workflow_task_failed_event_attributes
            message = failed.failure.message
            kind = WorkflowTaskFailedCause.Name(failed.cause)
            if failed.cause == _DIFFERS:
                return kind, f"{explain_nondeterminism(history, message, ())}; {HINT}"
            if message == _UNREAD:
                return kind, _unread(history, failed.failure)
            return kind, message or kind
    return None


_UNREAD: Final = "Failed decoding arguments"
"""What the SDK says of a result that the run's code cannot read."""


def _unread(history: WorkflowHistory, failure: Failure) -> str:
    """Return which results may be the one that cannot be read, and why it cannot be."""
    names: dict[int, str] = {}
    came: list[str] = []
    for event in history.events:
        kind = event.WhichOneof("attributes")
        if kind == "activity_task_scheduled_event_attributes":
            names[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id
        elif kind == "start_child_workflow_execution_initiated_event_attributes":
            child = event.start_child_workflow_execution_initiated_event_attributes
            names[event.event_id] = f"the child {child.workflow_id}"
        elif kind == "activity_task_completed_event_attributes":
            done = event.activity_task_completed_event_attributes
            came.append(names[done.scheduled_event_id])
        elif kind == "child_workflow_execution_completed_event_attributes":
            ended = event.child_workflow_execution_completed_event_attributes
            came.append(names[ended.initiated_event_id])
        elif kind == "workflow_task_completed_event_attributes":
            came = []
    which = " or ".join(came) or "a step"
    why = plain_text(failure.cause.message or failure.message)
    return f"the result of {which} cannot be read: {why}; the run waits for code whose type fits"


# --- history files ---

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST: Final = 180
"""Characters of the workflow id used in a file name; an id may have a thousand."""


@dataclass(frozen=True, slots=True)
class Exported:
    """Export of one run's history.

    Attributes:
        workflow_id: the run's workflow id.
        run_id: Temporal's run id; None if unknown.
        file: the history's file; None if Temporal no longer has the run.
        events: the number of events.
    """

    workflow_id: str
    run_id: str | None
    file: Path | None
    events: int = 0


async def export(
    client: Client, runs: Iterable[tuple[str, str | None]], folder: Path
) -> list[Exported]:
    """Write each run's history into a file of its own, as Temporal's JSON.

    Args:
        client: a client of the runs' namespace.
        runs: pairs of workflow id and run id; no run id means the newest run.
        folder: the target folder; created if missing.

    Raises:
        TemporalUnavailable: the server does not answer.
    """
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    return [await _exported(client, *run, folder) for run in runs]


async def _exported(client: Client, workflow_id: str, run_id: str | None, folder: Path) -> Exported:
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    try:
        history = await handle.fetch_history()
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise TemporalUnavailable(f"the history of {workflow_id}: {error.message}") from error
        return Exported(workflow_id, run_id, None)
    file = folder / file_name(workflow_id, history.run_id)
    file.write_text(history.to_json() + "\n", encoding="utf-8")
    return Exported(workflow_id, history.run_id, file, len(history.events))


def file_name(workflow_id: str, run_id: str) -> str:
    """Return a name that is valid on every file system: ``sched.nightly.17….<run id>.json``."""
    safe = _UNSAFE.sub(".", workflow_id)[:_LONGEST].lstrip(".")
    return f"{safe}.{run_id}.json"
