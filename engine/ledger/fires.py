"""Records of fires and their runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, Literal, get_args
from uuid import UUID

from engine.json_view import in_camel_case
from engine.ledger.failures import (
    DeathCause,
    FailingStep,
    Failure,
    GivenUp,
    RunCounts,
    death_cause,
    failure_text,
)
from engine.schedules import (
    STARTS,
    Reason,
    ReasonCode,
    Schedule,
    Sealed,
    Stop,
    Window,
    code_of,
    exact_text,
    parse_workflow_id,
)

# --- words of a fire ---

Kind = Literal["window", "manual", "rerun", "handler"]
"""The kind of a fire. A handler runs because another fire ended badly."""

OF_A_WINDOW: Final[frozenset[Kind]] = frozenset({"window", "rerun"})
"""The kinds of fires that a rerun of their window makes up for."""

Status = Literal[
    "claimed",
    "queued",
    "starting",
    "started",
    "completed",
    "failed",
    "cancelled",
    "terminated",
    "timed_out",
    "skipped",
    "expired",
    "rejected",
    "unvouched",
]
Timing = Literal["on_time", "late", "caught_up", "manual", "backfill", "rerun", "handler"]
ClosedStatus = Literal["completed", "failed", "cancelled", "terminated", "timed_out"]
Died = Literal["failed", "timed_out", "rejected"]
EndedBadly = Died | Literal["terminated"]

DIED: Final[frozenset[Status]] = frozenset(get_args(Died))
"""The statuses of a dead letter."""

ENDED_BADLY: Final[frozenset[Status]] = DIED | {"terminated"}
"""The statuses that follow-up runs follow. A run that ended so has a cause to read."""

PENDING: Final[frozenset[Status]] = frozenset({"claimed", "queued"})
"""Not begun, but expected to begin."""

IN_HAND: Final[frozenset[Status]] = frozenset({"claimed", "starting"})
"""Claimed by a replica, and not known to have started."""

UNSTARTED: Final[frozenset[Status]] = PENDING | {"starting"}
"""Not started, as far as is known."""

OPEN: Final[frozenset[Status]] = UNSTARTED | {"started"}
"""Not final: the run is open or may still start."""

SURELY_NOT_RUN: Final[frozenset[Status]] = frozenset({"skipped", "expired", "rejected"})
"""Final without a run: none starts unless it is requested."""

UNREAD: Final = "its reason is still to be read from its history"
"""The error of a run that ended badly, until it is read."""
DENIED: Final[frozenset[Status]] = SURELY_NOT_RUN | {"unvouched"}
"""Without a run, as far as is known: another run has the data."""

Cause = ReasonCode | Literal["undeclared", "rejected", "unvouched", "skipped"]
"""The reason why a window has no run; see ``cause_of`` and the table in docs/operating.md.

``unvouched``: it may have run, and Temporal has forgotten it.

``undeclared``: the window has no row, because it is from before its schedule was declared.
``skipped``: the reason is one that only a later version knows.
"""


def cause_of(status: Status, code: ReasonCode | None) -> Cause | None:
    """Return why the window of a row has no run; None if it has one.

    0001_ledger.sql defines the same function in PostgreSQL.
    """
    # Not by `in`, so that mypy sees it.
    if status == "expired" or status == "rejected" or status == "unvouched":  # noqa: PLR1714
        return status
    return (code or "skipped") if status == "skipped" else None


# --- fires ---
# The records of a fire share what names it, and what its run is started with. All datetimes are
# timezone-aware and in UTC.


@dataclass(frozen=True, slots=True, kw_only=True)
class FireIdentity:
    """The identity of a fire: its window, and the ID of its run."""

    project: str
    key: str
    series: int
    bucket: int
    fire_time: datetime
    workflow_id: str

    @property
    def window(self) -> Window:
        """The window of the fire, or the first of several."""
        return Window(self.key, self.series, self.bucket, self.fire_time)

    @property
    def started(self) -> tuple[str, str] | None:
        """The workflow and the id of a start by an application; None of a run of a schedule."""
        parsed = parse_workflow_id(self.workflow_id)
        if parsed is None or parsed.start_id is None:
            return None
        return parsed.key.removeprefix(STARTS), parsed.start_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Startable(FireIdentity):
    """A fire with everything that its run is started with.

    Attributes:
        schedule: the definition under which the window was decided.
        workflow_type: None if it was not announced, so that the run cannot start.
        missed: number of other windows that a caught-up run stands for.
        missed_from: fire time of the first of them.
        token: required to write an outcome; None if no replica sends it.
        own_input: the input of this run alone, in a tuple of one; if empty, the definition's.
    """

    schedule: Schedule
    definition_version: int
    workflow_type: str | None
    task_queue: str
    timing: Timing | None
    reason: str | None = None
    missed: int = 0
    missed_from: datetime | None = None
    token: UUID | None = None
    kind: Kind = "window"
    own_input: tuple[Any, ...] = ()

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Arguments of the workflow: one or none."""
        return self.own_input or ((self.schedule.input,) if self.schedule.has_input else ())


def common_fields(kind: type[Any], other: object) -> dict[str, Any]:
    """Return the fields of one kind of record that ``other`` has by the same name."""
    names = _shared(kind, type(other))  # type: ignore[arg-type] # a class is hashable, whatever mypy takes it for
    return {name: getattr(other, name) for name in names}


@cache
def _shared(kind: type[Any], other: type) -> tuple[str, ...]:
    return tuple(name for name in kind.__dataclass_fields__ if hasattr(other, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Startable):
    """An order to start the run of one fire, which this replica owns until its lease ends.

    Attributes:
        fire_id: the ledger's number of the fire.
        attempts: number of sends and lookups so far, including the one to come.
        fresh: False if the fire was taken over, so that an earlier send may have arrived.
        starting_at: when the fire first became ``starting``.
        retention: shortest namespace retention seen since then; None if none was seen.
        rules: run options announced with its type; see ``engine.flow.definition.RunOptions``.
        data_from: where its data begin, see "data intervals" below; None if unknown.
    """

    fire_id: int
    workflow_type: str
    timing: Timing
    token: UUID
    attempts: int
    starting_at: datetime
    fresh: bool = True
    retention: timedelta | None = None
    rules: Mapping[str, Any] | None = None
    data_from: datetime | None = None
    reason_code: ReasonCode | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a claim, written only if its token still holds.

    ``status`` is ``started``, ``rejected``, ``unvouched``, or ``starting``: the outcome is unknown,
    and a sweeper retries after ``retry_after``. ``first_run_id`` is the first run of the chain.
    ``reported``: the workers of its task queue report the retries of its steps.
    """

    fire_id: int
    token: UUID
    status: Literal["started", "rejected", "unvouched", "starting"]
    timing: Timing | None = None
    run_id: str | None = None
    started_at: datetime | None = None
    reason: Reason | None = None
    error: str | None = None
    retry_after: timedelta | None = None
    first_run_id: str | None = None
    reported: bool = False

    @property
    def reason_code(self) -> ReasonCode | None:
        """Code of the reason."""
        return code_of(self.reason)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run of ours that was seen. It overrides the status of its fire (rule L2).

    ``closed`` and ``closed_at`` are None while the run is open. ``last`` means that Temporal was
    asked by workflow ID alone and answered with its last run. ``first_run_id`` is the first run of
    the chain, if known; runs with the same value count as one. ``unread``: it ended badly, and why
    is to be read.

    Once it was read (``note_failures``), ``failure`` is why it failed, if that could be found;
    ``error`` and ``not_undone``, a JSON list of the steps that it could not undo, are of it;
    ``counts`` are those of a run whose history was read with it. ``workflow_type`` and ``timeout``,
    the seconds that it could take, are not stored; they are for measurements.
    """

    workflow_id: str
    run_id: str
    started_at: datetime
    closed: ClosedStatus | None = None
    closed_at: datetime | None = None
    error: str | None = None
    last: bool = False
    not_undone: str | None = None
    first_run_id: str | None = None
    workflow_type: str | None = None
    timeout: float | None = None
    failure: Failure | None = None
    counts: RunCounts | None = None
    unread: bool = False

    @property
    def given_up(self) -> GivenUp | None:
        """How a step ended the run; None if none did."""
        return self.failure.given_up if self.failure else None

    @property
    def failure_text(self) -> str | None:
        """The chain of errors as the ledger keeps it."""
        return failure_text(self.failure)

    @property
    def tries(self) -> int | None:
        """The number of tries that its history has; None if it was not read."""
        return self.counts.tries if self.counts else None

    @property
    def step_retries(self) -> int | None:
        """The number of retries of its steps; None if its history was not read."""
        return self.counts.step_retries if self.counts else None

    @property
    def tried_text(self) -> str | None:
        """The JSON of its tries; None if its history was not read."""
        return self.counts.tried_text if self.counts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FireRow(FireIdentity):
    """The ledger's row of one window or of a range of windows, as every reader has it.

    Attributes:
        windows: number of windows of the row; several share one that has no run.
        last_fire_time: of the last of them.
        reason: why it has no run, or why its run is special.
        run_id: None if no run ever started.
        error: the innermost cause of the run's failure, in one line.
        attempts: number of sends and lookups so far.
        starting_at: when it was first sent.
        duration_ms, tries, step_retries: of a closed run; the latter also of an open one, so far.
            None: not known (yet).
    """

    kind: Kind = "window"
    windows: int
    last_fire_time: datetime
    definition_version: int
    status: Status
    reason: str | None = None
    run_id: str | None
    error: str | None
    attempts: int = 0
    started_at: datetime | None = None
    starting_at: datetime | None = None
    duration_ms: int | None = None
    tries: int | None = None
    step_retries: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire(FireRow):
    """The ledger's row as shown to users, and as the audit judges it.

    Attributes:
        timing: how its run was to start; None of a window that was decided without a run.
        reason_code: the reason as a word of a closed list; see ``engine.schedules.terms``.
        missed, missed_from: see ``Startable``.
        decided_at: when the row was written; of a range that the janitor merged, when the last of
            its rows was final.
        waited_since: the moment after which it waited for other schedules only, if it was decided
            after its grace for that.
        replica: the replica that claimed it last; None if no replica did.
        failing: the steps of its open run that keep failing, as a worker saw them last.
        history: the statuses that evidence or a backfill has overruled, oldest first.
        second_runs: runs of other chains that were started under its id.
    """

    timing: Timing | None
    reason_code: ReasonCode | None = None
    missed: int = 0
    missed_from: datetime | None = None
    decided_at: datetime
    waited_since: datetime | None = None
    closed_at: datetime | None
    lag_ms: int | None = None
    replica: str | None
    failing: tuple[FailingStep, ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()
    second_runs: tuple[str, ...] = ()

    @property
    def overruled(self) -> list[dict[str, Any]]:
        """Its history, by the names that JSON has."""
        return [in_camel_case(each) for each in self.history]

    @property
    def is_stuck(self) -> bool:
        """Whether its open run cannot continue; usually its code was changed."""
        return any(step.is_stuck for step in self.failing)

    @property
    def overflowed(self) -> bool:
        """Whether it was skipped because the queue was full."""
        return self.status == "skipped" and self.reason_code == "queue_full"

    @property
    def is_unread(self) -> bool:
        """Whether it ended badly, and why is still to be read."""
        return self.error == UNREAD

    @property
    def cause(self) -> Cause | None:
        """The reason why it has no run; see ``cause_of``."""
        return cause_of(self.status, self.reason_code)


@dataclass(frozen=True, slots=True)
class StopOrder:
    """A run to cancel or terminate now; see ``Schedule`` for ``stop_grace``.

    ``asked``: it was asked to cancel before, and is asked again only if it continues without having
    received the request. ``first_run_id`` is None if not known yet.
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
class BlockingRun:
    """A run that queued windows of its key wait for."""

    workflow_id: str
    key: str


# --- fires that ended badly ---
# Dead letters, and the runs that follow: a handler, and a clean-up run that undoes the steps.


@dataclass(frozen=True, slots=True, kw_only=True)
class BadEnd(FireRow):
    """A fire that ended badly.

    Attributes:
        arguments: what the run was, or would have been, called with: one argument or none.
        not_undone: steps that the run could not undo: ``step``, ``undo`` and ``error`` of each.
    """

    workflow_type: str | None
    task_queue: str
    status: EndedBadly
    arguments: tuple[Any, ...] = ()
    not_undone: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(BadEnd):
    """A fire that ended badly and has not been dealt with.

    Attributes:
        kind: the kind of the fire; ``window`` and ``rerun`` can be rerun by their bucket.
        died_at: when the run closed, or when the fire was rejected.
        given_up: how a step ended the run; see ``cause``.
    """

    status: Died
    died_at: datetime
    given_up: GivenUp | None = None

    @property
    def cause(self) -> DeathCause:
        """Why it is a dead letter, as one word."""
        return death_cause(self.status, self.given_up)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(BadEnd):
    """A fire that ended badly and whose follow-up runs are not decided yet.

    Attributes:
        workflow: the workflow that its schedule names.
        error: why it ended badly, if known: of a rejected fire, its reason.
        on_dead: the handler that its definition names for failures.
        rules: run options announced with its type; see ``engine.flow.definition.RunOptions``.
    """

    fire_id: int
    workflow: str
    on_dead: str | None = None
    rules: Mapping[str, Any] | None = None


def as_left(text: str | None) -> tuple[Mapping[str, Any], ...]:
    """Return the steps that a run could not undo, from the JSON of its evidence."""
    return tuple(json.loads(text)) if text else ()


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A run to start because of a fire; with a ``reason`` it can never start.

    ``argument`` is its input: a mapping, or one that is sealed.
    """

    fire_id: int
    workflow_id: str
    workflow_type: str | None
    argument: Mapping[str, Any] | Sealed
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class UnreadEnd:
    """A run that ended badly, and why is to be read."""

    key: str
    workflow_id: str
    run_id: str
    workflow_type: str | None
    closed: ClosedStatus
    started_at: datetime
    closed_at: datetime

    @property
    def evidence(self) -> Evidence:
        """Its end, as far as the ledger knows it."""
        return Evidence(
            self.workflow_id,
            self.run_id,
            self.started_at,
            self.closed,
            self.closed_at,
            workflow_type=self.workflow_type,
            unread=True,
        )


@dataclass(frozen=True, slots=True)
class KnownRun:
    """The run of a fire, as the ledger knows it.

    Attributes:
        run_id: the newest run of its chain; None if it has none yet.
        first_run_id: the first run of its chain, which it has for ever.
        closed: whether the end of the newest run is recorded.
    """

    run_id: str | None
    first_run_id: str | None
    closed: bool = False


# --- old fires ---
# Keys and their old rows, as the janitor reads them.


@dataclass(frozen=True, slots=True)
class KeyMaintenance:
    """A key, and the janitor's progress with it.

    Attributes:
        schedule: the newest definition; None if this version cannot read it.
        oldest: the fire time of its oldest row, if it has any.
        summarised_until, merged_until, settled_until: see the columns of table ``chores``.
        laying_after, laying_until: of each backfill, the part that is still to be laid.
    """

    key: str
    series: int
    cursor: datetime
    schedule: Schedule | None
    summarised_until: datetime | None
    merged_until: datetime | None
    settled_until: datetime | None
    oldest: datetime | None
    laying_after: Sequence[datetime] | None = None
    laying_until: Sequence[datetime] | None = None

    def is_laying(self, first: datetime, last: datetime) -> bool:
        """Return whether a backfill may still lay windows between the two moments."""
        parts = zip(self.laying_after or (), self.laying_until or (), strict=True)
        return any(after < last and first <= until for after, until in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldRow:
    """A row of ``fires`` that the janitor counts."""

    project: str
    series: int
    fire_time: datetime
    last_fire_time: datetime
    windows: int
    definition_version: int
    status: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class OldFire(OldRow):
    """A row that the janitor may merge or remove.

    Attributes:
        version: changes with every write to the row.
        has_details: whether it has details that a range cannot hold: an error, a history, its own
            input.
        rested_since: the latest of its decision, the close of its run and its last window.
        detail: the row as JSON.
    """

    id: int
    version: str
    bucket: int
    kind: str
    workflow_type: str | None
    task_queue: str
    reason: str | None
    timing: str | None
    missed: int
    merged_at: datetime | None
    has_details: bool
    rested_since: datetime
    detail: str
    reason_code: str | None = None


@dataclass(frozen=True, slots=True)
class DayPart:
    """The number of windows of a long row that belong to one day."""

    project: str
    day: datetime
    windows: int
    status: Status


@dataclass(frozen=True, slots=True)
class OldSnapshot:
    """An old snapshot that keeps PostgreSQL from removing dead rows.

    Attributes:
        kind: what holds the snapshot.
        name: a session's pid, a transaction's ID or a slot's name; None if the role cannot see it.
        application: the session's application name, the transaction's owner or the slot's type.
        age: how long it has been held, if known.
        dead_rows: approximate number of dead rows of ``positions``.
    """

    kind: Literal["session", "prepared transaction", "replication slot", "hidden session"]
    name: str | None
    application: str | None
    age: timedelta | None
    dead_rows: int

    def __str__(self) -> str:
        rows = f"keeps PostgreSQL from removing about {self.dead_rows} dead rows"
        since = f" for {timedelta(seconds=int(self.age.total_seconds()))}" if self.age else ""
        who = f" ({self.application})" if self.application else ""
        if self.kind == "hidden session":
            hint = "GRANT pg_monitor to the role of the workers to see which"
            return f"a session or a replication slot {rows}; {hint}"
        if self.kind == "session":
            hint = f"end its transaction, or: SELECT pg_terminate_backend({self.name})"
        elif self.kind == "prepared transaction":
            hint = f"COMMIT PREPARED or ROLLBACK PREPARED '{self.name}'"
        else:
            hint = "let its standby catch up, or drop it"
        return f"the {self.kind} {self.name}{who} {rows}{since}; {hint}"


# --- data intervals ---
# Where the data of a run begin, and which data no run has.
#
# The runs of a key share its data. Each run has the data since the last window before it that has
# begun or is still to begin, whatever became of the windows between. The start is fixed when a fire
# is first sent. A run that begins after a later run has covered its data repeats only its own
# share. If a window that a later run counted on does not run after all, no run has its data.

NO_RUN_BEFORE: Final = datetime.min.replace(tzinfo=UTC)
"""The start of the data of a first run; ``-infinity`` in PostgreSQL."""

REPEATS: Final = datetime.max.replace(tzinfo=UTC)
"""Marks a run whose data a later run has covered too; ``infinity`` in PostgreSQL."""


@dataclass(frozen=True, slots=True)
class DataGap:
    """Data that no run has: a window did not run after all, but a later run had counted on it.

    Attributes:
        bucket: the number of the window; its rerun closes the gap.
        data_from: where the gap begins; None: at the beginning, because no run came before.
        data_to: where the gap ends, the fire time of the window.
    """

    key: str
    bucket: int
    data_from: datetime | None
    data_to: datetime

    @property
    def description(self) -> str:
        """The description of the gap, and how to close it."""
        begin = "the beginning" if self.data_from is None else exact_text(self.data_from)
        return (
            f"no run of {self.key} has the data from {begin} to {exact_text(self.data_to)}: that"
            " window did not run after all, and the run of a later one had left them to it;"
            f" `sched rerun {self.key} {self.bucket}`"
        )

    @classmethod
    def of(cls, *, data_from: datetime, **rest: object) -> DataGap:
        """Return the gap of a row."""
        first = None if begins(data_from) == NO_RUN_BEFORE else data_from
        return cls(data_from=first, **rest)  # type: ignore[arg-type] # the other columns


def outermost_gaps(gaps: Sequence[DataGap]) -> list[DataGap]:
    """Return the gaps that are not part of another one; both in order, newest first."""
    found: list[DataGap] = []
    for gap in gaps:
        if not found or (found[-1].data_from and gap.data_to <= found[-1].data_from):
            found.append(gap)
    return found


def begins(data_from: datetime | None) -> datetime | None:
    """Return ``data_from`` of a row in UTC; asyncpg returns both infinities without a time zone."""
    return data_from and data_from.replace(tzinfo=UTC)
