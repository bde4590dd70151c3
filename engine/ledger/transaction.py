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
from engine.ledger.records import (
    Claim,
    NewDefinition,
    ProjectRow,
    ScheduleState,
    Serving,
    Step,
)
from engine.ledger.rows import as_state
from engine.ledger.sql import query
from engine.schedules.diff import Head
from engine.schedules.time_rules import TIME_RULES, reading_at
from engine.schedules.versions import resolve_type

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

    async def read(self, keys: Sequence[str]) -> list[ScheduleState]:
        """See ``Transaction``."""
        states = []
        for row in await self.run("read_schedules", keys):
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
                 reading_at(s, n.cursor))
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

    async def retire(self, keys: Sequence[str], at: datetime) -> None:
        """See ``Transaction``."""
        await self.run("retire", keys, at)
        await self.run("revoke", keys, "retired")

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

    async def _record(
        self, steps: Sequence[Step], owner: str | None, lease: timedelta
    ) -> list[Claim]:
        fires = [NewFire.of(step, decision, owner) for step in steps for decision in step.decisions]
        claims = []
        if fires:
            columns = [[getattr(fire, field) for fire in fires] for field in _FIRE_COLUMNS]
            rows = await self.run("insert_fires", owner, lease, *columns)
            written = {row["workflow_id"]: row for row in rows}
            claims = [
                fire.claim(
                    written[fire.workflow_id]["id"], written[fire.workflow_id]["starting_at"]
                )
                for fire in fires
                if fire.token is not None and fire.workflow_id in written
            ]
        moves = [(s.state.key, s.cursor, s.next_fire_at, s.max_bucket, s.reading) for s in steps]
        await self.run("move_cursors", TIME_RULES, *map(list, zip(*moves, strict=True)))
        return claims

    async def run(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        """Run ``queries/<name>.sql``; its first argument is the namespace."""
        return await self.connection.fetch(
            query(name), self._namespace, *arguments, timeout=self._patience
        )
