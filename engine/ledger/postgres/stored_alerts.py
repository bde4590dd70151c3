"""AlertStore of a ledger in PostgreSQL, and the facts that looks judge."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import datetime, timedelta

from engine.errors import Code
from engine.ledger.alerts import (
    ENGINE,
    AlertChanges,
    AlertRow,
    Condition,
    Facts,
    Letters,
    Overdue,
    Recent,
    SeenReplica,
    Watched,
    pause_text,
)
from engine.ledger.failures import with_moments
from engine.ledger.postgres.rows import Row, Statements, decoded_schedule, record_of
from engine.ledger.records import POLLS_COUNT_FOR, Load, PolledQueue, Serving, Totals
from engine.schedules import Alerting

_MOST_LETTERS = 500


class WatchReads(Statements):
    """Facts that a look for problems judges, and how much of each kind there is."""

    async def facts(self, *, limit: int = 200) -> Facts:
        """Return what a look for problems judges; of each kind ``limit`` at most."""
        letters = await self.run("letters_by_key", _MOST_LETTERS)
        (clock,) = await self.run("ledger_clock")
        now = clock["now"]
        overdue = [_as_overdue(row, now) for row in await self.run("overdue", limit)]
        polled = await self.run("polled_queues", POLLS_COUNT_FOR)
        return Facts(
            now=now,
            overdue=[each for each in overdue if each],
            replicas=await self.seen_replicas(),
            queues=[PolledQueue(**row) for row in polled],
            watched=[_as_watched(row, now) for row in await self.run("watched", limit)],
            letters=[Letters(**row) for row in letters],
            some_letters=sum(row["number"] for row in letters) >= _MOST_LETTERS,
        )

    async def seen_replicas(self) -> list[SeenReplica]:
        """Return every replica that has not withdrawn, silent ones too."""
        rows = await self.run("seen_replicas")
        return [record_of(SeenReplica, row, types=frozenset(row["types"])) for row in rows]

    async def totals(self, serving: Serving, *, most: int) -> Totals:
        """Return how much of each kind there is in the namespace, at most ``most`` of each.

        Overdue are counted for the project and the lanes of ``serving``.
        """
        (row,) = await self.run("totals", most, serving.project, list(serving.lanes))
        return Totals(**row)

    async def load(self, *, most: int) -> Load:
        """Return what replicas hold, and since when a window is due.

        ``most`` claims are counted, and of each task queue as many due schedules are read.
        """
        held = await self.run("held_claims", most)
        (due,) = await self.run("due_since", most)
        return Load({row["owner"]: row["claims"] for row in held}, due["due_since"], due["awaits"])


def _as_overdue(row: Row, now: datetime) -> Overdue | None:
    """Return the overdue window of a row; None if a schedule that backs off has none."""
    fields_ = dict(row)
    cursor, definition = fields_.pop("cursor"), fields_.pop("definition")
    grace = fields_.pop("grace")
    if fields_["fire_time"] is None:
        schedule = decoded_schedule(definition)
        if schedule is None:
            return Overdue(**{**fields_, "fire_time": cursor}, known=False)
        fire_time = schedule.spec.next(cursor)
        if fire_time is None or fire_time >= now - grace:
            return None
        fields_["fire_time"] = fire_time
    return Overdue(**fields_)


def _as_watched(row: Row, now: datetime) -> Watched:
    schedule = decoded_schedule(row["definition"])
    following = schedule.spec.next(row["cursor"]) if schedule else None
    paused = row["paused_at"] and pause_text(
        row["paused_at"], row["paused_by"], row["paused_reason"]
    )
    recent = [
        Recent(**with_moments(dict(zip(_RECENT_FIELDS, each, strict=True))))
        for each in json.loads(row["fires"])
    ]
    return Watched(
        key=row["key"],
        project=row["project"],
        paused=paused,
        recent=recent,
        alert=schedule.alert if schedule else Alerting(),
        undecided=following if following and following < now else None,
        stopped_at=row["paused_at"] if row["paused_by"] == ENGINE else None,
    )


_RECENT_FIELDS = tuple(each.name for each in fields(Recent))


class AlertStore:
    """The alerts of a ledger in PostgreSQL.

    Args:
        statements: runs those of the ledger by their names.
    """

    def __init__(self, statements: Statements) -> None:
        self._ledger, self._run = statements, statements.run

    async def note(self, found: Sequence[Condition], *, of: Collection[Code]) -> AlertChanges:
        """Open an alert for each new problem, and resolve those that were not found.

        Args:
            found: every problem of these kinds that lasts now.
            of: the kinds that this look could judge; open alerts of other kinds stay as they are.
        """
        written = await self._ledger.many("open_alerts", found)
        opened = [_as_alert(row) for row in written if row["opened"]]
        names = [problem.name for problem in found]
        gone = await self._run("resolve_alerts", list(map(str, of)), names)
        return AlertChanges(opened, list(map(_as_alert, gone)))

    async def take(self, limit: int, *, lease: timedelta) -> list[AlertRow]:
        """Return alerts whose state is to be sent; no other process gets them meanwhile.

        An alert that was resolved before any attempt is not among them.
        """
        return list(map(_as_alert, await self._run("take_alerts", limit, lease)))

    async def confirm(self, alert: AlertRow) -> None:
        """Record that the receiver has this state; one that has changed since is sent too."""
        await self._run("confirm_alert", alert.name, alert.resolved_at)

    async def put_off(self, alert: AlertRow, error: str, *, wait: timedelta) -> None:
        """Record that an attempt failed, and that the next is due after ``wait``."""
        await self._run("put_off_alert", alert.name, alert.resolved_at, error, wait)

    async def open(self) -> list[AlertRow]:
        """Return all open alerts, the oldest first."""
        return list(map(_as_alert, await self._run("open_problems")))


def _as_alert(row: Row) -> AlertRow:
    return record_of(AlertRow, row, code=Code(row["code"]))
