"""Statements by their names, and their rows as records."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from engine.errors import EngineError
from engine.ledger.failures import as_failing
from engine.ledger.fires import AccountRow, Claim, DeadLetter, Ended, Fire, as_left, begins
from engine.ledger.postgres.connections import Connection, Connections, query, values
from engine.ledger.records import (
    ActionRow,
    Backfill,
    DefinitionVersion,
    DriftRow,
    NewFire,
    Standing,
)
from engine.ledger.schedule_rows import NextFire, RunSummary, ScheduleRow
from engine.schedules import Schedule, Sealed, code_of, storable
from engine.schedules.planner import (
    ALL_READ,
    Dependency,
    Move,
    OpenFire,
    Pause,
    ScheduleState,
    ahead,
)

# --- rows ---

Row = Any
"""An ``asyncpg.Record``: its columns are typed by the query, not by Python."""


LARGE = 16_000
"""Characters from which on a definition is kept only briefly: its input makes it large, and most
schedules with an input of their own start once."""


class Parsed:
    """An LRU cache of definitions by their texts, as many as ``most`` characters hold.

    Bounded by size, because a definition takes about four times its text, be that 200 characters or
    50,000.
    """

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._found: OrderedDict[str, Schedule] = OrderedDict()

    def get(self, text: str) -> Schedule:
        """Return the schedule of a definition's text; equal texts share one."""
        found = self._found.get(text)
        if found is not None:
            self._found.move_to_end(text)
            return found
        return self.put(text, _parse(text))

    def __contains__(self, text: str) -> bool:
        return text in self._found

    def put(self, text: str, schedule: Schedule) -> Schedule:
        """Return the schedule of a text, cached unless it would take the place of all others."""
        if len(text) > self._most:
            return schedule
        if text not in self._found:
            self._size += len(text)
        self._found[text] = schedule
        while self._size > self._most:
            oldest, _ = self._found.popitem(last=False)
            self._size -= len(oldest)
        return schedule


_small, _large = Parsed(64_000_000), Parsed(8_000_000)
_unkept: set[int] = set()
"""Hashes of texts that ``parse_apart`` could not put into a cache; two of one hash do no harm."""
_MOST_UNKEPT = 10_000


def parse_definition(text: str) -> Schedule:
    """Return the schedule in a ``definitions.definition``; equal texts share one."""
    return _kept(text).get(text)


def decoded_schedule(text: str) -> Schedule | None:
    """Return the schedule in a ``definitions.definition``; None if this version cannot read it."""
    try:
        return parse_definition(text)
    except (EngineError, ValueError):
        return None


def waits_for_thread(text: str) -> bool:
    """Return whether ``parse_apart`` can spare the next caller the parsing of a definition.

    It cannot if the text is in a cache already, nor if it has tried and the text cannot be read or
    is too large to be kept: a tick that waited for it would wait for ever.
    """
    return text not in _kept(text) and hash(text) not in _unkept


async def parse_apart(text: str) -> None:
    """Parse a definition in a thread, for ``parse_definition`` to find it in its cache.

    The error of an unreadable definition is left to the next caller of ``parse_definition``.
    """
    with suppress(EngineError, ValueError):
        _kept(text).put(text, await asyncio.to_thread(_parse, text))
    if text not in _kept(text):
        if len(_unkept) >= _MOST_UNKEPT:
            _unkept.clear()
        _unkept.add(hash(text))


def _parse(text: str) -> Schedule:
    return Schedule.from_json(json.loads(text), stored=True)


def _kept(text: str) -> Parsed:
    return _small if len(text) < LARGE else _large


def as_state(row: Row, *, all_open: bool) -> ScheduleState:
    """Return the state read by ``read_schedules.sql``; ``all_open``: with every open fire."""
    fields = dict(row)
    pause = _as_pause(fields)
    known, ran = fields.pop("known") or (), fields.pop("ran") or ()
    schedule = parse_definition(fields.pop("definition"))
    counted = {name: fields.pop(name) or 0 for name in ("running", "waiting", "pending")}
    open_fires = tuple(map(_as_open, json.loads(fields.pop("open") or "[]")))
    unread = ALL_READ
    if not all_open:
        places = schedule.max_concurrent_runs
        open_fires, unread = ahead(open_fires, schedule.overlap, places, **counted)
    return ScheduleState(
        schedule=schedule,
        pause=pause,
        known=dict(zip(known, ran, strict=True)),
        open_fires=open_fires,
        unread=unread,
        started=fields.pop("started") or 0,
        former=tuple(fields.pop("former")),
        **fields,
    )


def as_drift(row: Row) -> DriftRow:
    """Return the drift read by ``drift.sql``."""
    fields = dict(row)
    return DriftRow(pause=_as_pause(fields), skipped=tuple(fields.pop("skipped") or ()), **fields)


def _as_pause(fields: dict[str, Any]) -> Pause | None:
    """Remove the pause from a row's fields and return it."""
    pause = [fields.pop(f"paused_{name}") for name in ("at", "reason", "by", "until")]
    return Pause(*pause) if pause[0] else None


def _as_open(fields: dict[str, Any]) -> OpenFire:
    moments = {
        name: datetime.fromisoformat(fields[name]).astimezone(UTC)
        for name in ("fire_time", "open_at")
        if fields[name]
    }
    awaited = tuple(map(_as_awaited, fields["awaited"] or ()))
    return OpenFire(**{**fields, **moments, "awaited": awaited})


def _as_awaited(fields: dict[str, Any]) -> Dependency:
    since = fields["since"]
    return Dependency(
        **{**fields, "since": since and datetime.fromisoformat(since).astimezone(UTC)}
    )


def as_claim(row: Row) -> Claim:
    """Return the claim taken by ``take_over.sql``."""
    fields = dict(row)
    return Claim(
        fire_id=fields.pop("id"),
        schedule=parse_definition(fields.pop("definition")),
        own_input=_as_input(fields),
        rules=as_rules(fields.pop("rules")),
        data_from=begins(fields.pop("data_from")),
        **fields,
    )


def as_letter(row: Row) -> DeadLetter:
    """Return the dead letter read by ``dead_letters.sql``."""
    return DeadLetter(**_as_bad_end(dict(row)))


def as_ended(row: Row) -> Ended:
    """Return the fire read by ``ended.sql``."""
    fields = dict(row)
    return Ended(rules=as_rules(fields.pop("rules")), **_as_bad_end(fields))


def _as_bad_end(fields: dict[str, Any]) -> dict[str, Any]:
    left = as_left(fields.pop("not_undone"))
    return {"arguments": _as_input(fields), "not_undone": left, **fields}


def _as_input(fields: dict[str, Any]) -> tuple[Any, ...]:
    """Remove the input from a row's fields and return it."""
    given, sealed = fields.pop("input"), fields.pop("sealed_input")
    if sealed is not None:
        return (Sealed.from_json(json.loads(sealed)),)
    return () if given is None else (json.loads(given),)


def input_columns(given: Any) -> tuple[str | None, str | None]:
    """Return an input for the columns ``input`` and ``sealed_input``, as JSON texts."""
    if isinstance(given, Sealed):
        return None, json.dumps(given.to_json())
    return json.dumps(given), None


def as_rules(text: str | None) -> Mapping[str, Any] | None:
    """Return the run options in the ``rules`` of a row."""
    return dict(json.loads(text)) if text else None


def as_schedule(row: Row) -> ScheduleRow:
    """Return the schedule read by ``list_schedules.sql``, even if its definition is unreadable.

    Column by column: a page of the API has up to 500 of them.
    """
    schedule, error = None, row["error"]
    try:
        schedule = parse_definition(row["definition"])
    except EngineError as unreadable:
        error = f"its definition cannot be read: {unreadable}"
    paused_at, skipped_at = row["paused_at"], row["skipped_at"]
    pause = (
        Pause(paused_at, row["paused_reason"], row["paused_by"], row["paused_until"])
        if paused_at
        else None
    )
    return ScheduleRow(
        key=row["key"],
        project=row["project"],
        workflow=row["workflow"],
        schedule=schedule,
        state=row["state"],
        status=row["status"],
        next_fire_at=row["next_fire_at"],
        last_fire_at=row["last_fire_at"],
        last_status=row["last_status"],
        workflow_type=row["workflow_type"],
        definition_version=row["definition_version"],
        series=row["series"],
        effective_from=row["effective_from"],
        error=error,
        rules=row["rules"],
        pause=pause,
        origin=row["origin"],
        skips=dict(zip(skipped_at, row["skipped_why"], strict=True)) if skipped_at else {},
        request_id=row["request_id"],
        defined_at=row["defined_at"],
        started=row["started"],
        former=tuple(row["former"]),
        successor=row["successor"],
    )


def as_next_fire(row: Row) -> NextFire | None:
    """Return the fire read by ``upcoming.sql``; None if all to come is excluded or skipped."""
    moment = row["fire_time"]
    if row["definition"] is not None:
        with suppress(EngineError):  # from a later version: then only the next plan is known
            definition = parse_definition(row["definition"])
            moment = definition.first_start(moment, but=row["skipped_at"] or ())
    return NextFire(row["key"], moment, row["timezone"]) if moment else None


def as_action(row: Row) -> ActionRow:
    """Return the action read by ``list_actions.sql``."""
    states = {name: json.loads(row[name]) if row[name] else None for name in ("before", "after")}
    return ActionRow(**{**dict(row), **states})


def as_fire(row: Row) -> Fire:
    """Return the fire read by ``list_fires.sql``."""
    fields = {name: row[name] for name in Fire.__dataclass_fields__}
    read = {"history": tuple(json.loads(row["history"])), "failing": as_failing(row["failing"])}
    return Fire(**{**fields, **read})


def as_summary(row: Row) -> RunSummary:
    """Return the summary read by ``run_summaries.sql``."""
    median = row["median_duration_ms"]
    read = {"median_duration_ms": None if median is None else round(median)}
    return RunSummary(**{**row, **read, "recent": tuple(row["recent"])})


def as_standing(row: Row) -> Standing:
    """Return the state read by ``standings.sql``."""
    fields = dict(row)
    return Standing(pause=_as_pause(fields), former=tuple(fields.pop("former")), **fields)


def as_version(row: Row) -> DefinitionVersion:
    """Return the version read by ``definition_versions.sql``."""
    return DefinitionVersion(**{**dict(row), "definition": json.loads(row["definition"])})


def as_account_row(row: Row) -> AccountRow:
    """Return the row read by ``account_rows.sql``."""
    fields = {**dict(row), "history": tuple(json.loads(row["history"]))}
    return AccountRow(**{**fields, "second_runs": tuple(row["second_runs"])})


def as_backfill(row: Row) -> Backfill:
    """Return the backfill read by ``backfills.sql`` or ``laying.sql``."""
    read = {"include": tuple(row["include"]), "left_alone": json.loads(row["left_alone"])}
    return Backfill(**{**row, **read})


# --- statements of a transaction ---


def arrays(rows: Iterable[Sequence[object]]) -> list[list[object]]:
    """Return the columns of these rows, of which there is at least one."""
    return [list(column) for column in zip(*rows, strict=True)]


class Statements:
    """The connection of one transaction, and the statements that its parts share."""

    def __init__(
        self, connection: Connection, namespace: str, patience: float, binding: int
    ) -> None:
        self.connection, self._binding = connection, binding
        self._namespace, self._patience = namespace, patience

    async def now(self) -> datetime:
        """Return the ledger's clock, read now and not at the start of the transaction."""
        now: datetime = await self.connection.fetchval("SELECT clock_timestamp()")
        return now

    async def back_off(self, key: str, error: str) -> None:
        """Delay a schedule that fails, longer each time, with nothing decided."""
        await self.run("back_off", key, error)

    async def _insert(
        self, fires: Sequence[NewFire], owner: str | None, lease: timedelta
    ) -> list[Claim]:
        if not fires:
            return []
        given = [
            values("insert_fires", fire, awaits=fire.awaits and json.dumps(fire.awaits.to_json()))
            for fire in fires
        ]
        return claimed(
            fires, await self.run("insert_fires", owner, lease, self._binding, *arrays(given))
        )

    async def _move(self, moves: Sequence[tuple[timedelta, Move]]) -> None:
        """Apply what plans decided on open fires."""
        promoted = [(move.fire.fire_id, move.not_before) for _, move in moves if move.to == "start"]
        if promoted:
            await self.run("promote", *arrays(promoted))
        if released := [move.fire.fire_id for _, move in moves if move.to == "release"]:
            await self.run("release", released)
        if skipped := [
            (move.fire.fire_id, move.reason, code_of(move.reason))
            for _, move in moves
            if move.to == "skip"
        ]:
            await self.run("give_up", *arrays(skipped))
        wishes = [
            (move.fire.fire_id, move.to, grace, move.reason)
            for grace, move in moves
            if move.to in {"cancel", "terminate"}
        ]
        if wishes:
            await self.run("wish_stops", *arrays(wishes))

    async def run(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        """Run ``queries/<name>.sql``; its first argument is the namespace."""
        return await self.connection.fetch(
            query(name), self._namespace, *arguments, timeout=self._patience
        )


def claimed(fires: Sequence[NewFire], rows: Sequence[asyncpg.Record]) -> list[Claim]:
    """Return the claims of the fires that have a token and are among the written ``rows``."""
    written = {row["workflow_id"]: row for row in rows}
    return [
        fire.claim(
            fire_id=row["id"],
            starting_at=row["starting_at"],
            attempts=1,
            data_from=begins(row["data_from"]),
            rules=as_rules(row["rules"]),
        )
        for fire in fires
        if fire.token is not None and (row := written.get(fire.workflow_id))
    ]


# --- statements outside of transactions ---

logger = logging.getLogger("sched")


class LedgerPart:
    """The connections of one ledger, and how its parts run statements on them.

    Attributes:
        binding: the number of the binding whose fires are sent and tracked here.
    """

    binding = 1
    _connections: Connections
    _namespace: str

    async def _write(
        self, name: str, records: Sequence[object], *first: object
    ) -> list[asyncpg.Record]:
        """Write all at once; if that fails, one by one, so that only a bad record is lost."""
        if not records:
            return []
        rows = [
            [storable(each) if isinstance(each, str) else each for each in values(name, record)]
            for record in records
        ]
        try:
            return await self._connections.fetch(query(name), *first, *arrays(rows))
        except (asyncpg.PostgresError, asyncpg.DataError, UnicodeError):
            if len(records) == 1:
                logger.exception("%s: %r could not be written", name, records[0])
                return []
        return [row for record in records for row in await self._write(name, [record], *first)]

    async def _run(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        """Run ``queries/<name>.sql``; its first argument is the namespace."""
        return await self._connections.fetch(query(name), self._namespace, *arguments)
