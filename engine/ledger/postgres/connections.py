"""PostgreSQL connections with bounded waits, their errors, and the texts of queries."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from importlib.resources import files
from operator import attrgetter
from typing import Any, Self, TypeAlias
from uuid import uuid4

import asyncpg
from asyncpg.connection import LoggedQuery

from engine.errors import (
    CommitUnknown,
    LedgerError,
    LedgerTimeout,
    LedgerUnavailable,
    ScheduleError,
)
from engine.ledger.postgres.address import checked_address, place_of

Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[Any]"
OnStatement: TypeAlias = Callable[[str, float, bool], None]
"""Called with the name of a query, the seconds that it took, and whether it failed."""

PATIENCE = 5.0
"""Timeout in seconds for a connection, and for each statement of a tick."""
PATIENCE_LONG = 60.0
"""The same for each statement of an apply or a migration."""
_PATIENCE_CLOSING = 3.0
_LISTENS_FOR = 60.0
"""Seconds of silence after which a listening connection is tested."""

_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the driver received unexpected bytes
    asyncpg.OperatorInterventionError,  # shut down, starting up, cancelled
    asyncpg.InsufficientResourcesError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    asyncpg.TransactionRollbackError,  # deadlocks and serialization failures
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby, in the middle of a failover
)
_UNCONFIRMED = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,  # terminated, perhaps while it waited for a standby
)
"""Errors that leave open whether a commit happened. Any other error means that it did not."""
_TOO_LONG = {
    asyncpg.TransactionTimeoutError: "a transaction took longer than it may",
    asyncpg.IdleInTransactionSessionTimeoutError: "this process let a transaction wait",
    asyncpg.LockNotAvailableError: "another session held a lock for too long",
    asyncpg.QueryCanceledError: "a statement was cancelled",
    asyncpg.TransactionRollbackError: "two transactions were in each other's way",
}
"""Errors for what a reachable server ends by itself."""
_OLDEST = 15
"""The oldest supported version of PostgreSQL."""
_SETTINGS = {
    # A process suspended inside a transaction hides its locked rows from every SKIP LOCKED query
    # until one of these timeouts ends it. A tick's own work takes milliseconds.
    "idle_in_transaction_session_timeout": "2s",
    "lock_timeout": "3s",
    # None of the others ends a process that is suspended while an answer is on its way to it,
    # because the server waits to send. This one has no effect on a Unix socket.
    "tcp_user_timeout": "4s",
    "TimeZone": "UTC",
    "jit": "off",
}
_LIMITS = ({"transaction_timeout": "4s"}, {"statement_timeout": "3s"})
"""Limits of a transaction: the first since PostgreSQL 17. Before that the second one limits each
statement, and this process ends the transaction after ``_PATIENCE_OLD``."""
_PATIENCE_OLD = 4.0
"""Timeout in seconds of a tick's transaction, if the server has no limit for that."""
_PLANNED_FOR = 30
"""Seconds for which a plan is kept. A plan made while every table is short scans whole tables, and
would otherwise be used until the server has counted their rows, long after they have grown."""
_PLANNED_ONCE = "SELECT set_config('plan_cache_mode', 'force_generic_plan', false)"
"""Planning the statement of an idle tick takes six times as long as running it. So each is planned
once in ``_PLANNED_FOR``, and tested with such a plan beside many rows. This is not a startup
parameter, because poolers are configured to let only those of ``_SETTINGS`` and ``_LIMITS`` pass.
"""
_MET = """
SELECT pg_backend_pid() AS pid,
       CASE WHEN NOT pg_is_in_recovery() THEN pg_postmaster_start_time() END AS server,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS transactions
"""
"""Which server process answers, and how many transactions it has assigned; as in probe.sql."""
_LIFTED = (
    "SELECT set_config($1, '0', true), set_config('lock_timeout', '30s', true),"
    " set_config('idle_in_transaction_session_timeout', '20s', true)"
)


def search_path_of(schema: str) -> str:
    """Return the search path of a ledger's sessions, as SQL.

    The schema precedes PostgreSQL's own, so that the testing kit can replace the clock. Temporary
    tables, which are named last, replace nothing.
    """
    return f'"{schema}", pg_catalog, pg_temp'


@dataclass
class _FirstContact:
    """The number of transactions of a server when this process first connected to it.

    After lost commits it is below what this process has seen, whatever its loops write then.
    """

    server: datetime | None = None
    transactions: int = 0

    def note(self, server: datetime | None, transactions: int) -> None:
        """Record what a new connection found; a standby, which may be behind, is no server."""
        if server is not None and (server != self.server or transactions < self.transactions):
            self.server, self.transactions = server, transactions


class Connections:
    """A connection pool. A connection that does not answer in time is closed and never reused.

    Attributes:
        limit: the server setting that limits a transaction.
        patience: seconds for which a connection, or a statement of a tick, is waited for.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[Any],
        another: Callable[[], Awaitable[asyncpg.Connection[Any]]],
        limit: str,
        first: _FirstContact,
        patience: float = PATIENCE,
    ) -> None:
        self._pool, self._another, self.limit = pool, another, limit
        self._first, self.patience = first, patience
        self._silent = False
        self._patience = None if limit == "transaction_timeout" else _PATIENCE_OLD

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        schema: str,
        most: int,
        on_statement: OnStatement | None = None,
        patience: float = PATIENCE,
    ) -> Self:
        """Connect.

        Args:
            url: the address of the database.
            schema: the schema of the ledger.
            most: the most connections of the pool.
            on_statement: is called after each statement of the pool.
            patience: see ``Connections``.

        Raises:
            LedgerUnavailable: the database cannot be reached.
            LedgerError: it is older than PostgreSQL 15, or the address is not valid.
        """
        try:
            return await cls._open(url, schema, most, on_statement, patience)
        except LedgerUnavailable as error:
            if not isinstance(error.__cause__, socket.gaierror):
                raise
            text = f"the host of {place_of(url)} has no address: {error.__cause__.strerror}"
            raise LedgerUnavailable(text, hint="check SCHED_DATABASE_URL, and DNS") from error

    @classmethod
    async def _open(
        cls, url: str, schema: str, most: int, on_statement: OnStatement | None, patience: float
    ) -> Self:
        checked_address(url)
        common = {
            **_SETTINGS,
            "search_path": search_path_of(schema),
            "application_name": "sched-engine",
        }
        newer, older = ({**common, **limit} for limit in _LIMITS)
        first = _FirstContact()
        with translated():
            settings = newer
            begin = partial(
                _pool, url, most=most, patience=patience, on_statement=on_statement, first=first
            )
            try:
                pool = await begin(newer)
            except asyncpg.UndefinedObjectError:  # it does not know this setting
                settings = older
                pool = await begin(older)
            try:
                await _refuse_what_cannot_do(pool)
            except BaseException:
                pool.terminate()
                raise
        another = partial(
            asyncpg.connect,
            url,
            timeout=patience,
            command_timeout=patience,
            server_settings=settings,
        )
        (limit,) = settings.keys() - common.keys()
        return cls(pool, another, limit, first, patience)

    def met(self, server: datetime | None) -> int | None:
        """Return the transactions of a server when the pool first connected to it, if it did.

        Args:
            server: the start time of its process.
        """
        return self._first.transactions if server and server == self._first.server else None

    async def fetch(self, text: str, *arguments: object) -> list[asyncpg.Record]:
        """Run one autocommit statement."""
        async with self._connection() as connection:
            return await connection.fetch(text, *arguments)

    @asynccontextmanager
    async def transaction(self, *, long: bool = False) -> AsyncIterator[Connection]:
        """Begin a transaction that commits when the block ends and rolls back when it raises."""
        async with self._connection() as connection:
            transaction = connection.transaction()
            async with asyncio.timeout(self.patience):
                await transaction.start()
                if long:
                    await connection.execute(_LIFTED, self.limit)
            try:
                async with asyncio.timeout(None if long else self._patience):
                    yield connection
            except TimeoutError:
                raise  # the connection is closed, and the server rolls back
            except BaseException:
                if not _is_closed(connection):
                    async with asyncio.timeout(self.patience):
                        await transaction.rollback()
                raise
            try:
                async with asyncio.timeout(self.patience):
                    await transaction.commit()
            except _UNCONFIRMED as error:
                raise CommitUnknown(f"no answer confirmed a commit: {_detail(error)}") from error

    async def has_pooler(self) -> bool:
        """Return whether a pooler stands before the server."""
        async with self._connection() as connection:
            return await _has_pooler(connection)

    async def listen(self, channel: str, payload: str, wake: Callable[[], None]) -> None:
        """Listen on a dedicated connection until it is lost."""
        async with self.apart() as connection:
            await _listen(connection, channel, payload, wake)

    @asynccontextmanager
    async def apart(self) -> AsyncIterator[asyncpg.Connection[Any]]:
        """Open a connection outside the pool, for long operations."""
        with translated():
            connection = await self._another()
            try:
                yield connection
            finally:
                with suppress(*_AWAY):
                    await connection.close(timeout=_PATIENCE_CLOSING)

    async def close(self) -> None:
        """Close every connection; an unreachable database is not an error."""
        try:
            async with asyncio.timeout(0 if self._silent else _PATIENCE_CLOSING):
                await self._pool.close()
        except _AWAY:
            self._pool.terminate()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        with translated():
            # With a timeout of its own the pool would begin a task for each statement.
            async with asyncio.timeout(self.patience):
                connection = await self._pool.acquire()
            try:
                yield connection
                self._silent = False
            except asyncpg.InternalClientError:
                connection.terminate()  # the state of the protocol is unknown
                raise
            except (TimeoutError, CommitUnknown):
                # Asking a silent server to cancel, or to let go, would take as long again.
                self._silent = True
                with suppress(asyncpg.InterfaceError):  # already dropped by the pool
                    connection.terminate()
                # The others are as old, and the timeouts of each in turn would add up.
                await self._pool.expire_connections()
                raise
            except asyncpg.ReadOnlySQLTransactionError:
                # This was the primary before a failover. With several hosts in the address, the
                # next connection finds the one that accepts writes.
                await self._pool.expire_connections()
                raise
            finally:
                await self._pool.release(connection)


async def _pool(
    url: str,
    settings: dict[str, str],
    *,
    most: int,
    patience: float,
    on_statement: OnStatement | None,
    first: _FirstContact,
) -> asyncpg.Pool[Any]:
    try:
        return await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=most,
            timeout=patience,
            command_timeout=patience,
            max_cached_statement_lifetime=_PLANNED_FOR,
            # Everything is SET LOCAL: with nothing to reset, an idle tick is a single statement.
            reset=_nothing_to_reset,
            init=partial(_prepared, settings=settings, on_statement=on_statement, first=first),
            server_settings=settings,
        )
    except asyncpg.ProtocolViolationError as error:
        named = {**_SETTINGS, **_LIMITS[0], **_LIMITS[1], **settings}
        raise LedgerError(
            f"what answers for the ledger's database is a pooler, and refuses: {error}",
            hint="connect directly; or, in session mode, let it ignore_startup_parameters ="
            f" {', '.join(named)}",
        ) from error


async def _refuse_what_cannot_do(pool: asyncpg.Pool[Any]) -> None:
    async with pool.acquire(timeout=PATIENCE) as connection:
        # Ask the server: the version reported at the start may be a pooler's.
        found = await connection.fetchval("SHOW server_version_num")
    if int(found) < _OLDEST * 10_000:
        raise LedgerError(
            f"the ledger's database is PostgreSQL {int(found) // 10_000}",
            hint=f"use PostgreSQL {_OLDEST} or newer",
        )
    await _refuse_shared_sessions(pool)


async def _prepared(
    connection: asyncpg.Connection[Any],
    *,
    settings: Mapping[str, str],
    on_statement: OnStatement | None,
    first: _FirstContact,
) -> None:
    """Set the plan mode, and note the server.

    Behind a pooler, repeat the settings that it may not have passed on.
    """
    if on_statement is not None:
        connection.add_query_logger(partial(_timed, on_statement))
    await connection.execute(_PLANNED_ONCE)
    (found,) = await connection.fetch(_MET)
    first.note(found["server"], found["transactions"])
    if found["pid"] != connection.get_server_pid():
        for name, value in settings.items():
            await connection.execute("SELECT set_config($1, $2, false)", name, value)


def _timed(on_statement: OnStatement, ran: LoggedQuery) -> None:
    """Report a statement by the name of its query; a transaction's own by their first word."""
    name = _names.get(ran.query)
    if name is None:
        first = ran.query.partition(" ")[0].rstrip(";").lower()
        name = first if first in {"begin", "commit", "rollback", "savepoint"} else "other"
    on_statement(name, ran.elapsed, ran.exception is not None)


async def _has_pooler(connection: Connection | asyncpg.Connection[Any]) -> bool:
    """Return whether another process answers than the one that was connected to."""
    pid = await connection.fetchval("SELECT pg_backend_pid()")
    return bool(pid != connection.get_server_pid())


async def _refuse_shared_sessions(pool: asyncpg.Pool[Any]) -> None:
    """Refuse a pooler that gives each transaction another session of the server.

    Session settings, prepared statements and LISTEN would then belong to another session.
    """
    async with pool.acquire(timeout=PATIENCE) as connection:
        if await _has_pooler(connection) and await _shares_sessions(connection, pool):
            raise LedgerError(
                "a pooler in transaction mode stands before the ledger's database: each transaction"
                " has another session",
                hint="connect directly, or through a pooler in session mode",
            )


async def _shares_sessions(connection: Connection, pool: asyncpg.Pool[Any]) -> bool:
    mark, asked = uuid4().hex, "SELECT current_setting('sched.session', true)"
    try:
        await connection.execute("SELECT set_config('sched.session', $1, false)", mark)
        async with pool.acquire(timeout=PATIENCE) as other, other.transaction():
            # Whichever session the other connection got, one of the two is in the wrong one.
            mixed = await other.fetchval(asked) == mark or await connection.fetchval(asked) != mark
            return bool(mixed)
    except (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError):
        return True  # prepared in another session
    except asyncpg.PostgresConnectionError as error:
        if "pooling mode" in str(error):  # it allows no transactions at all
            return True
        raise


async def _listen(
    connection: asyncpg.Connection[Any], channel: str, payload: str, wake: Callable[[], None]
) -> None:
    lost = asyncio.Event()
    connection.add_termination_listener(lambda _: lost.set())

    def received(_: object, __: int, ___: str, sent: object) -> None:
        if sent == payload:
            wake()

    await connection.add_listener(channel, received)
    wake()  # for notifications sent before this connection listened
    while not lost.is_set():
        try:
            async with asyncio.timeout(_LISTENS_FOR):
                await lost.wait()
        except TimeoutError:
            # A silently broken connection is noticed only when it is used.
            await connection.execute("SELECT 1")


def _is_closed(connection: Connection) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:  # broken, and dropped by the pool
        return True


async def _nothing_to_reset(connection: object) -> None:
    """Leave the connection as it is."""


@contextmanager
def translated() -> Iterator[None]:
    """Translate the errors of an unreachable database into one; keep those of a wrong statement.

    Raises:
        ScheduleError: a text of the caller cannot be stored.
    """
    try:
        yield
    except CommitUnknown:
        raise
    except asyncpg.exceptions.ClientConfigurationError as error:
        raise LedgerError(f"the address of the ledger's database is wrong: {error}") from error
    except _AWAY as error:
        raise _away(error) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise LedgerError(
            f"the database refuses: {error}", hint="grant the role what `sched docs ledger` names"
        ) from error
    except asyncpg.DataError as error:
        if not _is_of_a_text(error):
            raise
        text = "a text holds a NUL or half a character, which no database keeps"
        raise ScheduleError(text, hint="remove it") from None


def _is_of_a_text(error: asyncpg.DataError) -> bool:
    is_nul = isinstance(error, asyncpg.CharacterNotInRepertoireError)
    return is_nul or "surrogates not allowed" in str(error)


def _away(error: BaseException) -> LedgerUnavailable:
    """Return the error for a database that is unreachable, or that ended what took too long."""
    # If a connection was terminated, the driver names the reason as the cause.
    for each in (error, error.__cause__):
        for kind, what in _TOO_LONG.items():
            if isinstance(each, kind):
                return LedgerTimeout(f"{what}, and the ledger's database ended it: {each}")
    detail = _detail(error)
    away = LedgerUnavailable(f"the ledger's database cannot be reached: {detail}")
    away.detail = detail
    return away


def _detail(error: BaseException) -> str:
    """Return the cause of an outage, without the driver's words for its own states."""
    detail = str(error) or type(error).__name__
    if isinstance(error, asyncpg.InternalClientError):
        return "a connection broke off in the middle of an answer"
    if isinstance(error, TimeoutError) and not str(error):
        return "it gave no answer in time"
    if isinstance(error, asyncpg.InterfaceError) and detail.startswith("cannot call"):
        return "a connection was closed between two statements"
    return detail


# --- queries ---
# Their texts have named parameters, as ``:fire_time``, which are the fields of a record: no list of
# them is kept elsewhere.

_PARAMETER = re.compile(r"(?<![:']):([a-z_][a-z_.]*)")
"""A named parameter; a cast has two colons, and a text begins with a quote."""
_NUMBERED = re.compile(r"\$([0-9]+)")
_names: dict[str, str] = {}
"""Names of the queries that were read, by their texts."""


@cache
def _read(name: str) -> str:
    return (files("engine.ledger.postgres") / "queries" / f"{name}.sql").read_text(encoding="utf-8")


@cache
def _named(name: str) -> tuple[str, Mapping[str, Callable[[object], object]]]:
    """Return a query with numbers for its named parameters, and these in the order of the numbers.

    They follow the parameters that have numbers in the file; ``$1`` is the namespace. Each has the
    function that gets it from a record.
    """
    text = _read(name)
    taken = max(map(int, _NUMBERED.findall(text)), default=0)
    order = [*dict.fromkeys(_PARAMETER.findall(text))]
    text = _PARAMETER.sub(lambda found: f"${taken + 1 + order.index(found[1])}", text)
    _names[text] = name
    return text, {each: attrgetter(each) for each in order}


def query(name: str) -> str:
    """Return the text of ``queries/<name>.sql``, with a number for each parameter."""
    return _named(name)[0]


def values(name: str, record: object, **others: object) -> list[object]:
    """Return the arguments for the named parameters of a query, in the order of their numbers.

    Each is one of ``others``, or else the field of the record that has its name: ``:schedule.key``
    is the key of its schedule.
    """
    _, getters = _named(name)
    return [others[each] if each in others else get(record) for each, get in getters.items()]


def columns(
    name: str, records: Sequence[object], **made: Callable[[Any], object]
) -> list[list[object]]:
    """Return the arguments for the named parameters of a query, each an array of these records.

    Its elements are the fields of the parameter's name, or what a function ``made`` of the records.
    """
    getters = [made.get(each, get) for each, get in _named(name)[1].items()]
    return [[get(record) for record in records] for get in getters]


@cache
def filtered_query(name: str, given: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """Return a query with the lines of these filters, and the order of its arguments.

    A line with a named parameter, be it in a comment at its end, is one of a filter. The first
    argument, ``$1``, is the namespace.
    """
    kept, order = [], sorted(given)
    for line in _read(name).splitlines():
        if line.startswith("--"):
            continue
        if set(_PARAMETER.findall(line)) <= given:
            kept.append(_PARAMETER.sub(lambda found: f"${order.index(found[1]) + 2}", line))
    text = "\n".join(kept)
    _names[text] = name
    return text, tuple(order)
