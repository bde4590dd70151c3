"""Alerts: the facts that looks judge, and the problems that they found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Final

from engine.errors import Code
from engine.ledger.fires import Status
from engine.ledger.records import PolledQueue
from engine.schedules import Alerting, exact_text, utc_text

# --- facts ---
# What the ledger knows at one moment; ``engine.runtime.watch`` judges it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """A window past its grace that has no class: undecided, or its start has no answer.

    Attributes:
        fire_time: its fire time.
        known: False if the definition cannot be read here, so that ``fire_time`` is that of the
            last decided window.
        status: of the fire, if it has been decided.
        owner: the replica that has claimed it.
        answer: the last answer to its start, if one was an error.
        error: why the schedule's plan fails, if it does.
        rules: the rules of time by which the schedule was computed.
    """

    key: str
    project: str
    task_queue: str
    workflow: str
    workflow_type: str | None
    external: bool
    fire_time: datetime
    status: Status | None = None
    owner: str | None = None
    answer: str | None = None
    error: str | None = None
    rules: str = ""
    known: bool = True


_SILENT: Final = 2.5
"""Missed heartbeats from which on a replica has vanished. A look comes every half heartbeat, so it
is reported within three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenReplica:
    """The last announcement of a replica that has not withdrawn it.

    Attributes:
        heartbeat: the time until its next one.
        is_current: whether it claims windows; after a move the old ones only look after theirs.
    """

    replica: str
    project: str
    task_queue: str
    types: frozenset[str]
    engine: str
    tzdata: str
    started_at: datetime
    seen_at: datetime
    heartbeat: timedelta
    is_current: bool = True

    def is_silent(self, now: datetime) -> bool:
        """Return whether it has missed so many heartbeats that it counts as vanished."""
        return now - self.seen_at > self.heartbeat * _SILENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """One of the newest rows of a schedule."""

    status: Status
    windows: int
    reason_code: str | None
    timing: str | None
    fire_time: datetime
    started_at: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A schedule that declares limits, with its newest rows, the newest first.

    Attributes:
        undecided: its first window without a class; None if it is still to come.
        paused: who paused it, since when and why, if it is paused.
        stopped_at: since when, if the engine has paused it: ``pauseAfterFailures``.
    """

    key: str
    project: str
    alert: Alerting
    undecided: datetime | None
    paused: str | None
    recent: Sequence[Recent]
    stopped_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Letters:
    """The dead letters of one schedule, among the newest of all."""

    key: str
    project: str
    number: int
    newest: str
    died_at: datetime
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """State of the ledger now. ``some_letters``: there are more dead letters than these."""

    now: datetime
    overdue: Sequence[Overdue] = ()
    replicas: Sequence[SeenReplica] = ()
    queues: Sequence[PolledQueue] = ()
    watched: Sequence[Watched] = ()
    letters: Sequence[Letters] = ()
    some_letters: bool = False


ENGINE: Final = "sched-engine"
"""The actor of what the engine does by itself, such as a pause after failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedInRow:
    """A schedule whose newest runs have failed, as many in a row as ``pauseAfterFailures`` says.

    Attributes:
        failures: how many.
        newest: the workflow id of the newest of them, with its ``error``.
    """

    key: str
    project: str
    failures: int
    newest: str
    error: str | None


def pause_text(at: datetime, by: str | None, reason: str | None) -> str:
    """Return a pause as a clause: since when, by whom and why."""
    return f"since {utc_text(at)}{f' by {by}' if by else ''}{f' ({reason})' if reason else ''}"


# --- problems and alerts ---
# A problem is a condition at one moment: it has no history. An alert is its life: opened by the
# first look that finds it, resolved by the first look that does not, and kept until its receiver
# knows. Many processes look, so the alerts are in the ledger, and the name of a problem is the same
# in all of them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition that needs attention, as one look found it.

    Attributes:
        name: the same in every process for as long as the condition lasts, and unique in the
            namespace; receivers get it as ``dedupKey``.
        code: the kind of the problem.
        text: one sentence with the cause and the hint.
        since: when the condition began, as far as it is known.
        project, key: the schedule it concerns, or its project alone.
        cause: the probable cause in one word of a closed list, where there is one.
        number: how many schedules or runs it stands for, by which looks are sorted; an alert has
            it in its text alone.
    """

    name: str
    code: Code
    text: str
    since: datetime
    project: str | None = None
    key: str | None = None
    cause: str | None = None
    number: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow(Condition):
    """An alert.

    Attributes:
        opened_at: when a look first found it; when it comes again, the first time since then.
        resolved_at: when a look no longer found it; None while it is open.
        sent: whether the receiver has confirmed that it is open, or may have heard it before its
            end, which it has not confirmed.
        attempts: number of attempts to send its present state to the receiver.
        error: the last attempt's error.
    """

    opened_at: datetime
    resolved_at: datetime | None = None
    sent: bool = False
    attempts: int = 0
    error: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the condition lasts."""
        return self.resolved_at is None

    def to_json(self, namespace: str) -> dict[str, Any]:
        """Return the message for the receiver; fields are only ever added."""
        resolved = self.resolved_at and exact_text(self.resolved_at)
        return {
            "version": 1,
            "status": "open" if self.is_open else "resolved",
            "dedupKey": f"{namespace}/{self.name}",
            "code": str(self.code),
            "summary": self.text,
            "cause": self.cause,
            "namespace": namespace,
            "project": self.project,
            "key": self.key,
            "since": exact_text(self.since),
            "openedAt": exact_text(self.opened_at),
            "resolvedAt": resolved,
        }


CONDITION_FIELDS: Final = tuple(each.name for each in fields(Condition) if each.compare)


@dataclass(frozen=True, slots=True)
class AlertChanges:
    """The alerts that one look opened, and those that it resolved."""

    opened: Sequence[AlertRow] = ()
    resolved: Sequence[AlertRow] = ()
