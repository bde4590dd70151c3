"""One transaction of the PostgreSQL ledger."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import asyncpg

from engine.errors import EngineError
from engine.ledger.connections import Connection
from engine.ledger.new_fire import NewFire
from engine.ledger.noted import noted
from engine.ledger.records import (
    Action,
    Claim,
    DriftRow,
    Evidence,
    Fire,
    NewDefinition,
    NewRequest,
    Pause,
    ProjectRow,
    ScheduleState,
    Serving,
    SkippedAhead,
    Step,
    Timing,
)
from engine.ledger.rows import as_drift, as_fire, as_state, parse_definition
from engine.ledger.sql import query
from engine.schedules.decisions import Move, Overlap, Stop
from engine.schedules.diff import Head
from engine.schedules.model import Schedule
from engine.schedules.ranges import Piece
from engine.schedules.time_rules import TIME_RULES, reading_at
from engine.schedules.versions import resolve_type
from engine.schedules.windows import Window

_NO_TIME = timedelta(0)
_FIRE_COLUMNS = (
    "project",
    "key",
    "series",
    "bucket",
    "fire_time",
    "windows",
    "last_fire_time",
    "definition_version",
    "workflow_id",
    "workflow_type",
    "task_queue",
    "status",
    "reason",
    "timing",
    "missed",
    "missed_from",
    "not_before",
    "token",
)
"""The order of the arrays in ``insert_fires.sql``."""


_AT_ONCE = 5000
"""Rows turned into records before the loop's other tasks get their turn: about 10 ms."""

_MOST_CHARACTERS = 4_000_000
"""Of the definitions in one statement; one that is longer goes alone."""


def bounded(
    definitions: Sequence[NewDefinition], most: int = _MOST_CHARACTERS
) -> Iterator[list[tuple[NewDefinition, str]]]:
    """Yield definitions with their JSON, as many at once as one statement is to carry."""
    part: list[tuple[NewDefinition, str]] = []
    size = 0
    for new in definitions:
        text = json.dumps(new.schedule.to_json())
        if part and size + len(text) > most:
            yield part
            part, size = [], 0
        part.append((new, text))
        size += len(text)
    if part:
        yield part


class PostgresTransaction:
    """See ``engine.ledger.ledger.Transaction``."""

    def __init__(self, connection: Connection, namespace: str, patience: float) -> None:
        self.connection = connection
        self._namespace, self._patience = namespace, patience

    async def now(self) -> datetime:
        """See ``Transaction``."""
        now: datetime = await self.connection.fetchval("SELECT clock_timestamp()")
        return now

    async def lock_due(self, serving: Serving, limit: int) -> list[str]:
        """See ``Transaction``."""
        rows = await self.run(
            "lock_due", serving.project, serving.lanes, list(serving.types), TIME_RULES, limit
        )
        return [row["key"] for row in rows]

    async def lock(self, keys: Sequence[str]) -> None:
        """See ``Transaction``."""
        await self.run("lock", keys)

    async def lock_edited(self, project: str, keys: Sequence[str]) -> None:
        """See ``Transaction``."""
        await self.run("lock_edited", project, keys)

    async def lock_outdated(self, serving: Serving, after: str, limit: int) -> list[str]:
        """See ``Transaction``."""
        rows = await self.run(
            "lock_outdated", serving.project, TIME_RULES, after, serving.lanes, limit
        )
        return [row["key"] for row in rows]

    async def lock_project(self, project: str) -> ProjectRow | None:
        """See ``Transaction``.

        One apply at a time in the whole namespace: two projects may reach for the same key.
        An advisory lock, because at first there is no row to lock.
        """
        await self.connection.fetch(
            "SELECT pg_advisory_xact_lock(hashtextextended('sched-engine apply ' || $1, 0))",
            self._namespace,
            timeout=self._patience,
        )
        rows = await self.run("lock_project", project)
        return ProjectRow(**rows[0]) if rows else None

    async def heads(self, project: str, keys: Sequence[str]) -> dict[str, Head]:
        """See ``Transaction``."""
        found = {}
        for number, row in enumerate(await self.run("heads", project, keys)):
            found[row["key"]] = Head(*row)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return found

    async def read(self, keys: Sequence[str], *, all_open: bool = False) -> list[ScheduleState]:
        """See ``Transaction``."""
        states = []
        for row in await self.run("read_schedules", keys, all_open):
            try:
                states.append(as_state(row))
            except EngineError as error:
                await self.back_off(row["key"], f"its definition cannot be read: {error}")
        return states

    async def record(
        self,
        steps: Sequence[Step],
        *,
        owner: str | None = None,
        lease: timedelta = timedelta(0),
        strict: bool = False,
    ) -> list[Claim]:
        """See ``Transaction``. All steps at once; when that fails, one by one."""
        if not steps:
            return []
        try:
            async with self.connection.transaction():
                return await self._record(steps, owner, lease)
        except asyncpg.PostgresError as error:
            if strict or self.connection.is_closed():
                raise
            if len(steps) == 1:
                await self.back_off(steps[0].state.key, str(error))
                return []
        claims = []
        for step in steps:
            claims += await self.record([step], owner=owner, lease=lease)
        return claims

    async def unservable(
        self, serving: Serving, *, alive: timedelta, steady: timedelta, limit: int
    ) -> list[str]:
        """See ``Transaction``."""
        types = list(serving.types)
        rows = await self.run(
            "unservable",
            serving.project,
            serving.task_queue,
            alive,
            types,
            steady,
            limit,
            TIME_RULES,
        )
        return [row["key"] for row in rows]

    async def back_off(self, key: str, error: str) -> None:
        """See ``Transaction``."""
        await self.run("back_off", key, error)

    async def define(self, definitions: Sequence[NewDefinition], *, by: str) -> None:
        """See ``Transaction``."""
        for part in bounded(definitions):
            await self._define(part, by)

    async def _define(self, definitions: Sequence[tuple[NewDefinition, str]], by: str) -> None:
        values = [(new, new.schedule) for new, _ in definitions]
        columns = zip(
            *(
                (s.key, n.project, n.version, s.digest, n.series, n.suffixed, n.max_bucket,
                 n.effective_from, n.cursor, n.next_fire_at, s.workflow, n.workflow_type,
                 s.task_queue, s.external, s.grace, s.enabled, n.paused,
                 reading_at(s, n.cursor), n.origin, n.request_id)
                for n, s in values
            ),
            strict=True,
        )  # fmt: skip
        await self.run("define_schedules", TIME_RULES, *map(list, columns))
        versions = zip(
            *(
                (n.schedule.key, n.version, n.series, n.project, text, n.schedule.digest,
                 n.effective_from)
                for n, text in definitions
            ),
            strict=True,
        )  # fmt: skip
        await self.run("define_versions", by, *map(list, versions))

    async def drift(self, project: str) -> list[DriftRow]:
        """See ``Transaction``."""
        return [as_drift(row) for row in await self.run("drift", project)]

    async def asked_under(self, request_id: str) -> str | None:
        """See ``Transaction``."""
        rows = await self.run("asked_under", request_id)
        return rows[0]["key"] if rows else None

    async def raise_epoch(self) -> None:
        """See ``Transaction``."""
        await self.connection.execute(query("raise_epoch"), timeout=self._patience)

    async def retire(self, keys: Sequence[str], at: datetime) -> None:
        """See ``Transaction``."""
        await self.run("retire", keys, at)
        await self.run("revoke", keys, "retired", True)

    async def mark_absent(
        self, project: str, absent: Sequence[str], at: datetime
    ) -> dict[str, datetime]:
        """See ``Transaction``."""
        rows = await self.run("mark_absent", project, absent, at)
        return {row["key"]: row["absent_since"] for row in rows if row["absent_since"]}

    async def save_project(
        self, project: str, *, revision: int | None, name: str, digest: str, by: str
    ) -> None:
        """See ``Transaction``."""
        await self.run("save_project", project, revision, name, digest, by)

    async def resolve(
        self, wanted: Iterable[tuple[str, str]]
    ) -> Mapping[tuple[str, str], str | None]:
        """See ``Transaction``."""
        pairs = set(wanted)
        queues = {task_queue for task_queue, _ in pairs}
        announced = await self.announced(queues) if queues else {}
        return {
            (task_queue, workflow): resolve_type(workflow, announced.get(task_queue, ()))
            for task_queue, workflow in pairs
        }

    async def announced(self, task_queues: Collection[str]) -> Mapping[str, Sequence[str]]:
        """See ``Transaction``."""
        announced: dict[str, list[str]] = {}
        for row in await self.run("announced_types", list(task_queues)):
            announced.setdefault(row["task_queue"], []).append(row["type"])
        return announced

    async def pause(self, key: str, pause: Pause) -> None:
        """See ``Transaction``."""
        await self.run("pause", key, pause.at, pause.reason, pause.by, pause.until)
        await self.run("revoke", [key], "paused", False)

    async def resume(self, key: str, next_fire_at: datetime | None) -> None:
        """See ``Transaction``."""
        await self.run("resume", key, next_fire_at)

    async def move(self, state: ScheduleState, moves: Sequence[Move]) -> None:
        """See ``Transaction``."""
        await self._move([(state.schedule.cancel_grace, move) for move in moves])

    async def stop(self, fire_id: int, stop: Stop, *, grace: timedelta | None, reason: str) -> None:
        """See ``Transaction``."""
        await self.run("wish_stops", [fire_id], [stop], [grace], [reason])

    async def request(self, state: ScheduleState, new: NewRequest) -> bool:
        """See ``Transaction``."""
        rows = await self.run(
            "request_fire", state.project, state.key, new.series, new.bucket, new.fire_time,
            new.kind, state.definition_version, new.workflow_id, state.workflow_type,
            state.schedule.task_queue, new.status, new.reason, new.kind, new.overlap,
            json.dumps(new.own_input[0]) if new.own_input else None,
        )  # fmt: skip
        return bool(rows)

    async def unskip(self, key: str, series: int, fire_time: datetime) -> bool:
        """See ``Transaction``."""
        return bool(await self.run("unskip", key, series, fire_time))

    async def lift_skips(self, keys: Sequence[str]) -> list[SkippedAhead]:
        """See ``Transaction``."""
        return [SkippedAhead(**row) for row in await self.run("lift_skips", keys)]

    async def give_up(self, workflow_id: str, reason: str) -> bool:
        """See ``Transaction``."""
        return bool(await self.run("give_up_run", workflow_id, reason))

    async def note_ahead(self, step: Step) -> None:
        """See ``Transaction``."""
        await self._insert(
            [NewFire.of(step, each, None) for each in step.decisions], None, _NO_TIME
        )

    async def window(self, key: str, bucket: int, series: int | None) -> Fire | None:
        """See ``Transaction``."""
        rows = await self.run("window_fire", key, bucket, series)
        return as_fire(rows[0]) if rows else None

    async def count_reruns(self, workflow_id: str) -> int:
        """See ``Transaction``."""
        (row,) = await self.run("count_reruns", workflow_id)
        return int(row["reruns"])

    async def fire(self, workflow_id: str) -> Fire | None:
        """See ``Transaction``."""
        rows = await self.run("list_fires", None, None, workflow_id, 1)
        return as_fire(rows[0]) if rows else None

    async def between(self, key: str, first: datetime, last: datetime) -> list[Fire]:
        """See ``Transaction``."""
        return [as_fire(row) for row in await self.run("fires_between", key, first, last)]

    async def definition(self, key: str, version: int) -> Schedule:
        """See ``Transaction``."""
        (row,) = await self.run("definition", key, version)
        return parse_definition(row["definition"])

    async def carve(self, row: Fire, pieces: Sequence[Piece], *, suffixed: bool) -> None:
        """See ``Transaction``."""
        columns = [
            (piece.window.bucket, piece.window.fire_time, piece.windows, piece.last,
             piece.window.workflow_id(suffixed))
            for piece in pieces
        ]  # fmt: skip
        await self.run(
            "carve", row.key, row.series, row.fire_time, *map(list, zip(*columns, strict=True))
        )

    async def refill(
        self, state: ScheduleState, workflow_id: str, fire_time: datetime, overlap: Overlap
    ) -> bool:
        """See ``Transaction``."""
        rows = await self.run(
            "refill",
            workflow_id,
            fire_time,
            _begun(overlap),
            overlap,
            state.definition_version,
            state.workflow_type,
            state.schedule.task_queue,
        )
        return bool(rows)

    async def backfill(
        self, state: ScheduleState, window: Window, workflow_id: str, overlap: Overlap
    ) -> bool:
        """See ``Transaction``."""
        rows = await self.run(
            "insert_backfill",
            state.project,
            state.key,
            window.series,
            window.bucket,
            window.fire_time,
            state.definition_version,
            workflow_id,
            state.workflow_type,
            state.schedule.task_queue,
            _begun(overlap),
            overlap,
        )
        return bool(rows)

    async def covering(self, key: str, fire_time: datetime) -> Fire | None:
        """See ``Transaction``."""
        rows = await self.run("covering_fire", key, fire_time)
        return as_fire(rows[0]) if rows else None

    async def found(self, seen: Evidence, window: Window, version: int, timing: Timing) -> None:
        """See ``Transaction``."""
        await self.run(
            "found_run", window.key, window.series, window.bucket, window.fire_time, version,
            seen.workflow_id, timing, seen.run_id, seen.started_at,
        )  # fmt: skip

    async def act(self, actions: Sequence[Action], *, by: str) -> None:
        """See ``Transaction``."""
        columns = [
            (each.project, each.key, each.verb, each.reason, each.workflow_id,
             noted(each.before), noted(each.after))
            for each in actions
        ]  # fmt: skip
        if columns:
            await self.run("act", by, *map(list, zip(*columns, strict=True)))

    async def _record(
        self, steps: Sequence[Step], owner: str | None, lease: timedelta
    ) -> list[Claim]:
        fires = [NewFire.of(step, decision, owner) for step in steps for decision in step.decisions]
        claims = await self._insert(fires, owner, lease)
        await self._move([(step.state.schedule.cancel_grace, move)
                          for step in steps for move in step.moves])  # fmt: skip
        moved = [
            (s.state.key, s.cursor, s.next_fire_at, s.max_bucket, s.reading, s.resumed)
            for s in steps
        ]
        await self.run("move_cursors", TIME_RULES, *map(list, zip(*moved, strict=True)))
        return claims

    async def _insert(
        self, fires: Sequence[NewFire], owner: str | None, lease: timedelta
    ) -> list[Claim]:
        if not fires:
            return []
        columns = [[getattr(fire, field) for fire in fires] for field in _FIRE_COLUMNS]
        rows = await self.run("insert_fires", owner, lease, *columns)
        written = {row["workflow_id"]: row for row in rows}
        return [
            fire.claim(written[fire.workflow_id]["id"], written[fire.workflow_id]["starting_at"])
            for fire in fires
            if fire.token is not None and fire.workflow_id in written
        ]

    async def _move(self, moves: Sequence[tuple[timedelta, Move]]) -> None:
        """Carry out what plans decided about fires that are open already."""
        if promoted := [move.fire.fire_id for _, move in moves if move.to == "start"]:
            await self.run("promote", promoted)
        if skipped := [(move.fire.fire_id, move.reason) for _, move in moves if move.to == "skip"]:
            await self.run("give_up", *map(list, zip(*skipped, strict=True)))
        wishes = [
            (move.fire.fire_id, move.to, grace, move.reason)
            for grace, move in moves
            if move.to in {"cancel", "terminate"}
        ]
        if wishes:
            await self.run("wish_stops", *map(list, zip(*wishes, strict=True)))

    async def run(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        """Run ``queries/<name>.sql``; its first argument is the namespace."""
        return await self.connection.fetch(
            query(name), self._namespace, *arguments, timeout=self._patience
        )


def _begun(overlap: Overlap) -> str:
    """How a window begins that is to start after all: promotions come from the queue."""
    return "claimed" if overlap == "allow" else "queued"
