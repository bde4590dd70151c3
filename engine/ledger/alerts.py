"""Alerts: problems that a look found, kept until they are resolved and their receiver knows."""

from __future__ import annotations

__all__ = ["AlertBook", "AlertChanges", "AlertRow", "AlertsInMemory", "Problem"]

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from engine.errors import Code
from engine.schedules.terms import exact_text

# --- problems and alerts ---
# A problem is a condition at one moment: it has no history. An alert is its life: opened by the first
# look that finds it, resolved by the first look that does not. Many processes look, so the alerts
# are in the ledger, and the name of a problem is the same in all of them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
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
class AlertRow(Problem):
    """An alert.

    Attributes:
        opened_at: when a look first found it; when it comes again, the first time since then.
        resolved_at: when a look no longer found it; None while it is open.
        sent: whether the receiver has confirmed that it is open.
        attempts: number of attempts to tell the receiver of its present state.
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


PROBLEM_FIELDS: Final = tuple(each.name for each in fields(Problem))


@dataclass(frozen=True, slots=True)
class AlertChanges:
    """The alerts that one look opened, and those that it resolved."""

    opened: Sequence[AlertRow] = ()
    resolved: Sequence[AlertRow] = ()


class AlertBook(Protocol):
    """The alerts of a namespace."""

    async def note(self, found: Sequence[Problem], *, of: Collection[Code]) -> AlertChanges:
        """Open an alert for each new problem, and resolve those that were not found.

        Args:
            found: every problem of these kinds that lasts now.
            of: the kinds that this look could judge; open alerts of other kinds stay as they are.
        """

    async def take(self, limit: int, *, lease: timedelta) -> list[AlertRow]:
        """Return alerts whose state the receiver is to be told; nobody else gets them meanwhile.

        An alert that was resolved before any attempt is not among them.
        """

    async def told(self, alert: AlertRow) -> None:
        """Record that the receiver has confirmed this state; if it changed since, tell that too."""

    async def not_told(self, alert: AlertRow, error: str, *, wait: timedelta) -> None:
        """Record that an attempt failed, and that the next is due after ``wait``."""

    async def open(self) -> list[AlertRow]:
        """Return all open alerts, the oldest first."""


# --- alerts in PostgreSQL ---

Rows = Sequence[Mapping[str, Any]]


class StoredAlerts:
    """The alerts of a ledger in PostgreSQL.

    Args:
        run: runs one of the ledger's statements by its name.
    """

    def __init__(self, run: Callable[..., Awaitable[Rows]]) -> None:
        self._run = run

    async def note(self, found: Sequence[Problem], *, of: Collection[Code]) -> AlertChanges:
        opened: list[AlertRow] = []
        if found:
            columns = [[getattr(each, name) for each in found] for name in PROBLEM_FIELDS]
            written = await self._run("open_alerts", *columns)
            opened = [_as_alert(row) for row in written if row["opened"]]
        names = [problem.name for problem in found]
        gone = await self._run("resolve_alerts", list(map(str, of)), names)
        return AlertChanges(opened, list(map(_as_alert, gone)))

    async def take(self, limit: int, *, lease: timedelta) -> list[AlertRow]:
        return list(map(_as_alert, await self._run("take_alerts", limit, lease)))

    async def told(self, alert: AlertRow) -> None:
        await self._run("alert_told", alert.name, alert.resolved_at)

    async def not_told(self, alert: AlertRow, error: str, *, wait: timedelta) -> None:
        await self._run("alert_not_told", alert.name, alert.resolved_at, error, wait)

    async def open(self) -> list[AlertRow]:
        return list(map(_as_alert, await self._run("open_problems")))


def _as_alert(row: Mapping[str, Any]) -> AlertRow:
    known = {name: row[name] for name in _ROW_FIELDS}
    return AlertRow(**(known | {"code": Code(row["code"])}))


_ROW_FIELDS = tuple(each.name for each in fields(AlertRow))


# --- alerts in memory ---


class AlertsInMemory:
    """The alerts of a ledger in memory, and of one process while its ledger is away."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._rows: dict[str, AlertRow] = {}
        self._due: dict[str, datetime] = {}

    async def note(self, found: Sequence[Problem], *, of: Collection[Code]) -> AlertChanges:
        now = self._clock()
        opened, resolved = [], []
        for problem in found:
            known = self._rows.get(problem.name)
            values = {name: getattr(problem, name) for name in PROBLEM_FIELDS}
            if known is not None and known.is_open:
                self._rows[problem.name] = replace(known, **(values | {"since": known.since}))
                continue
            row = AlertRow(**values, opened_at=now)
            opened.append(row)
            self._rows[problem.name], self._due[problem.name] = row, now
        names = {problem.name for problem in found}
        for name, row in list(self._rows.items()):
            if row.is_open and row.code in of and name not in names:
                self._rows[name] = replace(row, resolved_at=now, attempts=0, error=None)
                self._due.pop(name, None)
                if row.sent or row.attempts:  # perhaps told, without an answer
                    self._due[name] = now
                else:
                    del self._rows[name]
                resolved.append(replace(row, resolved_at=now))
        return AlertChanges(opened, resolved)

    async def take(self, limit: int, *, lease: timedelta) -> list[AlertRow]:
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

    async def told(self, alert: AlertRow) -> None:
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

    async def not_told(self, alert: AlertRow, error: str, *, wait: timedelta) -> None:
        known = self._rows.get(alert.name)
        if known is not None and known.resolved_at == alert.resolved_at:
            self._rows[alert.name] = replace(known, error=error)
            self._due[alert.name] = self._clock() + wait

    async def open(self) -> list[AlertRow]:
        return sorted(
            (row for row in self._rows.values() if row.is_open),
            key=lambda row: (row.opened_at, row.name),
        )
