"""Transactions of the ledger: schedules, the projects that declare them, and ticks."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import asyncpg

from engine.errors import EngineError, KeyInUse, RequestInUse
from engine.ledger.fires import Claim
from engine.ledger.floors import Floors
from engine.ledger.outbox import Subscription, SubscriptionOrigin
from engine.ledger.postgres.connections import Connection, query, values
from engine.ledger.postgres.fire_statements import (
    BackfillStatements,
    DeadLetterStatements,
    FireStatements,
)
from engine.ledger.postgres.rows import (
    Statements,
    arrays,
    as_drift,
    as_state,
    parse_definition,
    waits_for_thread,
)
from engine.ledger.postgres.stored_events import as_subscription
from engine.ledger.records import (
    Action,
    DriftRow,
    DueByShare,
    DueKey,
    NewDefinition,
    NewFire,
    ProjectRow,
    QueueRow,
    Serving,
    TemporalNamespace,
    action_json,
)
from engine.schedules import Hook, Queue, Reason, Schedule, ScheduleFile, code_of, resolve_type
from engine.schedules.diff import Head
from engine.schedules.planner import READ_AHEAD, TIME_RULES, Pause, Plan, ScheduleState, reading_at

# --- schedules ---

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
    return KeyInUse(f"there is, or was, a schedule {key}", cure="choose another key")


class DefinitionStatements(Statements):
    """Schedules: their definitions, holds and actions."""

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
                "an application has declared a key of the file meanwhile", cure="apply it again"
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

    async def retention(self) -> timedelta | None:
        """Return how long Temporal keeps closed runs; None if no worker has read it yet."""
        rows = await self.run("retention")
        return rows[0]["retention"] if rows else None

    async def asked_under(self, request_id: str) -> str | None:
        """Return the key of the schedule that an application declared under this request ID."""
        rows = await self.run("asked_under", request_id)
        return rows[0]["key"] if rows else None

    async def definition(self, key: str, version: int) -> Schedule:
        """Return one version of a schedule's definition."""
        (row,) = await self.run("definition", key, version)
        return parse_definition(row["definition"])

    async def retire(self, keys: Sequence[str], at: datetime) -> None:
        """Retire schedules and revoke what is ``claimed`` or ``queued``. Rows are kept forever."""
        await self.run("retire", keys, at)
        await self.run("revoke", keys, "retired", True)

    async def rename(self, was: str, key: str) -> None:
        """Carry what belongs to no definition from a key to the new one, and end the former."""
        await self.run("rename", was, key)

    async def keys_of(self, key: str) -> list[str]:
        """See ``Ledger.keys_of``."""
        return [row["key"] for row in await self.run("keys_of", key)]

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
        await self.run("pause", key, pause.at, pause.reason, pause.by, pause.until)
        await self.run("revoke", [key], "paused", False)

    async def resume(self, key: str, next_fire_at: datetime | None) -> None:
        """Resume a schedule; it is planned next at ``next_fire_at``."""
        await self.run("resume", key, next_fire_at)

    async def notify(self) -> None:
        """Wake the replicas when this transaction commits. Commits that notify share a lock."""
        await self.run("hint")

    async def make_due(self, keys: Sequence[str]) -> None:
        """See ``Ledger.make_due``."""
        await self.made_due(keys)

    async def made_due(self, keys: Sequence[str]) -> list[str]:
        """Make schedules due; return those that are not on hold."""
        await self.run("lock", keys)
        return [row["key"] for row in await self.run("make_due", list(keys))]

    async def act(self, actions: Sequence[Action], *, by: str) -> None:
        """Record actions."""
        if actions:
            await self.run("act", by, *arrays(map(_action_row, actions)))
            await self.run("hint")


# --- projects ---

_REMEMBERED = 1000
"""Superseded files of a project that the ledger knows."""


_UNANSWERED = Reason(
    "may_have_run", "may have run: its start was not answered, and its Temporal is asked no more"
)
_CLOSED = "it was open when the ledger was moved for good, so nobody has seen its end"


class ProjectStatements(Statements):
    """Projects and bindings: files, seals, hooks, queues and workflow types of a namespace."""

    async def lock_project(self, project: str) -> ProjectRow | None:
        """Lock the project against another apply, and return the file that was applied last.

        One lock for the whole namespace, because two projects may claim the same key. It is an
        advisory lock, because at first there is no row to lock.
        """
        await self.connection.fetch(
            "SELECT pg_advisory_xact_lock(hashtextextended('sched-engine apply ' || $1, 0))",
            self._namespace,
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
        (row,) = await self.run("is_superseded", project, digest)
        return bool(row["found"])

    async def raise_epoch(self) -> None:
        """Raise the epoch, so that replicas resolve the workflows of schedules again."""
        await self.connection.execute(query("raise_epoch"), timeout=self._patience)

    async def bind_to(self, to: TemporalNamespace, *, by: str) -> None:
        """Let the workers of this Temporal namespace claim from this commit on, and no others."""
        await self.raise_epoch()  # one move at a time: its row is locked
        await self.run("leave_binding", *values("leave_binding", to))
        await self.run("move_here", *values("move_here", to, by=by))

    async def close_bindings(self, limit: int = 1000) -> tuple[int, int, bool]:
        """End fires that are open in Temporal namespaces whose workers do not claim.

        Return how many are unvouched now, how many runs are lost, and whether there may be more.
        """
        reason = _UNANSWERED
        (row,) = await self.run("close_bindings", limit, reason, code_of(reason), _CLOSED)
        return row["unvouched"], row["lost"], row["more"]

    async def seal(self, project: str) -> str | None:
        """Return the encoded key of the digests of a project's inputs; None if these are plain."""
        rows = await self.run("seal", project)
        return rows[0]["digest_key"] if rows else None

    async def seal_project(self, project: str, digest_key: str, *, by: str) -> str:
        """Seal the inputs of a project from now on; return the first key given."""
        await self.run("seal_project", project, digest_key, by)
        (row,) = await self.run("seal", project)
        return str(row["digest_key"])

    async def hooks(self) -> list[Subscription]:
        """Return every webhook of the namespace, by name."""
        found = [as_subscription(row) for row in await self.run("subscriptions")]
        return [each for each in found if each.kind == "hook"]

    async def declare_hooks(
        self,
        project: str,
        hooks: Sequence[Hook],
        *,
        origin: SubscriptionOrigin,
        by: str,
        only: bool = True,
    ) -> None:
        """Declare hooks of a project; ``only``: remove its others of this origin.

        A hook that is there already keeps its position.
        """
        named = [Subscription.of_hook(each, project, origin) for each in hooks]
        names = [each.name for each in named]
        if only:
            await self.run("drop_hooks", project, origin, names)
        if named:
            events, keys, types = (
                [" ".join(getattr(each, name)) for each in named]
                for name in ("events", "keys", "types")
            )
            urls, secrets = [each.url for each in named], [each.secret for each in named]
            await self.run(
                "declare_hooks", project, origin, by, names, events, keys, urls, secrets, types
            )

    async def remove_hook(self, name: str) -> None:
        """Remove a hook with what it has not got."""
        await self.run("unsubscribe", name)

    async def queues(self) -> dict[str, QueueRow]:
        """Return every queue of the namespace by name, including dropped ones."""
        return {row["queue"]: QueueRow.of(**dict(row)) for row in await self.run("read_queues")}

    async def declare_queues(self, project: str, queues: Mapping[str, Queue], *, by: str) -> None:
        """Make these the project's queues; drop its others, whose limits stay in force."""
        names = list(queues)
        most = [queue.concurrency for queue in queues.values()]
        each = [queue.per_key for queue in queues.values()]
        rates = [str(queue.rate) if queue.rate else None for queue in queues.values()]
        await self.run("declare_queues", project, names, most, each, rates, by)
        await self.run("drop_queues", project, names)

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


# --- ticks ---

_FOLDED = 20
"""The number of changes of a line above which they are folded into one."""

_PARSED_AT_ONCE = 100_000
"""Characters of definitions that a tick parses at most: some tens of milliseconds."""


class Transaction(
    DefinitionStatements,
    ProjectStatements,
    FireStatements,
    DeadLetterStatements,
    BackfillStatements,
):
    """All statements of a transaction: those of a tick, and the other parts.

    Args:
        floors: the lower bounds of what is due.
        older: whether replicas live that read ``schedules`` and not ``positions``.
        unparsed: receives the definitions that ``read`` leaves out.
    """

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        patience: float,
        binding: int,
        *,
        floors: Floors,
        unparsed: set[str],
    ) -> None:
        super().__init__(connection, namespace, patience, binding)
        self._floors, self._unparsed = floors, unparsed

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
        rows = await self.run(
            "lock_due",
            serving.project,
            serving.lanes,
            types,
            TIME_RULES,
            limit,
            due,
            list(but),
            None if only is None else list(only),
            self._binding,
        )
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
        rows = await self.run(
            "due_by_share",
            serving.project,
            serving.lanes,
            types,
            TIME_RULES,
            due,
            list(but),
            after,
            _MOST_SHARES,
            most,
            recent,
        )
        keys = tuple(
            DueKey(row["key"], row["lane"], row["share"], row["due_at"])
            for row in rows
            if row["key"]
        )
        first = rows[0]
        return DueByShare(keys, first["now"], first["next_at"], first["further"])

    async def lock_chosen(self, project: str, chosen: Sequence[DueKey]) -> list[str]:
        """Lock the chosen keys that are still due; return them in this order."""
        columns = zip(
            *((each.key, each.lane, each.share, each.due_at) for each in chosen), strict=True
        )
        rows = []
        if chosen:
            rows = await self.run("lock_chosen", project, *map(list, columns), self._binding)
        locked = {row["key"] for row in rows}
        return [each.key for each in chosen if each.key in locked]

    async def lock(self, keys: Sequence[str]) -> None:
        """Lock these schedules, waiting for those that are locked."""
        await self.run("lock", keys)

    async def lock_outdated(self, serving: Serving, after: str, limit: int) -> list[str]:
        """Lock our lanes' schedules that older time rules computed, by key from ``after`` on."""
        rows = await self.run(
            "lock_outdated", serving.project, TIME_RULES, after, serving.lanes, limit
        )
        return [row["key"] for row in rows]

    async def lock_unsent(self, fire_ids: Collection[int]) -> set[int]:
        """Lock those of these fires whose send has not begun, and return their IDs."""
        return {row["id"] for row in await self.run("lock_unsent", list(fire_ids))}

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
            "read_schedules", keys, all_open, READ_AHEAD, place, self._binding
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

    async def unservable(
        self, serving: Serving, *, alive: timedelta, steady: timedelta, limit: int
    ) -> list[str]:
        """Return keys of this lane, due beyond ``grace``, that no living replica can serve.

        A living replica announced itself within ``alive``. ``steady`` is how long the caller has
        announced itself without a gap: until it reaches ``alive`` plus a schedule's ``grace``,
        nothing is known of the other replicas.
        """
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

    async def _record(
        self, steps: Sequence[Plan], owner: str | None, lease: timedelta
    ) -> list[Claim]:
        fires = [NewFire.of(step, decision, owner) for step in steps for decision in step.decisions]
        claims = await self._insert(fires, owner, lease)
        await self._move(
            [(step.state.schedule.cancel_grace, move) for step in steps for move in step.moves]
        )
        moved = [
            (
                s.state.key,
                s.cursor,
                s.next_fire_at,
                s.max_bucket,
                s.reading,
                s.resumed,
                owner is None or not s.plain,
                s.look_at,
            )
            for s in steps
        ]
        await self.run("move_cursors", TIME_RULES, *arrays(moved))
        if long := [s.state.key for s in steps if s.state.line_changes > _FOLDED]:
            await self.run("fold_lines", long)
        return claims
