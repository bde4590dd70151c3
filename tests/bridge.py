"""Bridge from an event loop in virtual time to a real PostgreSQL ledger.

A loop of ``tests.model.loop`` never waits for anything real, and its chance alone says who goes on
next. Statements run on real connections, in a real loop that runs inside a step of the virtual one
until it has their answer. A statement that waits for a lock of somebody else is left alone, and
answered when that has been released. So the order of events is a function of the seed, but where
several have waited for one lock: PostgreSQL says who of them is first.

PostgreSQL's limits of time count in virtual time here: ``lock_timeout``,
``idle_in_transaction_session_timeout`` and ``transaction_timeout``.
"""

from __future__ import annotations

import asyncio
import re
import time
from asyncio import events
from collections.abc import Callable, Coroutine, Iterator, Set as AbstractSet
from contextlib import AsyncExitStack, contextmanager
from contextvars import Context
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import count
from typing import Any, Final, Protocol, Self, TypeVar, cast

import asyncpg

from engine.ledger import Ledger
from engine.ledger.postgres import connections
from engine.ledger.postgres.connections import Connections, search_path_of
from engine.testing.virtual_ledger import SCHEMA, virtual_database
from tests.model.loop import WHOSE, Loop, Mortal

T = TypeVar("T")

_REST: Final = 0.01
"""Seconds after which it is asked whether a statement waits for a lock. Longer than PostgreSQL
takes to find a deadlock, see ``_SETTINGS``: whoever closes a circle is told so at once."""
_SAFE: Final = 120.0
_SETTINGS: Final = {
    "search_path": search_path_of(SCHEMA),
    "TimeZone": "UTC",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "deadlock_timeout": "4ms",
    "statement_timeout": "60s",
}
# Another server process, with other numbers: as it is after a failover.
_SERVER: Final = """
SET search_path = sched, pg_catalog;
CREATE TABLE virtual_server (started timestamptz, lost bigint, timeline bigint);
INSERT INTO virtual_server VALUES ('2000-01-01', 0, 1);
CREATE FUNCTION pg_postmaster_start_time() RETURNS timestamptz STABLE
    RETURN (SELECT started FROM virtual_server);
CREATE FUNCTION pg_snapshot_xmax(pg_snapshot) RETURNS xid8 STABLE
    RETURN (pg_catalog.pg_snapshot_xmax($1)::text::bigint
            - (SELECT lost FROM virtual_server))::text::xid8;
CREATE FUNCTION pg_walfile_name(pg_lsn) RETURNS text STABLE
    RETURN (SELECT lpad(to_hex(timeline), 8, '0') || repeat('0', 16) FROM virtual_server);
CREATE SCHEMA kept;
"""
_BEGIN: Final = (
    "UPDATE sched.virtual_server SET started = '2000-01-01', lost = 0, timeline = 1",
    "UPDATE sched.ledger SET epoch = 1, system = NULL, timeline = NULL, doubted_at = NULL",
)
_COLUMNS: Final = """
SELECT c.table_name AS table, string_agg(quote_ident(c.column_name), ', ') AS columns,
       bool_or(c.column_name = 'namespace') AS named
FROM information_schema.columns c
JOIN information_schema.tables t USING (table_schema, table_name)
WHERE c.table_schema = 'sched' AND t.table_type = 'BASE TABLE' AND c.is_generated = 'NEVER'
GROUP BY 1 ORDER BY 1
"""
_SEQUENCES: Final = """
SELECT 'sched.' || quote_ident(sequencename) AS name FROM pg_sequences WHERE schemaname = 'sched'
"""
_BLOCKED: Final = "SELECT pg_blocking_pids($1) <> '{}'"
_WHO_IS_BLOCKED: Final = (
    "SELECT pid FROM unnest($1::int[]) AS pid WHERE pg_blocking_pids(pid) <> '{}'"
)
_WRITES: Final = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)")
_LOCKS: Final = re.compile(r"\bFOR (NO KEY )?UPDATE\b|\bpg_advisory_xact_lock\b")


@cache
def written(text: str) -> frozenset[str]:
    """Return the tables that a statement writes by itself."""
    return frozenset(_WRITES.findall(text))


@cache
def _locks(text: str) -> bool:
    return bool(_LOCKS.search(text))


class _RealLoop(asyncio.SelectorEventLoop):
    """A loop in real time, whatever ``time.monotonic`` is at present."""

    time = staticmethod(time.monotonic)


@contextmanager
def _outside() -> Iterator[None]:
    """Leave the running loop and its task, so that another loop can run."""
    loop = events._get_running_loop()
    task = asyncio.current_task(loop) if loop else None
    if loop and task:
        asyncio.tasks._leave_task(loop, task)
    events._set_running_loop(None)
    try:
        yield
    finally:
        events._set_running_loop(loop)
        if loop and task:
            asyncio.tasks._enter_task(loop, task)


class Bridge:
    """A database in virtual time, and the loop in which its connections live.

    Args:
        server: the address of a PostgreSQL database, whose role is a superuser.
    """

    def __init__(self, server: str) -> None:
        self._loop = _RealLoop()
        self._stack = AsyncExitStack()
        self._free: list[asyncpg.Connection[Any]] = []
        self._numbers = count(1)
        self._clock: datetime | None = None
        self._turn = asyncio.Lock()
        self._following: dict[str, int] = {}
        self.run(self._open(server))

    async def _open(self, server: str) -> None:
        self._url = await self._stack.enter_async_context(virtual_database(server))
        self._control = await self.connect()
        self.direct = await Connections.open(self._url, schema=SCHEMA, most=2)
        await self._control.execute(_SERVER)
        found = await self._control.fetch(_COLUMNS)
        for row in await self._control.fetch(_SEQUENCES):
            self._following[row["name"]] = 1
        self.tables = {row["table"]: row["columns"] for row in found if row["named"]}
        for table in (*self.tables, "ledger"):
            # Nobody plans otherwise because of what ran before.
            await self._control.execute(
                f"ALTER TABLE sched.{table} SET (autovacuum_enabled = false);"
                f" CREATE TABLE kept.{table} (LIKE sched.{table} INCLUDING GENERATED)"
            )

    def close(self) -> None:
        """Close every connection."""
        self.run(self._close())
        with _outside():
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _close(self) -> None:
        for connection in [self._control, *self._free]:
            await connection.close()
        await self.direct.close()
        await self._stack.aclose()

    def submit(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin something: it goes on while ``until_done`` waits for anything."""
        task = self._loop.create_task(work)
        task.add_done_callback(lambda _: self._loop.stop())
        return task

    def until_done(self, task: asyncio.Task[Any], seconds: float) -> bool:
        """Wait for something, for so long at most; return whether it is done."""
        limit = self._loop.call_later(seconds, self._loop.stop)
        until = self._loop.time() + seconds
        with _outside():
            while not task.done() and self._loop.time() < until:
                self._loop.run_forever()
        limit.cancel()
        return task.done()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something, and return what it returns."""
        task = self.submit(work)
        assert self.until_done(task, _SAFE), f"it goes on and on: {work}"
        return task.result()

    async def connect(self) -> asyncpg.Connection[Any]:
        """Return a connection that nobody uses."""
        if self._free:
            return self._free.pop()
        return await asyncpg.connect(
            self._url, server_settings=_SETTINGS, statement_cache_size=1000,
            max_cached_statement_lifetime=0,
        )  # fmt: skip

    def give_back(self, connection: asyncpg.Connection[Any]) -> None:
        """Take a connection that is outside a transaction."""
        self._free.append(connection)

    async def ask(self, text: str, *arguments: object) -> list[Any]:
        """Run one statement beside all others."""
        async with self._turn:
            return await self._control.fetch(text, *arguments)

    async def set_clock(self, now: datetime) -> None:
        """Let it be that time in the ledger."""
        if now != self._clock:
            self._clock = now
            await self.ask("UPDATE sched.virtual_clock SET now = $1", now)

    async def _execute(self, text: str) -> None:
        async with self._turn:
            await self._control.execute(text)

    def course(self, loop: Loop, now: Callable[[], datetime], watch: Watch | None = None) -> Course:
        """Return an empty ledger in the time of a loop.

        Args:
            loop: where its users live.
            now: the ledger's clock.
            watch: sees what each commit has changed.
        """
        self.run(self._begin())
        return Course(self, loop, now, f"n{next(self._numbers)}", watch)

    async def _begin(self) -> None:
        for text in _BEGIN:
            await self._execute(text)

    async def end(self, namespace: str) -> None:
        """Forget what a course has written."""
        await self._without_triggers(
            f"DELETE FROM sched.{table} WHERE namespace = '{namespace}'" for table in self.tables
        )
        if int(namespace[1:]) % 10 == 0:
            await self._execute("VACUUM")

    async def keep(self, namespace: str) -> None:
        """Copy what is committed."""
        await self._without_triggers(
            f"DELETE FROM kept.{table}; INSERT INTO kept.{table} ({columns})"
            f" SELECT {columns} FROM sched.{table} WHERE namespace = '{namespace}'"
            for table, columns in self.tables.items()
        )
        await self._execute(
            "DELETE FROM kept.ledger; INSERT INTO kept.ledger SELECT * FROM sched.ledger"
        )
        # A standby has what was written of a sequence, and the next ids may be those of lost rows.
        for name in self._following:
            ((following,),) = await self.ask(f"SELECT last_value + is_called::int FROM {name}")
            self._following[name] = following

    async def restore(self, namespace: str) -> None:
        """Let everything be as it was kept."""
        await self._without_triggers(
            f"DELETE FROM sched.{table} WHERE namespace = '{namespace}';"
            f" INSERT INTO sched.{table} ({columns}) OVERRIDING SYSTEM VALUE"
            f" SELECT {columns} FROM kept.{table}"
            for table, columns in self.tables.items()
        )
        await self._execute(
            "UPDATE sched.ledger SET epoch = k.epoch, system = k.system, timeline = k.timeline,"
            " doubted_at = k.doubted_at FROM kept.ledger k"
        )
        for name, following in self._following.items():
            await self.ask("SELECT setval($1::regclass, $2, false)", name, following)

    async def _without_triggers(self, texts: Iterator[str]) -> None:
        async with self._turn, self._control.transaction():
            await self._control.execute("SET LOCAL session_replication_role = replica")
            await self._control.execute("; ".join(texts))


class Watch(Protocol):
    """Whoever looks at each commit."""

    tables: frozenset[str]
    """Those whose changes it looks at."""

    async def read(
        self, connection: asyncpg.Connection[Any], namespace: str, tables: AbstractSet[str]
    ) -> Any:
        """Read what is new in these tables, just before a commit and in its transaction."""

    def note(self, found: Any, commit: Commit) -> None:
        """Judge what was read: it is committed now."""


@dataclass(frozen=True)
class Commit:
    """What is known of a commit.

    Attributes:
        opened: the ledger's clock when its transaction had its first lock, or began.
        alone: the statement, if there was only one.
        arguments: its arguments.
    """

    opened: datetime
    alone: str | None = None
    arguments: tuple[Any, ...] = ()


class Line(Protocol):
    """The way to the ledger and back: it takes a while, and may break."""

    async def there(self) -> None:
        """Let a request arrive."""

    async def back(self, *, commit: bool) -> None:
        """Let an answer arrive."""


class Direct:
    """A line that takes no time."""

    async def there(self) -> None:
        """Arrive."""

    async def back(self, *, commit: bool) -> None:
        """Arrive."""


@dataclass(eq=False)
class _Pending:
    """A statement that the server has.

    Attributes:
        alone: whether it is a transaction of its own whose changes somebody looks at.
        ends: whether its transaction ends with it, unless somebody else has to end it.
        answer: who waits for it; None if its connection was cut.
    """

    connection: BridgedConnection
    text: str
    arguments: tuple[Any, ...]
    alone: bool
    ends: bool
    work: asyncio.Task[tuple[Any, Any]]
    asked: float
    answer: asyncio.Future[Any] | None = None
    error: Exception | None = None


class Course:
    """A ledger of its own, as the users in one virtual loop see it."""

    def __init__(
        self,
        bridge: Bridge,
        loop: Loop,
        now: Callable[[], datetime],
        namespace: str,
        watch: Watch | None,
    ) -> None:
        self.bridge, self.loop, self.now, self.namespace = bridge, loop, now, namespace
        self.watch = watch
        self.direct = Ledger(bridge.direct, namespace, schema=SCHEMA)
        self.blocked = 0
        self._open: dict[BridgedConnection, None] = {}
        self._pending: list[_Pending] = []
        self._timer: asyncio.TimerHandle | None = None

    def pool(self, line: Line) -> Connections:
        """Return the connections of one process."""
        first = connections._FirstContact()
        pool = cast("asyncpg.Pool[Any]", _Pool(self, line, first))
        return Connections(pool, _no_other, "transaction_timeout", first)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something with the real ledger, ``direct``, that nobody waits for."""

        async def done() -> T:
            await self.bridge.set_clock(self.now())
            return await work

        return self.bridge.run(done())

    def rows(self, text: str, *arguments: object) -> list[Any]:
        """Return what one statement finds among what is committed."""
        return self.run(self.bridge.ask(text, *arguments))

    def end(self) -> None:
        """Let whoever is left lose its connection, and forget everything."""
        self.drop(None)
        self.settle()
        for connection in [*self._open]:
            connection.terminate()
        assert not self._pending, [each.text for each in self._pending]
        self.bridge.run(self.bridge.end(self.namespace))

    def connect(self, line: Line) -> BridgedConnection:
        """Return a new connection."""
        connection = BridgedConnection(self, self.bridge.run(self.bridge.connect()), line)
        self._open[connection] = None
        return connection

    def drop(self, owner: Mortal | None) -> None:
        """Let the connections of a process break, as when it is killed; None is everybody's."""
        for connection in [*self._open]:
            if owner is None or connection.owner is owner:
                connection.terminate()

    def opened(self, now: datetime) -> None:
        """Let no open transaction have begun later than ``now``: the clock was set."""
        for connection in self._open:
            connection.opened = min(connection.opened or now, now)

    # A standby.

    def keep(self) -> int:
        """Copy what is committed; return the number of transactions."""
        self.bridge.run(self.bridge.keep(self.namespace))
        return self._transactions()

    def restore(self, transactions: int, *, told: bool) -> None:
        """Let another server go on from there; ``told``: it says that its timeline is new."""
        self.drop(None)
        self.settle()
        self.bridge.run(self.bridge.restore(self.namespace))
        lost = self._transactions() - transactions
        self.rows(
            "UPDATE sched.virtual_server SET started = started + interval '1 hour',"
            " lost = lost + $1, timeline = CASE WHEN $2 THEN timeline + 1 END", lost, told,
        )  # fmt: skip

    def _transactions(self) -> int:
        text = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
        return int(self.rows(text)[0][0])

    # Statements.

    async def perform(
        self, connection: BridgedConnection, call: str, text: str, *given: Any
    ) -> Any:
        """Run a statement; it may have to wait for others."""
        seen = written(text) & self.watch.tables if self.watch else frozenset()
        connection.written |= seen
        alone = bool(seen and not connection.depth)
        pending = self._begun(connection, call, text, given, alone=alone)
        if self._rests(pending):
            return self._conclude(pending)
        self.blocked += 1
        pending.answer = self.loop.create_future()
        self._pending.append(pending)
        self._arm()
        try:
            return await pending.answer
        except asyncio.CancelledError:
            connection.terminate()
            raise

    def roll_back(self, connection: BridgedConnection, text: str) -> None:
        """Undo what was done, to a savepoint or all."""
        if connection.depth and connection.before.startswith("BEGIN"):
            return  # the server knows nothing of it
        self.bridge.run(connection.real.execute(connection.before + text))
        connection.before = ""
        connection.rested = self.loop.time()

    def commit(self, connection: BridgedConnection) -> None:
        """Commit, and see what is new."""
        opened = connection.opened or self.now()
        began = not connection.before.startswith("BEGIN")
        found = self.bridge.run(self._committed(connection)) if began else None
        connection.end()
        self._note(found, Commit(opened))
        self.settle()

    def _begun(
        self, connection: BridgedConnection, call: str, text: str, given: Any, *, alone: bool
    ) -> _Pending:
        ends = alone and not self._pending
        work = self._work(connection, call, text, given, alone=alone, ends=ends)
        now = self.loop.time()
        pending = _Pending(
            connection, text, given, alone, ends, self.bridge.submit(work), now
        )  # fmt: skip
        connection.waiting = pending
        if alone:
            connection.opened, connection.began = self.now(), now
        return pending

    async def _work(
        self, connection: BridgedConnection, call: str, text: str, given: Any, *, alone: bool,
        ends: bool,
    ) -> tuple[Any, Any]:  # fmt: skip
        await self.bridge.set_clock(self.now())
        if before := connection.before:
            connection.before = ""
            await connection.real.execute(before)
        if not alone:
            return await getattr(connection.real, call)(text, *given), None
        await connection.real.execute("BEGIN")
        try:
            answer = await getattr(connection.real, call)(text, *given)
        except BaseException:
            await connection.real.execute("ROLLBACK")
            raise
        return answer, (await self._ended(connection) if ends else None)

    async def _committed(self, connection: BridgedConnection) -> Any:
        await self.bridge.set_clock(self.now())
        return await self._ended(connection)

    async def _ended(self, connection: BridgedConnection) -> Any:
        """Read what a transaction has changed, and commit it."""
        found = None
        if self.watch is not None and connection.written:
            found = await self.watch.read(connection.real, self.namespace, connection.written)
            connection.written = frozenset()
        await connection.real.execute("COMMIT")
        return found

    def _rests(self, pending: _Pending) -> bool:
        """Wait until a statement is done, or waits for a lock; return whether it is done."""
        until = time.perf_counter() + _SAFE
        while time.perf_counter() < until:
            if self.bridge.until_done(pending.work, _REST):
                return True
            pid = pending.connection.get_server_pid()
            if self.bridge.run(self.bridge.ask(_BLOCKED, pid))[0][0]:
                return False
        raise AssertionError(f"it goes on and on: {pending.text}")

    def _conclude(self, pending: _Pending, *, settle: bool = True) -> Any:
        """Return what a statement that is done has found."""
        connection = pending.connection
        connection.waiting, connection.rested = None, self.loop.time()
        answer, error = None, pending.error or pending.work.exception()
        if error is None:
            answer, found = pending.work.result()
            if pending.alone:
                if not pending.ends:
                    found = self.bridge.run(self._ended(connection))
                opened = connection.opened or self.now()
                connection.opened = None
                self._note(found, Commit(opened, pending.text, pending.arguments))
            elif connection.opened is None and connection.depth and _locks(pending.text):
                connection.opened = self.now()
        elif isinstance(error, asyncpg.DeadlockDetectedError):
            self.loop.troubles.append(f"a deadlock: {error.detail}: {pending.text}")
        if pending.alone and settle:
            self.settle()
        if error is not None:
            connection.written = connection.written if connection.depth else frozenset()
            raise error
        return answer

    def _note(self, found: Any, commit: Commit) -> None:
        self.loop.micros += 1  # no two commits of a server are at the same time
        if self.watch is not None and found is not None:
            self.watch.note(found, commit)

    def settle(self) -> None:
        """Answer the statements that have waited for what was released."""
        moved = True
        while moved and self._pending:
            moved = False
            # Dozens may wait for one lock: they are asked about together, and not one by one.
            pids = [each.connection.get_server_pid() for each in self._pending]
            still = {row[0] for row in self.bridge.run(self.bridge.ask(_WHO_IS_BLOCKED, pids))}
            for pending in [*self._pending]:
                waits = pending.connection.get_server_pid() in still
                if pending in self._pending and not waits and self._rests(pending):
                    self._pending.remove(pending)
                    self._answer(pending)
                    moved = True

    def _answer(self, pending: _Pending) -> None:
        waits, connection = pending.answer, pending.connection
        try:
            answer = self._conclude(pending, settle=False)
        except Exception as error:  # noqa: BLE001 - whoever asked gets it
            if waits and not waits.done():
                waits.set_exception(error)
        else:
            if waits and not waits.done():
                waits.set_result(answer)
        if connection.broken:
            connection.release()

    # Limits of time.

    def expire(self) -> None:
        """End the waits and transactions that PostgreSQL would have ended by now."""
        while due := [each for each in self._open if self._until(each) <= self.loop.time()]:
            connection = min(due, key=self._until)
            pending = connection.waiting
            if pending is None:
                connection.terminate()  # the server has closed it
            else:
                pending.error = asyncpg.LockNotAvailableError("lock timeout")
                text = "SELECT pg_cancel_backend($1)"
                self.bridge.run(self.bridge.ask(text, connection.get_server_pid()))
                self._rests(pending)
                self._pending.remove(pending)
                self._answer(pending)
            self.settle()

    def _until(self, connection: BridgedConnection) -> float:
        """When the server ends what a connection does, by the loop."""
        lock, idle, whole = (30.0, 20.0, 1e12) if connection.long else (3.0, 2.0, 4.0)
        if connection.waiting is not None:
            return connection.waiting.asked + lock
        if not connection.depth:
            return 1e12
        return min(connection.rested + idle, connection.began + whole)

    def _arm(self) -> None:
        """Let the next limit of time count, while somebody waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pending and not self.loop.is_closed():
            at = min(map(self._until, self._open))
            self._timer = self.loop.call_at(at, self._later, context=Context())

    def _later(self) -> None:
        self.expire()
        self._arm()


class BridgedConnection:
    """What the ledger uses of an asyncpg connection.

    Attributes:
        depth: 0 outside a transaction, more than 1 inside a savepoint.
        opened: the ledger's clock when the transaction had its first lock.
        began: when it began, by the loop.
        rested: when it had its last answer.
        before: what comes before its next statement.
        written: tables that its transaction has written, and somebody looks at.
        long: whether the limits of a tick are lifted.
        stale: whether it is closed when it is given back.
    """

    def __init__(self, course: Course, real: asyncpg.Connection[Any], line: Line) -> None:
        self._course, self.real, self._line = course, real, line
        self._pid = real.get_server_pid()
        self.owner: Mortal | None = None
        self.depth, self.long, self.stale, self.broken = 0, False, False, False
        self.opened: datetime | None = None
        self.began = self.rested = 0.0
        self.before, self.written = "", frozenset[str]()
        self.waiting: _Pending | None = None

    async def fetch(self, text: str, *given: Any, **_: Any) -> Any:
        return await self._do("fetch", text, *given)

    async def fetchval(self, text: str, *given: Any, **_: Any) -> Any:
        return await self._do("fetchval", text, *given)

    async def fetchrow(self, text: str, *given: Any, **_: Any) -> Any:
        return await self._do("fetchrow", text, *given)

    async def execute(self, text: str, *given: Any, **_: Any) -> Any:
        if text == connections._LIFTED:
            self.long = True
            return ""
        return await self._do("execute", text, *given)

    async def executemany(self, text: str, rows: Any, **_: Any) -> Any:
        return await self._do("executemany", text, list(rows))

    def transaction(self) -> BridgedTransaction:
        return BridgedTransaction(self)

    def is_closed(self) -> bool:
        return self.broken

    def is_in_transaction(self) -> bool:
        return self.depth > 0

    def get_server_pid(self) -> int:
        return self._pid

    def terminate(self) -> None:
        """Break: the server rolls back, once it has done what it is at."""
        if self.broken:
            return
        self.broken = True
        if self.waiting is not None:
            if (answer := self.waiting.answer) and not answer.done():
                answer.set_exception(_closed())
            self.waiting.answer = None
        else:
            self.release()
            self._course.settle()

    def release(self) -> None:
        """Give back the real connection, which does nothing at present."""
        if self.depth:
            self._course.roll_back(self, "ROLLBACK")
        self.end()
        self._course._open.pop(self, None)
        self._course.bridge.give_back(self.real)

    async def _do(self, call: str, text: str, *given: Any) -> Any:
        await self.way(self._line.there())
        answer = await self._course.perform(self, call, text, *given)
        if not self.depth:
            await self.way(self._line.back(commit=False))
        return answer

    async def way(self, work: Coroutine[Any, Any, None]) -> None:
        """Go there or back; whatever breaks the line breaks the connection."""
        try:
            await work
        except BaseException:
            self.terminate()
            raise
        self._course.expire()
        if self.broken:
            raise _closed()

    async def begin(self) -> None:
        await self.way(self._line.there())
        self.before += f"SAVEPOINT s{self.depth};" if self.depth else "BEGIN;"
        if not self.depth:
            self.began = self.rested = self._course.loop.time()
        self.depth += 1

    def end(self) -> None:
        """Be outside a transaction."""
        self.depth, self.long, self.opened = 0, False, None
        self.before, self.written = "", frozenset()

    async def commit(self) -> None:
        await self.way(self._line.there())
        if self.depth > 1:
            self.depth -= 1
            self.before += f"RELEASE SAVEPOINT s{self.depth};"
            return
        self._course.commit(self)
        await self.way(self._line.back(commit=True))

    async def rollback(self) -> None:
        if self.broken:
            raise _closed()
        if self.depth > 1:
            self.depth -= 1
            self._course.roll_back(self, f"ROLLBACK TO s{self.depth};")
            return
        self._course.roll_back(self, "ROLLBACK")
        self.end()
        self._course.settle()


class BridgedTransaction:
    """What the ledger uses of an asyncpg transaction."""

    def __init__(self, connection: BridgedConnection) -> None:
        self._connection = connection

    async def start(self) -> None:
        await self._connection.begin()

    async def commit(self) -> None:
        await self._connection.commit()

    async def rollback(self) -> None:
        await self._connection.rollback()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: object, _: object) -> None:
        if error is None:
            await self.commit()
        elif not self._connection.broken:
            await self.rollback()


class _Pool:
    """What ``Connections`` uses of an asyncpg pool."""

    def __init__(self, course: Course, line: Line, first: connections._FirstContact) -> None:
        self._course, self._line, self._first = course, line, first
        self._free: list[BridgedConnection] = []
        self._used: set[BridgedConnection] = set()

    async def acquire(self) -> BridgedConnection:
        self._course.expire()
        while self._free:
            connection = self._free.pop()
            if not connection.broken:
                connection.owner = WHOSE.get()
                self._used.add(connection)
                return connection
        connection = self._course.connect(self._line)
        connection.owner = WHOSE.get()
        try:
            await connections._prepared(
                cast("asyncpg.Connection[Any]", connection), settings={}, on_statement=None,
                first=self._first,
            )  # fmt: skip
        except BaseException:
            connection.terminate()
            raise
        self._used.add(connection)
        return connection

    async def release(self, connection: BridgedConnection) -> None:
        self._used.discard(connection)
        if connection.stale or connection.depth:
            connection.terminate()
        elif not connection.broken:
            self._free.append(connection)

    async def expire_connections(self) -> None:
        for connection in self._used:
            connection.stale = True
        self.terminate()

    async def close(self) -> None:
        self.terminate()

    def terminate(self) -> None:
        while self._free:
            self._free.pop().terminate()


def _closed() -> Exception:
    return asyncpg.ConnectionDoesNotExistError("the server has closed the connection")


async def _no_other() -> asyncpg.Connection[Any]:
    raise AssertionError("nobody listens here")


@contextmanager
def bridged(server: str) -> Iterator[Bridge]:
    """Yield a bridge to a database of its own on this server."""
    bridge = Bridge(server)
    try:
        yield bridge
    finally:
        bridge.close()
