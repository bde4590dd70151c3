"""Transactions of the in-memory ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from engine.errors import KeyInUse, LedgerError, RequestInUse
from engine.ledger.fires import OPEN, PENDING, SURELY_NOT_RUN, Claim, common_fields
from engine.ledger.memory.operations import (
    MemoryBackfilling,
    MemoryBadEnds,
    MemoryOperating,
    open_fire,
)
from engine.ledger.memory.tables import MemoryRows, ScheduleEntry, Tables, started_windows
from engine.ledger.outbox import Subscription, SubscriptionOrigin
from engine.ledger.records import (
    Action,
    DefinitionVersion,
    DriftRow,
    NewDefinition,
    NewFire,
    ProjectRow,
    QueueRow,
    Serving,
)
from engine.schedules import Hook, Queue, Reason, Schedule, ScheduleFile, resolve_type
from engine.schedules.diff import Head
from engine.schedules.planner import (
    ALL_READ,
    TIME_RULES,
    OpenFire,
    Pause,
    Plan,
    ScheduleState,
    Unread,
    ahead,
    reading_at,
)

# --- declarations ---

_BY_THE_FILE = "paused: true in the file"


class MemoryDeclaring(MemoryRows):
    """Declarations of schedules and step queues."""

    async def lock_edited(self, project: str, keys: Sequence[str]) -> None:
        """Do nothing: the ledger's only lock is held already."""

    async def lock_project(self, project: str) -> ProjectRow | None:
        return self._tables.projects.get(project)

    async def heads(self, project: str, keys: Sequence[str]) -> dict[str, Head]:
        named = set(keys)
        return {
            key: Head(**common_fields(Head, row.state), retired=row.state.retired_at is not None)
            for key, row in self._tables.schedules.items()
            if key in named or row.state.project == project
        }

    async def resolve(
        self, wanted: Iterable[tuple[str, str]]
    ) -> Mapping[tuple[str, str], str | None]:
        return {
            (task_queue, workflow): resolve_type(workflow, self._announced(task_queue))
            for task_queue, workflow in wanted
        }

    async def announced(self, task_queues: Collection[str]) -> Mapping[str, Sequence[str]]:
        return {task_queue: self._announced(task_queue) for task_queue in task_queues}

    async def seal(self, project: str) -> str | None:
        return self._tables.seals.get(project)

    async def seal_project(self, project: str, digest_key: str, *, by: str) -> str:
        if project not in self._tables.seals:
            self._tables.put(self._tables.seals, project, digest_key)
        return self._tables.seals[project]

    async def define(self, definitions: Sequence[NewDefinition], *, by: str) -> None:
        for new in definitions:
            key = new.schedule.key
            before = self._tables.schedules.get(key)
            paused = Pause(self.clock(), _BY_THE_FILE) if new.paused else None
            cursor = new.cursor
            if before and before.state.series == new.series:
                cursor = max(cursor, before.state.cursor)
            state = ScheduleState(
                **{**common_fields(ScheduleState, new), "cursor": cursor},
                key=key,
                definition_version=new.version,
                digest=new.schedule.digest,
                retired_at=None,
                # A file does not change an operator's pause.
                pause=before.state.pause if before else paused,
                absent_since=None,
                failures=0,
                rules=TIME_RULES,
                cursor_reading=reading_at(new.schedule, new.cursor),
            )
            self._put(ScheduleEntry(state, new.next_fire_at))
            self._tables.put(self._tables.definitions, (key, new.version), new.schedule)
            version = DefinitionVersion(
                version=new.version, series=new.series, definition=new.schedule.to_json(),
                effective_from=new.effective_from, applied_at=self.clock(), applied_by=by,
            )  # fmt: skip
            self._tables.put(self._tables.versions, (key, new.version), version)
            if new.request_id is not None:
                self._tables.put(self._tables.requests, new.request_id, key)

    async def drift(self, project: str) -> list[DriftRow]:
        found = []
        for key, row in sorted(self._tables.schedules.items()):
            if row.state.project != project or row.state.retired_at is not None:
                continue
            skipped = sorted(fire.fire_time for fire in self._skipped_by_users(key))
            asked_for = row.state.origin == "api" and row.next_fire_at is not None
            if row.state.pause or skipped or asked_for:
                found.append(DriftRow(key, row.state.origin, row.state.pause, tuple(skipped)))
        return found

    async def asked_under(self, request_id: str) -> str | None:
        return self._tables.requests.get(request_id)

    async def raise_epoch(self) -> None:
        self._tables.count("epoch")

    async def retire(self, keys: Sequence[str], at: datetime) -> None:
        for key in keys:
            row = self._tables.schedules[key]
            self._put(ScheduleEntry(row.state, None), retired_at=at, absent_since=None)
            for fire in self._tables.of_key(key, *PENDING):
                if fire.kind != "handler":
                    self._settle(fire, "skipped", Reason("retired", "retired"))

    async def move_to_project(self, keys: Sequence[str], old: str, new: str) -> None:
        tables = self._tables
        for key in keys:
            self._put(tables.schedules[key], project=new, absent_since=None)
            for fire in tables.of_key(key, *OPEN):
                tables.change(fire, project=new)
        for number, each in list(tables.backfills.items()):
            if each.key in keys and each.state == "laying":
                tables.put(tables.backfills, number, replace(each, project=new))
        if left := tables.projects.get(old):
            tables.put(tables.projects, old, replace(left, file_digest=""))

    async def mark_absent(
        self, project: str, absent: Sequence[str], at: datetime
    ) -> dict[str, datetime]:
        since = {}
        for key, row in list(self._tables.schedules.items()):
            if row.state.project != project or row.state.retired_at:
                continue
            moment = (row.state.absent_since or at) if key in absent else None
            self._put(row, absent_since=moment)
            if moment:
                since[key] = moment
        return since

    async def save_project(
        self, file: ScheduleFile, *, by: str, refused: Collection[str] = (), forgotten: bool = False
    ) -> None:
        now = self.clock()
        row = ProjectRow(file.revision, file.digest, now, file.name, by, tuple(refused), forgotten)
        self._tables.put(self._tables.projects, file.project, row)
        self._tables.count("epoch")

    async def hooks(self) -> list[Subscription]:
        rows = sorted(self._tables.outbox.subscriptions.items())
        return [row.what for _, row in rows if row.what.kind == "hook"]

    async def declare_hooks(
        self,
        project: str,
        hooks: Sequence[Hook],
        *,
        origin: SubscriptionOrigin,
        by: str,
        only: bool = True,
    ) -> None:
        tables = self._tables
        named = [Subscription.of_hook(each, project, origin) for each in hooks]
        if only:
            tables.outbox.drop_hooks(tables.drop, project, origin, {each.name for each in named})
        tables.outbox.put_hooks(tables.put, named)

    async def remove_hook(self, name: str) -> None:
        self._tables.outbox.remove(self._tables.drop, name)

    async def queues(self) -> dict[str, QueueRow]:
        return dict(sorted(self._tables.queues.items()))

    async def declare_queues(self, project: str, queues: Mapping[str, Queue], *, by: str) -> None:
        now, table = self.clock(), self._tables.queues
        for name, limits in queues.items():
            if name not in table or table[name].project == project:
                self._tables.put(table, name, QueueRow(name, project, limits, now))
        for name, row in list(table.items()):
            if row.project == project and name not in queues and row.dropped_at is None:
                self._tables.put(table, name, replace(row, dropped_at=now))


# --- transaction ---


class MemoryTransaction(MemoryOperating, MemoryBackfilling, MemoryDeclaring, MemoryBadEnds):
    """All statements of one transaction, on the tables of the in-memory ledger."""

    def __init__(self, tables: Tables, clock: Callable[[], datetime]) -> None:
        self._tables, self.clock = tables, clock

    async def create(self, new: NewDefinition, action: Action, *, by: str) -> None:
        key, request_id = new.schedule.key, new.request_id
        if request_id is not None and request_id in self._tables.requests:
            raise RequestInUse(f"request id {request_id} was used before")
        if key in self._tables.schedules:
            raise KeyInUse(f"there is, or was, a schedule {key}", cure="choose another key")
        await self.define([new], by=by)
        await self.act([action], by=by)

    async def now(self) -> datetime:
        return self.clock()

    async def lock_due(
        self,
        serving: Serving,
        limit: int,
        *,
        but: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> list[str]:
        now = self.clock()
        due = [
            (row.due_at, key)
            for key, row in self._tables.schedules.items()
            if row.is_due(now)
            and row.servable(serving)
            and key not in but
            and (only is None or key in only)
        ]
        return [key for _, key in sorted(due)[:limit]]

    async def lock(self, keys: Sequence[str]) -> None:
        """Do nothing: the ledger's only lock is held already."""

    async def lock_outdated(self, serving: Serving, after: str, limit: int) -> list[str]:
        old = [
            key
            for key, row in sorted(self._tables.schedules.items())
            if key > after
            and row.state.project == serving.project
            and row.lane in serving.lanes
            and row.state.retired_at is None
            and row.state.rules < TIME_RULES
        ]
        return old[:limit]

    async def lock_unsent(self, fire_ids: Collection[int]) -> set[int]:
        fires = self._tables.fires
        return {n for n in fire_ids if n in fires and fires[n].status in PENDING}

    async def read(
        self,
        keys: Sequence[str],
        *,
        all_open: bool = False,
        at_once: bool = False,
        on_unread: Callable[[str, Exception], None] | None = None,
    ) -> list[ScheduleState]:
        rows = self._tables.schedules
        return [self._known(rows[key].state, all_open) for key in keys if key in rows]

    def _known(self, state: ScheduleState, all_open: bool) -> ScheduleState:  # noqa: FBT001 - private
        """Add what a plan needs of the key's fires."""
        mine = self._tables.of_key(state.key)
        queued = any(fire.status == "queued" for fire in mine)
        asked = all_open or queued or state.schedule.overlap != "allow"
        in_the_way = [found for fire in mine if asked and (found := open_fire(self._tables, fire))]
        open_fires, unread = self._ahead(state.schedule, in_the_way)
        if all_open:
            open_fires, unread = tuple(in_the_way), ALL_READ
        return replace(
            state,
            known={
                fire.fire_time: fire.status not in SURELY_NOT_RUN
                for fire in mine
                if fire.kind == "window"
                and fire.series == state.series
                and fire.fire_time > state.cursor
            },
            open_fires=open_fires,
            unread=unread,
            started=started_windows(state, mine) or 0,
        )

    @staticmethod
    def _ahead(
        schedule: Schedule, fires: Sequence[OpenFire]
    ) -> tuple[tuple[OpenFire, ...], Unread]:
        running = [fire for fire in fires if fire.status != "queued"]
        pending = [fire for fire in fires if fire.awaited]
        return ahead(
            fires, schedule.overlap, schedule.max_concurrent_runs,
            running=min(len(running), schedule.max_concurrent_runs), pending=len(pending),
            waiting=len(fires) - len(running) - len(pending),
        )  # fmt: skip

    async def record(
        self,
        steps: Sequence[Plan],
        *,
        owner: str | None = None,
        lease: timedelta = timedelta(0),
        strict: bool = False,
    ) -> list[Claim]:
        claims = []
        for step in steps:
            for decision in step.decisions:
                claims += self._insert(NewFire.of(step, decision, owner), owner, lease)
            await self.move(step.state, step.moves)
            state = self._tables.schedules[step.state.key].state
            self._put(
                ScheduleEntry(state, step.next_fire_at, look_at=step.look_at),
                cursor=max(state.cursor, step.cursor),
                max_bucket=step.max_bucket, failures=0, rules=TIME_RULES,
                cursor_reading=step.reading, pause=None if step.resumed else state.pause,
            )  # fmt: skip
        return claims

    async def unservable(
        self, serving: Serving, *, alive: timedelta, steady: timedelta, limit: int
    ) -> list[str]:
        now = self.clock()
        able = [serving, *self.living(alive)]
        keys = [
            key
            for key, row in self._tables.schedules.items()
            if row.state.project == serving.project
            and row.lane == serving.task_queue
            and row.is_due(now)
            and row.next_fire_at is not None
            and row.next_fire_at < now - row.state.schedule.grace
            and row.state.schedule.grace + alive <= steady
            and row.state.rules <= TIME_RULES
            and not any(row.servable(other) for other in able)
        ]
        return keys[:limit]

    async def back_off(self, key: str, error: str) -> None:
        state = self._tables.schedules[key].state
        wait = timedelta(seconds=min(2.0 ** min(state.failures, 10), 300.0))
        self._put(ScheduleEntry(state, self.clock() + wait, error), failures=state.failures + 1)

    def _insert(self, new: NewFire, owner: str | None, lease: timedelta) -> list[Claim]:
        window = (new.key, new.series, new.fire_time)
        if window in self._tables.windows:
            return []
        if new.workflow_id in self._tables.runs:
            raise LedgerError(f"{new.workflow_id} is another window's run")
        fire = self._add(self._entry(new, owner, lease))
        return [self._claim(fire)] if new.token else []
