"""Records of schedules, declarations, operator actions, replicas and queues."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, get_args
from uuid import UUID, uuid4

from engine.ledger.fires import Cause, Claim, Status, Timing
from engine.schedules.ids import Window
from engine.schedules.model import Queue, Schedule
from engine.schedules.planner.decisions import (
    ALL_READ,
    Decision,
    Dependencies,
    Hold,
    Known,
    Move,
    OpenFire,
    Unread,
)
from engine.schedules.planner.planner import TIME_RULES, reading_at
from engine.schedules.policies import Overlap
from engine.schedules.units import parse_rate

# --- schedules ---
# What is known of a schedule: as a plan needs it, and as people read it.
#
# Instants are aware and in UTC.


@dataclass(frozen=True, slots=True)
class Pause:
    """Why and since when a schedule does not fire; without ``until``, until somebody resumes it."""

    at: datetime
    reason: str | None = None
    by: str | None = None
    until: datetime | None = None


Origin = Literal["file", "api"]
State = Literal["active", "paused", "disabled", "ended", "retired"]


def state_of(hold: Hold | None, next_fire_at: datetime | None) -> State:
    """Return how a schedule stands: held, with windows to come, or with none any more."""
    return hold or ("active" if next_fire_at else "ended")


def hold_of(
    retired_at: datetime | None, schedule: Schedule | None, pause: Pause | None
) -> Hold | None:
    """Return why a schedule does not fire at present, if so; None for what nobody can read."""
    if retired_at is not None:
        return "retired"
    if schedule is not None and not schedule.enabled:
        return "disabled"
    return "paused" if pause is not None else None


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A schedule's row, as read under its lock.

    ``rules`` and ``cursor_reading`` say by which rules of time it was computed, and which local
    time it had come to by them; see ``engine.schedules.planner.planner``. ``known``, ``open_fires``
    and
    ``unread`` are what a plan must know of its fires; see ``engine.schedules.planner.decisions``.
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
    unread: Unread = ALL_READ
    line_changes: int = 0

    def window(self, fire_time: datetime) -> Window:
        """Return the window of the present series that opens at ``fire_time``."""
        return Window(self.key, self.series, self.schedule.spec.bucket(fire_time), fire_time)

    @property
    def hold(self) -> Hold | None:
        """Why the schedule does not fire at present, if so."""
        return hold_of(self.retired_at, self.schedule, self.pause)


@dataclass(frozen=True, slots=True)
class Step:
    """A plan with the state it was made for: fires to write, and the new cursor.

    ``max_bucket`` is the highest bucket used afterwards. ``moves``, ``looks``, ``resumed``,
    ``audit`` and ``withheld`` are the plan's.
    """

    state: ScheduleState
    decisions: tuple[Decision, ...]
    cursor: datetime
    next_fire_at: datetime | None
    moves: tuple[Move, ...] = ()
    looks: tuple[OpenFire, ...] = ()
    resumed: bool = False
    audit: bool = False
    withheld: bool = False

    @property
    def plain(self) -> bool:
        """Whether each window it passes has a row of its own, and nothing else changes.

        Whoever does not know how far the cursor has come then still finds all of them decided.
        """
        state = self.state
        if self.resumed or state.failures or state.rules != TIME_RULES:
            return False
        rows = {each.window.fire_time for each in self.decisions if each.windows == 1}
        at: datetime | None = state.cursor
        while at is not None and at < self.cursor:
            at = state.schedule.spec.next(at)
            if at not in rows and at not in state.known:
                return False
        return True

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
        # What an operator skipped before it came has its row, and is passed over.
        used += [spec.bucket(at) for at in self.state.known if at <= self.cursor]
        return max(
            (*used, *(() if self.state.max_bucket is None else (self.state.max_bucket,))),
            default=None,
        )


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


# --- new fires ---
# A decision on its way into a ledger.


@dataclass(frozen=True, slots=True)
class NewFire:
    """One row to write. With a token it is written ``starting`` and is its owner's to send.

    One that waits (``not_before``) is only ``claimed``: a sweeper begins to send it in time.
    """

    project: str
    key: str
    series: int
    bucket: int
    fire_time: datetime
    windows: int
    last_fire_time: datetime
    definition_version: int
    workflow_id: str
    workflow_type: str | None
    task_queue: str
    status: Status
    reason: str | None
    timing: Timing | None
    missed: int
    missed_from: datetime | None
    not_before: datetime | None
    token: UUID | None
    schedule: Schedule
    awaits: Dependencies | None = None
    overlap: Overlap | None = None

    @classmethod
    def of(cls, step: Step, decision: Decision, owner: str | None) -> NewFire:
        """Return the row of one decision; without an owner a start is only ``claimed``."""
        state, window = step.state, decision.window
        at_once = decision.verdict == "claimed" and decision.not_before is None
        token = uuid4() if owner and at_once else None
        return cls(
            project=state.project,
            key=window.key,
            series=window.series,
            bucket=window.bucket,
            fire_time=window.fire_time,
            windows=decision.windows,
            last_fire_time=decision.last or window.fire_time,
            definition_version=state.definition_version,
            workflow_id=window.workflow_id(state.suffixed),
            workflow_type=state.workflow_type,
            task_queue=state.schedule.task_queue,
            status="starting" if token else decision.verdict,
            reason=decision.reason,
            timing=decision.timing,
            missed=decision.missed,
            missed_from=decision.missed_from,
            not_before=decision.not_before,
            token=token,
            schedule=state.schedule,
            awaits=decision.awaits,
            overlap=decision.overlap,
        )

    @classmethod
    def asked_for(
        cls, state: ScheduleState, window: Window, workflow_id: str, status: Status, timing: Timing
    ) -> NewFire:
        """Return the row of a run that somebody asks for."""
        return cls(
            project=state.project,
            key=window.key,
            series=window.series,
            bucket=window.bucket,
            fire_time=window.fire_time,
            windows=1,
            last_fire_time=window.fire_time,
            definition_version=state.definition_version,
            workflow_id=workflow_id,
            workflow_type=state.workflow_type,
            task_queue=state.schedule.task_queue,
            status=status,
            reason=None,
            timing=timing,
            missed=0,
            missed_from=None,
            not_before=None,
            token=None,
            schedule=state.schedule,
        )

    @classmethod
    def backfilled(
        cls, state: ScheduleState, window: Window, workflow_id: str, *, sent: bool
    ) -> NewFire:
        """Return the row of a window that starts after all; ``sent``: at once, by its owner."""
        status: Status = "starting" if sent else "queued"
        new = cls.asked_for(state, window, workflow_id, status, "backfill")
        return replace(new, token=uuid4()) if sent else new

    def claim(
        self,
        fire_id: int,
        starting_at: datetime,
        *,
        data_from: datetime | None,
        rules: Mapping[str, Any] | None = None,
    ) -> Claim:
        """Return the order to start this fire's run, once the row is written."""
        if self.token is None or self.workflow_type is None or self.timing is None:
            raise AssertionError("only a start that found its type becomes a claim")
        return Claim(
            fire_id=fire_id,
            key=self.key,
            project=self.project,
            series=self.series,
            bucket=self.bucket,
            fire_time=self.fire_time,
            schedule=self.schedule,
            definition_version=self.definition_version,
            workflow_id=self.workflow_id,
            workflow_type=self.workflow_type,
            task_queue=self.task_queue,
            timing=self.timing,
            missed=self.missed,
            missed_from=self.missed_from,
            reason=self.reason,
            token=self.token,
            attempts=1,
            starting_at=starting_at,
            rules=rules,
            data_from=data_from,
        )


# --- declarations ---
# What is declared, and what stands otherwise. Instants are aware and in UTC.


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

    @property
    def applied(self) -> str:
        """The digest of the file; empty while not all of it is applied."""
        return "" if self.refused else self.file_digest


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


# --- operator actions ---
# What operators ask for and what they did. Instants are aware and in UTC.


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
    """An operator action to record; the ledger adds who and when."""

    project: str
    key: str
    verb: str
    reason: str | None = None
    workflow_id: str | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ActionRow:
    """A recorded operator action."""

    at: datetime
    by: str
    verb: str
    key: str
    project: str
    reason: str | None
    workflow_id: str | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


# --- replicas ---
# What a replica may claim, and what it sees of the ledger itself.
#
# Instants are aware and in UTC.


@dataclass(frozen=True, slots=True)
class Serving:
    """The schedules that one replica may claim: its project's, on its task queue, by type.

    ``rules`` are those of its types' runs; see ``engine.flow.definition``.
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


class Wanted(NamedTuple):
    """Schedules of a project that may fire, and what they need of a worker.

    Attributes:
        lane: the task queue of their workers; "" is external, which any of the project starts.
        workflow: what they start, as they name it.
        workflow_type: what that means today; None while no worker has announced it.
        schedules: how many they are.
    """

    lane: str
    workflow: str
    workflow_type: str | None
    schedules: int


Served = Mapping[tuple[str, str], frozenset[str]]
"""For each project and task queue that a living replica serves, the types that such have."""


def as_served(living: Iterable[tuple[str, str, Collection[str]]]) -> Served:
    """Return what living replicas serve, by the project, task queue and types of each."""
    served: dict[tuple[str, str], frozenset[str]] = {}
    for project, task_queue, types in living:
        place = (project, task_queue)
        served[place] = served.get(place, frozenset()).union(types)
    return served


@dataclass(frozen=True, slots=True)
class Probe:
    """One look at the ledger: all that an idle tick does.

    Attributes:
        now: the database's clock.
        ledger_id: changes when another database answers.
        epoch: counts configuration changes.
        due_at: when to look next at a schedule that this replica could serve, if at any. Of one
            that is late this may be when that was written.
        stale_at: when the oldest lease of a claimed or starting fire ends, if any.
        stop_at: when the next run is to be cancelled or terminated, if any.
        server: when the server process that answers began; None where there is none, or where
            it is a standby, which may be behind.
        transactions: how many transactions the server has ever numbered. It never falls, unless
            some are lost.
        doubted_at: when somebody saw a sign of lost commits last.
        chained: whether schedules of the project wait for windows of others.
        lay_at: when a backfill that this replica could serve has its turn, if any.
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
    lay_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Lineage:
    """Database system and timeline that commits belong to; None where unknown."""

    system: str | None = None
    timeline: int | None = None


# --- queues ---
# What the ledger knows of queues of steps, and what a replica asks about their slots.


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue, as it was declared last.

    Attributes:
        queue: its name, one in the whole namespace.
        project: whose it is.
        limits: what its steps keep to.
        dropped_at: since when no file declares it; its limits go on holding.
    """

    queue: str
    project: str
    limits: Queue
    declared_at: datetime
    dropped_at: datetime | None = None

    @classmethod
    def of(cls, *, concurrency: int | None, rate: str | None, **rest: Any) -> QueueRow:
        """Return what a row of ``queues`` says."""
        return cls(limits=Queue(concurrency, parse_rate(rate) if rate else None), **rest)


UNPOLLED: Final = timedelta(minutes=2)
"""For so long nobody polls a task queue until that is told. A poll lasts a minute at most."""


@dataclass(frozen=True, slots=True)
class PolledQueue:
    """Temporal's last answer on the task queue of external schedules.

    Attributes:
        polled_at: when a worker polled it last; None: none that Temporal remembers.
        waiting: how many runs wait there for a worker, about.
        since: when it was looked at first.
        looked_at: when it was looked at last.
    """

    task_queue: str
    polled_at: datetime | None
    waiting: int
    since: datetime
    looked_at: datetime

    @property
    def is_left_alone(self) -> bool:
        """Whether nobody has polled it for a while; one that was just seen gets its time."""
        return self.looked_at - (self.polled_at or self.since) >= UNPOLLED


@dataclass(frozen=True, slots=True)
class SlotAsk:
    """A replica's demand on one lane.

    Attributes:
        lane: the Temporal task queue of the steps.
        queue: whose limits hold.
        running: on how many slots steps run, or may begin to run until the answer is there; they
            are kept whatever the limit is now.
        wanted: how many slots would be used at once.
    """

    lane: str
    queue: str
    running: int
    wanted: int


@dataclass(frozen=True, slots=True)
class SlotsHeld:
    """Number of slots of a lane that one replica holds."""

    lane: str
    queue: str
    holder: str
    slots: int


# --- backfills ---
# Backfills as the ledger keeps them: ranges of past windows that ticks lay, some at a time.
#
# Instants are aware and in UTC.

InLine = Literal["allow", "queue"]
"""How the windows of a backfill start: as fast as it goes, or one after another."""

BackfillState = Literal["laying", "done", "ended"]

Included = Literal["user", "excluded", "dependency", "coalesced"]
"""Causes of windows that a backfill starts only where its request names them."""

UNDECLARED: Final[Cause] = "undeclared"
"""The cause of a window without a row, which is from before its schedule was declared."""

BY_DEFAULT: Final[tuple[Cause, ...]] = (
    UNDECLARED, "expired", "rejected", "paused", "disabled", "retired", "queue_full", "overlap",
)  # fmt: skip
"""The causes of windows that every backfill starts."""

INCLUDED: Final[tuple[Included, ...]] = get_args(Included)


@dataclass(frozen=True, slots=True)
class Backfill:
    """One range.

    Attributes:
        series, definition_version: of the request. They say which windows it has, and how they run.
        first, last: the fire times of its first and its last window.
        cursor: every window of it up to here was laid or left alone.
        include: windows of which causes start.
        state: ``done`` is laid to its end; ``ended`` was given up before, for ``ended_reason``.
        next_at: when a tick looks at it next.
        laid_at: when windows were laid last.
        looked_at: up to when signs of lost commits were followed by a look at the key's runs.
        windows: how many it has.
        laid: how many of them start, or have.
        left_alone: how many of them do not, by why.
        error: why it could not be laid, when it was tried last.
    """

    id: int
    project: str
    key: str
    series: int
    definition_version: int
    first: datetime
    last: datetime
    cursor: datetime
    overlap: InLine
    include: tuple[Cause, ...]
    requested_by: str
    requested_at: datetime
    next_at: datetime
    windows: int
    state: BackfillState = "laying"
    ended_reason: str | None = None
    reason: str | None = None
    laid_at: datetime | None = None
    looked_at: datetime | None = None
    ended_at: datetime | None = None
    laid: int = 0
    left_alone: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None

    @property
    def done(self) -> int:
        """Number of its windows that were laid or left alone."""
        return self.laid + sum(self.left_alone.values())

    def is_pending(self, cause: Cause | None, first: datetime, last: datetime) -> bool:
        """Whether windows of this cause, between these fire times, may still start by it."""
        ahead = self.state == "laying" and self.cursor < last and first <= self.last
        return ahead and cause in self.include

    def is_halted(self, state: ScheduleState) -> bool:
        """Whether the hold of its schedule halts it: a pause does that was not there before it."""
        if state.hold == "disabled":
            return True
        return state.pause is not None and state.pause.at > self.requested_at

    def ends(self, state: ScheduleState) -> str | None:
        """Why its schedule, as it is now, lets nothing more of it be laid; None when it does."""
        if state.retired_at is not None:
            return "the schedule was retired"
        if state.series != self.series:
            return "an edit changed when the schedule fires, and its windows are others now"
        return None


@dataclass(frozen=True, slots=True)
class ToLay:
    """A window that is to start after all; ``again``: its row says that it would not."""

    window: Window
    workflow_id: str
    again: bool


def as_backfill(row: Mapping[str, Any], left_alone: Mapping[str, int]) -> Backfill:
    """Return what the ledger read."""
    return Backfill(**{**row, "include": tuple(row["include"]), "left_alone": left_alone})


# --- JSON of an action ---
# How the state before and after an action is kept: as JSON, instants in ISO 8601 with ``Z``.


def noted(state: Mapping[str, Any] | None) -> str | None:
    """Return what the audit keeps of a state, as JSON text."""
    return None if state is None else json.dumps(state, default=_as_text)


def _as_text(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    raise TypeError(f"nothing says how {type(value).__name__} is noted")
