"""Statements by their names, and their rows as records."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeVar

import asyncpg

from engine.errors import EngineError
from engine.ledger.failures import as_failing, with_moments
from engine.ledger.fires import Claim, DeadLetter, Ended, Fire, as_left, begins
from engine.ledger.floors import Floors
from engine.ledger.postgres.connections import (
    Connection,
    Connections,
    columns,
    filtered_query,
    query,
)
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
Made = TypeVar("Made")


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


def record_of(kind: type[Made], row: Row, **read: object) -> Made:
    """Return the record of a row: its fields are the columns of their names, or what was ``read``.

    Of other columns nothing is read; arrays become tuples.
    """
    names, lists = _columns(kind, tuple(row.keys()), *read)  # type: ignore[arg-type] # a class is hashable
    fields = {name: row[name] for name in names}
    for name in lists:
        fields[name] = tuple(row[name])
    return kind(**fields, **read)


@cache
def _columns(
    kind: Any, row: tuple[str, ...], *read: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the fields of a record that a row has, and those of them that are arrays."""
    given = {name: of for name, of in kind.__dataclass_fields__.items() if name in row}
    names = tuple(name for name in given if name not in read)
    return names, tuple(name for name in names if str(given[name].type).startswith("tuple"))


def as_state(row: Row, *, all_open: bool) -> ScheduleState:
    """Return the state read by ``read_schedules.sql``; ``all_open``: with every open fire."""
    schedule = parse_definition(row["definition"])
    open_fires, unread = tuple(map(_as_open, json.loads(row["open"] or "[]"))), ALL_READ
    if not all_open:
        counted = {name: row[name] or 0 for name in ("running", "waiting", "pending")}
        places = schedule.max_concurrent_runs
        open_fires, unread = ahead(open_fires, schedule.overlap, places, **counted)
    return record_of(
        ScheduleState,
        row,
        schedule=schedule,
        pause=_as_pause(row),
        known=dict(zip(row["known"] or (), row["ran"] or (), strict=True)),
        open_fires=open_fires,
        unread=unread,
        started=row["started"] or 0,
    )


def as_drift(row: Row) -> DriftRow:
    """Return the drift read by ``drift.sql``."""
    return record_of(DriftRow, row, pause=_as_pause(row), skipped=tuple(row["skipped"] or ()))


def _as_pause(row: Row) -> Pause | None:
    pause = [row[f"paused_{name}"] for name in ("at", "reason", "by", "until")]
    return Pause(*pause) if pause[0] else None


def _as_open(fields: dict[str, Any]) -> OpenFire:
    awaited = tuple(Dependency(**with_moments(each)) for each in fields["awaited"] or ())
    return OpenFire(**{**with_moments(fields), "awaited": awaited})


def as_claim(row: Row) -> Claim:
    """Return the claim taken by ``take_over.sql``."""
    return record_of(
        Claim,
        row,
        fire_id=row["id"],
        schedule=parse_definition(row["definition"]),
        own_input=_as_input(row),
        rules=as_rules(row["rules"]),
        data_from=begins(row["data_from"]),
    )


def as_letter(row: Row) -> DeadLetter:
    """Return the dead letter read by ``dead_letters.sql``."""
    return record_of(DeadLetter, row, **_of_bad_end(row))


def as_ended(row: Row) -> Ended:
    """Return the fire read by ``ended.sql``."""
    return record_of(Ended, row, rules=as_rules(row["rules"]), **_of_bad_end(row))


def _of_bad_end(row: Row) -> dict[str, Any]:
    return {"arguments": _as_input(row), "not_undone": as_left(row["not_undone"])}


def _as_input(row: Row) -> tuple[Any, ...]:
    if row["sealed_input"] is not None:
        return (Sealed.from_json(json.loads(row["sealed_input"])),)
    return () if row["input"] is None else (json.loads(row["input"]),)


def input_columns(given: Any) -> tuple[str | None, str | None]:
    """Return an input for the columns ``input`` and ``sealed_input``, as JSON texts."""
    if isinstance(given, Sealed):
        return None, json.dumps(given.to_json())
    return json.dumps(given), None


def as_rules(text: str | None) -> Mapping[str, Any] | None:
    """Return the run options in the ``rules`` of a row."""
    return dict(json.loads(text)) if text else None


def as_schedule(row: Row) -> ScheduleRow:
    """Return the schedule read by ``list_schedules.sql``, even if its definition is unreadable."""
    schedule, error = None, row["error"]
    try:
        schedule = parse_definition(row["definition"])
    except EngineError as unreadable:
        error = f"its definition cannot be read: {unreadable}"
    skipped_at = row["skipped_at"]
    return record_of(
        ScheduleRow,
        row,
        schedule=schedule,
        error=error,
        pause=_as_pause(row),
        skips=dict(zip(skipped_at, row["skipped_why"], strict=True)) if skipped_at else {},
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
    return record_of(ActionRow, row, **states)


def as_fire(row: Row) -> Fire:
    """Return the fire of a row of ``fire_rows``."""
    return record_of(
        Fire,
        row,
        history=tuple(json.loads(row["history"])),
        failing=as_failing(row["failing"]),
        second_runs=tuple(row["second_runs"] or ()),
    )


def as_summary(row: Row) -> RunSummary:
    """Return the summary read by ``run_summaries.sql``."""
    median = row["median_duration_ms"]
    return record_of(RunSummary, row, median_duration_ms=None if median is None else round(median))


def as_standing(row: Row) -> Standing:
    """Return the state read by ``standings.sql``."""
    return record_of(Standing, row, pause=_as_pause(row))


def as_version(row: Row) -> DefinitionVersion:
    """Return the version read by ``definition_versions.sql``."""
    return record_of(DefinitionVersion, row, definition=json.loads(row["definition"]))


def as_backfill(row: Row) -> Backfill:
    """Return the backfill read by ``backfills.sql`` or ``laying.sql``."""
    return record_of(Backfill, row, left_alone=json.loads(row["left_alone"]))


# --- statements ---

_FEW = 1000


class Statements:
    """Statements of a ledger by their names: on its pool, or in one transaction.

    Attributes:
        namespace: the Temporal namespace whose windows it records.
        binding: the number of the binding whose fires are sent and tracked here.
    """

    namespace: str
    binding = 1

    async def _fetch(self, text: str, *arguments: object) -> list[asyncpg.Record]:
        raise NotImplementedError

    async def run(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        """Run ``queries/<name>.sql``; its first argument is the namespace."""
        return await self._fetch(query(name), self.namespace, *arguments)

    async def value(self, name: str, *arguments: object) -> Any | None:
        """Return the first value of a query's first row; None without any."""
        rows = await self.run(name, *arguments)
        return rows[0][0] if rows else None

    async def column(self, name: str, *arguments: object) -> list[Any]:
        """Return the first value of each row of a query."""
        return [row[0] for row in await self.run(name, *arguments)]

    async def many(
        self,
        name: str,
        records: Sequence[object],
        *first: object,
        **made: Callable[[Any], object],
    ) -> list[asyncpg.Record]:
        """Run a query for these records, see ``columns``; not without any."""
        return await self.run(name, *first, *columns(name, records, **made)) if records else []

    async def filtered(self, name: str, given: Mapping[str, object]) -> list[asyncpg.Record]:
        """Run a query with the lines of the filters that are given, and not None.

        An inner limit of its text, from which the planner expects few rows, grows with ``limit``.
        """
        named: dict[str, Any] = {each: value for each, value in given.items() if value is not None}
        text, order = filtered_query(name, frozenset(named))
        if (limit := named.get("limit", 0)) > _FEW:
            text = text.replace(f"LIMIT {_FEW}", f"LIMIT {limit}")
        return await self._fetch(text, self.namespace, *(named[each] for each in order))


def arrays(rows: Iterable[Sequence[object]]) -> list[list[object]]:
    """Return the columns of these rows, of which there is at least one."""
    return [list(column) for column in zip(*rows, strict=True)]


class InTransaction(Statements):
    """The connection of one transaction, and the statements that its parts share."""

    def __init__(self, connection: Connection, of: LedgerPart, patience: float) -> None:
        self.connection, self._patience = connection, patience
        self.namespace, self.binding = of.namespace, of.binding
        self._floors, self._unparsed = of.floors, of.unparsed

    async def _fetch(self, text: str, *arguments: object) -> list[asyncpg.Record]:
        return await self.connection.fetch(text, *arguments, timeout=self._patience)

    async def now(self) -> datetime:
        """Return the ledger's clock, read now and not at the start of the transaction."""
        now: datetime = await self.connection.fetchval("SELECT clock_timestamp()")
        return now

    async def back_off(self, key: str, error: str) -> None:
        """Delay a schedule that fails, longer each time, with nothing decided."""
        await self.run("back_off", key, error)

    async def _write_fires(
        self, name: str, fires: Sequence[NewFire], owner: str | None, lease: timedelta
    ) -> list[asyncpg.Record]:
        """Write fires by ``insert_fires`` or ``refill``; return the rows of those that were new."""
        if not fires:
            return []
        return await self.run(name, owner, lease, self.binding, *fire_columns(name, fires))

    async def _move(self, moves: Sequence[tuple[timedelta, Move]]) -> None:
        """Apply what plans decided on open fires."""

        def decided(*to: str) -> list[Any]:
            return [move for _, move in moves if move.to in to]

        await self.many("promote", decided("start"))
        if released := [move.fire.fire_id for move in decided("release")]:
            await self.run("release", released)
        await self.many("give_up", decided("skip"), code=lambda move: code_of(move.reason))
        graces = {id(move): grace for grace, move in moves}
        wishes = decided("cancel", "terminate")
        await self.many("wish_stops", wishes, grace=lambda move: graces[id(move)])


def fire_columns(name: str, fires: Sequence[NewFire]) -> list[list[object]]:
    """Return the arrays of fires that ``insert_fires`` or ``refill`` writes."""

    def its_input(place: int) -> Callable[[NewFire], str | None]:
        return lambda fire: input_columns(fire.own_input[0])[place] if fire.own_input else None

    return columns(
        name,
        fires,
        awaits=lambda fire: json.dumps(fire.awaits.to_json()) if fire.awaits else None,
        input=its_input(0),
        sealed_input=its_input(1),
        options=lambda fire: json.dumps(fire.options) if fire.options else None,
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


logger = logging.getLogger("sched")


class LedgerPart(Statements):
    """The connections of one ledger, and how its parts write through them.

    Attributes:
        floors: the lower bounds of what is due.
        unparsed: the definitions that ``read`` has left out.
    """

    floors: Floors
    unparsed: set[str]
    _connections: Connections

    async def _fetch(self, text: str, *arguments: object) -> list[asyncpg.Record]:
        return await self._connections.fetch(text, *arguments)

    async def _write(
        self, name: str, records: Sequence[object], *first: object
    ) -> list[asyncpg.Record]:
        """Write all at once; if that fails, one by one, so that only a bad record is lost."""
        if not records:
            return []
        given = [
            [storable(each) if isinstance(each, str) else each for each in column]
            for column in columns(name, records)
        ]
        try:
            return await self._fetch(query(name), *first, *given)
        except (asyncpg.PostgresError, asyncpg.DataError, UnicodeError):
            if len(records) == 1:
                logger.exception("%s: %r could not be written", name, records[0])
                return []
        return [row for record in records for row in await self._write(name, [record], *first)]
