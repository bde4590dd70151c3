"""AlertStore of a ledger in PostgreSQL, and the facts that looks judge."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

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
from engine.ledger.postgres.connections import values
from engine.ledger.postgres.rows import arrays, decoded_schedule
from engine.ledger.records import POLLS_COUNT_FOR, PolledQueue
from engine.schedules import Alerting

_MOST_LETTERS = 500


async def stored_facts(run: Callable[..., Awaitable[Any]], limit: int) -> Facts:
    """Return the facts of a ledger in PostgreSQL; ``run`` runs a statement by its name."""
    letters = await run("letters_by_key", _MOST_LETTERS)
    (clock,) = await run("ledger_clock")
    now = clock["now"]
    return Facts(
        now=now,
        overdue=[each for row in await run("overdue", limit) if (each := _as_overdue(row, now))],
        replicas=await seen_replicas(run),
        queues=[PolledQueue(**row) for row in await run("polled_queues", POLLS_COUNT_FOR)],
        watched=[_as_watched(row, now) for row in await run("watched", limit)],
        letters=[Letters(**row) for row in letters],
        some_letters=sum(row["number"] for row in letters) >= _MOST_LETTERS,
    )


async def seen_replicas(run: Callable[..., Awaitable[Any]]) -> list[SeenReplica]:
    """Return every replica that has not withdrawn; ``run`` runs a statement by its name."""
    rows = await run("seen_replicas")
    return [SeenReplica(**{**row, "types": frozenset(row["types"])}) for row in rows]


def _as_overdue(row: Mapping[str, Any], now: datetime) -> Overdue | None:
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


def _as_watched(row: Mapping[str, Any], now: datetime) -> Watched:
    schedule = decoded_schedule(row["definition"])
    following = schedule.spec.next(row["cursor"]) if schedule else None
    paused = row["paused_at"] and pause_text(
        row["paused_at"], row["paused_by"], row["paused_reason"]
    )
    recent = [
        Recent(**dict(zip(_RECENT_FIELDS, each, strict=True)) | _moments(each))
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


def _moments(values: Sequence[Any]) -> dict[str, datetime | None]:
    given = dict(zip(_RECENT_FIELDS, values, strict=True))
    return {
        name: given[name] and datetime.fromisoformat(given[name]).astimezone(UTC)
        for name in ("fire_time", "started_at")
    }


class AlertStore:
    """The alerts of a ledger in PostgreSQL.

    Args:
        run: runs one of the ledger's statements by its name.
    """

    def __init__(self, run: Callable[..., Awaitable[Any]]) -> None:
        self._run = run

    async def note(self, found: Sequence[Condition], *, of: Collection[Code]) -> AlertChanges:
        """Open an alert for each new problem, and resolve those that were not found.

        Args:
            found: every problem of these kinds that lasts now.
            of: the kinds that this look could judge; open alerts of other kinds stay as they are.
        """
        opened: list[AlertRow] = []
        if found:
            rows = [values("open_alerts", each) for each in found]
            written = await self._run("open_alerts", *arrays(rows))
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


def _as_alert(row: Mapping[str, Any]) -> AlertRow:
    known = {name: row[name] for name in _ROW_FIELDS}
    return AlertRow(**(known | {"code": Code(row["code"])}))


_ROW_FIELDS = tuple(each.name for each in fields(AlertRow) if each.compare)
