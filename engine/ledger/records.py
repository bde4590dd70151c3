"""Records of the ledger: schedules, new fires, declarations, actions, replicas, queues, backfills.

All datetimes are timezone-aware and in UTC.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, Self, get_args
from uuid import UUID, uuid4

from engine.errors import ScheduleError
from engine.ledger.fires import Cause, Claim, Startable, Status, Timing, common_fields
from engine.schedules import (
    SEALED_INPUT,
    STARTS,
    Overlap,
    Queue,
    Reason,
    ReasonCode,
    Schedule,
    Sealed,
    Window,
    code_of,
    definition_digest,
    epoch_ms,
    exact_text,
    from_ms,
    parse_rate,
    start_workflow_id,
    starts_key,
    unsafe_in,
)
from engine.schedules.planner import Decision, Dependencies, Origin, Pause, Plan, ScheduleState

# --- new fires ---


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFire(Startable):
    """A row to write. With a token it is ``starting``, and its owner sends it.

    With ``not_before`` it is only ``claimed``, and a sweeper sends it in time. ``options`` are the
    fields of its definition, as JSON, that the run has of its own.
    """

    windows: int = 1
    last_fire_time: datetime
    status: Status
    reason: Reason | None = None
    not_before: datetime | None = None
    awaits: Dependencies | None = None
    overlap: Overlap | None = None
    waited_since: datetime | None = None
    options: Mapping[str, Any] | None = None

    @property
    def reason_code(self) -> ReasonCode | None:
        """Code of the reason."""
        return code_of(self.reason)

    @classmethod
    def of(cls, plan: Plan, decision: Decision, owner: str | None) -> Self:
        """Return the row of one decision; without an owner a start is only ``claimed``."""
        state, window = plan.state, decision.window
        at_once = decision.verdict == "claimed" and decision.not_before is None
        token = uuid4() if owner and at_once else None
        return cls.under(
            state,
            window,
            window.workflow_id(state.suffixed),
            "starting" if token else decision.verdict,
            decision.timing,
            windows=decision.windows,
            last_fire_time=decision.until,
            reason=decision.reason,
            missed=decision.missed,
            missed_from=decision.missed_from,
            not_before=decision.not_before,
            token=token,
            awaits=decision.awaits,
            overlap=decision.overlap,
            waited_since=decision.waited_since,
        )

    @classmethod
    def backfilled(cls, state: ScheduleState, asked: ToLay, overlap: BackfillOverlap) -> Self:
        """Return the row of a backfilled window; with ``allow`` its owner sends it at once."""
        at_once = overlap == "allow"
        return cls.under(
            state,
            asked.window,
            asked.workflow_id,
            "starting" if at_once else "queued",
            "backfill",
            overlap=overlap,
            token=uuid4() if at_once else None,
        )

    @classmethod
    def under(
        cls,
        state: ScheduleState,
        window: Window,
        workflow_id: str,
        status: Status,
        timing: Timing | None,
        **others: Any,
    ) -> Self:
        """Return the row of a window under the schedule's definition, with ``others`` fields."""
        others.setdefault("last_fire_time", window.fire_time)
        return cls(
            project=state.project,
            key=window.key,
            series=window.series,
            bucket=window.bucket,
            fire_time=window.fire_time,
            workflow_id=workflow_id,
            schedule=state.schedule,
            definition_version=state.definition_version,
            workflow_type=state.workflow_type,
            task_queue=state.schedule.task_queue,
            timing=timing,
            status=status,
            **others,
        )

    def claim(self, **others: Any) -> Claim:
        """Return the order to start this fire's run, once the row is written.

        Args:
            others: fields of a claim that the row lacks.
        """
        if self.token is None or self.workflow_type is None or self.timing is None:
            raise AssertionError("only a start that found its type becomes a claim")
        return Claim(**common_fields(Claim, self), **others)


# --- starts ---
# Runs that applications start under ids of their own. They have no windows; their fires belong to a
# row of ``schedules`` of the key ``@<workflow>``, which every version can read and none fires.


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A start by an application. The ledger keeps it for ever.

    Attributes:
        workflow: the name of the workflow, without a version.
        start_id: the id that the application chose, used once for each workflow.
        digest: see ``digest_of``.
        requested: the workflow as it was asked for, ``name`` or ``name@version``.
        project: the project whose workers send it.
        task_queue: the task queue of its run.
        requested_by: the actor.
        requested_at: None until it is written.
    """

    workflow: str
    start_id: str
    digest: str
    requested: str
    project: str
    task_queue: str
    requested_by: str
    requested_at: datetime | None = None

    @staticmethod
    def workflow_of(requested: str) -> str | None:
        """Return the name in ``name`` or ``name@version``; None if it is neither."""
        key = starts_key(requested)
        return key.removeprefix(STARTS) if key else None

    @staticmethod
    def definition_of(workflow: str) -> Schedule:
        """Return the definition of the row to which the fires of a workflow's starts belong.

        Replicas that know no starts read it too, and send claims by it.
        """
        return Schedule.from_json(_definition_json(workflow))

    @staticmethod
    def checked_input(value: Any) -> Any:
        """Return an input as the ledger stores it.

        Raises:
            ScheduleError: JSON cannot carry it.
        """
        return Schedule.from_json({**_definition_json("any"), "input": value}).input

    @staticmethod
    def digest_of(arguments: tuple[Any, ...]) -> str:
        """Return the digest of an input, or of none, in hex; equal JSON values have equal ones.

        Of a sealed input it is made from the keyed digest.
        """
        if not arguments:
            return definition_digest({})
        (given,) = arguments
        if isinstance(given, Sealed):
            return definition_digest({SEALED_INPUT: given.digest})
        return definition_digest({"input": given})

    @property
    def workflow_id(self) -> str | None:
        """The workflow id of its first run; None if ``start_id`` is invalid."""
        return start_workflow_id(STARTS + self.workflow, self.start_id)

    def fire(
        self,
        workflow_id: str,
        workflow_type: str,
        at: datetime,
        arguments: tuple[Any, ...],
        *,
        timing: Timing = "manual",
        options: Mapping[str, Any] | None = None,
        not_before: datetime | None = None,
    ) -> NewFire:
        """Return the fire of the start, or with timing ``rerun`` of one more run of it.

        Args:
            workflow_id: the id of that run.
            workflow_type: its Temporal type.
            at: when it is to begin; kept in whole milliseconds.
            arguments: its input, or none.
            timing: see above.
            options: see ``NewFire``.
            not_before: see ``NewFire``; None: at once.
        """
        at = from_ms(epoch_ms(at))
        return NewFire(
            project=self.project,
            key=STARTS + self.workflow,
            series=1,
            bucket=epoch_ms(at),
            fire_time=at,
            last_fire_time=at,
            workflow_id=workflow_id,
            schedule=self.definition_of(self.workflow),
            definition_version=1,
            workflow_type=workflow_type,
            task_queue=self.task_queue,
            status="claimed",
            timing=timing,
            kind="manual",
            own_input=arguments,
            options=options,
            not_before=not_before,
        )


def _definition_json(workflow: str) -> dict[str, Any]:
    """Return a definition whose only window lies before every fire."""
    return {"key": "start", "workflow": workflow, "taskQueue": STARTS, "at": "1970-01-01T00:00:00Z"}


# --- declarations ---
# Definitions, applied files and drift.


@dataclass(frozen=True, slots=True)
class NewDefinition:
    """A definition to write, with the resulting state of its schedule."""

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
    """The file that a project was last applied from.

    Attributes:
        refused: keys of the file that were not applied; see ``engine.runtime.apply.edits``.
        forgotten: whether lists leave out the retired schedules of the project.
    """

    revision: int | None
    file_digest: str
    applied_at: datetime
    file_name: str
    applied_by: str
    refused: tuple[str, ...] = ()
    forgotten: bool = False

    @property
    def applied(self) -> str:
        """The digest of the file; empty unless all of it is applied."""
        return "" if self.refused else self.file_digest


@dataclass(frozen=True, slots=True)
class DriftRow:
    """A schedule whose state differs from what its file declares.

    Attributes:
        origin: an application's schedule is in no file.
        pause: any pause, including one that the file declares as the initial state.
        skipped: windows to come that an operator skipped.
    """

    key: str
    origin: Origin
    pause: Pause | None
    skipped: tuple[datetime, ...]


# --- account of a schedule ---
# What the audit reads of a schedule. A definition is its stored JSON, read by no parser of ours.


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Present state of one schedule.

    Attributes:
        now: the ledger's clock when it was read.
        cursor: every window up to it is decided, as the ledger claims.
        enabled: of the newest definition.
        rules: the time rules by which it was computed last; see ``TIME_RULES``.
        forgotten_until: windows up to then may have left the ledger; None if none has.
        idle: whether nothing becomes due of it by itself.
        former: the keys that it had before it was renamed.
        successor: the key that it has now, if this is a former one.
    """

    now: datetime
    key: str
    project: str
    series: int
    cursor: datetime
    enabled: bool
    rules: str
    retired_at: datetime | None = None
    pause: Pause | None = None
    forgotten_until: datetime | None = None
    idle: bool = False
    former: tuple[str, ...] = ()
    successor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionVersion:
    """One version of a schedule's definition, as it is stored.

    Attributes:
        effective_from: when it took effect; the version before decided the windows up to then.
        applied_at, applied_by: when it was written, and by which actor.
    """

    version: int
    series: int
    definition: Mapping[str, Any]
    effective_from: datetime
    applied_at: datetime
    applied_by: str


# --- operator actions ---
# Requests and actions of operators.


@dataclass(frozen=True, slots=True)
class SkippedAhead:
    """A window to come that an operator skipped."""

    key: str
    fire_time: datetime
    workflow_id: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Action:
    """An operator action to record; the ledger adds the actor and the time.

    Raises:
        ScheduleError: the reason has characters that would act on the terminal which shows it.
    """

    project: str
    key: str
    verb: str
    reason: str | None = None
    workflow_id: str | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.reason and (found := unsafe_in(self.reason)):
            raise ScheduleError(
                f"the reason has the character {found}",
                hint="write one line of visible characters",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRow(Action):
    """A recorded operator action."""

    at: datetime
    by: str

    def __post_init__(self) -> None:
        """Take what is recorded as it is."""


# --- JSON of an action ---
# The state before and after an action, kept as JSON with ISO 8601 timestamps that end in ``Z``.


def action_json(state: Mapping[str, Any] | None) -> str | None:
    """Return a state as the JSON text of an action."""
    return None if state is None else json.dumps(state, default=_as_text)


def _as_text(value: object) -> str:
    if isinstance(value, datetime):
        return exact_text(value)
    raise TypeError(f"nothing says how {type(value).__name__} is noted")


# --- server ---


@dataclass(frozen=True, slots=True)
class LedgerServer:
    """The server of the ledger, and what its role is there.

    Attributes:
        version: of PostgreSQL, as 18.4.
        role: the role of this connection; ``owns`` is whether the ledger's schema is its own.
        connections, most: the connections that the server has now, and may have.
        pooled: whether a pooler stands before it.
        missing_indexes: indexes that migrations have left for later.
        now: its clock.
    """

    version: str
    role: str
    superuser: bool
    owns: bool
    connections: int
    most: int
    now: datetime
    pooled: bool = False
    missing_indexes: tuple[str, ...] = ()


# --- bindings ---
# The Temporal namespaces that a ledger belongs, or has belonged, to.


@dataclass(frozen=True, slots=True)
class TemporalNamespace:
    """A namespace as Temporal describes it.

    Attributes:
        id: Temporal's own ID. A namespace that is deleted and made again has another.
        place: the cluster and the address, for people.
        retention: how long it keeps closed runs.
    """

    id: str
    place: str
    retention: timedelta


@dataclass(frozen=True, slots=True)
class Binding:
    """A Temporal namespace that the ledger belongs, or has belonged, to.

    Attributes:
        number: in the rows of the fires that are, or were, sent there.
        namespace_id: Temporal's own ID of it.
        place: the cluster and the address where it was found, for people.
        current: whether its workers claim windows; those of others look after what they have begun.
        closed_at: since when nothing there counts any more.
        open: number of its fires that have not ended, up to a thousand; 0 of the current one.
    """

    number: int
    namespace_id: str
    place: str
    current: bool
    bound_at: datetime
    bound_by: str
    closed_at: datetime | None
    open: int = 0


# --- replicas ---
# What a replica serves and probes, what schedules want of workers, and the lineage of the database.


@dataclass(frozen=True, slots=True)
class Serving:
    """The schedules that one replica may claim: its project's, on its task queue, by type.

    ``rules`` are the types' run options; see ``engine.flow.definition.RunOptions``. ``inputs`` are
    what they take; see ``engine.runtime.apply.code_check.announced_inputs``.
    """

    replica: str
    project: str
    task_queue: str
    types: frozenset[str]
    rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)

    @property
    def lanes(self) -> tuple[str, str]:
        """The lanes of the due query: external schedules, and the replica's own task queue."""
        return ("", self.task_queue)


class Wanted(NamedTuple):
    """Schedules of a project that may fire and need the same of a worker.

    Attributes:
        lane: the task queue of their workers; "" is external, started by any replica of the
            project.
        workflow: the workflow that they name.
        workflow_type: the type it resolves to; None while no worker has announced it.
        schedules: the number of these schedules.
    """

    lane: str
    workflow: str
    workflow_type: str | None
    schedules: int


class Totals(NamedTuple):
    """How much of each kind a ledger has, each up to a bound.

    Attributes:
        queued: windows that wait for their turn.
        pending: fires that are claimed, or whose start is not answered.
        open_runs: runs that have started and were not seen closed.
        dead_letters: fires that ended badly and were not dealt with.
        overdue: schedules with a window past its grace of which nothing is decided.
    """

    queued: int
    pending: int
    open_runs: int
    dead_letters: int
    overdue: int


class Load(NamedTuple):
    """Work of the replicas of a namespace: what they hold, and what waits for them.

    Attributes:
        claims: number of claims by the replica that holds them; none without a claim.
        due_since: fire time of the oldest window that is due and not decided; None if none is.
        awaits: whether any schedule is to fire, now or later.
    """

    claims: Mapping[str, int]
    due_since: datetime | None
    awaits: bool


Served = Mapping[tuple[str, str], frozenset[str]]
"""The types that living replicas serve, by project and task queue."""


def as_served(living: Iterable[tuple[str, str, Collection[str]]]) -> Served:
    """Return the types that living replicas serve, by project and task queue."""
    served: dict[tuple[str, str], frozenset[str]] = {}
    for project, task_queue, types in living:
        place = (project, task_queue)
        served[place] = served.get(place, frozenset()).union(types)
    return served


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of a probe of the ledger, which is all that an idle tick does.

    Attributes:
        now: the database's clock.
        ledger_id: changes when another database answers.
        epoch: counts configuration changes.
        due_at: when a schedule that this replica could serve is due next, if any. For a late one
            this may be the time at which that was written.
        stale_at: when the oldest lease of a claimed or starting fire ends, if any.
        stop_at: when the next run is to be cancelled or terminated, if any.
        server: start time of the server process that answers; None if there is none, or if it is a
            standby, which may be behind.
        transactions: number of transactions the server has ever assigned; it falls only if some are
            lost.
        met: the same when this process first connected to this server; None if unknown.
        suspect_until: when a replica last saw a sign of lost commits.
        chained: whether schedules of the project wait for windows of others.
        lay_at: when a backfill that this replica could serve has its turn, if any.
        is_current: whether the replica's binding is; if not, nothing is due and nothing is laid.
    """

    now: datetime
    ledger_id: UUID
    epoch: int
    due_at: datetime | None
    stale_at: datetime | None
    stop_at: datetime | None = None
    server: datetime | None = None
    transactions: int = 0
    suspect_until: datetime | None = None
    chained: bool = False
    lay_at: datetime | None = None
    is_current: bool = True
    met: int | None = None


@dataclass(frozen=True, slots=True)
class DueKey:
    """A key that is due, with what its place in the index consists of."""

    key: str
    lane: str
    share: str
    due_at: datetime


@dataclass(frozen=True, slots=True)
class DueByShare:
    """Keys that are due, by their shares.

    Attributes:
        keys: of each share the keys that are due longest, and those that have just become due.
        now: the database's clock.
        next_at: when the next key becomes due, if any will.
        further: the last share that was visited, if there may be more.
    """

    keys: tuple[DueKey, ...]
    now: datetime
    next_at: datetime | None
    further: str | None


@dataclass(frozen=True, slots=True)
class Lineage:
    """The database system and timeline that commits belong to; None where unknown."""

    system: str | None = None
    timeline: int | None = None

    def differences(self, here: Lineage) -> Iterator[str]:
        """Yield what has replaced this lineage, as far as both are known."""
        if self.system and here.system and self.system != here.system:
            yield f"system {here.system} has replaced {self.system}"
        elif self.timeline and here.timeline and self.timeline != here.timeline:
            yield f"timeline {here.timeline} has replaced {self.timeline}"


# --- queues ---
# Step queues, and a replica's requests for their slots.


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A step queue, as it was declared last.

    Attributes:
        queue: its name, unique in the namespace.
        project: the project that owns it.
        limits: of its steps.
        dropped_at: since when no file declares it; its limits stay in force.
    """

    queue: str
    project: str
    limits: Queue
    declared_at: datetime
    dropped_at: datetime | None = None

    @classmethod
    def of(
        cls, *, concurrency: int | None, per_key: int | None, rate: str | None, **rest: Any
    ) -> QueueRow:
        """Return the queue of a row of ``queues``."""
        return cls(limits=Queue(concurrency, per_key, parse_rate(rate) if rate else None), **rest)


class QueueUse(NamedTuple):
    """The number of steps of a step queue that run now on the workers of a task queue."""

    queue: str
    task_queue: str
    running: int


@dataclass(frozen=True, slots=True)
class SlotAsk:
    """A replica's demand for slots of one lane, or of one fairness key in it.

    Attributes:
        lane: the Temporal task queue of the steps; with the key, of ``key_lane``.
        queue: the queue whose limits apply.
        running: number of slots on which steps run, or may begin to run before the answer arrives;
            they are kept whatever the limit is now.
        wanted: number of slots that would be used at once.
        of_key: whether the queue's limit of one key applies.
    """

    lane: str
    queue: str
    running: int
    wanted: int
    of_key: bool = False


def key_lane(lane: str, key: str) -> str:
    """Return the name for the slots of one fairness key; no queue's name has a ``#``."""
    return f"{lane}#{key}"


# --- task queues of external schedules ---

UNPOLLED: Final = timedelta(minutes=2)
"""The time without a poll after which a task queue is reported. A poll lasts a minute at most."""

POLLS_COUNT_FOR: Final = timedelta(minutes=5)
"""The age up to which the last answer about a task queue is shown."""


@dataclass(frozen=True, slots=True)
class PolledQueue:
    """Temporal's last answer about a task queue of external schedules.

    Attributes:
        polled_at: when a worker last polled it; None if Temporal remembers no poll.
        waiting: approximate number of runs that wait there for a worker.
        since: when it was first looked at.
        looked_at: when it was last looked at.
    """

    task_queue: str
    polled_at: datetime | None
    waiting: int
    since: datetime
    looked_at: datetime

    @property
    def is_left_alone(self) -> bool:
        """Whether no worker has polled it for ``UNPOLLED``, counted from ``since`` if never."""
        return self.looked_at - (self.polled_at or self.since) >= UNPOLLED


# --- backfills ---
# Ranges of past windows that ticks lay in parts.

BackfillOverlap = Literal["allow", "queue"]
"""The order in which windows of a backfill start: as fast as possible, or one after another."""

BackfillState = Literal["laying", "done", "ended"]

Included = Literal["user", "excluded", "dependency", "coalesced", "overload", "unvouched"]
"""The causes whose windows a backfill starts only if its request names them."""

UNDECLARED: Final[Cause] = "undeclared"
"""The cause of a window without a row, from before its schedule was declared."""

BY_DEFAULT: Final[tuple[Cause, ...]] = (
    UNDECLARED,
    "expired",
    "rejected",
    "paused",
    "disabled",
    "retired",
    "queue_full",
    "overlap",
)
"""The causes whose windows every backfill starts."""

INCLUDED: Final[tuple[Included, ...]] = get_args(Included)


@dataclass(frozen=True, slots=True)
class Backfill:
    """A backfill of one range of windows.

    Attributes:
        series, definition_version: of the request; they decide which windows it has and how they
            run.
        first, last: the fire times of its first and last window.
        cursor: every window of it up to here was laid or left alone.
        include: the causes whose windows start.
        state: ``done`` is laid to its end; ``ended`` was given up before, for ``ended_reason``.
        next_at: when a tick looks at it next.
        laid_at: when windows were last laid.
        looked_at: the key's runs were looked up for signs of lost commits up to here.
        windows: number of its windows.
        laid: number of windows that start or have started.
        left_alone: number of windows that do not start, by reason.
        error: why the last attempt to lay it failed.
    """

    id: int
    project: str
    key: str
    series: int
    definition_version: int
    first: datetime
    last: datetime
    cursor: datetime
    overlap: BackfillOverlap
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
        """The number of its windows that were laid or left alone."""
        return self.laid + sum(self.left_alone.values())

    def is_pending(self, cause: Cause | None, first: datetime, last: datetime) -> bool:
        """Return whether windows of this cause, between these fire times, may still start by it."""
        ahead = self.state == "laying" and self.cursor < last and first <= self.last
        return ahead and cause in self.include

    def is_halted(self, state: ScheduleState) -> bool:
        """Return whether its schedule's hold halts it; a pause does if newer than the request."""
        if state.hold == "disabled":
            return True
        return state.pause is not None and state.pause.at > self.requested_at

    def ends(self, state: ScheduleState) -> str | None:
        """Return why its schedule allows no more of it to be laid now; None if it does."""
        if state.retired_at is not None:
            return "the schedule was retired"
        if state.series != self.series:
            return "an edit changed when the schedule fires, and its windows are others now"
        return None


@dataclass(frozen=True, slots=True)
class ToLay:
    """A window that a backfill starts; ``again``: its row records that it has no run."""

    window: Window
    workflow_id: str
    again: bool
