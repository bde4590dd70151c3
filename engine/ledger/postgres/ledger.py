"""Ledger: the record of every window, in PostgreSQL 15 or newer."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import asyncpg

from engine.errors import LedgerError, LedgerTimeout, LedgerUnavailable
from engine.ledger.floors import EVER, LOOK_AGAIN, Floor, Floors, Moments, again_after
from engine.ledger.postgres.blockers import ORDINARY, naming_blockers
from engine.ledger.postgres.connections import (
    PATIENCE,
    PATIENCE_LONG,
    Connections,
    OnStatement,
    query,
    values,
)
from engine.ledger.postgres.fire_statements import (
    BackfillStatements,
    DeadLetterStatements,
    FireReads,
    FireStatements,
    starting,
)
from engine.ledger.postgres.joined import Statement, write_within
from engine.ledger.postgres.maintenance import Upkeep
from engine.ledger.postgres.queue_statements import QueueStatements
from engine.ledger.postgres.replica_statements import BindingStatements, ReplicaStatements
from engine.ledger.postgres.rows import parse_apart
from engine.ledger.postgres.run_statements import RunStatements
from engine.ledger.postgres.schedule_statements import (
    ScheduleReads,
    TickStatements,
    creation,
    in_use,
)
from engine.ledger.postgres.schema import (
    build_indexes,
    check_schema_name,
    migrate,
    migrations,
    missing_indexes,
    read_applied,
    refuse_shadows,
    require_up_to_date,
)
from engine.ledger.postgres.stored_access import AccessStore
from engine.ledger.postgres.stored_alerts import AlertStore, WatchReads
from engine.ledger.postgres.stored_events import EventStore, HookStatements
from engine.ledger.records import (
    Action,
    LedgerServer,
    Lineage,
    NewDefinition,
    NewFire,
    Probe,
    Serving,
    Start,
)
from engine.schedules import HORIZON, from_seconds
from engine.schedules.planner import FAILED, TIME_RULES

__all__ = ["AccessStore", "AlertStore", "EventStore", "Ledger", "Transaction"]

# --- lineage of the database ---
# The system and the timeline of the server that answers: which history its commits belong to.

# Created by `initdb`, and shared by a primary and its standbys.
_SYSTEM = "SELECT system_identifier::text FROM pg_control_system()"
# From the WAL, because the control file has a new timeline only after the checkpoint that follows a
# promotion.
_TIMELINE = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint"


_SERVER = """
SELECT current_setting('server_version') AS version, current_user::text AS role,
       current_setting('is_superuser') = 'on' AS superuser,
       pg_has_role(n.nspowner, 'USAGE') AS owns,
       (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend')
           AS connections,
       current_setting('max_connections')::int AS most, clock_timestamp() AS now
FROM pg_namespace AS n WHERE n.nspname = $1
"""


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

_FAR = timedelta(days=36500)
_ASKED = 200
"""The number of windows of a key, waiting for other schedules, that are checked at once."""
_ASKED_OF_ALL = 5000


class Transaction(
    TickStatements,
    FireStatements,
    DeadLetterStatements,
    BackfillStatements,
    QueueStatements,
    HookStatements,
    BindingStatements,
):
    """All statements of a transaction; each part has those of one subject."""


class Ledger(
    RunStatements, ReplicaStatements, ScheduleReads, FireReads, QueueStatements, WatchReads
):
    """The record of every window of one Temporal namespace, shared by all replicas.

    A ``transaction()`` becomes visible to others all at once when the block ends, or not at all if
    it raises. A fire moves by compare-and-set only.

    Attributes:
        migrated: the migrations that this process has done.
        alerts: the alerts of the namespace.
        access: the tokens of the API, and the requests that may be repeated.
        events: the events of the namespace, and who subscribes to them.
    """

    def __init__(
        self,
        connections: Connections,
        namespace: str,
        migrated: Sequence[int] = (),
        *,
        schema: str = "sched",
    ) -> None:
        self._connections, self.namespace, self._schema = connections, namespace, schema
        self.migrated = tuple(migrated)
        self.unparsed: set[str] = set()
        self._late: list[str] = []
        self.floors, self._unseen = Floors(), Floor()
        self._resolved: tuple[str, int] | None = None
        self._look_at = -math.inf
        self.alerts, self.access = AlertStore(self), AccessStore(self)
        self.events = EventStore(self, self.transaction, self._listen_to_events)

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        namespace: str = "default",
        schema: str = "sched",
        connections: int = 5,
        on_statement: OnStatement | None = None,
        patience: float | None = None,
        migrates: bool = True,
    ) -> Ledger:
        """Connect, and migrate the schema.

        Args:
            url: the address of the database.
            namespace: the Temporal namespace.
            schema: the schema of the ledger.
            connections: the most connections of the pool.
            on_statement: is called after each statement, with the name of its query, its duration
                in seconds, and whether it failed.
            patience: seconds for which a connection, or a statement of a tick, is waited for; None
                is those of a worker.
            migrates: whether a schema that is not up to date is brought there; else it is refused.

        Raises:
            LedgerUnavailable: the database cannot be reached.
            LedgerTooNew: it was written by a newer version.
            LedgerError: it is older than PostgreSQL 15, not up to date, or the role may not use it.
        """
        check_schema_name(schema)
        opened = await Connections.open(
            url,
            schema=schema,
            most=connections,
            on_statement=on_statement,
            patience=patience or PATIENCE,
        )
        try:
            await refuse_shadows(opened, schema)
            if not migrates:
                await require_up_to_date(opened, schema)
            migrated = await migrate(opened, schema) if migrates else ()
        except BaseException:
            await opened.close()
            raise
        return cls(opened, namespace, migrated, schema=schema)

    async def close(self) -> None:
        """Release all resources; in-flight transactions must have ended before."""
        await self._connections.close()

    async def build_indexes(self, *, patience: float | None = None) -> list[str]:
        """Build the indexes that migrations left for later; return the names of missing ones.

        Args:
            patience: seconds to wait for other sessions without a break; None waits without limit.

        Raises:
            LedgerError: the role lacks the privilege.
        """
        return await build_indexes(self._connections, self._schema, patience=patience)

    async def server(self) -> LedgerServer:
        """Return what the server is, for an operator."""
        (row,) = await self._connections.fetch(_SERVER, self._schema)
        have = await read_applied(self._connections, self._schema) or {}
        missing = tuple(step.index for step in missing_indexes(migrations(), have))
        pooled = await self._connections.has_pooler()
        return LedgerServer(**row, pooled=pooled, missing_indexes=missing)

    async def identity(self) -> str:
        """Return the ledger's ID, which goes into the memo of every run."""
        (row,) = await self._connections.fetch("SELECT ledger_id FROM ledger")
        return str(row["ledger_id"])

    @asynccontextmanager
    async def transaction(self, *, long: bool = False) -> AsyncIterator[Transaction]:
        """Begin a transaction; ``long`` lifts the tick's time limits for an apply."""
        async with self._connections.transaction(long=long) as connection:
            patience = PATIENCE_LONG if long else self._connections.patience
            transaction = Transaction(connection, self, patience)
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
            yield Upkeep(transaction.connection, self, self._connections.patience)

    async def probe(self, serving: Serving, *, ahead: timedelta = _FAR) -> Probe:
        """Probe the ledger in a single statement.

        Leases and stops later than ``ahead`` from now may be left out: no caller waits for them.
        """
        return await self._probe(serving, self.floors.of(serving), ahead)

    async def _probe(self, serving: Serving, begin: Moments, ahead: timedelta = _FAR) -> Probe:
        ours = serving.project, serving.lanes, list(serving.types), TIME_RULES
        (row,) = await self.run("probe", *ours, *begin, ahead, self.binding)
        probe = Probe(**row, met=self._connections.met(row["server"]))
        self.floors.learn(serving, probe, begin)
        return probe

    async def prepare(self) -> bool:
        """Parse the definitions that reads have left out; return whether there were any."""
        had_some = bool(self.unparsed)
        while self.unparsed:
            await parse_apart(self.unparsed.pop())
        return had_some

    async def suspect_until(self) -> datetime | None:
        """Return up to when windows may have runs that the ledger has lost.

        A sign of lost commits that no replica has noted yet counts for all windows.
        """
        here, noted = await self.lineage()
        if any(noted.differences(here)):
            return from_seconds(HORIZON)
        return await self._doubted_at()

    async def _doubted_at(self) -> datetime | None:
        (row,) = await self._connections.fetch("SELECT doubted_at FROM ledger")
        return row["doubted_at"]  # type: ignore[no-any-return] # a column of its own

    async def lineage(self) -> tuple[Lineage, Lineage]:
        """Return the lineage of the server that answers now, and the lineage noted last."""
        here = await lineage_of(self._connections)
        (row,) = await self._connections.fetch("SELECT system, timeline FROM ledger")
        return here, Lineage(**row)

    async def note_lineage(self, lineage: Lineage, *, suspect: bool) -> datetime | None:
        """Record the lineage of the server; with ``suspect`` also a sign of lost commits.

        Windows up to the last such sign may have runs that the ledger has lost. Return its time,
        whichever replica saw it.
        """
        text = query("doubt")
        await self._connections.fetch(text, lineage.system, lineage.timeline, suspect)
        return await self._doubted_at()

    async def listen(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` soon after each commit that contains a request.

        Ticks send no notification. Runs on a connection of its own until it is cancelled, or
        returns when that connection is lost. Calls may be missing: they are hints.

        Raises:
            LedgerError: the ledger cannot be listened to.
        """
        await self._connections.listen(self._schema, self.namespace, wake)

    async def _listen_to_events(self, wake: Callable[[], None]) -> None:
        await self._connections.listen(self._schema, f"events:{self.namespace}", wake)

    async def wake(self) -> list[str]:
        """Make due the keys whose queue waits for nothing any more, and return them.

        Fewer runs of such a key are open than may be, and no window of another schedule may still
        become what a queued fire waits for.
        """
        rows = await self.run("wake", sorted(FAILED), _ASKED, random.random(), _ASKED_OF_ALL)
        woken: list[str] = []
        if free := [row["key"] for row in rows if not row["locked"]]:
            woken += [row["key"] for row in await self.run("make_due", free, False)]
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
        """Make these schedules due now, because what their plans waited for is known.

        A schedule that is held has nothing to plan and stays as it is. One that stays locked for
        seconds does not delay the others.
        """
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
            return await transaction.make_due(keys)

    async def announce(
        self,
        serving: Serving,
        *,
        engine: str,
        tzdata: str,
        retention: timedelta | None,
        heartbeat: timedelta = timedelta(seconds=10),
        margin: timedelta | None = None,
    ) -> datetime | None:
        """Announce this replica and what it serves; resolve workflows that waited for a type.

        Others expect the next announcement after ``heartbeat``: the replica counts as alive for
        three of them, where their own ``alive`` is shorter.

        Return when a replica was last seen before, if that is longer ago than Temporal keeps runs,
        less the ``margin``; None is the smaller of 10 minutes and a quarter of the retention.
        """
        silent_since = await self._announce(
            serving, (engine, tzdata, heartbeat), (retention, margin)
        )
        if (begun := time.monotonic()) >= self._look_at:
            # Here and not in a tick, because this probe is slow beside an old snapshot.
            await self._probe(serving, (EVER, EVER, EVER))
            ended = time.monotonic()
            self._look_at = ended + again_after(ended - begun, least=LOOK_AGAIN)
        return silent_since

    async def _announce(
        self,
        serving: Serving,
        about: tuple[str, str, timedelta],
        keeps: tuple[timedelta | None, timedelta | None],
    ) -> datetime | None:
        engine, tzdata, heartbeat = about
        silent_since: datetime | None = None
        types = sorted(serving.types)
        (state,) = await self._connections.fetch("SELECT epoch FROM ledger")
        seen = (task_queue := serving.task_queue, int(state["epoch"]))
        # With 100,000 schedules, a new version takes seconds to reach them all.
        async with self.transaction(long=True) as transaction:
            run = transaction.run
            said = {"types": types, "engine": engine, "tzdata": tzdata, "heartbeat": heartbeat}
            said["binding"] = self.binding
            await run("announce_replica", *values("announce_replica", serving, **said))
            if keeps[0] is not None:
                for row in await run("announce_retention", *keeps, self.binding, heartbeat):
                    silent_since = row["silent_since"]
            await run("forget_replicas")
            rules, inputs = (
                [json.dumps(each) if (each := known.get(name)) else None for name in types]
                for known in (serving.rules, serving.inputs)
            )
            changes = await run("announce_types", task_queue, types, rules, inputs)
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
            self.floors.forget()  # schedules due long ago may only now be ours
        return silent_since

    async def create_within(
        self, connection: object, new: NewDefinition, action: Action, *, by: str
    ) -> None:
        """Do ``Transaction.create`` in the open transaction of an application's connection.

        Nothing else is locked, and the transaction continues after a refusal. The connection's
        settings and codecs take no part in it and stay as they are.

        Args:
            connection: an asyncpg connection to the ledger's database.
            new: the definition.
            action: its row for the audit log.
            by: the actor.

        Raises:
            KeyInUse, RequestInUse: another schedule has, or had, one of them.
            LedgerError: there is no open transaction, or it does not reach this ledger.
        """
        try:
            await self._write_within(connection, creation(new, action, by=by))
        except asyncpg.UniqueViolationError as error:
            raise in_use(error, new) from error

    async def start_within(self, connection: object, new: Start, fire: NewFire) -> bool:
        """Do ``Transaction.start`` in the open transaction of an application; see above.

        Raises:
            LedgerError: there is no open transaction, or it does not reach this ledger.
        """
        return await self._write_within(connection, starting(new, fire, self.binding))

    async def _write_within(self, connection: object, statements: Iterable[Statement]) -> bool:
        return await write_within(
            connection,
            statements,
            namespace=self.namespace,
            schema=self._schema,
            ledger_id=await self.identity(),
        )
