"""What a history says that a run did, and what its code does instead.

Temporal tells the two apart by events and machines. Whoever has to mend the workflow thinks in
steps: the message for a history that does not fit is made here, of the history and of what the
code asked for when it was replayed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

CURE: Final = "give the workflow a new version, or ask ctx.patched() before the changed part"

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
class Deed:
    """Something a run did, or its code asks for.

    Attributes:
        number: of the event; 0 of what code asks for.
        text: for people.
        place: of a step its activity id; else empty.
    """

    number: int
    text: str
    place: str = ""


def deeds(history: WorkflowHistory) -> list[Deed]:
    """Return what the run did, in order: steps, waits, children, its end."""
    found = (_deed(event) for event in history.events)
    return [each for each in found if each is not None]


def step_deed(name: str, place: str, number: int = 0) -> Deed:
    """Return the begin of a step."""
    return Deed(number, f"the step {name} ({place})", place)


def workflow_type(history: WorkflowHistory) -> str:
    """Return the Temporal type of the run."""
    started = history.events[0].workflow_execution_started_event_attributes
    return started.workflow_type.name


def told(history: WorkflowHistory, error: str, asked: Sequence[Deed]) -> str:
    """Return one sentence: which event, what the history has there, and what the code does.

    Args:
        history: of the run.
        error: what Temporal said.
        asked: the steps that the code began when it was replayed, in order.
    """
    past = deeds(history)
    where = _where(past, error)
    if where is None:
        said = _SAID.search(error)
        return said[1] if said else error
    instead = _instead(past, where, error, asked)
    return f"event {where.number}: the history has {where.text}, the code {instead}"


def _where(past: Sequence[Deed], error: str) -> Deed | None:
    if named := _STEPS.search(error):
        # Two steps that differ: the first of the history that the message names.
        return next((each for each in past if each.place == named[1]), None)
    if numbered := _EVENT_NUMBER.search(error):
        number = int(numbered[1])
        return next((each for each in past if each.number == number), None)
    return None


def _instead(past: Sequence[Deed], where: Deed, error: str, asked: Sequence[Deed]) -> str:
    if named := _STEPS.search(error):
        other = next((each for each in asked if each.place == named[2]), None)
        return f"begins {other.text if other else named[2]}"
    machine = _MACHINE.search(error)
    if machine and (said := _DONE_INSTEAD.get(machine[1])):
        return f"{said} there"
    begun = {each.place for each in past if each.place and each.number < where.number}
    new = next((each for each in asked if each.place not in begun), None)
    return f"begins {new.text}" if new else "does something else there"


def _deed(event: HistoryEvent) -> Deed | None:
    number, kind = event.event_id, event.event_type
    if kind == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
        step = event.activity_task_scheduled_event_attributes
        return step_deed(step.activity_type.name, step.activity_id, number)
    if kind == EventType.EVENT_TYPE_TIMER_STARTED:
        wait = event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta()
        return Deed(number, f"a wait of {wait}")
    if kind == EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
        child = event.start_child_workflow_execution_initiated_event_attributes
        return Deed(number, f"the child {child.workflow_type.name} ({child.workflow_id})")
    if kind == EventType.EVENT_TYPE_MARKER_RECORDED:
        return Deed(number, f"the marker {event.marker_recorded_event_attributes.marker_name}")
    return Deed(number, _ENDS[kind]) if kind in _ENDS else None


_ENDS: Final[dict[int, str]] = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: "its end",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: "its failure",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: "its end as cancelled",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW: "its going on as new",
}
