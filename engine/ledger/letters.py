"""Dead letters: fires that ended badly and that nobody has dealt with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

Died = Literal["failed", "timed_out", "rejected"]
Kind = Literal["window", "manual", "rerun", "handler"]
"""What a fire is; a handler follows the bad end of another fire."""

DIED: Final[frozenset[str]] = frozenset({"failed", "timed_out", "rejected"})
"""The statuses of a dead letter."""

OF_A_WINDOW: Final[frozenset[str]] = frozenset({"window", "rerun"})
"""The kinds of fires that another rerun of the window makes up for."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A fire that ended badly and that nobody has dealt with.

    Attributes:
        kind: what the fire is; ``window`` and ``rerun`` can be run again by their bucket.
        windows: how many windows were rejected together; they share a row, and have no run.
        run_id: None where no run ever started.
        reason: why it was rejected.
        error: what the run failed with, its innermost cause, in one line.
        attempts: sends and looks so far.
        died_at: when the run closed; of one that was rejected, when that was decided.
        arguments: what the run was, or would have been, called with: one argument or none.
        not_undone: what the run could not take back: ``step``, ``undo`` and ``error`` of each.
    """

    key: str
    project: str
    series: int
    bucket: int
    fire_time: datetime
    windows: int
    last_fire_time: datetime
    kind: Kind
    workflow_id: str
    run_id: str | None
    workflow_type: str | None
    task_queue: str
    status: Died
    reason: str | None
    error: str | None
    attempts: int
    started_at: datetime | None
    died_at: datetime
    definition_version: int
    arguments: tuple[Any, ...] = ()
    not_undone: tuple[Mapping[str, Any], ...] = ()


def as_letter(row: Any) -> DeadLetter:
    """Return the letter read by ``letters.sql``."""
    fields = dict(row)
    given, left = fields.pop("input"), fields.pop("not_undone")
    return DeadLetter(
        arguments=() if given is None else (json.loads(given),),
        not_undone=as_left(left),
        **fields,
    )


def as_left(text: str | None) -> tuple[Mapping[str, Any], ...]:
    """Return what a run could not take back, from the JSON that its evidence has."""
    return tuple(json.loads(text)) if text else ()
