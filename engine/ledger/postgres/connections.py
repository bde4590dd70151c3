"""PostgreSQL connections with bounded waits.

Connections to PostgreSQL that never wait for ever, and one error for "it is away".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

import asyncpg

from engine.errors import CommitUnknown, LedgerError, LedgerTimeout, LedgerUnavailable
from engine.ledger.postgres.address import checked_address

Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[Any]"

PATIENCE = 5.0
"""Seconds for a connection, and for any one statement of a tick."""
PATIENCE_LONG = 60.0
"""The same for a statement of an apply or a migration."""
_PATIENCE_CLOSING = 3.0
_LISTENS_FOR = 60.0
"""Seconds without a sign after which a connection that listens is tried."""

_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the driver's answer to bytes that it did not expect
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
    asyncpg.OperatorInterventionError,  # told to end, perhaps while it waited for a standby
)
"""What leaves open whether a commit happened. Any other error says that it did not."""
_TOO_LONG = {
    asyncpg.TransactionTimeoutError: "a transaction took longer than it may",
    asyncpg.IdleInTransactionSessionTimeoutError: "this process let a transaction wait",
    asyncpg.LockNotAvailableError: "somebody else held a lock for too long",
    asyncpg.QueryCanceledError: "a statement was cancelled",
}
"""What the server ends by itself, while it can be reached."""
_OLDEST = 15
"""The oldest PostgreSQL that the ledger works with."""
_SETTINGS = {
    # A process that is stopped inside a transaction hides its locked rows from every SKIP
    # LOCKED query until one of these ends it. A tick's own work takes milliseconds.
    "idle_in_transaction_session_timeout": "2s",
    "lock_timeout": "3s",
    # One that is stopped while an answer is on its way to it is ended by none of the others: the
    # server waits to send. Of a socket in the file system it cannot tell.
    "tcp_user_timeout": "4s",
    "TimeZone": "UTC",
    "jit": "off",
}
_LIMITS = ({"transaction_timeout": "4s"}, {"statement_timeout": "3s"})
"""What ends a transaction that takes too long: the first since PostgreSQL 17; before that the
second one ends a statement, and this process the transaction, after ``_PATIENCE_OLD``."""
_PATIENCE_OLD = 4.0
"""Seconds for the whole of a tick's transaction, where the server has no limit for that."""
_PLANNED_FOR = 30
"""Seconds for which a plan is kept. One of a young ledger, where every table is short, would
otherwise read all of them until the server has counted their rows, long after there are many."""
_PLANNED_ONCE = "SELECT set_config('plan_cache_mode', 'force_generic_plan', false)"
"""To plan the statement of an idle tick takes six times as long as to run it.

Each is planned once in ``_PLANNED_FOR``, and tested beside a million rows, planned so. It is no
setting of a connection's start, because poolers were told which of these to let pass."""
_LIFTED = (
    "SELECT set_config($1, '0', true), set_config('lock_timeout', '30s', true),"
    " set_config('idle_in_transaction_session_timeout', '20s', true)"
)


class Connections:
    """A pool. A connection that does not answer in time is cut, never waited for again.

    Attributes:
        limit: the setting with which the server limits what a transaction may take.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[Any],
        another: Callable[[], Awaitable[asyncpg.Connection[Any]]],
        limit: str,
    ) -> None:
        self._pool, self._another, self.limit = pool, another, limit
        self._patience = None if limit == "transaction_timeout" else _PATIENCE_OLD

    @classmethod
    async def open(cls, url: str, *, schema: str, most: int) -> Connections:
        """Connect.

        Raises:
            LedgerUnavailable: when the database cannot be reached.
            LedgerError: when it is older than PostgreSQL 15, or the address is none.
        """
        checked_address(url)
        common = {**_SETTINGS, "search_path": schema, "application_name": "sched-engine"}
        newer, older = ({**common, **limit} for limit in _LIMITS)
        with translated():
            settings = newer
            try:
                pool = await _pool(url, newer, most)
            except asyncpg.UndefinedObjectError:  # it does not know this setting
                settings = older
                pool = await _pool(url, older, most)
            try:
                await _refuse_what_cannot_do(pool)
            except BaseException:
                pool.terminate()
                raise
        another = partial(
            asyncpg.connect, url, timeout=PATIENCE, command_timeout=PATIENCE,
            server_settings=settings,
        )  # fmt: skip
        (limit,) = settings.keys() - common.keys()
        return cls(pool, another, limit)

    async def fetch(self, text: str, *arguments: object) -> list[asyncpg.Record]:
        """Run one autocommit statement."""
        async with self._connection() as connection:
            return await connection.fetch(text, *arguments)

    @asynccontextmanager
    async def transaction(self, *, long: bool = False) -> AsyncIterator[Connection]:
        """Begin a transaction that commits when the block ends and rolls back when it raises."""
        async with self._connection() as connection:
            transaction = connection.transaction()
            async with asyncio.timeout(PATIENCE):
                await transaction.start()
                if long:
                    await connection.execute(_LIFTED, self.limit)
            try:
                async with asyncio.timeout(None if long else self._patience):
                    yield connection
            except TimeoutError:
                raise  # the connection is cut, and the server rolls back
            except BaseException:
                if not _is_closed(connection):
                    async with asyncio.timeout(PATIENCE):
                        await transaction.rollback()
                raise
            try:
                async with asyncio.timeout(PATIENCE):
                    await transaction.commit()
            except _UNCONFIRMED as error:
                detail = str(error) or type(error).__name__
                raise CommitUnknown(f"nobody confirmed a commit: {detail}") from error

    async def listen(self, channel: str, payload: str, wake: Callable[[], None]) -> None:
        """Listen on a connection of its own until it is lost."""
        async with self.apart() as connection:
            await _listen(connection, channel, payload, wake)

    @asynccontextmanager
    async def apart(self) -> AsyncIterator[asyncpg.Connection[Any]]:
        """Open a connection that is none of the pool's, for what lasts long."""
        with translated():
            connection = await self._another()
            try:
                yield connection
            finally:
                with suppress(*_AWAY):
                    await connection.close(timeout=_PATIENCE_CLOSING)

    async def close(self) -> None:
        """Close every connection; a database that is away is no error here."""
        try:
            async with asyncio.timeout(_PATIENCE_CLOSING):
                await self._pool.close()
        except _AWAY:
            self._pool.terminate()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        with translated():
            connection = await self._pool.acquire(timeout=PATIENCE)
            try:
                yield connection
            except asyncpg.InternalClientError:
                connection.terminate()  # nobody knows what it will say next
                raise
            except (TimeoutError, CommitUnknown):
                # ApplicationSchedules a silent server to cancel would wait as long again.
                with suppress(asyncpg.InterfaceError):  # broken, the pool has let go of it
                    connection.terminate()
                # The others are as old, and waiting for each in turn would add up.
                await self._pool.expire_connections()
                raise
            except asyncpg.ReadOnlySQLTransactionError:
                # The primary of before a failover: with several hosts in the address the next
                # connection finds the one that takes writes.
                await self._pool.expire_connections()
                raise
            finally:
                await self._pool.release(connection)


async def _pool(url: str, settings: dict[str, str], most: int) -> asyncpg.Pool[Any]:
    try:
        return await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=most,
            timeout=PATIENCE,
            command_timeout=PATIENCE,
            max_cached_statement_lifetime=_PLANNED_FOR,
            # Everything is SET LOCAL, so there is nothing to reset, and an idle tick is one
            # statement and not two.
            reset=_nothing_to_reset,
            init=partial(_prepared, settings=settings),
            server_settings=settings,
        )
    except asyncpg.ProtocolViolationError as error:
        named = {**_SETTINGS, **_LIMITS[0], **_LIMITS[1], **settings}
        raise LedgerError(
            f"what answers for the ledger's database is a pooler, and refuses: {error}",
            cure="connect directly; or, in session mode, let it ignore_startup_parameters ="
            f" {', '.join(named)}",
        ) from error


async def _refuse_what_cannot_do(pool: asyncpg.Pool[Any]) -> None:
    async with pool.acquire(timeout=PATIENCE) as connection:
        # Asked of the server: what a connection was told at its start may be a pooler's word.
        found = await connection.fetchval("SHOW server_version_num")
    if int(found) < _OLDEST * 10_000:
        raise LedgerError(
            f"the ledger's database is PostgreSQL {int(found) // 10_000}",
            cure=f"use PostgreSQL {_OLDEST} or newer",
        )
    await _refuse_shared_sessions(pool)


async def _prepared(connection: asyncpg.Connection[Any], *, settings: Mapping[str, str]) -> None:
    """Set what a start does not, and again what a pooler has not passed on."""
    await connection.execute(_PLANNED_ONCE)
    if await _has_pooler(connection):
        for name, value in settings.items():
            await connection.execute("SELECT set_config($1, $2, false)", name, value)


async def _has_pooler(connection: Connection | asyncpg.Connection[Any]) -> bool:
    """Whether another process answers than the one that was connected to."""
    pid = await connection.fetchval("SELECT pg_backend_pid()")
    return bool(pid != connection.get_server_pid())


async def _refuse_shared_sessions(pool: asyncpg.Pool[Any]) -> None:
    """Refuse a pooler that gives each transaction another session of the server.

    What is set for a session, prepared in it or listened to on it would be another's.
    """
    async with pool.acquire(timeout=PATIENCE) as connection:
        if await _has_pooler(connection) and await _shares_sessions(connection, pool):
            raise LedgerError(
                "a pooler in transaction mode stands before the ledger's database: each transaction"
                " has another session",
                cure="connect directly, or through a pooler in session mode",
            )


async def _shares_sessions(connection: Connection, pool: asyncpg.Pool[Any]) -> bool:
    mark, asked = uuid4().hex, "SELECT current_setting('sched.session', true)"
    try:
        await connection.execute("SELECT set_config('sched.session', $1, false)", mark)
        async with pool.acquire(timeout=PATIENCE) as other, other.transaction():
            # Whichever session the other was given, one of the two is in the wrong one.
            mixed = await other.fetchval(asked) == mark or await connection.fetchval(asked) != mark
            return bool(mixed)
    except (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError):
        return True  # what was prepared was so in another one
    except asyncpg.PostgresConnectionError as error:
        if "pooling mode" in str(error):  # it allows no transactions at all
            return True
        raise


async def _listen(
    connection: asyncpg.Connection[Any], channel: str, payload: str, wake: Callable[[], None]
) -> None:
    lost = asyncio.Event()
    connection.add_termination_listener(lambda _: lost.set())

    def heard(_: object, __: int, ___: str, said: object) -> None:
        if said == payload:
            wake()

    await connection.add_listener(channel, heard)
    wake()  # for what was said while nobody listened
    while not lost.is_set():
        try:
            async with asyncio.timeout(_LISTENS_FOR):
                await lost.wait()
        except TimeoutError:
            # A connection that broke silently is noticed only by who uses it.
            await connection.execute("SELECT 1")


def _is_closed(connection: Connection) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:  # it broke, and the pool has let go of it
        return True


async def _nothing_to_reset(connection: object) -> None:
    """Leave the connection as it is."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn "the database is away" into one error; a wrong statement stays what it is."""
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
            f"the database refuses: {error}", cure="grant the role what docs/ledger.md names"
        ) from error


def _away(error: BaseException) -> LedgerUnavailable:
    """Return the error for a database that is away, or that has ended what took too long."""
    # Of a connection that was ended the driver names the reason as the cause.
    for each in (error, error.__cause__):
        for kind, what in _TOO_LONG.items():
            if isinstance(each, kind):
                return LedgerTimeout(f"{what}, and the ledger's database ended it: {each}")
    detail = str(error) or type(error).__name__
    if isinstance(error, asyncpg.InterfaceError) and detail.startswith("cannot call"):
        detail = "a connection was closed between two statements"
    return LedgerUnavailable(f"the ledger's database cannot be reached: {detail}")
