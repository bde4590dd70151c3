"""Statements about schedules: lists, definitions, holds, their projects, and ticks."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

import asyncpg

from engine.errors import EngineError, KeyInUse, RequestInUse
from engine.ledger.fires import Claim
from engine.ledger.postgres.connections import query, values
from engine.ledger.postgres.rows import (
    InTransaction,
    Statements,
    arrays,
    as_action,
    as_drift,
    as_next_fire,
    as_schedule,
    as_standing,
    as_state,
    as_version,
    claimed,
    parse_definition,
    record_of,
    waits_for_thread,
)
from engine.ledger.records import (
    Action,
    ActionRow,
    DefinitionVersion,
    DriftRow,
    DueByShare,
    DueKey,
    NewDefinition,
    NewFire,
    ProjectRow,
    Serving,
    Standing,
    Wanted,
    action_json,
)
from engine.ledger.schedule_rows import NextFire, ScheduleFilter, ScheduleRow
from engine.schedules import STARTS, Schedule, ScheduleFile, resolve_type
from engine.schedules.diff import Head
from engine.schedules.planner import READ_AHEAD, TIME_RULES, Pause, Plan, ScheduleState, reading_at

# --- reads ---

_LOOKED_AT = 5000
"""The most schedules that ``upcoming`` reads to find windows that are not excluded."""


class ScheduleReads(Statements):
    """Schedules for lists, overviews, verbs and the audit; nothing is locked or written."""

    async def schedules(
        self,
        project: str | None = None,
        *,
        key: str | None = None,
        wanted: ScheduleFilter | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[ScheduleRow]:
        """Return schedules in key order for display, including retired ones.

        With ``wanted`` only those that match it, without the rows of starts; ``after`` is a key.
        The order of keys is that of the database, and always the same.
        """
        given: dict[str, object]
        given = {"project": project, "key": key, "after": after, "limit": limit}
        given |= {**wanted.given(), "but": STARTS} if wanted is not None else {}
        return [as_schedule(row) for row in await self.filtered("list_schedules", given)]

    async def count_schedules(self, project: str) -> int:
        """Return how many schedules of the project are not retired."""
        return await self.value("count_schedules", project) or 0

    async def upcoming(self, project: str, limit: int) -> list[NextFire]:
        """Return the next start of each of the project's schedules, earliest first.

        Excluded and skipped windows are passed over. If more than 5,000 schedules have such windows
        before the first start of another schedule, that start may be missing.
        """
        looked_at = limit
        while True:
            rows = await self.run("upcoming", project, looked_at)
            found = sorted(
                filter(None, map(as_next_fire, rows)), key=attrgetter("fire_time", "key")
            )[:limit]
            # Schedules behind the last row start no earlier than it.
            certain = len(found) == limit and found[-1].fire_time <= rows[-1]["fire_time"]
            if certain or len(rows) < looked_at or looked_at >= _LOOKED_AT:
                return found
            looked_at = min(looked_at * 10, _LOOKED_AT)

    async def keys_of(self, key: str) -> list[str]:
        """Return all keys that a schedule has had, by any of them, the present one first."""
        return [row["key"] for row in await self.run("keys_of", key)]

    async def children(self, key: str) -> list[str]:
        """Return the schedules that wait for this one's windows, in key order."""
        return [row["key"] for row in await self.run("children", key)]

    async def actions(self, *, key: str | None = None, limit: int = 50) -> list[ActionRow]:
        """Return recorded actions, newest first."""
        return [as_action(row) for row in await self.run("list_actions", key, limit)]

    async def standings(self, keys: Sequence[str]) -> list[Standing]:
        """Return the present state of these schedules, in key order; unknown keys are left out."""
        return [as_standing(row) for row in await self.run("standings", list(keys))]

    async def definition_versions(self, key: str, *, limit: int) -> list[DefinitionVersion]:
        """Return the newest versions of a schedule's definition, newest first."""
        return [as_version(row) for row in await self.run("definition_versions", key, limit)]

    async def wanted(self, project: str) -> list[Wanted]:
        """Return what the project's schedules that may fire need of its workers."""
        return [Wanted(*row) for row in await self.run("wanted", project)]

    async def newer_rules(self, project: str) -> tuple[int, str]:
        """Return how many schedules newer rules computed, and the newest rules; it scans all."""
        (row,) = await self.run("newer_rules", project, TIME_RULES)
        return row["schedules"], row["rules"] or TIME_RULES

    async def definition(self, key: str, version: int) -> Schedule:
        """Return one version of a schedule's definition."""
        return parse_definition(str(await self.value("definition", key, version)))


# --- definitions and holds ---

_AT_ONCE = 5000
"""Rows converted before other tasks of the event loop get their turn: about 10 ms."""

_MOST_SHARES = 1000
"""Shares visited by one look at what is due."""

_MOST_CHARACTERS = 4_000_000
"""Characters of definitions in one statement; a longer definition is sent alone."""


def bounded(
    definitions: Sequence[NewDefinition], most: int = _MOST_CHARACTERS
) -> Iterator[list[tuple[NewDefinition, str]]]:
    """Yield definitions with their JSON, in batches for one statement each."""
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


def _schedule_row(new: NewDefinition, name: str) -> list[object]:
    """Return what ``define_schedules`` or ``create_schedule`` writes."""
    parents = " ".join(rule.parent for rule in new.schedule.follows)
    return values(name, new, reading=reading_at(new.schedule, new.cursor), parents=parents)


def _action_row(action: Action) -> list[object]:
    before, after = action_json(action.before), action_json(action.after)
    return values("act", action, before=before, after=after)


def creation(
    new: NewDefinition, action: Action, *, by: str
) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield the statements that create a schedule, each with its arguments after the namespace."""
    version = values("define_versions", new, definition=json.dumps(new.schedule.to_json()))
    yield "create_schedule", (TIME_RULES, *_schedule_row(new, "create_schedule"))
    yield "define_versions", (by, *arrays([version]))
    yield "act", (by, *arrays([_action_row(action)]))


def in_use(error: asyncpg.UniqueViolationError, new: NewDefinition) -> EngineError:
    """Return the refusal of a creation whose key or request ID another transaction has taken."""
    if error.constraint_name == "schedules_request":
        return RequestInUse(f"request id {new.request_id} was used before")
    key = new.schedule.key
    return KeyInUse(f"there is, or was, a schedule {key}", hint="choose another key")


class ScheduleStatements(ScheduleReads, InTransaction):
    """Schedules in a transaction: locks, definitions, holds and actions."""

    async def lock(self, keys: Sequence[str]) -> None:
        """Lock these schedules, waiting for those that are locked."""
        await self.run("lock", keys)

    async def lock_outdated(self, serving: Serving, after: str, limit: int) -> list[str]:
        """Lock our lanes' schedules that older time rules computed, by key from ``after`` on."""
        rows = await self.run(
            "lock_outdated", serving.project, TIME_RULES, after, serving.lanes, limit
        )
        return [row["key"] for row in rows]

    async def lock_edited(self, project: str, keys: Sequence[str]) -> None:
        """Lock these schedules and the project's absent ones, waiting for those that are locked."""
        await self.run("lock_edited", project, keys)

    async def heads(self, project: str, keys: Sequence[str]) -> dict[str, Head]:
        """Return the heads of these keys and of every key of the project."""
        found = {}
        for number, row in enumerate(await self.run("heads", project, keys)):
            found[row["key"]] = Head(*row)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return found

    async def define(self, definitions: Sequence[NewDefinition], *, by: str) -> None:
        """Write new definitions and make them the heads of their schedules."""
        for part in bounded(definitions):
            await self._define(part, by)

    async def _define(self, definitions: Sequence[tuple[NewDefinition, str]], by: str) -> None:
        heads = [_schedule_row(new, "define_schedules") for new, _ in definitions]
        await self.run("define_schedules", TIME_RULES, *arrays(heads))
        versions = [values("define_versions", new, definition=text) for new, text in definitions]
        try:
            await self.run("define_versions", by, *arrays(versions))
        except asyncpg.UniqueViolationError as error:
            raise KeyInUse(
                "an application has declared a key of the file meanwhile", hint="apply it again"
            ) from error

    async def create(self, new: NewDefinition, action: Action, *, by: str) -> None:
        """Write the first definition of a key, and its action.

        Only the key and the request ID are locked: a concurrent creation of one of them waits.

        Raises:
            KeyInUse, RequestInUse: another schedule has, or had, one of them.
        """
        try:
            for name, arguments in creation(new, action, by=by):
                await self.run(name, *arguments)
        except asyncpg.UniqueViolationError as error:
            raise in_use(error, new) from error
        await self.run("hint")

    async def drift(self, project: str) -> list[DriftRow]:
        """Return the project's schedules that are paused, skip windows, or are in no file."""
        return [as_drift(row) for row in await self.run("drift", project)]

    async def asked_under(self, request_id: str) -> str | None:
        """Return the key of the schedule that an application declared under this request ID."""
        return await self.value("asked_under", request_id)

    async def retire(self, keys: Sequence[str], at: datetime) -> None:
        """Retire schedules and revoke what is ``claimed`` or ``queued``. Rows are kept forever."""
        await self.run("retire", keys, at)
        await self.run("revoke", keys, "retired", True)

    async def rename(self, was: str, key: str) -> None:
        """Carry what belongs to no definition from a key to the new one, and end the former."""
        await self.run("rename", was, key)

    async def move_to_project(self, keys: Sequence[str], old: str, new: str) -> None:
        """Move these locked schedules, with everything that has not ended, to another project."""
        await self.run("move_to_project", keys, old, new)

    async def mark_absent(
        self, project: str, absent: Sequence[str], at: datetime
    ) -> dict[str, datetime]:
        """Mark the keys that the file lacks and return since when; clear all other marks."""
        rows = await self.run("mark_absent", project, absent, at)
        return {row["key"]: row["absent_since"] for row in rows if row["absent_since"]}

    async def pause(self, key: str, pause: Pause) -> None:
        """Pause a schedule, and revoke the ``claimed`` fires of its windows."""
        its = pause.at, pause.reason, pause.by, pause.until
        await self.run("pause", key, *its, pause.until)
        await self.run("revoke", [key], "paused", False)

    async def resume(self, key: str, next_fire_at: datetime | None) -> None:
        """Resume a schedule; it is planned next at ``next_fire_at``."""
        await self.run("pause", key, None, None, None, None, next_fire_at)

    async def notify(self) -> None:
        """Wake the replicas when this transaction commits. Commits that notify share a lock."""
        await self.run("hint")

    async def make_due(self, keys: Sequence[str]) -> list[str]:
        """Make schedules due; return those that are not on hold."""
        await self.run("lock", keys)
        return [row["key"] for row in await self.run("make_due", list(keys), True)]

    async def act(self, actions: Sequence[Action], *, by: str) -> None:
        """Record actions."""
        if actions:
            await self.run("act", by, *arrays(map(_action_row, actions)))
            await self.run("hint")


# --- projects ---

_REMEMBERED = 1000
"""Superseded files of a project that the ledger knows."""


class ProjectStatements(InTransaction):
    """Projects: the file of each, its seal, and the workflow types that its schedules start."""

    async def lock_project(self, project: str) -> ProjectRow | None:
        """Lock the project against another apply, and return the file that was applied last.

        One lock for the whole namespace, because two projects may claim the same key. It is an
        advisory lock, because at first there is no row to lock.
        """
        await self.connection.fetch(
            "SELECT pg_advisory_xact_lock(hashtextextended('sched-engine apply ' || $1, 0))",
            self.namespace,
            timeout=self._patience,
        )
        rows = await self.run("lock_project", project)
        return ProjectRow(**{**rows[0], "refused": tuple(rows[0]["refused"])}) if rows else None

    async def save_project(
        self, file: ScheduleFile, *, by: str, refused: Collection[str] = (), forgotten: bool = False
    ) -> None:
        """Record the file as applied, but for ``refused`` keys, or forget it; raise the epoch."""
        others = {
            "by": by,
            "refused": list(refused),
            "forgotten": forgotten,
            "remembered": _REMEMBERED,
        }
        await self.run("save_project", *values("save_project", file, **others))
        await self.run("hint")

    async def is_superseded(self, project: str, digest: str) -> bool:
        """Return whether this file was applied to the project, and another one since."""
        return bool(await self.value("is_superseded", project, digest))

    async def raise_epoch(self) -> None:
        """Raise the epoch, so that replicas resolve the workflows of schedules again."""
        await self.connection.execute(query("raise_epoch"), timeout=self._patience)

    async def seal(self, project: str) -> str | None:
        """Return the encoded key of the digests of a project's inputs; None if these are plain."""
        return await self.value("seal", project)

    async def seal_project(self, project: str, digest_key: str, *, by: str) -> str:
        """Seal the inputs of a project from now on; return the first key given."""
        await self.run("seal_project", project, digest_key, by)
        return str(await self.seal(project))

    async def resolve(
        self, wanted: Iterable[tuple[str, str]]
    ) -> Mapping[tuple[str, str], str | None]:
        """Return the announced type for each (task queue, workflow)."""
        pairs = set(wanted)
        queues = {task_queue for task_queue, _ in pairs}
        announced = await self.announced(queues) if queues else {}
        return {
            (task_queue, workflow): resolve_type(workflow, announced.get(task_queue, ()))
            for task_queue, workflow in pairs
        }

    async def announced(self, task_queues: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Return all types ever announced, by task queue; one without types may be missing."""
        announced: dict[str, list[str]] = {}
        for row in await self.run("announced_types", list(task_queues)):
            announced.setdefault(row["task_queue"], []).append(row["type"])
        return announced

    async def retention(self) -> timedelta | None:
        """Return how long Temporal keeps closed runs; None if no worker has read it yet."""
        return await self.value("retention")

    async def announced_input(self, task_queue: str, workflow_type: str) -> dict[str, Any] | None:
        """Return what a workflow type takes, as its workers announced it; None if unknown."""
        text = await self.value("announced_input", task_queue, workflow_type)
        return json.loads(text) if text else None


# --- ticks ---

_FOLDED = 20
"""The number of changes of a line above which they are folded into one."""

_MOST_SHARES = 1000
"""Shares visited by one look at what is due."""

_PARSED_AT_ONCE = 100_000
"""Characters of definitions that a tick parses at most: some tens of milliseconds."""


class TickStatements(ScheduleStatements, ProjectStatements):
    """Schedules as a tick locks, reads and moves them."""

    async def lock_due(
        self,
        serving: Serving,
        limit: int,
        *,
        but: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> list[str]:
        """Lock due schedules, skipping locked ones; return their keys, earliest first.

        ``but`` are left out, and with ``only`` all others are.
        """
        types, (due, *_) = list(serving.types), self._floors.of(serving)
        ours = serving.project, serving.lanes, types, TIME_RULES, limit, due
        chosen = None if only is None else list(only)
        rows = await self.run("lock_due", *ours, list(but), chosen, self.binding)
        return [row["key"] for row in rows]

    async def due_by_share(
        self,
        serving: Serving,
        most: int,
        *,
        recent: timedelta,
        but: Collection[str] = (),
        after: str = "",
    ) -> DueByShare:
        """Return what is due, by shares; see ``DueByShare``. Nothing is locked.

        Args:
            serving: the replica.
            most: how many keys to return of each share, and of those that have just become due.
            recent: how long ago that may be.
            but: keys to leave out.
            after: the share after which to begin.
        """
        types, (due, *_) = list(serving.types), self._floors.of(serving)
        ours = serving.project, serving.lanes, types, TIME_RULES, due
        rows = await self.run("due_by_share", *ours, list(but), after, _MOST_SHARES, most, recent)
        keys = tuple(record_of(DueKey, row) for row in rows if row["key"])
        first = rows[0]
        return DueByShare(keys, first["now"], first["next_at"], first["further"])

    async def lock_chosen(self, project: str, chosen: Sequence[DueKey]) -> list[str]:
        """Lock the chosen keys that are still due; return them in this order."""
        rows = await self.many("lock_chosen", chosen, project, self.binding)
        locked = {row["key"] for row in rows}
        return [each.key for each in chosen if each.key in locked]

    async def read(
        self,
        keys: Sequence[str],
        *,
        all_open: bool = False,
        at_once: bool = False,
        on_unread: Callable[[str, Exception], None] | None = None,
    ) -> list[ScheduleState]:
        """Return the schedules' state; call it after the lock, so that it is fresh.

        ``all_open`` reads the open fires even if the schedule's runs may overlap. ``at_once``
        leaves out schedules whose large definition would have to be parsed first, which takes too
        long here; ``Ledger.prepare`` parses it. A definition that this version cannot read is left
        out, and its schedule backs off; ``on_unread`` receives its key and the error.
        """
        states, unparsed = [], 0
        place = random.random()
        for row in await self.run(
            "read_schedules", keys, all_open, READ_AHEAD, place, self.binding
        ):
            text = row["definition"]
            if at_once and waits_for_thread(text):
                unparsed += len(text)
                if unparsed > _PARSED_AT_ONCE:
                    self._unparsed.add(text)
                    continue
            try:
                states.append(as_state(row, all_open=all_open))
            except (EngineError, ValueError) as error:
                await self.back_off(row["key"], f"its definition cannot be read: {error}")
                if on_unread is not None:
                    on_unread(row["key"], error)
        return await self._typed(states)

    async def _typed(self, states: Sequence[ScheduleState]) -> list[ScheduleState]:
        """Return them with the types announced since, which the next heartbeat would write."""
        names = {
            state.key: (state.schedule.task_queue, state.schedule.workflow)
            for state in states
            if state.workflow_type is None
        }
        types = await self.resolve(names.values())
        return [
            replace(state, workflow_type=types[names[state.key]]) if state.key in names else state
            for state in states
        ]

    async def record(
        self,
        steps: Sequence[Plan],
        *,
        owner: str | None = None,
        lease: timedelta = timedelta(0),
        strict: bool = False,
    ) -> list[Claim]:
        """Write decisions and move cursors; return the claims that the owner has to send.

        Without an ``owner`` the claims are written as ``claimed`` and left to the sweepers. All
        steps are written at once or, if that fails, one by one: a step that fails backs off alone,
        and its schedule is due again later, with the error. ``strict`` raises instead, for callers
        that must not continue without it.
        """
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

    async def _record(
        self, steps: Sequence[Plan], owner: str | None, lease: timedelta
    ) -> list[Claim]:
        fires = [NewFire.of(step, decision, owner) for step in steps for decision in step.decisions]
        rows = await self._write_fires("insert_fires", fires, owner, lease)
        await self._move(
            [(step.state.schedule.cancel_grace, move) for step in steps for move in step.moves]
        )
        through = {"through": lambda step: owner is None or not step.plain}
        await self.many("move_cursors", steps, TIME_RULES, **through)
        if long := [s.state.key for s in steps if s.state.line_changes > _FOLDED]:
            await self.run("fold_lines", long)
        return claimed(fires, rows)

    async def unservable(
        self, serving: Serving, *, alive: timedelta, steady: timedelta, limit: int
    ) -> list[str]:
        """Return keys of this lane, due beyond ``grace``, that no living replica can serve.

        A living replica announced itself within ``alive``. ``steady`` is how long the caller has
        announced itself without a gap: until it reaches ``alive`` plus a schedule's ``grace``,
        nothing is known of the other replicas.
        """
        types = list(serving.types)
        its = serving.project, serving.task_queue, alive, types, steady, limit, TIME_RULES
        rows = await self.run("unservable", *its)
        return [row["key"] for row in rows]
