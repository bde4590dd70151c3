"""What a call of a step says to the worker that runs it, beside the input: one header.

The workflow's side writes it (``noted``), the plugin's interceptors carry it, and the step's side
reads it. An ordinary call has nothing to say and carries no header, and a worker without the
plugin loses the note: then the step knows itself by Temporal's ids alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

HEADER: Final = "sched"
"""The header's name in Temporal."""


@dataclass(frozen=True)
class StepNote:
    """What one call says.

    Attributes:
        intervals: The waits between attempts in seconds, the last one repeating.
        backoff: First wait in seconds, factor and longest wait, where ``jitter`` needs them.
        jitter: How much of a wait is left to chance, from 0 to 1.
        give_up_on: Names of exception classes that end the attempts.
        origin: The run that a reset run began as, which its steps' keys are made of.
        key: The idempotency key that the workflow chose.
        undoes: The idempotency key of the step that this one takes back.
        undo: How to take this step back, for a run that cannot do it itself any more.
    """

    intervals: tuple[float, ...] = ()
    backoff: tuple[float, float, float] | None = None
    jitter: float = 0.0
    give_up_on: tuple[str, ...] = ()
    origin: str | None = None
    key: str | None = None
    undoes: str | None = None
    undo: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what is said, and nothing of what is not."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_json(cls, value: object) -> StepNote:
        """Read it back; what this version does not know is left out."""
        if not isinstance(value, Mapping):
            return NOTHING
        known = {each.name for each in fields(cls)}
        said = {name: _frozen(given) for name, given in value.items() if name in known}
        return cls(**said)


NOTHING: Final = StepNote()

_current: ContextVar[StepNote | None] = ContextVar("sched_step_note", default=None)


@contextmanager
def noted(note: StepNote) -> Iterator[None]:
    """Let the call of Temporal's API inside this block carry the note."""
    token = _current.set(note)
    try:
        yield
    finally:
        _current.reset(token)


def note_of_this_call() -> StepNote | None:
    """Return what the call under way has to say; None where that is nothing."""
    note = _current.get()
    return note if note is not None and note.to_json() else None


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
