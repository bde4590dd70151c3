"""What a step can know about the call it serves."""

from __future__ import annotations

from dataclasses import dataclass

from temporalio import activity

from engine.errors import EngineError
from engine.flow.notes import NOTHING, StepNote


@dataclass(frozen=True)
class NotedInfo(activity.Info):
    """Temporal's information on an attempt, with what the call said beside its input."""

    note: StepNote = NOTHING


@dataclass(frozen=True)
class StepInfo:
    """The call of a step, seen from inside the step.

    Attributes:
        idempotency_key: The same for every attempt of this call, and no other call has it. Give
            it to whoever does the work, so that a second attempt does not do it twice.
        attempt: Which attempt this is, from 1.
        undoes: In an undo step, the idempotency key of the step that it takes back; else None.
        workflow_id: The run's id, such as ``sched:<key>:<bucket>``; None outside of a run.
    """

    idempotency_key: str
    attempt: int
    undoes: str | None
    workflow_id: str | None


def step_info() -> StepInfo:
    """Return what is known about the call that this step serves.

    The idempotency key is made of the run, the step's name and the place of the call in the run:
    another attempt, also on another worker and after a crash, has the same; so has a run that an
    operator has reset. A run that continues as new, or is retried as a whole, has keys of its own.

    Raises:
        EngineError: Called outside of a step.
    """
    if not activity.in_activity():
        raise EngineError(
            "step_info() was called outside of a step",
            cure="in a unit test run the step with temporalio.testing.ActivityEnvironment",
        )
    info = activity.info()
    # Not isinstance: another copy of this module may have made it.
    note: StepNote = getattr(info, "note", None) or NOTHING
    return StepInfo(
        idempotency_key=note.key
        or step_key(note.origin or info.workflow_run_id or "", info.activity_id),
        attempt=info.attempt,
        undoes=note.undoes,
        workflow_id=info.workflow_id,
    )


def step_key(run: str, place: str) -> str:
    """Return the key of the call at this place (Temporal's activity id) of a run."""
    return f"{run}/{place}"
