"""Records of fires and their runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID

from engine.schedules.model import Schedule
from engine.schedules.planner.decisions import QUEUE_FULL
from engine.schedules.policies import ReasonCode, Stop

# --- dead letters ---
# Dead letters: fires that ended badly and that nobody has dealt with.

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


# --- fires and runs ---
# What is known of a fire and of its run. Instants are aware and in UTC.

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
        rules: what its type was announced with; see ``engine.flow.definition``.
        data_from: where its data begin; see ``engine.ledger.fires``. None: nobody knows.
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
        """Arguments of the workflow: one or none."""
        if self.own_input:
            return [*self.own_input]
        return [self.schedule.input] if self.schedule.has_input else []


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a claim, written only if its token still holds.

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
    not take back, as the JSON of a list; see ``engine.ledger.fires``. ``first_run_id``: the first
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

    ``reason_code`` is the reason as a word of a closed list; see ``engine.schedules.policies``.
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


# --- follow-up runs ---
# What follows a fire that ended badly: a handler, and a run that undoes what it did.

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
        rules: what its type was announced with; see ``engine.flow.definition``.
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


# --- old fires ---
# What the janitor sees of a ledger: keys, and old rows of theirs.


@dataclass(frozen=True, slots=True)
class KeyMaintenance:
    """A key, and how far the janitor has come with it.

    Attributes:
        schedule: the newest definition; None when this version cannot read it.
        oldest: the fire time of its oldest row, if it has any.
            summarised_until, merged_until, settled_until: see the columns of table ``chores``.
        laying_after, laying_until: of each backfill the part that is still to be laid.
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
        """Whether a backfill may still lay windows between the two moments."""
        parts = zip(self.laying_after or (), self.laying_until or (), strict=True)
        return any(after < last and first <= until for after, until in parts)


@dataclass(frozen=True, slots=True)
class OldFire:
    """A row of ``fires`` that may leave.

    Attributes:
        version: changes with every write to the row.
        telling: whether it has more to say than a range can: an error, a history, an own input.
        rested_since: when it was decided, its run closed, or its last window opened, whichever
            came last.
        detail: the row as JSON.
    """

    id: int
    version: str
    project: str
    series: int
    bucket: int
    fire_time: datetime
    last_fire_time: datetime
    windows: int
    kind: str
    definition_version: int
    workflow_type: str | None
    task_queue: str
    status: Status
    reason: str | None
    timing: str | None
    missed: int
    merged_at: datetime | None
    telling: bool
    rested_since: datetime
    detail: str
    reason_code: str | None = None


@dataclass(frozen=True, slots=True)
class LongRow:
    """A row whose windows belong to several days."""

    project: str
    status: Status
    series: int
    fire_time: datetime
    last_fire_time: datetime
    windows: int
    definition_version: int


@dataclass(frozen=True, slots=True)
class DayPart:
    """So many windows of a long row are of this day."""

    project: str
    day: datetime
    windows: int
    status: Status


@dataclass(frozen=True, slots=True)
class OldSnapshot:
    """The oldest snapshot that keeps the database from removing dead rows.

    Attributes:
        kind: which of the four it is.
        name: the pid of a session, the id of a prepared transaction, the name of a slot; None where
            the role may not see it.
        application: what the session calls itself, who prepared the transaction, the slot's type.
        age: how long it has done so, where that is known.
        dead_rows: how many rows of ``positions`` wait to be removed, about.
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
            cure = "GRANT pg_monitor to the role of the workers to see which"
            return f"a session or a replication slot {rows}; {cure}"
        if self.kind == "session":
            cure = f"end its transaction, or: SELECT pg_terminate_backend({self.name})"
        elif self.kind == "prepared transaction":
            cure = f"COMMIT PREPARED or ROLLBACK PREPARED '{self.name}'"
        else:
            cure = "let its standby catch up, or drop it"
        return f"the {self.kind} {self.name}{who} {rows}{since}; {cure}"


# --- data intervals ---
# Data intervals: where the data of a run begin, and what no run has.
#
# The runs of a key share out its data: each has what came since the last window that began before
# it, or is still to begin, whatever became of the windows between. It is fixed when a fire is sent
# first. One that begins after a later run has had its data repeats its own share alone. When a
# window that a later run has counted on does not run after all, nobody has its data.

NO_RUN_BEFORE: Final = datetime.min.replace(tzinfo=UTC)
"""Where the data of a first run begin; PostgreSQL calls it ``-infinity``."""

REPEATS: Final = datetime.max.replace(tzinfo=UTC)
"""Of a run whose data a later one has had too; PostgreSQL calls it ``infinity``."""

DENIED: Final[frozenset[Status]] = frozenset({"skipped", "expired", "rejected", "unvouched"})
"""Without a run, as far as is known: somebody else has the data."""

PENDING: Final[frozenset[Status]] = frozenset({"claimed", "queued"})
"""Not begun, and expected to."""


@dataclass(frozen=True, slots=True)
class DataGap:
    """Data that no run has: a window did not run after all, and a later run had counted on it.

    Attributes:
        bucket: the number of the window, whose rerun has them.
        data_from: where they begin; None: at the beginning, since no run came before.
        data_to: where they end, the fire time of the window.
    """

    key: str
    bucket: int
    data_from: datetime | None
    data_to: datetime

    @property
    def told(self) -> str:
        """Describe the gap, and how to close it."""
        begin = "the beginning" if self.data_from is None else _text(self.data_from)
        return (
            f"no run of {self.key} has the data from {begin} to {_text(self.data_to)}: that window"
            " did not run after all, and the run of a later one had left them to it;"
            f" `sched rerun {self.key} {self.bucket}`"
        )

    @classmethod
    def of(cls, *, data_from: datetime, **rest: object) -> DataGap:
        """Return what a row says."""
        first = None if begins(data_from) == NO_RUN_BEFORE else data_from
        return cls(data_from=first, **rest)  # type: ignore[arg-type] # the other columns


def apart(gaps: Sequence[DataGap]) -> list[DataGap]:
    """Leave out gaps that are part of another one; newest first, as they are given."""
    found: list[DataGap] = []
    for gap in gaps:
        if not found or (found[-1].data_from and gap.data_to <= found[-1].data_from):
            found.append(gap)
    return found


def begins(data_from: datetime | None) -> datetime | None:
    """Return what a row says; asyncpg gives both infinities without a time zone."""
    return data_from and data_from.replace(tzinfo=UTC)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
