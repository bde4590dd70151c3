"""PostgreSQL ledger."""

from __future__ import annotations

import json
import logging
import math
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from operator import attrgetter
from typing import get_args

import asyncpg

from engine.errors import EngineError, LedgerError, LedgerTimeout, LedgerUnavailable
from engine.ledger.alerts import Facts
from engine.ledger.failures import (
    FailingNote,
    RetryNote,
    RunCounts,
    RunDetails,
    Uncounted,
    as_details,
)
from engine.ledger.fires import (
    AccountRow,
    BlockingRun,
    Claim,
    DataGap,
    Evidence,
    Fire,
    OpenRun,
    Outcome,
    Status,
    StopOrder,
    outermost_gaps,
)
from engine.ledger.floors import EVER, LOOK_AGAIN, Floor, Floors, Moments, again_after
from engine.ledger.postgres.blockers import ORDINARY, naming_blockers
from engine.ledger.postgres.connections import (
    PATIENCE,
    PATIENCE_LONG,
    Connections,
    OnStatement,
    filtered_query,
    query,
)
from engine.ledger.postgres.joined import create_within
from engine.ledger.postgres.maintenance import Upkeep
from engine.ledger.postgres.rows import (
    as_account_row,
    as_action,
    as_backfill,
    as_claim,
    as_fire,
    as_next_fire,
    as_schedule,
    as_standing,
    as_summary,
    as_version,
    parse_apart,
)
from engine.ledger.postgres.schema import build_indexes, check_schema_name, migrate
from engine.ledger.postgres.stored_access import StoredAccess
from engine.ledger.postgres.stored_alerts import StoredAlerts, stored_facts
from engine.ledger.postgres.stored_events import StoredEvents
from engine.ledger.postgres.transaction import PostgresTransaction
from engine.ledger.records import (
    Action,
    ActionRow,
    Backfill,
    DefinitionVersion,
    Lineage,
    Load,
    NewDefinition,
    PolledQueue,
    Probe,
    Served,
    Serving,
    SlotAsk,
    Standing,
    Totals,
    Wanted,
    as_served,
)
from engine.ledger.schedule_rows import (
    SUMMARISED,
    SUMMARY_ROWS,
    NextFire,
    RunSummary,
    ScheduleFilter,
    ScheduleRow,
    as_like,
)
from engine.schedules import STARTS, TZDATA_VERSION, ReasonCode, storable
from engine.schedules.planner import FAILED, TIME_RULES

# --- fires and runs ---
# Statements about fires and their runs, outside any transaction.

logger = logging.getLogger("sched")

_SOON = timedelta(seconds=60)
_FEW = 10_000
"""The number in ``list_fires.sql`` that makes the query planner expect few rows."""
_PAGE = 1000
"""The same in ``fires_page.sql``."""
_SUMMARIES_AT_ONCE = 50
"""Keys whose last runs one statement reads, so that none reads more than some thousand rows."""


class PostgresFires:
    """The part of ``Ledger`` that moves and reads fires; ``PostgresLedger`` is the whole."""

    _connections: Connections
    _namespace: str
    _floors: Floors
    _unseen: Floor

    async def take_over(self, serving: Serving, *, limit: int, lease: timedelta) -> list[Claim]:
        rows = await self._run(
            "take_over", serving.project, serving.replica, limit, lease, self._floors.of(serving)[1]
        )
        claims = []
        for row in rows:
            try:
                claims.append(as_claim(row))
            except EngineError as error:
                # A replica that can read the definition takes it over later.
                unread = f"its definition cannot be read: {error}"
                later = Outcome(
                    row["id"], row["token"], "starting", error=unread, retry_after=_SOON
                )
                await self.settle([later])
        return claims

    async def renew(self, claims: Sequence[Claim], lease: timedelta) -> set[int]:
        ids, tokens = [claim.fire_id for claim in claims], [claim.token for claim in claims]
        return {row["id"] for row in await self._run("renew", ids, tokens, lease)}

    async def settle(self, outcomes: Sequence[Outcome]) -> int:
        fields = ("fire_id", "token", "status", "timing", "run_id", "started_at", "reason",
                  "error", "retry_after", "first_run_id", "reason_code", "reported")  # fmt: skip
        return len(await self._write("settle", fields, outcomes))

    async def record_evidence(self, evidence: Sequence[Evidence]) -> list[str]:
        fields = ("workflow_id", "run_id", "started_at", "closed", "closed_at", "error", "last",
                  "not_undone", "first_run_id", "failure_text", "given_up", "tries",
                  "step_retries", "tried_text")  # fmt: skip
        rows = await self._write("record_evidence", fields, evidence, self._namespace)
        return [row["workflow_id"] for row in rows]

    async def seen_open(self, workflow_ids: Sequence[str], at: datetime) -> dict[str, str | None]:
        rows = await self._run("seen_open", list(workflow_ids), at)
        return {row["workflow_id"]: row["failing"] for row in rows}

    async def note_failing(self, notes: Sequence[FailingNote]) -> set[str]:
        fields = ("workflow_id", "before", "now")
        rows = await self._write("note_failing", fields, notes, self._namespace)
        return {row["workflow_id"] for row in rows}

    async def uncounted(self, limit: int) -> list[Uncounted]:
        return [Uncounted(**row) for row in await self._run("uncounted", limit)]

    async def note_counts(self, counts: Sequence[RunCounts]) -> None:
        fields = ("workflow_id", "run_id", "tries", "step_retries", "tried_text")
        await self._write("note_counts", fields, counts, self._namespace)

    async def note_retries(self, notes: Sequence[RetryNote]) -> None:
        fields = ("workflow_id", "retries", "elsewhere")
        await self._write("note_retries", fields, notes, self._namespace)

    async def run_summaries(self, keys: Sequence[str]) -> list[RunSummary]:
        found = {}
        for begin in range(0, len(keys), _SUMMARIES_AT_ONCE):
            some = list(keys[begin : begin + _SUMMARIES_AT_ONCE])
            for row in await self._run("run_summaries", some, SUMMARY_ROWS, SUMMARISED):
                found[row["key"]] = as_summary(row)
        return [found[key] for key in keys]

    async def count_fires(
        self, first: datetime, last: datetime, *, keys: Collection[str] = (), most: int
    ) -> Counter[Status]:
        rows = await self._run("count_fires", first, last, as_like(keys), most)
        return Counter({row["status"]: row["windows"] for row in rows})

    async def run_details(self, workflow_id: str) -> RunDetails:
        rows = await self._run("run_details", workflow_id)
        return as_details(*rows[0]) if rows else RunDetails()

    async def failing(self, *, key: str | None = None, limit: int = 50) -> list[Fire]:
        return [as_fire(row) for row in await self._run("failing_fires", key, limit)]

    async def lose(self, workflow_ids: Sequence[str], error: str) -> list[str]:
        rows = await self._run("lose", list(workflow_ids), error)
        return [row["workflow_id"] for row in rows]

    async def unknown_runs(self, workflow_ids: Sequence[str]) -> set[str]:
        rows = await self._run("unknown_runs", list(workflow_ids))
        return {row["workflow_id"] for row in rows}

    async def in_the_way(
        self, replica: str, *, alive: timedelta, orphans: bool, limit: int
    ) -> list[BlockingRun]:
        rows = await self._run("in_the_way", replica, alive, orphans, limit)
        return [BlockingRun(**row) for row in rows]

    async def standings(self, keys: Sequence[str]) -> list[Standing]:
        return [as_standing(row) for row in await self._run("standings", list(keys))]

    async def definition_versions(self, key: str, *, limit: int) -> list[DefinitionVersion]:
        return [as_version(row) for row in await self._run("definition_versions", key, limit)]

    async def account_rows(
        self,
        key: str,
        first: datetime,
        last: datetime,
        *,
        after: tuple[datetime, int] | None = None,
        limit: int,
    ) -> list[AccountRow]:
        place = after or (None, None)
        rows = await self._run("account_rows", key, first, last, *place, limit)
        return [as_account_row(row) for row in rows]

    async def first_run(self, workflow_id: str) -> str | None:
        rows = await self._run("first_run", workflow_id)
        return rows[0]["first_run_id"] if rows else None

    async def anything_ended(self) -> bool:
        (row,) = await self._run("anything_ended")
        return bool(row["ended"])

    async def take_stops(
        self, serving: Serving, *, limit: int, lease: timedelta
    ) -> list[StopOrder]:
        rows = await self._run("take_stops", serving.project, limit, lease)
        return [StopOrder(**row) for row in rows]

    async def stopped(self, orders: Sequence[StopOrder]) -> None:
        asked = [(order.fire_id, order.stop, order.first_run_id) for order in orders]
        await self._run("stopped", *map(list, zip(*asked, strict=True)))

    async def open_runs(self, limit: int, *, started_before: datetime) -> list[OpenRun]:
        begin, begun = self._unseen.begin(), time.monotonic()
        rows = await self._run("open_runs", limit, started_before, begin)
        oldest = [row["unseen_since"] for row in rows]
        # The runs found are seen now, and all others were seen after them.
        self._unseen.learn(max(oldest) if len(rows) == limit else started_before, begun)
        return [OpenRun(row["workflow_id"], row["run_id"], row["started_at"]) for row in rows]

    async def fires(
        self,
        *,
        key: str | None = None,
        status: Status | None = None,
        reason_code: ReasonCode | None = None,
        limit: int = 50,
    ) -> list[Fire]:
        given: tuple[object, ...]
        if reason_code is None:
            text, given = query("list_fires"), (key, status)
            if limit > _FEW:
                text = text.replace(f"LIMIT {_FEW}", f"LIMIT {limit}")
        else:
            statuses = [status] if status else get_args(Status)
            text, given = query("fires_of_reason"), (reason_code, key, statuses)
        rows = await self._connections.fetch(text, self._namespace, *given, limit)
        return [as_fire(row) for row in rows]

    async def fires_page(
        self,
        key: str,
        first: datetime,
        last: datetime,
        *,
        status: Status | None = None,
        reason_code: ReasonCode | None = None,
        after: str = "",
        limit: int,
    ) -> list[Fire]:
        text = query("fires_page")
        if limit > _PAGE:
            text = text.replace(f"LIMIT {_PAGE}", f"LIMIT {limit}")
        given = key, first, last, status, reason_code, after, get_args(Status), limit
        rows = await self._connections.fetch(text, self._namespace, *given)
        return [as_fire(row) for row in rows]

    async def fire(self, workflow_id: str) -> Fire | None:
        rows = await self._run("fire_of_run", workflow_id)
        return as_fire(rows[0]) if rows else None

    async def backfills(self, key: str, *, limit: int = 20) -> list[Backfill]:
        return list(map(as_backfill, await self._run("backfills", key, False, limit)))

    async def laying(self) -> list[Backfill]:
        return list(map(as_backfill, await self._run("laying")))

    async def check_data_gaps(self, *, rest: timedelta, limit: int) -> list[DataGap]:
        return [DataGap.of(**row) for row in await self._run("check_data_gaps", rest, limit)]

    async def data_gaps(self, key: str, *, limit: int = 20) -> list[DataGap]:
        return outermost_gaps(
            [DataGap.of(**row) for row in await self._run("data_gaps", key, limit)]
        )

    async def overflow(self, key: str) -> tuple[int, datetime | None]:
        (row,) = await self._run("overflow", key)
        return row["windows"], row["last"]

    async def _write(
        self, name: str, fields: Sequence[str], values: Sequence[object], *first: object
    ) -> list[asyncpg.Record]:
        """Write all at once; if that fails, one by one, so that only a bad value is lost."""
        columns = [
            [
                storable(each) if isinstance(each, str) else each
                for each in map(attrgetter(field), values)
            ]
            for field in fields
        ]
        try:
            return await self._connections.fetch(query(name), *first, *columns)
        except (asyncpg.PostgresError, asyncpg.DataError, UnicodeError):
            if len(values) == 1:
                logger.exception("%s: %r could not be written", name, values[0])
                return []
        return [row for value in values for row in await self._write(name, fields, [value], *first)]

    async def _run(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        """Run ``queries/<name>.sql``; its first argument is the namespace."""
        return await self._connections.fetch(query(name), self._namespace, *arguments)


# --- queue slots ---


class PostgresSlots:
    """Slots of step queues."""

    _connections: Connections
    _namespace: str

    async def hold_slots(
        self,
        holder: str,
        asks: Sequence[SlotAsk],
        lease: timedelta,
        *,
        take_over: bool,
        number: int,
    ) -> dict[str, int]:
        columns = [
            [getattr(ask, field) for ask in asks]
            for field in ("lane", "queue", "running", "wanted")
        ]
        rows = await self._connections.fetch(
            query("hold_slots"), self._namespace, holder, *columns, lease, take_over, number
        )
        return {row["lane"]: row["usable"] for row in rows}

    async def give_back_slots(self, holder: str) -> None:
        await self._connections.fetch(query("give_back_slots"), self._namespace, holder)


# --- lineage of the database ---
# The system and the timeline of the server that answers: which history its commits belong to.

# Created by `initdb`, and shared by a primary and its standbys.
_SYSTEM = "SELECT system_identifier::text FROM pg_control_system()"
# From the WAL, because the control file has a new timeline only after the checkpoint that follows a
# promotion.
_TIMELINE = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint"


async def lineage_of(connections: Connections) -> Lineage:
    """Return the server's lineage; None is what the server or the role's privileges withhold."""
    system = await _value(connections, _SYSTEM)
    timeline = await _value(connections, _TIMELINE)
    return Lineage(
        None if system is None else str(system), None if timeline is None else int(timeline)
    )


async def _value(connections: Connections, text: str) -> str | int | None:
    """Return the value of one query; several in one would all fail if one is forbidden."""
    try:
        ((value,),) = await connections.fetch(text)
    except LedgerUnavailable:
        raise
    except (LedgerError, asyncpg.PostgresError):
        return None  # forbidden or missing: managed databases differ
    return value  # type: ignore[no-any-return] # what the two statements above return


# --- ledger ---
# The ledger in PostgreSQL 15 or newer.

_FAR = timedelta(days=36500)
_LOOKED_AT = 5000
"""The most schedules that ``upcoming`` reads to find windows that are not excluded."""

_ASKED = 200
"""The number of windows of a key, waiting for other schedules, that are checked at once."""
_ASKED_OF_ALL = 5000


class PostgresLedger(PostgresFires, PostgresSlots):
    """The record of every window of one Temporal namespace, shared by all replicas."""

    remembers = True

    def __init__(
        self,
        connections: Connections,
        namespace: str,
        migrated: Sequence[int] = (),
        *,
        schema: str = "sched",
    ) -> None:
        self._connections, self._namespace, self._schema = connections, namespace, schema
        self.migrated = tuple(migrated)
        self._resolved: tuple[str, int] | None = None
        self._unparsed: set[str] = set()
        self._late: list[str] = []
        self._floors, self._unseen = Floors(), Floor()
        self._look_at = -math.inf
        self.alerts = StoredAlerts(self._run)
        self.access = StoredAccess(self._run)
        self.events = StoredEvents(
            self._run, self.transaction, self._listen_to_events, namespace=namespace
        )

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        namespace: str = "default",
        schema: str = "sched",
        connections: int = 5,
        on_statement: OnStatement | None = None,
    ) -> PostgresLedger:
        """Connect, and migrate the schema.

        Args:
            url: the address of the database.
            namespace: the Temporal namespace.
            schema: the schema of the ledger.
            connections: the most connections of the pool.
            on_statement: is called after each statement, with the name of its query, its duration
                in seconds, and whether it failed.

        Raises:
            LedgerUnavailable: the database cannot be reached.
            LedgerTooNew: it was written by a newer version.
            LedgerError: it is older than PostgreSQL 15, or the role may not use it.
        """
        check_schema_name(schema)
        opened = await Connections.open(
            url, schema=schema, most=connections, on_statement=on_statement
        )
        try:
            migrated = await migrate(opened, schema)
        except BaseException:
            await opened.close()
            raise
        return cls(opened, namespace, migrated, schema=schema)

    async def close(self) -> None:
        await self._connections.close()

    async def build_indexes(self, *, patience: float | None = None) -> list[str]:
        return await build_indexes(self._connections, self._schema, patience=patience)

    async def identity(self) -> str:
        (row,) = await self._connections.fetch("SELECT ledger_id FROM ledger")
        return str(row["ledger_id"])

    @asynccontextmanager
    async def transaction(self, *, long: bool = False) -> AsyncIterator[PostgresTransaction]:
        async with self._connections.transaction(long=long) as connection:
            patience = PATIENCE_LONG if long else PATIENCE
            transaction = PostgresTransaction(
                connection, self._namespace, patience, floors=self._floors,
                unparsed=self._unparsed,
            )  # fmt: skip
            if not long:
                yield transaction
                return
            what = "a change of the ledger"
            async with naming_blockers(self._connections, connection, what, after=ORDINARY):
                yield transaction

    @asynccontextmanager
    async def upkeep(self) -> AsyncIterator[Upkeep]:
        """Begin a janitor's transaction, under the limits of a tick's."""
        async with self.transaction() as transaction:
            yield Upkeep(transaction)

    async def probe(self, serving: Serving, *, ahead: timedelta = _FAR) -> Probe:
        return await self._probe(serving, self._floors.of(serving), ahead)

    async def _probe(self, serving: Serving, begin: Moments, ahead: timedelta = _FAR) -> Probe:
        types = list(serving.types)
        (row,) = await self._run(
            "probe", serving.project, serving.lanes, types, TIME_RULES, *begin, ahead
        )
        probe = Probe(**row, met=self._connections.met(row["server"]))
        self._floors.learn(serving, probe, begin)
        return probe

    async def prepare(self) -> bool:
        had_some = bool(self._unparsed)
        while self._unparsed:
            await parse_apart(self._unparsed.pop())
        return had_some

    async def lineage(self) -> tuple[Lineage, Lineage]:
        here = await lineage_of(self._connections)
        (row,) = await self._connections.fetch("SELECT system, timeline FROM ledger")
        return here, Lineage(**row)

    async def note_lineage(self, lineage: Lineage, *, suspect: bool) -> datetime | None:
        fetch = self._connections.fetch
        await fetch(query("doubt"), lineage.system, lineage.timeline, suspect)
        (row,) = await fetch("SELECT doubted_at FROM ledger")
        return row["doubted_at"]  # type: ignore[no-any-return] # a column of its own

    async def listen(self, wake: Callable[[], None]) -> None:
        """Listen on an additional connection."""
        await self._connections.listen(self._schema, self._namespace, wake)

    async def _listen_to_events(self, wake: Callable[[], None]) -> None:
        await self._connections.listen(self._schema, f"events:{self._namespace}", wake)

    async def wake(self) -> list[str]:
        rows = await self._run("wake", sorted(FAILED), _ASKED, random.random(), _ASKED_OF_ALL)
        woken: list[str] = []
        if free := [row["key"] for row in rows if not row["locked"]]:
            woken += [row["key"] for row in await self._run("wake_moved", free)]
        locked = [row["key"] for row in rows if row["locked"]]
        late = [key for key in dict.fromkeys([*self._late, *locked]) if key not in woken]
        self._late = []
        while late:
            key = late.pop(0)
            try:
                woken += await self._made_due([key])
            except LedgerTimeout:  # locked for seconds, as others may be: retry at the next wake
                self._late = [*late, key]
                break
        return woken

    async def make_due(self, keys: Sequence[str]) -> None:
        """Make schedules due; one that stays locked for seconds does not delay the others."""
        try:
            await self._made_due(keys)
        except LedgerTimeout:
            if len(keys) == 1:
                raise
            failed: LedgerTimeout | None = None
            for key in keys:
                try:
                    await self._made_due([key])
                except LedgerTimeout as error:
                    if failed:
                        break  # several are locked, and each would take a timeout
                    failed = error
            if failed:
                raise failed from None

    async def _made_due(self, keys: Sequence[str]) -> list[str]:
        async with self.transaction() as transaction:
            return await transaction.made_due(keys)

    async def children(self, key: str) -> list[str]:
        return [row["key"] for row in await self._run("children", key)]

    async def actions(self, *, key: str | None = None, limit: int = 50) -> list[ActionRow]:
        return [as_action(row) for row in await self._run("list_actions", key, limit)]

    async def announce(
        self,
        serving: Serving,
        *,
        engine: str,
        tzdata: str,
        retention: timedelta | None,
        heartbeat: timedelta = timedelta(seconds=10),
    ) -> None:
        await self._announce(serving, (engine, tzdata, heartbeat), retention)
        if (begun := time.monotonic()) >= self._look_at:
            # Here and not in a tick, because this probe is slow beside an old snapshot.
            await self._probe(serving, (EVER, EVER, EVER))
            ended = time.monotonic()
            self._look_at = ended + again_after(ended - begun, least=LOOK_AGAIN)

    async def _announce(
        self,
        serving: Serving,
        about: tuple[str, str, timedelta],
        retention: timedelta | None,
    ) -> None:
        engine, tzdata, heartbeat = about
        types = sorted(serving.types)
        (state,) = await self._connections.fetch("SELECT epoch FROM ledger")
        seen = (task_queue := serving.task_queue, int(state["epoch"]))
        # With 100,000 schedules, a new version takes seconds to reach them all.
        async with self.transaction(long=True) as transaction:
            run = transaction.run
            await run(
                "announce_replica", serving.replica, serving.project, task_queue, types, engine,
                tzdata, heartbeat,
            )  # fmt: skip
            if retention is not None:
                await run("announce_retention", retention)
            await run("forget_replicas")
            rules = [serving.rules.get(name) for name in types]
            said = [json.dumps(each) if each else None for each in rules]
            changes = await run("announce_types", task_queue, types, said)
            if any(row["news"] for row in changes) or self._resolved != seen:
                rows = await run("wanted_workflows", task_queue)
            else:  # with 100,000 schedules the query above takes 60 ms
                rows = await run("unresolved_workflows", task_queue)
            wanted = {(task_queue, row["workflow"]) for row in rows}
            resolved = await transaction.resolve(wanted)
            found = {workflow: kind for (_, workflow), kind in resolved.items() if kind}
            changed = 0
            if found:
                (row,) = await run("set_types", task_queue, list(found), list(found.values()))
                changed = row["changed"]
        # The epoch was read first, so an apply that commits meanwhile raises it. An announcement of
        # another replica does not, and two at once may overwrite each other's types. So the replica
        # that wrote last resolves once more, and then reads everything committed.
        self._resolved = None if changed else seen
        if changed:
            self._floors.forget()  # schedules due long ago may only now be ours

    async def count_schedules(self, project: str) -> int:
        (row,) = await self._run("count_schedules", project)
        return int(row["living"])

    async def newer_rules(self, project: str) -> tuple[int, str]:
        (row,) = await self._run("newer_rules", project, TIME_RULES)
        return row["schedules"], row["rules"] or TIME_RULES

    async def other_rules(self, project: str, *, alive: timedelta) -> list[str]:
        rows = await self._run("other_rules", project, TZDATA_VERSION, alive)
        return [row["tzdata"] for row in rows]

    async def served(self, *, alive: timedelta) -> Served:
        rows = await self._run("served", alive)
        return as_served((row["project"], row["task_queue"], row["types"]) for row in rows)

    async def wanted(self, project: str) -> list[Wanted]:
        return [Wanted(*row) for row in await self._run("wanted", project)]

    async def external_queues(self) -> list[str]:
        return [row["task_queue"] for row in await self._run("external_queues")]

    async def note_polls(
        self, seen: Mapping[str, tuple[datetime | None, int]], *, of: Sequence[str]
    ) -> list[PolledQueue]:
        polled, waiting = [at for at, _ in seen.values()], [number for _, number in seen.values()]
        rows = await self._run("note_polls", list(seen), polled, waiting, list(of))
        return [PolledQueue(**row) for row in rows]

    async def polled_queues(self, *, within: timedelta) -> list[PolledQueue]:
        return [PolledQueue(**row) for row in await self._run("polled_queues", within)]

    async def totals(self, serving: Serving, *, most: int) -> Totals:
        (row,) = await self._run("totals", most, serving.project, list(serving.lanes))
        return Totals(**row)

    async def load(self, *, most: int) -> Load:
        held = await self._run("held_claims", most)
        (due,) = await self._run("due_since", most)
        return Load({row["owner"]: row["claims"] for row in held}, due["due_since"], due["awaits"])

    async def facts(self, *, limit: int = 200) -> Facts:
        return await stored_facts(self._run, limit)

    async def replicas(self, *, alive: timedelta) -> int:
        (row,) = await self._run("living", alive)
        return int(row["replicas"])

    async def withdraw(self, serving: Serving) -> None:
        await self._run("withdraw", serving.replica)

    async def hold_duty(self, duty: str, holder: str, lease: timedelta) -> datetime | None:
        rows = await self._run("hold_duty", duty, holder, lease)
        return rows[0]["watermark"] if rows else None

    async def release_duty(self, duty: str, holder: str) -> None:
        await self._run("release_duty", duty, holder)

    async def set_watermark(self, duty: str, holder: str, watermark: datetime) -> None:
        await self._run("set_watermark", duty, holder, watermark)

    async def schedules(
        self,
        project: str | None = None,
        *,
        key: str | None = None,
        wanted: ScheduleFilter | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[ScheduleRow]:
        given = {"project": project, "key": key, "after": after, "limit": limit}
        given |= {**wanted.given(), "but": STARTS} if wanted is not None else {}
        named = {name: value for name, value in given.items() if value is not None}
        text, order = filtered_query("list_schedules", frozenset(named))
        rows = await self._connections.fetch(
            text, self._namespace, *(named[each] for each in order)
        )
        return [as_schedule(row) for row in rows]

    async def create_within(
        self, connection: object, new: NewDefinition, action: Action, *, by: str
    ) -> None:
        await create_within(
            connection, new, action, by=by, namespace=self._namespace, schema=self._schema,
            ledger_id=await self.identity(),
        )  # fmt: skip

    async def upcoming(self, project: str, limit: int) -> list[NextFire]:
        looked_at = limit
        while True:
            rows = await self._run("upcoming", project, looked_at)
            found = sorted(
                filter(None, map(as_next_fire, rows)), key=attrgetter("fire_time", "key")
            )[:limit]
            # Schedules behind the last row start no earlier than it.
            certain = len(found) == limit and found[-1].fire_time <= rows[-1]["fire_time"]
            if certain or len(rows) < looked_at or looked_at >= _LOOKED_AT:
                return found
            looked_at = min(looked_at * 10, _LOOKED_AT)
