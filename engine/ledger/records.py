"""The values that go into and come out of a ledger. Instants are aware and in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from engine.schedules.model import Schedule
from engine.schedules.planner import Decision, Hold
from engine.schedules.time_rules import TIME_RULES, reading_at

Status = Literal[
    "claimed", "queued", "starting", "started",
    "completed", "failed", "cancelled", "terminated", "timed_out",
    "skipped", "expired", "rejected", "unvouched",
]  # fmt: skip
Timing = Literal["on_time", "late", "caught_up", "manual", "backfill", "rerun"]
Closed = Literal["completed", "failed", "cancelled", "terminated", "timed_out"]

OPEN: frozenset[Status] = frozenset({"claimed", "queued", "starting", "started"})
"""Not final yet: a run is open, or may still come."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What one replica may claim: its project's schedules on its task queue, by type."""

    replica: str
    project: str
    task_queue: str
    types: frozenset[str]

    @property
    def lanes(self) -> tuple[str, str]:
        """The lanes of the due query: external schedules, and the replica's own task queue."""
        return ("", self.task_queue)


@dataclass(frozen=True, slots=True)
class Probe:
    """One look at the ledger: all that an idle tick does.

    Attributes:
        now: the database's clock.
        ledger_id: changes when another database answers.
        epoch: counts configuration changes.
        due_at: the earliest fire time this replica could serve, if any.
        stale_at: when the oldest lease of a claimed or starting fire ends, if any.
    """

    now: datetime
    ledger_id: UUID
    epoch: int
    due_at: datetime | None
    stale_at: datetime | None


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A schedule's row, as read under its lock.

    ``rules`` and ``cursor_reading`` say by which rules of time it was computed, and which local
    time it had come to by them; see ``engine.schedules.time_rules``.
    """

    key: str
    project: str
    schedule: Schedule
    definition_version: int
    digest: str
    series: int
    suffixed: bool
    max_bucket: int | None
    effective_from: datetime
    cursor: datetime
    workflow_type: str | None
    retired_at: datetime | None
    paused_at: datetime | None
    absent_since: datetime | None
    failures: int
    rules: str
    cursor_reading: datetime | None

    @property
    def hold(self) -> Hold | None:
        """Why the schedule does not fire at present, if so."""
        if self.retired_at is not None:
            return "retired"
        if self.paused_at is not None:
            return "paused"
        return None if self.schedule.enabled else "disabled"


@dataclass(frozen=True, slots=True)
class Step:
    """What a plan does to one schedule: fires to write, and where its cursor goes.

    ``max_bucket`` is the highest bucket used afterwards.
    """

    state: ScheduleState
    decisions: tuple[Decision, ...]
    cursor: datetime
    next_fire_at: datetime | None

    @property
    def reading(self) -> datetime | None:
        """The local time that the schedule has come to, for when zone rules change."""
        return reading_at(self.state.schedule, self.cursor)

    @property
    def max_bucket(self) -> int | None:
        """The highest bucket the key has used once this step is written."""
        spec = self.state.schedule.spec
        used = [
            spec.bucket(decision.last or decision.window.fire_time) for decision in self.decisions
        ]
        return max(
            (*used, *(() if self.state.max_bucket is None else (self.state.max_bucket,))),
            default=None,
        )


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a claim, to be written if its token still holds.

    ``status`` is ``started``, ``rejected``, ``unvouched``, or ``starting`` for "unknown: let
    the sweepers ask again after ``retry_after``".
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


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run of ours that somebody saw. It wins over whatever class the fire had (rule L2).

    ``closed`` and ``closed_at`` are None while the run is open.
    """

    workflow_id: str
    run_id: str
    started_at: datetime
    closed: Closed | None = None
    closed_at: datetime | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Fire:
    """The ledger's row of one window (or of a run of boring ones), as people read it."""

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
    timing: Timing | None
    started_at: datetime | None
    closed_at: datetime | None
    lag_ms: int | None
    error: str | None
    replica: str | None
    definition_version: int
    project: str
    history: tuple[dict[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A started fire whose close has not been seen."""

    workflow_id: str
    run_id: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule as people read it; ``schedule`` is None when this version cannot read it.

    Attributes:
        definition_version: the newest definition's, in force since ``effective_from``.
        next_fire_at: when it is looked at next; see ``next_start_at``.
        last_fire_at, last_status: of its newest fire.
        error: why it backs off, if it does.
    """

    key: str
    project: str
    workflow: str
    schedule: Schedule | None
    state: Literal["active", "paused", "disabled", "retired"]
    next_fire_at: datetime | None
    last_fire_at: datetime | None
    last_status: Status | None
    workflow_type: str | None
    definition_version: int
    series: int
    effective_from: datetime
    error: str | None
    rules: str = TIME_RULES

    @property
    def next_start_at(self) -> datetime | None:
        """The next window that starts: excluded ones are looked at too, and only settled."""
        if self.next_fire_at is None or self.schedule is None:
            return self.next_fire_at
        return self.schedule.first_start(self.next_fire_at)


@dataclass(frozen=True, slots=True)
class NextFire:
    """The window a schedule opens next, and the zone its people live by."""

    key: str
    fire_time: datetime
    timezone: str


@dataclass(frozen=True, slots=True)
class NewDefinition:
    """A definition to write, with the state it puts its schedule into."""

    schedule: Schedule
    project: str
    version: int
    series: int
    suffixed: bool
    max_bucket: int | None
    effective_from: datetime
    cursor: datetime
    next_fire_at: datetime | None
    workflow_type: str | None
    paused: bool


@dataclass(frozen=True, slots=True)
class ProjectRow:
    """The file a project was applied from last."""

    revision: int | None
    file_digest: str
    applied_at: datetime
