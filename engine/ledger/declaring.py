"""The PostgreSQL ledger's statements for whoever declares schedules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from engine.ledger.declaration_records import DriftRow, NewDefinition, ProjectRow
from engine.ledger.queue_rows import QueueRow
from engine.ledger.rows import as_drift
from engine.ledger.sql import query
from engine.ledger.statements import Statements
from engine.schedules.diff import Head
from engine.schedules.queues import Queue
from engine.schedules.schedule_file import ScheduleFile
from engine.schedules.time_rules import TIME_RULES, reading_at
from engine.schedules.versions import resolve_type

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


class PostgresDeclaring(Statements):
    """What an apply, and whoever else declares schedules, needs; see ``Declaring``."""

    async def lock_edited(self, project: str, keys: Sequence[str]) -> None:
        """See ``Transaction``."""
        await self.run("lock_edited", project, keys)

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
        return ProjectRow(**{**rows[0], "refused": tuple(rows[0]["refused"])}) if rows else None

    async def heads(self, project: str, keys: Sequence[str]) -> dict[str, Head]:
        """See ``Transaction``."""
        found = {}
        for number, row in enumerate(await self.run("heads", project, keys)):
            found[row["key"]] = Head(*row)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return found

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
                 reading_at(s, n.cursor), n.origin, n.request_id,
                 " ".join(rule.parent for rule in s.follows))
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

    async def move_to_project(self, keys: Sequence[str], old: str, new: str) -> None:
        """See ``Transaction``."""
        await self.run("move_to_project", keys, old, new)

    async def mark_absent(
        self, project: str, absent: Sequence[str], at: datetime
    ) -> dict[str, datetime]:
        """See ``Transaction``."""
        rows = await self.run("mark_absent", project, absent, at)
        return {row["key"]: row["absent_since"] for row in rows if row["absent_since"]}

    async def save_project(
        self, file: ScheduleFile, *, by: str, refused: Collection[str] = ()
    ) -> None:
        """See ``Transaction``."""
        await self.run(
            "save_project", file.project, file.revision, file.name, file.digest, by, list(refused)
        )
        await self.run("hint")

    async def queues(self) -> dict[str, QueueRow]:
        """See ``Transaction``."""
        return {row["queue"]: QueueRow.of(**dict(row)) for row in await self.run("read_queues")}

    async def declare_queues(self, project: str, queues: Mapping[str, Queue], *, by: str) -> None:
        """See ``Transaction``."""
        names = list(queues)
        most = [queue.concurrency for queue in queues.values()]
        rates = [str(queue.rate) if queue.rate else None for queue in queues.values()]
        await self.run("declare_queues", project, names, most, rates, by)
        await self.run("drop_queues", project, names)

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
