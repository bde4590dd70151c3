"""What is known of a fire and of its run. Instants are aware and in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from engine.ledger.letters import Kind
from engine.schedules.decisions import QUEUE_FULL, Stop
from engine.schedules.model import Schedule
from engine.schedules.reason_codes import ReasonCode

Status = Literal[
    "claimed", "queued", "starting", "started",
    "completed", "failed", "cancelled", "terminated", "timed_out",
    "skipped", "expired", "rejected", "unvouched",
]  # fmt: skip
Timing = Literal["on_time", "late", "caught_up", "manual", "backfill", "rerun"]
ShownTiming = Timing | Literal["handler"]
"""How a run came to be, as people read it; see ``shown_timing``."""
Closed = Literal["completed", "failed", "cancelled", "terminated", "timed_out"]

OPEN: frozenset[Status] = frozenset({"claimed", "queued", "starting", "started"})
"""Not final yet: a run is open, or may still come."""

SURELY_NOT_RUN: frozenset[Status] = frozenset({"skipped", "expired", "rejected"})
"""Final without a run: there will be none unless somebody asks for it."""

Cause = ReasonCode | Literal["undeclared", "rejected", "skipped"]
"""Why a window surely has no run; see ``cause_of`` and the table in docs/operating.md.

``undeclared`` has no row, since it is from before its schedule was declared. ``skipped`` is for a
reason that only a later version knows.
"""


def cause_of(status: Status, code: ReasonCode | None) -> Cause | None:
    """Return why the window of a row surely has no run; None where it has, or may have, one.

    The ledger in PostgreSQL has the same as a function (``cause_of`` in migration 0019).
    """
    if status == "expired" or status == "rejected":  # noqa: PLR1714 - so that mypy sees it
        return status
    return (code or "skipped") if status == "skipped" else None


def shown_timing(kind: Kind, timing: Timing | None) -> ShownTiming | None:
    """Return how a run came to be.

    Nobody has asked for a handler. Its row and its memo say ``manual`` all the same, since workers
    of before would refuse another word.
    """
    return "handler" if kind == "handler" else timing


@dataclass(frozen=True, slots=True)
class Claim:
    """A fire that this replica owns until its lease ends: the order to start one run.

    Attributes:
        fire_id: the ledger's number of the fire.
        schedule: the definition the window was decided under.
        token: whoever writes an outcome must show it.
        fresh: False when the fire was taken over, so that an earlier send may have arrived.
        starting_at: when the fire first became ``starting``.
        retention: the smallest namespace retention in force since then; None when none was seen.
        missed_from: the first of the windows that a caught-up run stands for besides its own.
        own_input: the argument of this run alone, in a list of one; without it the definition's.
        rules: what its type was announced with; see ``engine.flow.run_rules``.
        data_from: where its data begin; see ``engine.ledger.data_gaps``. None: nobody knows.
    """

    fire_id: int
    key: str
    project: str
    series: int
    bucket: int
    fire_time: datetime
    schedule: Schedule
    definition_version: int
    workflow_id: str
    workflow_type: str
    task_queue: str
    timing: Timing
    missed: int
    reason: str | None
    token: UUID
    attempts: int
    starting_at: datetime
    fresh: bool = True
    retention: timedelta | None = None
    missed_from: datetime | None = None
    own_input: tuple[Any, ...] = ()
    rules: Mapping[str, Any] | None = None
    kind: Kind = "window"
    data_from: datetime | None = None

    @property
    def arguments(self) -> list[Any]:
        """What the workflow is called with: one argument or none."""
        if self.own_input:
            return [*self.own_input]
        return [self.schedule.input] if self.schedule.has_input else []


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a claim, to be written if its token still holds.

    ``status`` is ``started``, ``rejected``, ``unvouched``, or ``starting`` for "unknown: let
    the sweepers ask again after ``retry_after``". ``first_run_id``: of the run's chain.
    """

    fire_id: int
    token: UUID
    status: Literal["started", "rejected", "unvouched", "starting"]
    timing: Timing | None = None
    run_id: str | None = None
    started_at: datetime | None = None
    reason: str | None = None
    error: str | None = None
    retry_after: timedelta | None = None
    first_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run of ours that somebody saw. It wins over whatever class the fire had (rule L2).

    ``closed`` and ``closed_at`` are None while the run is open. ``last``: Temporal was asked for
    the id alone, and answered with the last run that it has. ``not_undone``: what it could
    not take back, as the JSON of a list; see ``engine.ledger.letters``. ``first_run_id``: the first
    run of its chain, where that was seen; a run is whatever has the same.
    """

    workflow_id: str
    run_id: str
    started_at: datetime
    closed: Closed | None = None
    closed_at: datetime | None = None
    error: str | None = None
    last: bool = False
    not_undone: str | None = None
    first_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Fire:
    """The ledger's row of one window (or of a run of boring ones), as people read it.

    ``reason_code`` is the reason as a word of a closed list; see ``engine.schedules.reason_codes``.
    """

    key: str
    series: int
    bucket: int
    fire_time: datetime
    windows: int
    last_fire_time: datetime
    workflow_id: str
    run_id: str | None
    status: Status
    reason: str | None
    timing: ShownTiming | None
    started_at: datetime | None
    closed_at: datetime | None
    lag_ms: int | None
    error: str | None
    replica: str | None
    definition_version: int
    project: str
    history: tuple[dict[str, object], ...] = ()
    reason_code: ReasonCode | None = None

    @property
    def overflowed(self) -> bool:
        """Whether it was skipped because the queue was full."""
        return self.status == "skipped" and (self.reason or "").startswith(QUEUE_FULL)

    @property
    def cause(self) -> Cause | None:
        """Why it surely has no run; see ``cause_of``."""
        return cause_of(self.status, self.reason_code)


@dataclass(frozen=True, slots=True)
class StopOrder:
    """A run that is to be cancelled or terminated now; ``stop_grace``: see ``Schedule``.

    ``asked``: it was asked to cancel before, and has to be asked again only if it goes on without
    having heard of it. ``first_run_id`` is None where nobody knows it yet.
    """

    fire_id: int
    workflow_id: str
    first_run_id: str | None
    stop: Stop
    stop_grace: timedelta | None
    stop_reason: str | None
    asked: bool = False


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A started fire whose close has not been seen."""

    workflow_id: str
    run_id: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class InTheWay:
    """A run that windows of its key wait in line for."""

    workflow_id: str
    key: str
