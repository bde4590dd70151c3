"""Alerts: the facts that looks judge, and the problems that they found."""

from __future__ import annotations

__all__ = [
    "ENGINE",
    "AlertBook",
    "AlertChanges",
    "AlertRow",
    "AlertsInMemory",
    "Condition",
    "CountsFailures",
    "Facts",
    "FailedInRow",
    "Letters",
    "Overdue",
    "Recent",
    "SeenReplica",
    "Watched",
]

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenReplica:
    """The last announcement of a replica that has not withdrawn it.

    Attributes:
        heartbeat: the time until its next one.
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


class CountsFailures(Protocol):
    """Statements about runs that failed in a row."""

    async def failed_in_row(self, keys: Sequence[str] | None = None) -> list[FailedInRow]:
        """Return the schedules that are to be paused for their failures, by default of all.

        Runs of windows that were decided before the last resume do not count, whenever they end;
        neither do runs that were cancelled or terminated.
        """


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
            namespace; receivers get it as ``dedup_key``.
        code: the kind of the problem.
        text: one sentence with the cause and the cure.
        since: when the condition began, as far as it is known.
        project, key: the schedule it concerns, or its project alone.
        cause: the probable cause in one word of a closed list, where there is one.
    """

    name: str
    code: Code
    text: str
    since: datetime
    project: str | None = None
    key: str | None = None
    cause: str | None = None


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
            "dedup_key": f"{namespace}/{self.name}",
            "code": str(self.code),
            "summary": self.text,
            "cause": self.cause,
            "namespace": namespace,
            "project": self.project,
            "key": self.key,
            "since": exact_text(self.since),
            "opened_at": exact_text(self.opened_at),
            "resolved_at": resolved,
        }


CONDITION_FIELDS: Final = tuple(each.name for each in fields(Condition))


@dataclass(frozen=True, slots=True)
class AlertChanges:
    """The alerts that one look opened, and those that it resolved."""

    opened: Sequence[AlertRow] = ()
    resolved: Sequence[AlertRow] = ()


class AlertBook(Protocol):
    """The alerts of a namespace."""

    async def note(self, found: Sequence[Condition], *, of: Collection[Code]) -> AlertChanges:
        """Open an alert for each new problem, and resolve those that were not found.

        Args:
            found: every problem of these kinds that lasts now.
            of: the kinds that this look could judge; open alerts of other kinds stay as they are.
        """

    async def take(self, limit: int, *, lease: timedelta) -> list[AlertRow]:
        """Return alerts whose state is to be sent; no other process gets them meanwhile.

        An alert that was resolved before any attempt is not among them.
        """

    async def confirm(self, alert: AlertRow) -> None:
        """Record that the receiver has this state; one that has changed since is sent too."""

    async def put_off(self, alert: AlertRow, error: str, *, wait: timedelta) -> None:
        """Record that an attempt failed, and that the next is due after ``wait``."""

    async def open(self) -> list[AlertRow]:
        """Return all open alerts, the oldest first."""


# --- in memory ---


class AlertsInMemory:
    """The alerts of a ledger in memory, and of one process while its ledger is away."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._rows: dict[str, AlertRow] = {}
        self._due: dict[str, datetime] = {}

    async def note(self, found: Sequence[Condition], *, of: Collection[Code]) -> AlertChanges:
        """See ``AlertBook``."""
        now = self._clock()
        opened, resolved = [], []
        for problem in found:
            known = self._rows.get(problem.name)
            values = {name: getattr(problem, name) for name in CONDITION_FIELDS}
            if known is not None and known.is_open:
                self._rows[problem.name] = replace(known, **(values | {"since": known.since}))
                continue
            # The receiver has not confirmed the end of one that is still here.
            row = AlertRow(**values, opened_at=now, sent=known is not None)
            opened.append(row)
            self._rows[problem.name], self._due[problem.name] = row, now
        names = {problem.name for problem in found}
        for name, row in list(self._rows.items()):
            if row.is_open and row.code in of and name not in names:
                told = row.sent or row.attempts > 0  # perhaps heard, without an answer
                self._rows[name] = replace(row, resolved_at=now, sent=told, attempts=0, error=None)
                self._due.pop(name, None)
                if told:
                    self._due[name] = now
                else:
                    del self._rows[name]
                resolved.append(replace(row, resolved_at=now))
        return AlertChanges(opened, resolved)

    async def take(self, limit: int, *, lease: timedelta) -> list[AlertRow]:
        """See ``AlertBook``."""
        now = self._clock()
        due = sorted((at, name) for name, at in self._due.items() if at <= now)[:limit]
        taken = []
        for _, name in due:
            row = self._rows[name] = replace(
                self._rows[name], attempts=self._rows[name].attempts + 1
            )
            self._due[name] = now + lease
            taken.append(row)
        return taken

    async def confirm(self, alert: AlertRow) -> None:
        """See ``AlertBook``."""
        known = self._rows.get(alert.name)
        if known is None:
            return
        self._due.pop(alert.name, None)
        if known.resolved_at == alert.resolved_at and not known.is_open:
            del self._rows[alert.name]
            return
        self._rows[alert.name] = replace(known, sent=alert.is_open, attempts=0, error=None)
        if known.resolved_at != alert.resolved_at:
            self._due[alert.name] = self._clock()

    async def put_off(self, alert: AlertRow, error: str, *, wait: timedelta) -> None:
        """See ``AlertBook``."""
        known = self._rows.get(alert.name)
        if known is not None and known.resolved_at == alert.resolved_at:
            self._rows[alert.name] = replace(known, error=error)
            self._due[alert.name] = self._clock() + wait

    async def open(self) -> list[AlertRow]:
        """See ``AlertBook``."""
        return sorted(
            (row for row in self._rows.values() if row.is_open),
            key=lambda row: (row.opened_at, row.name),
        )
