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

from engine.errors import EngineError, LedgerError, LedgerTimeout, LedgerUnavailable
from engine.ledger.failures import (
    FailingNote,
    RetryNote,
    RunCounts,
    RunDetails,
    Uncounted,
    as_details,
)
from engine.ledger.fires import (
    BlockingRun,
    Claim,
    DataGap,
    Evidence,
    KnownRun,
    OpenRun,
    Outcome,
    StopOrder,
    UnreadEnd,
)
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
from engine.ledger.postgres.fire_statements import starting
from engine.ledger.postgres.joined import Statement, write_within
from engine.ledger.postgres.maintenance import Upkeep
from engine.ledger.postgres.reads import Reads
from engine.ledger.postgres.replicas import Replicas
from engine.ledger.postgres.rows import LedgerPart, arrays, as_claim, parse_apart
from engine.ledger.postgres.schema import (
    build_indexes,
    check_schema_name,
    migrate,
    migrations,
    missing_indexes,
    read_applied,
    refuse_shadows,
)
from engine.ledger.postgres.stored_access import AccessStore
from engine.ledger.postgres.stored_alerts import AlertStore
from engine.ledger.postgres.stored_events import EventStore
from engine.ledger.postgres.transaction import Transaction, creation, in_use
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


# --- starts and runs ---

_SOON = timedelta(seconds=60)


class RunStatements(LedgerPart):
    """Starts and runs: taken over, settled, seen, lost and stopped."""

    _floors: Floors
    _unseen: Floor

    async def take_over(
        self, serving: Serving, *, limit: int, lease: timedelta, newest: bool = False
    ) -> list[Claim]:
        """Take fires whose lease has ended; skip ``claimed`` ones of paused or retired keys.

        ``newest``: those whose lease has ended last, if there are more than the limit.
        """
        rows = await self._run(
            "take_over",
            serving.project,
            serving.replica,
            limit,
            lease,
            self._floors.of(serving)[1],
            self.binding,
            newest,
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
        """Give claims a whole lease from now; return the IDs of those that are still their owner's.

        A claim that was taken over or settled, or whose lease has ended, is not renewed. If the
        commit of a claim was not confirmed, its ID is returned exactly when it happened.
        """
        ids, tokens = [claim.fire_id for claim in claims], [claim.token for claim in claims]
        return {row["id"] for row in await self._run("renew", ids, tokens, lease)}

    async def settle(self, outcomes: Sequence[Outcome]) -> int:
        """Write the outcomes whose token still holds; return their number."""
        return len(await self._write("settle", outcomes))

    async def record_evidence(self, evidence: Sequence[Evidence]) -> list[str]:
        """Write evidence of runs; return the workflow IDs of the fires that it changed."""
        rows = await self._write("record_evidence", evidence, self._namespace, self.binding)
        return [row["workflow_id"] for row in rows]

    async def seen_open(self, workflow_ids: Sequence[str], at: datetime) -> dict[str, str | None]:
        """Record that these runs were open at ``at``.

        Return the workflow IDs of those that are open by the ledger, each with what was noted last
        of its failing steps; see ``FailingNote``.
        """
        rows = await self._run("seen_open", list(workflow_ids), at)
        return {row["workflow_id"]: row["failing"] for row in rows}

    async def open_runs(self, limit: int, *, started_before: datetime) -> list[OpenRun]:
        """Return started fires not seen closed, longest unseen first."""
        begin, begun = self._unseen.begin(), time.monotonic()
        rows = await self._run("open_runs", limit, started_before, begin, self.binding)
        oldest = [row["unseen_since"] for row in rows]
        # The runs found are seen now, and all others were seen after them.
        self._unseen.learn(max(oldest) if len(rows) == limit else started_before, begun)
        return [OpenRun(row["workflow_id"], row["run_id"], row["started_at"]) for row in rows]

    async def lose(self, workflow_ids: Sequence[str], error: str) -> list[str]:
        """Mark started runs that Temporal does not know as lost; return those not marked before."""
        rows = await self._run("lose", list(workflow_ids), error, self.binding)
        return [row["workflow_id"] for row in rows]

    async def known_runs(self, workflow_ids: Sequence[str]) -> dict[str, KnownRun]:
        """Return what the ledger knows of these runs; those of no single window are left out."""
        rows = await self._run("known_runs", list(workflow_ids))
        return {
            row["workflow_id"]: KnownRun(row["run_id"], row["first_run_id"], row["closed"])
            for row in rows
        }

    async def note_second_run(self, workflow_id: str, run_id: str) -> bool:
        """Note a run of another chain under the id of a fire; return whether it is new."""
        return bool(await self._run("note_second_run", workflow_id, run_id))

    async def in_the_way(
        self, replica: str, *, alive: timedelta, orphans: bool, limit: int
    ) -> list[BlockingRun]:
        """Return runs that queued windows of their key wait for, the oldest line first.

        These are runs that this replica started; with ``orphans`` also those whose replica has not
        announced itself within ``alive``.
        """
        rows = await self._run("in_the_way", replica, alive, orphans, limit, self.binding)
        return [BlockingRun(**row) for row in rows]

    async def take_stops(
        self, serving: Serving, *, limit: int, lease: timedelta
    ) -> list[StopOrder]:
        """Take runs to cancel or terminate now; no other replica takes them for a lease."""
        rows = await self._run("take_stops", serving.project, limit, lease, self.binding)
        return [StopOrder(**row) for row in rows]

    async def stopped(self, orders: Sequence[StopOrder]) -> None:
        """Record that these runs were asked to end, and the first runs of their chains.

        The grace of a cancelled run counts from the first request. They become orders again soon,
        until they are seen to end.
        """
        asked = [(order.fire_id, order.stop, order.first_run_id) for order in orders]
        await self._run("stopped", *arrays(asked))

    async def anything_ended(self) -> bool:
        """Return whether a fire ended badly whose follow-up runs are not decided yet."""
        (row,) = await self._run("anything_ended")
        return bool(row["ended"])

    async def note_failing(self, notes: Sequence[FailingNote]) -> set[str]:
        """Note which steps of open runs keep failing; return the IDs of the runs it wrote.

        A run of which something else was noted meanwhile, or that has ended, is left as it is.
        """
        rows = await self._write("note_failing", notes, self._namespace)
        return {row["workflow_id"] for row in rows}

    async def unread_ends(self, limit: int, *, after: str = "") -> list[UnreadEnd]:
        """Return bad ends whose reason is to be read: of each key the newest, by keys.

        ``after`` is the key to begin behind.
        """
        rows = await self._run("unread_ends", limit, after, self.binding)
        return [UnreadEnd(**row) for row in rows]

    async def note_failures(self, ends: Sequence[Evidence]) -> set[str]:
        """Note why runs ended badly; return the workflow IDs of the fires that it changed."""
        rows = await self._write("note_failures", ends, self._namespace)
        return {row["workflow_id"] for row in rows}

    async def uncounted(self, limit: int) -> list[Uncounted]:
        """Return closed runs whose tries or step retries are to be read, newest fires first."""
        rows = await self._run("uncounted", limit, self.binding)
        return [Uncounted(**row) for row in rows]

    async def note_counts(self, counts: Sequence[RunCounts]) -> None:
        """Note what was read of closed runs. It counts for the run that was read alone."""
        await self._write("note_counts", counts, self._namespace)

    async def note_retries(self, notes: Sequence[RetryNote]) -> None:
        """Add retries of steps that workers have seen, of open runs and those closed just now."""
        await self._write("note_retries", notes, self._namespace)

    async def run_details(self, workflow_id: str) -> RunDetails:
        """Return why a run failed and its tries, as the ledger keeps them."""
        rows = await self._run("run_details", workflow_id)
        return as_details(*rows[0]) if rows else RunDetails()

    async def check_data_gaps(self, *, rest: timedelta, limit: int) -> list[DataGap]:
        """Find the data that denied windows left without a run; return the new gaps.

        Args:
            rest: what was denied more recently is left for the next time, because a run that counts
                on it may be about to begin.
            limit: number of windows to check, besides those denied in a row with one of them.
        """
        return [DataGap.of(**row) for row in await self._run("check_data_gaps", rest, limit)]


# --- ledger ---

_FAR = timedelta(days=36500)
_ASKED = 200
"""The number of windows of a key, waiting for other schedules, that are checked at once."""
_ASKED_OF_ALL = 5000


class Ledger(RunStatements, Reads, Replicas):
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
        self._connections, self._namespace, self._schema = connections, namespace, schema
        self.migrated = tuple(migrated)
        self._resolved: tuple[str, int] | None = None
        self._unparsed: set[str] = set()
        self._late: list[str] = []
        self._floors, self._unseen = Floors(), Floor()
        self._look_at = -math.inf
        self.alerts = AlertStore(self._run)
        self.access = AccessStore(self._run)
        self.events = EventStore(
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
        patience: float | None = None,
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

        Raises:
            LedgerUnavailable: the database cannot be reached.
            LedgerTooNew: it was written by a newer version.
            LedgerError: it is older than PostgreSQL 15, or the role may not use it.
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
            migrated = await migrate(opened, schema)
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
            transaction = Transaction(
                connection,
                self._namespace,
                patience,
                self.binding,
                floors=self._floors,
                unparsed=self._unparsed,
            )
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
        """Probe the ledger in a single statement.

        Leases and stops later than ``ahead`` from now may be left out: no caller waits for them.
        """
        return await self._probe(serving, self._floors.of(serving), ahead)

    async def _probe(self, serving: Serving, begin: Moments, ahead: timedelta = _FAR) -> Probe:
        types = list(serving.types)
        (row,) = await self._run(
            "probe",
            serving.project,
            serving.lanes,
            types,
            TIME_RULES,
            *begin,
            ahead,
            self.binding,
        )
        probe = Probe(**row, met=self._connections.met(row["server"]))
        self._floors.learn(serving, probe, begin)
        return probe

    async def prepare(self) -> bool:
        """Parse the definitions that reads have left out; return whether there were any."""
        had_some = bool(self._unparsed)
        while self._unparsed:
            await parse_apart(self._unparsed.pop())
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
        await self._connections.listen(self._schema, self._namespace, wake)

    async def _listen_to_events(self, wake: Callable[[], None]) -> None:
        await self._connections.listen(self._schema, f"events:{self._namespace}", wake)

    async def wake(self) -> list[str]:
        """Make due the keys whose queue waits for nothing any more, and return them.

        Fewer runs of such a key are open than may be, and no window of another schedule may still
        become what a queued fire waits for.
        """
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
            return await transaction.made_due(keys)

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

    async def unvouched_until(self, margin: timedelta | None) -> datetime | None:
        """Return up to when windows without a row may have run, and Temporal has forgotten it.

        ``margin``: as in ``announce``.
        """
        (row,) = await self._run("unvouched_until", margin, self.binding)
        until: datetime | None = row["until"]
        return until

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
            self._floors.forget()  # schedules due long ago may only now be ours
        return silent_since

    @property
    def namespace(self) -> str:
        """The Temporal namespace whose windows it records."""
        return self._namespace

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
        return await self._write_within(connection, starting(new, fire))

    async def _write_within(self, connection: object, statements: Iterable[Statement]) -> bool:
        return await write_within(
            connection,
            statements,
            namespace=self._namespace,
            schema=self._schema,
            ledger_id=await self.identity(),
        )
