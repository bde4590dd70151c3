"""What follows a fire that ended badly: a handler, and a run that undoes what it did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from engine.ledger.letters import as_left

EndedBadly = Literal["failed", "timed_out", "rejected", "terminated"]
ENDED_BADLY: Final[frozenset[str]] = frozenset({"failed", "timed_out", "rejected", "terminated"})


@dataclass(frozen=True, slots=True)
class Ended:
    """A fire that ended badly, and of which nobody has looked yet what follows it.

    Attributes:
        windows: how many windows were rejected together.
        workflow: what its schedule names.
        error: why it ended so, where that is known.
        on_dead: what its definition names as the handler of its failures.
        rules: what its type was announced with; see ``engine.flow.run_rules``.
    """

    fire_id: int
    key: str
    project: str
    series: int
    bucket: int
    fire_time: datetime
    windows: int
    workflow_id: str
    run_id: str | None
    workflow_type: str | None
    workflow: str
    task_queue: str
    status: EndedBadly
    error: str | None
    attempts: int
    arguments: tuple[Any, ...] = ()
    not_undone: tuple[Mapping[str, Any], ...] = ()
    on_dead: str | None = None
    rules: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A run to start because of a fire; with a reason, one that can never start."""

    fire_id: int
    workflow_id: str
    workflow_type: str | None
    argument: Mapping[str, Any]
    reason: str | None = None


def as_ended(row: Any) -> Ended:
    """Return the fire read by ``ended.sql``."""
    fields = dict(row)
    given, left, rules = (fields.pop(name) for name in ("input", "not_undone", "rules"))
    return Ended(
        arguments=() if given is None else (json.loads(given),),
        not_undone=as_left(left),
        rules=rules and json.loads(rules),
        **fields,
    )
