"""Transactions of the PostgreSQL ledger."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import asyncpg

from engine.errors import EngineError, KeyInUse, RequestInUse
from engine.ledger.alerts import FailedInRow
from engine.ledger.fires import (
    Claim,
    DeadLetter,
    Ended,
    Evidence,
    Fire,
    FollowUp,
    Status,
    Timing,
    begins,
)
from engine.ledger.floors import Floors
from engine.ledger.outbox import Subscription, SubscriptionOrigin
from engine.ledger.postgres.connections import Connection, query
from engine.ledger.postgres.rows import (
    as_backfill,
    as_drift,
    as_ended,
    as_fire,
    as_letter,
    as_rules,
    as_state,
    input_columns,
    parse_definition,
    waits_for_thread,
)
from engine.ledger.postgres.stored_events import as_subscription
from engine.ledger.records import (
    Action,
    Backfill,
    BackfillOverlap,
    DriftRow,
    NewDefinition,
    NewFire,
    ProjectRow,
    QueueRow,
    Serving,
    SkippedAhead,
    Start,
    ToLay,
    action_json,
)
from engine.schedules import (
    STARTS,
    Hook,
    Queue,
    Reason,
    ReasonCode,
    Schedule,
    ScheduleFile,
    Stop,
    Window,
    code_of,
    resolve_type,
)
from engine.schedules.diff import Head
from engine.schedules.planner import (
    READ_AHEAD,
    TIME_RULES,
    Move,
    Pause,
    Piece,
    Plan,
    ScheduleState,
    reading_at,
)

# --- common statements ---

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
    "reason_code",
    "timing",
    "missed",
    "missed_from",
    "not_before",
    "token",
    "awaits",
    "overlap",
)
"""The order of the arrays in ``insert_fires.sql``."""


class Statements:
    """The connection of one transaction, and the statements that its parts share."""

    def __init__(self, connection: Connection, namespace: str, patience: float) -> None:
        self.connection = connection
        self._namespace, self._patience = namespace, patience

    async def now(self) -> datetime:
        now: datetime = await self.connection.fetchval("SELECT clock_timestamp()")
        return now

    async def back_off(self, key: str, error: str) -> None:
        await self.run("back_off", key, error)

    async def _insert(
        self, fires: Sequence[NewFire], owner: str | None, lease: timedelta
    ) -> list[Claim]:
        if not fires:
            return []
        columns = [[_stored(fire, field) for fire in fires] for field in _FIRE_COLUMNS]
        rows = await self.run("insert_fires", owner, lease, *columns)
        return claimed(fires, rows)

    async def _move(self, moves: Sequence[tuple[timedelta, Move]]) -> None:
        """Apply what plans decided on open fires."""
        promoted = [(move.fire.fire_id, move.not_before) for _, move in moves if move.to == "start"]
        if promoted:
            await self.run("promote", *map(list, zip(*promoted, strict=True)))
        if released := [move.fire.fire_id for _, move in moves if move.to == "release"]:
            await self.run("release", released)
        if skipped := [
            (move.fire.fire_id, move.reason, code_of(move.reason))
            for _, move in moves
            if move.to == "skip"
        ]:
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


def _stored(fire: NewFire, field: str) -> object:
    if field == "awaits":
        return json.dumps(fire.awaits.to_json()) if fire.awaits else None
    return getattr(fire, field)


def claimed(fires: Sequence[NewFire], rows: Sequence[asyncpg.Record]) -> list[Claim]:
    """Return the claims of the fires that have a token and are among the written ``rows``."""
    written = {row["workflow_id"]: row for row in rows}
    return [
        fire.claim(
            fire_id=row["id"], starting_at=row["starting_at"], attempts=1,
            data_from=begins(row["data_from"]), rules=as_rules(row["rules"]),
        )
        for fire in fires
        if fire.token is not None and (row := written.get(fire.workflow_id))
    ]  # fmt: skip


# --- declarations ---

_AT_ONCE = 5000
"""Rows converted before other tasks of the event loop get their turn: about 10 ms."""

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


def _schedule_row(new: NewDefinition) -> tuple[object, ...]:
    """Return the columns of ``schedules`` that a definition writes, in the statements' order."""
    schedule = new.schedule
    return (
        schedule.key, new.project, new.version, schedule.digest, new.series, new.suffixed,
        new.max_bucket, new.effective_from, new.cursor, new.next_fire_at, schedule.workflow,
        new.workflow_type, schedule.task_queue, schedule.external, schedule.grace,
        schedule.enabled, new.paused, reading_at(schedule, new.cursor), new.origin,
        new.request_id, " ".join(rule.parent for rule in schedule.follows),
    )  # fmt: skip


def _version_row(new: NewDefinition, text: str) -> tuple[object, ...]:
    """Return the columns of ``definitions``, in the statement's order."""
    schedule = new.schedule
    return (schedule.key, new.version, new.series, new.project, text, schedule.digest,
            new.effective_from)  # fmt: skip


def _action_row(action: Action) -> tuple[object, ...]:
    """Return the columns of ``actions``, in the statement's order."""
    return (action.project, action.key, action.verb, action.reason, action.workflow_id,
            action_json(action.before), action_json(action.after))  # fmt: skip


def creation(
    new: NewDefinition, action: Action, *, by: str
) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield the statements that create a schedule, each with its arguments after the namespace."""
    text = json.dumps(new.schedule.to_json())
    yield "create_schedule", (TIME_RULES, *_schedule_row(new))
    yield "define_versions", (by, *([value] for value in _version_row(new, text)))
    yield "act", (by, *([value] for value in _action_row(action)))


def in_use(error: asyncpg.UniqueViolationError, new: NewDefinition) -> EngineError:
    """Return the refusal of a creation whose key or request ID another transaction has taken."""
    if error.constraint_name == "schedules_request":
        return RequestInUse(f"request id {new.request_id} was used before")
    key = new.schedule.key
    return KeyInUse(f"there is, or was, a schedule {key}", cure="choose another key")


class PostgresDeclaring(Statements):
    """Statements for declaring schedules; see ``Declaring``."""

    async def lock_edited(self, project: str, keys: Sequence[str]) -> None:
        await self.run("lock_edited", project, keys)

    async def lock_project(self, project: str) -> ProjectRow | None:
        """Take one lock for the whole namespace, because two projects may claim the same key.

        It is an advisory lock, because at first there is no row to lock.
        """
        await self.connection.fetch(
            "SELECT pg_advisory_xact_lock(hashtextextended('sched-engine apply ' || $1, 0))",
            self._namespace,
            timeout=self._patience,
        )
        rows = await self.run("lock_project", project)
        return ProjectRow(**{**rows[0], "refused": tuple(rows[0]["refused"])}) if rows else None

    async def heads(self, project: str, keys: Sequence[str]) -> dict[str, Head]:
        found = {}
        for number, row in enumerate(await self.run("heads", project, keys)):
            found[row["key"]] = Head(*row)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return found

    async def seal(self, project: str) -> str | None:
        rows = await self.run("seal", project)
        return rows[0]["digest_key"] if rows else None

    async def seal_project(self, project: str, digest_key: str, *, by: str) -> str:
        await self.run("seal_project", project, digest_key, by)
        (row,) = await self.run("seal", project)
        return str(row["digest_key"])

    async def define(self, definitions: Sequence[NewDefinition], *, by: str) -> None:
        for part in bounded(definitions):
            await self._define(part, by)

    async def _define(self, definitions: Sequence[tuple[NewDefinition, str]], by: str) -> None:
        columns = zip(*(_schedule_row(new) for new, _ in definitions), strict=True)
        await self.run("define_schedules", TIME_RULES, *map(list, columns))
        versions = zip(*(_version_row(new, text) for new, text in definitions), strict=True)
        try:
            await self.run("define_versions", by, *map(list, versions))
        except asyncpg.UniqueViolationError as error:
            raise KeyInUse(
                "an application has declared a key of the file meanwhile", cure="apply it again"
            ) from error

    async def create(self, new: NewDefinition, action: Action, *, by: str) -> None:
        try:
            for name, arguments in creation(new, action, by=by):
                await self.run(name, *arguments)
        except asyncpg.UniqueViolationError as error:
            raise in_use(error, new) from error
        await self.run("hint")

    async def drift(self, project: str) -> list[DriftRow]:
        return [as_drift(row) for row in await self.run("drift", project)]

    async def asked_under(self, request_id: str) -> str | None:
        rows = await self.run("asked_under", request_id)
        return rows[0]["key"] if rows else None

    async def raise_epoch(self) -> None:
        await self.connection.execute(query("raise_epoch"), timeout=self._patience)

    async def retire(self, keys: Sequence[str], at: datetime) -> None:
        await self.run("retire", keys, at)
        await self.run("revoke", keys, "retired", True)

    async def move_to_project(self, keys: Sequence[str], old: str, new: str) -> None:
        await self.run("move_to_project", keys, old, new)

    async def mark_absent(
        self, project: str, absent: Sequence[str], at: datetime
    ) -> dict[str, datetime]:
        rows = await self.run("mark_absent", project, absent, at)
        return {row["key"]: row["absent_since"] for row in rows if row["absent_since"]}

    async def save_project(
        self, file: ScheduleFile, *, by: str, refused: Collection[str] = (), forgotten: bool = False
    ) -> None:
        await self.run(
            "save_project", file.project, file.revision, file.name, file.digest, by,
            list(refused), forgotten,
        )  # fmt: skip
        await self.run("hint")

    async def hooks(self) -> list[Subscription]:
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
        await self.run("unsubscribe", name)

    async def queues(self) -> dict[str, QueueRow]:
        return {row["queue"]: QueueRow.of(**dict(row)) for row in await self.run("read_queues")}

    async def declare_queues(self, project: str, queues: Mapping[str, Queue], *, by: str) -> None:
        names = list(queues)
        most = [queue.concurrency for queue in queues.values()]
        rates = [str(queue.rate) if queue.rate else None for queue in queues.values()]
        await self.run("declare_queues", project, names, most, rates, by)
        await self.run("drop_queues", project, names)

    async def resolve(
        self, wanted: Iterable[tuple[str, str]]
    ) -> Mapping[tuple[str, str], str | None]:
        pairs = set(wanted)
        queues = {task_queue for task_queue, _ in pairs}
        announced = await self.announced(queues) if queues else {}
        return {
            (task_queue, workflow): resolve_type(workflow, announced.get(task_queue, ()))
            for task_queue, workflow in pairs
        }

    async def announced(self, task_queues: Collection[str]) -> Mapping[str, Sequence[str]]:
        announced: dict[str, list[str]] = {}
        for row in await self.run("announced_types", list(task_queues)):
            announced.setdefault(row["task_queue"], []).append(row["type"])
        return announced


# --- operator actions ---

_NO_TIME = timedelta(0)


class PostgresOperating(Statements):
    """Statements for operators and applications; see ``Operating``."""

    async def pause(self, key: str, pause: Pause) -> None:
        await self.run("pause", key, pause.at, pause.reason, pause.by, pause.until)
        await self.run("revoke", [key], "paused", False)

    async def failed_in_row(self, keys: Sequence[str] | None = None) -> list[FailedInRow]:
        rows = await self.run("failed_in_row", None if keys is None else list(keys))
        return [FailedInRow(**row) for row in rows]

    async def resume(self, key: str, next_fire_at: datetime | None) -> None:
        await self.run("resume", key, next_fire_at)

    async def move(self, state: ScheduleState, moves: Sequence[Move]) -> None:
        await self._move([(state.schedule.cancel_grace, move) for move in moves])

    async def stop(self, fire_ids: Sequence[int], stop: Stop, *, reason: str) -> None:
        many = len(fire_ids)
        await self.run("wish_stops", fire_ids, [stop] * many, [None] * many, [reason] * many)

    async def request(self, new: NewFire) -> bool:
        rows = await self.run(
            "request_fire", new.project, new.key, new.series, new.bucket, new.fire_time, new.kind,
            new.definition_version, new.workflow_id, new.workflow_type, new.task_queue, new.status,
            new.reason, new.reason_code, new.timing, new.overlap,
            *(input_columns(new.own_input[0]) if new.own_input else (None, None)),
        )  # fmt: skip
        return bool(rows)

    async def declare_starts(self, workflow: str, *, by: str) -> None:
        schedule = Start.definition_of(workflow)
        await self.run(
            "declare_starts", STARTS + workflow, json.dumps(schedule.to_json()), schedule.digest,
            workflow, TIME_RULES, by,
        )  # fmt: skip

    async def started(self, workflow: str, start_id: str) -> Start | None:
        rows = await self.run("started", workflow, start_id)
        return Start(**rows[0]) if rows else None

    async def start(self, new: Start, fire: NewFire) -> bool:
        written = await self.run(
            "start", new.workflow, new.start_id, new.digest, new.requested, new.project,
            new.task_queue, new.requested_by,
        )  # fmt: skip
        if written:
            await self.request(fire)
        return bool(written)

    async def notify(self) -> None:
        await self.run("hint")

    async def make_due(self, keys: Sequence[str]) -> None:
        await self.made_due(keys)

    async def made_due(self, keys: Sequence[str]) -> list[str]:
        """Make schedules due; return those that are not on hold."""
        await self.run("lock", keys)
        return [row["key"] for row in await self.run("make_due", list(keys))]

    async def unskip(self, key: str, series: int, fire_time: datetime) -> bool:
        return bool(await self.run("unskip", key, series, fire_time))

    async def lift_skips(self, keys: Sequence[str]) -> list[SkippedAhead]:
        rows = await self.run("lift_skips", keys)
        return [SkippedAhead(**{**row, "reason": Reason("user", row["reason"])}) for row in rows]

    async def give_up(self, workflow_ids: Sequence[str], reason: Reason) -> frozenset[str]:
        rows = await self.run("give_up_runs", workflow_ids, reason, reason.code)
        return frozenset(row["workflow_id"] for row in rows)

    async def note_ahead(self, step: Plan) -> None:
        await self._insert(
            [NewFire.of(step, each, None) for each in step.decisions], None, _NO_TIME
        )

    async def window(self, key: str, bucket: int, series: int | None) -> Fire | None:
        rows = await self.run("window_fire", key, bucket, series)
        return as_fire(rows[0]) if rows else None

    async def count_reruns(self, window: Window, workflow_id: str) -> int:
        (row,) = await self.run("count_reruns", workflow_id, window.key, window.fire_time)
        return int(row["reruns"])

    async def fire(self, workflow_id: str) -> Fire | None:
        rows = await self.run("fire_of_run", workflow_id)
        return as_fire(rows[0]) if rows else None

    async def between(self, key: str, first: datetime, last: datetime) -> list[Fire]:
        return [as_fire(row) for row in await self.run("fires_between", key, first, last)]

    async def definition(self, key: str, version: int) -> Schedule:
        (row,) = await self.run("definition", key, version)
        return parse_definition(row["definition"])

    async def forgotten_until(self, key: str) -> datetime | None:
        rows = await self.run("forgotten_until", key)
        return rows[0]["forgotten_until"] if rows else None

    async def split_range(self, row: Fire, pieces: Sequence[Piece], *, suffixed: bool) -> None:
        columns = [
            (piece.window.bucket, piece.window.fire_time, piece.windows, piece.last,
             piece.window.workflow_id(suffixed))
            for piece in pieces
        ]  # fmt: skip
        await self.run(
            "split_range", row.key, row.series, row.fire_time,
            *map(list, zip(*columns, strict=True)), row.windows, row.last_fire_time,
        )  # fmt: skip

    async def covering(self, key: str, fire_time: datetime) -> Fire | None:
        rows = await self.run("covering_fire", key, fire_time)
        return as_fire(rows[0]) if rows else None

    async def found(
        self,
        seen: Evidence,
        window: Window,
        version: int,
        timing: Timing,
        data_from: datetime | None,
    ) -> None:
        await self.run(
            "found_run", window.key, window.series, window.bucket, window.fire_time, version,
            seen.workflow_id, timing, seen.run_id, seen.started_at, seen.first_run_id, data_from,
        )  # fmt: skip

    async def dead_letters(
        self,
        key: str | None = None,
        *,
        workflow_id: str | None = None,
        bucket: int | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int = 50,
    ) -> list[DeadLetter]:
        at, behind = after or (None, "")
        rows = await self.run("dead_letters", key, workflow_id, bucket, limit, at, behind)
        return [as_letter(row) for row in rows]

    async def resolve_dead_letters(self, workflow_ids: Collection[str]) -> set[str]:
        rows = await self.run("resolve_dead_letters", list(workflow_ids))
        return {row["workflow_id"] for row in rows}

    async def ended(self, limit: int, *, sealed: bool) -> list[Ended]:
        return [as_ended(row) for row in await self.run("ended", limit, sealed)]

    async def follow(self, looked_at: Collection[int], news: Sequence[FollowUp]) -> set[str]:
        columns = [
            (each.fire_id, each.workflow_id, each.workflow_type, each.reason, code_of(each.reason),
             *input_columns(each.argument))
            for each in news
        ]  # fmt: skip
        rows = await self.run("follow", *map(list, zip(*columns, strict=True))) if columns else []
        await self.run("followed", list(looked_at))
        return {row["workflow_id"] for row in rows}

    async def act(self, actions: Sequence[Action], *, by: str) -> None:
        if actions:
            columns = zip(*map(_action_row, actions), strict=True)
            await self.run("act", by, *map(list, columns))
            await self.run("hint")


# --- backfills ---
# Statements about backfills. None is run once per window.


class PostgresBackfilling(Statements):
    """Statements to request backfills and to lay their windows; see ``Backfilling``."""

    async def lock_laying(self, serving: Serving) -> str | None:
        types = list(serving.types)
        rows = await self.run("lock_laying", serving.project, serving.lanes, types, TIME_RULES)
        return rows[0]["key"] if rows else None

    async def backfills(
        self, key: str, *, laying: bool = False, limit: int = 100
    ) -> list[Backfill]:
        return list(map(as_backfill, await self.run("backfills", key, laying, limit)))

    async def request_backfill(self, new: Backfill) -> int:
        (row,) = await self.run(
            "request_backfill", new.project, new.key, new.series, new.definition_version,
            new.first, new.last, new.cursor, new.overlap, list(new.include), new.reason,
            new.requested_by, new.requested_at, new.windows,
        )  # fmt: skip
        return int(row["id"])

    async def move_backfill(self, to: Backfill) -> None:
        await self.run(
            "move_backfill", to.id, to.cursor, to.state, to.ended_reason, to.next_at, to.laid_at,
            to.ended_at, to.laid, json.dumps(dict(to.left_alone)), to.error,
        )  # fmt: skip

    async def backfill_looked_at(self, key: str, at: datetime) -> None:
        await self.run("backfill_looked_at", key, at)

    async def put_off_backfills(self, key: str, wait: timedelta, error: str | None = None) -> None:
        await self.run("put_off_backfills", key, wait, error)

    async def count_waiting(self, key: str, most: int) -> int:
        (row,) = await self.run("count_waiting", key, most)
        return int(row["waiting"])

    async def count_windows(
        self, key: str, spans: Sequence[tuple[datetime, datetime]]
    ) -> list[Counter[tuple[Status, ReasonCode | None]]]:
        counts = [Counter[tuple[Status, ReasonCode | None]]() for _ in spans]
        after, until = map(list, zip(*spans, strict=True)) if spans else ([], [])
        for row in await self.run("count_windows", key, after, until):
            counts[row["number"] - 1][row["status"], row["reason_code"]] = row["windows"]
        return counts

    async def ranges_between(self, key: str, after: datetime, until: datetime) -> list[Fire]:
        return list(map(as_fire, await self.run("ranges_between", key, after, until)))

    async def lay(
        self,
        state: ScheduleState,
        windows: Sequence[ToLay],
        *,
        overlap: BackfillOverlap,
        owner: str,
        lease: timedelta,
    ) -> tuple[list[Claim], set[str]]:
        claims: list[Claim] = []
        laid: set[str] = set()
        about = (state.project, state.key, state.definition_version, state.workflow_type,
                 state.schedule.task_queue)  # fmt: skip
        for name, again in (("refill", True), ("insert_backfill", False)):
            fires = [
                NewFire.backfilled(state, each, overlap) for each in windows if each.again is again
            ]
            if not fires:
                continue
            columns = [(fire.series, fire.bucket, fire.fire_time, fire.workflow_id, fire.token)
                       for fire in fires]  # fmt: skip
            rows = await self.run(
                name, *about, overlap, owner, lease,
                *map(list, zip(*columns, strict=True)),
            )  # fmt: skip
            laid |= {row["workflow_id"] for row in rows}
            claims += claimed(fires, rows)
        new = [each.window.bucket for each in windows if not each.again]
        if new and (state.max_bucket is None or max(new) > state.max_bucket):
            await self.run("raise_max_bucket", state.key, max(new))
        return claims, laid


# --- statements of a tick ---

_FOLDED = 20
"""The number of changes of a line above which they are folded into one."""
_PARSED_AT_ONCE = 100_000
"""Characters of definitions that a tick parses at most: some tens of milliseconds."""


class PostgresTransaction(PostgresDeclaring, PostgresOperating, PostgresBackfilling):
    """The statements of a transaction; see ``engine.ledger.interface.Transaction``.

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
        *,
        floors: Floors,
        unparsed: set[str],
    ) -> None:
        super().__init__(connection, namespace, patience)
        self._floors, self._unparsed = floors, unparsed

    async def lock_due(
        self,
        serving: Serving,
        limit: int,
        *,
        but: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> list[str]:
        types, (due, *_) = list(serving.types), self._floors.of(serving)
        rows = await self.run(
            "lock_due", serving.project, serving.lanes, types, TIME_RULES, limit, due,
            list(but), None if only is None else list(only),
        )  # fmt: skip
        return [row["key"] for row in rows]

    async def lock(self, keys: Sequence[str]) -> None:
        await self.run("lock", keys)

    async def lock_outdated(self, serving: Serving, after: str, limit: int) -> list[str]:
        rows = await self.run(
            "lock_outdated", serving.project, TIME_RULES, after, serving.lanes, limit
        )
        return [row["key"] for row in rows]

    async def lock_unsent(self, fire_ids: Collection[int]) -> set[int]:
        return {row["id"] for row in await self.run("lock_unsent", list(fire_ids))}

    async def read(
        self,
        keys: Sequence[str],
        *,
        all_open: bool = False,
        at_once: bool = False,
        on_unread: Callable[[str, Exception], None] | None = None,
    ) -> list[ScheduleState]:
        states, unparsed = [], 0
        for row in await self.run("read_schedules", keys, all_open, READ_AHEAD, random.random()):
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
        return states

    async def record(
        self,
        steps: Sequence[Plan],
        *,
        owner: str | None = None,
        lease: timedelta = timedelta(0),
        strict: bool = False,
    ) -> list[Claim]:
        """Write all steps at once; if that fails, one by one."""
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
        await self._move([(step.state.schedule.cancel_grace, move)
                          for step in steps for move in step.moves])  # fmt: skip
        moved = [
            (s.state.key, s.cursor, s.next_fire_at, s.max_bucket, s.reading, s.resumed,
             owner is None or not s.plain, s.look_at)
            for s in steps
        ]  # fmt: skip
        await self.run("move_cursors", TIME_RULES, *map(list, zip(*moved, strict=True)))
        if long := [s.state.key for s in steps if s.state.line_changes > _FOLDED]:
            await self.run("fold_lines", long)
        return claims
