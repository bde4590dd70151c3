"""What the in-memory ledger does for whoever declares schedules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from engine.ledger.declaration_records import DriftRow, NewDefinition, ProjectRow
from engine.ledger.fire_records import OPEN
from engine.ledger.memory_rows import MemoryRows
from engine.ledger.memory_tables import ScheduleEntry
from engine.ledger.schedule_records import Pause, ScheduleState
from engine.schedules.diff import Head
from engine.schedules.schedule_file import ScheduleFile
from engine.schedules.time_rules import TIME_RULES, reading_at
from engine.schedules.versions import resolve_type

_BY_THE_FILE = "paused: true in the file"


class MemoryDeclaring(MemoryRows):
    """See ``engine.ledger.transactions.Transaction``."""

    _announced: Callable[[str], list[str]]

    async def lock_edited(self, project: str, keys: Sequence[str]) -> None:
        """See ``Transaction``. The one lock of the ledger is held already."""

    async def lock_project(self, project: str) -> ProjectRow | None:
        """See ``Transaction``."""
        return self._tables.projects.get(project)

    async def heads(self, project: str, keys: Sequence[str]) -> dict[str, Head]:
        """See ``Transaction``."""
        named = set(keys)
        return {
            key: Head(
                key=key,
                project=row.state.project,
                digest=row.state.digest,
                retired=row.state.retired_at is not None,
                origin=row.state.origin,
            )
            for key, row in self._tables.schedules.items()
            if key in named or row.state.project == project
        }

    async def resolve(
        self, wanted: Iterable[tuple[str, str]]
    ) -> Mapping[tuple[str, str], str | None]:
        """See ``Transaction``."""
        return {
            (task_queue, workflow): resolve_type(workflow, self._announced(task_queue))
            for task_queue, workflow in wanted
        }

    async def announced(self, task_queues: Collection[str]) -> Mapping[str, Sequence[str]]:
        """See ``Transaction``."""
        return {task_queue: self._announced(task_queue) for task_queue in task_queues}

    async def define(
        self,
        definitions: Sequence[NewDefinition],
        *,
        by: str,  # noqa: ARG002 - no audit here
    ) -> None:
        """See ``Transaction``."""
        for new in definitions:
            key = new.schedule.key
            before = self._tables.schedules.get(key)
            paused = Pause(self._clock(), _BY_THE_FILE) if new.paused else None
            cursor = new.cursor
            if before and before.state.series == new.series:
                cursor = max(cursor, before.state.cursor)
            state = ScheduleState(
                key=key,
                project=new.project,
                schedule=new.schedule,
                definition_version=new.version,
                digest=new.schedule.digest,
                series=new.series,
                suffixed=new.suffixed,
                max_bucket=new.max_bucket,
                effective_from=new.effective_from,
                cursor=cursor,
                workflow_type=new.workflow_type,
                retired_at=None,
                # The operator's pause is not the file's to change.
                pause=before.state.pause if before else paused,
                absent_since=None,
                failures=0,
                rules=TIME_RULES,
                cursor_reading=reading_at(new.schedule, new.cursor),
                origin=new.origin,
            )
            self._put(ScheduleEntry(state, new.next_fire_at))
            self._tables.put(self._tables.definitions, (key, new.version), new.schedule)
            if new.request_id is not None:
                self._tables.put(self._tables.requests, new.request_id, key)

    async def drift(self, project: str) -> list[DriftRow]:
        """See ``Transaction``."""
        found = []
        for key, row in sorted(self._tables.schedules.items()):
            if row.state.project != project or row.state.retired_at is not None:
                continue
            skipped = sorted(
                fire.new.fire_time
                for _, fire in self._of(key, "skipped")
                if fire.new.series == row.state.series and self._skipped_ahead(fire)
            )
            asked_for = row.state.origin == "api" and row.next_fire_at is not None
            if row.state.pause or skipped or asked_for:
                found.append(DriftRow(key, row.state.origin, row.state.pause, tuple(skipped)))
        return found

    async def asked_under(self, request_id: str) -> str | None:
        """See ``Transaction``."""
        return self._tables.requests.get(request_id)

    async def raise_epoch(self) -> None:
        """See ``Transaction``."""
        self._tables.count("epoch")

    async def retire(self, keys: Sequence[str], at: datetime) -> None:
        """See ``Transaction``."""
        for key in keys:
            state = self._tables.schedules[key].state
            self._put(ScheduleEntry(replace(state, retired_at=at, absent_since=None), None))
        for number, fire in list(self._tables.fires.items()):
            waits = fire.status in {"claimed", "queued"} and fire.kind != "handler"
            if fire.new.key in keys and waits:
                self._settle(number, "skipped", "retired")

    async def move_to_project(self, keys: Sequence[str], old: str, new: str) -> None:
        """See ``Transaction``."""
        tables = self._tables
        for key in keys:
            entry = tables.schedules[key]
            self._put(replace(entry, state=replace(entry.state, project=new, absent_since=None)))
        for number, fire in list(tables.fires.items()):
            if fire.new.key in keys and fire.status in OPEN:
                moved = replace(fire, new=replace(fire.new, project=new))
                tables.put(tables.fires, number, moved)
        for number, each in list(tables.backfills.items()):
            if each.key in keys and each.state == "laying":
                tables.put(tables.backfills, number, replace(each, project=new))
        if left := tables.projects.get(old):
            tables.put(tables.projects, old, replace(left, file_digest=""))

    async def mark_absent(
        self, project: str, absent: Sequence[str], at: datetime
    ) -> dict[str, datetime]:
        """See ``Transaction``."""
        since = {}
        for key, row in list(self._tables.schedules.items()):
            if row.state.project != project or row.state.retired_at:
                continue
            moment = (row.state.absent_since or at) if key in absent else None
            self._put(replace(row, state=replace(row.state, absent_since=moment)))
            if moment:
                since[key] = moment
        return since

    async def save_project(
        self, file: ScheduleFile, *, by: str, refused: Collection[str] = ()
    ) -> None:
        """See ``Transaction``."""
        now = self._clock()
        row = ProjectRow(file.revision, file.digest, now, file.name, by, tuple(refused))
        self._tables.put(self._tables.projects, file.project, row)
        self._tables.count("epoch")
