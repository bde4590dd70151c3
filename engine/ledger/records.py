"""The values that go into and come out of a ledger. Instants are aware and in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from engine.ledger.letters import Kind
from engine.schedules.decisions import (
    QUEUE_FULL,
    Decision,
    Hold,
    Known,
    Move,
    OpenFire,
    Overlap,
    Stop,
)
from engine.schedules.model import Schedule
from engine.schedules.time_rules import TIME_RULES, reading_at
from engine.schedules.windows import Window

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
    """What one replica may claim: its project's schedules on its task queue, by type.

    ``rules`` are those of its types' runs; see ``engine.flow.run_rules``.
    """

    replica: str
    project: str
    task_queue: str
    types: frozenset[str]
    rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)

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
        stop_at: when the next run is to be cancelled or terminated, if any.
        server: when the server process that answers began; None where there is none, or where
            it is a standby, which may be behind.
        transactions: how many transactions the server has ever numbered. It never falls, unless
            some are lost.
        doubted_at: when somebody saw a sign of lost commits last.
        chained: whether schedules of the project wait for windows of others.
    """

    now: datetime
    ledger_id: UUID
    epoch: int
    due_at: datetime | None
    stale_at: datetime | None
    stop_at: datetime | None = None
    server: datetime | None = None
    transactions: int = 0
    doubted_at: datetime | None = None
    chained: bool = False


@dataclass(frozen=True, slots=True)
class Lineage:
    """Which history of which database system commits belong to; None where it is not told."""

    system: str | None = None
    timeline: int | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Why and since when a schedule does not fire; without ``until``, until somebody resumes it."""

    at: datetime
    reason: str | None = None
    by: str | None = None
    until: datetime | None = None


Origin = Literal["file", "api"]
State = Literal["active", "paused", "disabled", "retired"]


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A schedule's row, as read under its lock.

    ``rules`` and ``cursor_reading`` say by which rules of time it was computed, and which local
    time it had come to by them; see ``engine.schedules.time_rules``. ``known`` and ``open_fires``
    are what a plan must know of its fires; see ``engine.schedules.decisions``.
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
    pause: Pause | None
    absent_since: datetime | None
    failures: int
    rules: str
    cursor_reading: datetime | None
    origin: Origin = "file"
    known: Known = field(default_factory=dict)
    open_fires: tuple[OpenFire, ...] = ()

    def window(self, fire_time: datetime) -> Window:
        """Return the window of the present series that opens at ``fire_time``."""
        return Window(self.key, self.series, self.schedule.spec.bucket(fire_time), fire_time)

    @property
    def hold(self) -> Hold | None:
        """Why the schedule does not fire at present, if so."""
        if self.retired_at is not None:
            return "retired"
        if not self.schedule.enabled:
            return "disabled"
        return "paused" if self.pause is not None else None


@dataclass(frozen=True, slots=True)
class Step:
    """What a plan does to one schedule: fires to write, and where its cursor goes.

    ``max_bucket`` is the highest bucket used afterwards. ``moves``, ``looks``, ``resumed`` and
    ``audit`` are the plan's.
    """

    state: ScheduleState
    decisions: tuple[Decision, ...]
    cursor: datetime
    next_fire_at: datetime | None
    moves: tuple[Move, ...] = ()
    looks: tuple[OpenFire, ...] = ()
    resumed: bool = False
    audit: bool = False

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
        missed_from: the first of the windows that a caught-up run stands for besides its own.
        own_input: the argument of this run alone, in a list of one; without it the definition's.
        rules: what its type was announced with; see ``engine.flow.run_rules``.
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

    ``closed`` and ``closed_at`` are None while the run is open. ``last``: Temporal was asked for
    the id alone, and answered with the last run that it has. ``not_undone``: what it could
    not take back, as the JSON of a list; see ``engine.ledger.letters``.
    """

    workflow_id: str
    run_id: str
    started_at: datetime
    closed: Closed | None = None
    closed_at: datetime | None = None
    error: str | None = None
    last: bool = False
    not_undone: str | None = None


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

    @property
    def overflowed(self) -> bool:
        """Whether it was skipped because the queue was full."""
        return self.status == "skipped" and (self.reason or "").startswith(QUEUE_FULL)


@dataclass(frozen=True, slots=True)
class StopOrder:
    """A run that is to be cancelled or terminated now; ``stop_grace``: see ``Schedule``."""

    fire_id: int
    workflow_id: str
    run_id: str
    stop: Stop
    stop_grace: timedelta | None
    stop_reason: str | None


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A run that somebody asks for: a manual one, or a rerun of a window.

    ``status`` is what overlap makes of it; ``overlap`` is its own, where it was given.
    """

    kind: Literal["manual", "rerun"]
    series: int
    bucket: int
    fire_time: datetime
    workflow_id: str
    status: Literal["claimed", "queued", "skipped", "rejected"]
    reason: str | None = None
    overlap: Overlap | None = None
    own_input: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class SkippedAhead:
    """A window to come that an operator skipped."""

    key: str
    fire_time: datetime
    workflow_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Action:
    """What somebody did, for the audit: who and when is the ledger's to add."""

    project: str
    key: str
    verb: str
    reason: str | None = None
    workflow_id: str | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ActionRow:
    """What somebody did, as people read it."""

    at: datetime
    by: str
    verb: str
    key: str
    project: str
    reason: str | None
    workflow_id: str | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


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
        last_fire_at, last_status: of its newest fire; a window skipped ahead has not come yet.
        error: why it backs off, if it does.
        pause: why and since when it does not fire, where somebody paused it.
        origin: who declares it, a file or an application.
        skips: windows to come that somebody skipped, and why.
    """

    key: str
    project: str
    workflow: str
    schedule: Schedule | None
    state: State
    next_fire_at: datetime | None
    last_fire_at: datetime | None
    last_status: Status | None
    workflow_type: str | None
    definition_version: int
    series: int
    effective_from: datetime
    error: str | None
    rules: str = TIME_RULES
    pause: Pause | None = None
    origin: Origin = "file"
    skips: Mapping[datetime, str] = field(default_factory=dict)

    @property
    def next_start_at(self) -> datetime | None:
        """The next window that starts: excluded and skipped ones are looked at, and do not."""
        if self.next_fire_at is None or self.schedule is None:
            return self.next_fire_at
        return self.schedule.first_start(self.next_fire_at, but=self.skips)


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
    origin: Origin = "file"
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class ProjectRow:
    """The file a project was applied from last.

    Attributes:
        refused: keys of it that were not applied: see ``refusing``.
    """

    revision: int | None
    file_digest: str
    applied_at: datetime
    file_name: str
    applied_by: str
    refused: tuple[str, ...] = ()

    def has(self, digest: str) -> bool:
        """Whether the file of this digest is applied already, all of it."""
        return self.file_digest == digest and not self.refused


@dataclass(frozen=True, slots=True)
class DriftRow:
    """A schedule that stands otherwise than its file alone would have it.

    Attributes:
        origin: an application's is in no file.
        pause: whoever holds it, the file's first state too.
        skipped: windows to come that an operator skipped.
    """

    key: str
    origin: Origin
    pause: Pause | None
    skipped: tuple[datetime, ...]
