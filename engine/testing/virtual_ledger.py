"""Virtual time: a PostgreSQL ledger whose clock only a test moves."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from engine.ledger import Ledger
from engine.ledger.postgres.connections import Connection, Connections, search_path_of
from engine.ledger.postgres.schema import migrate, migrations
from engine.runtime.clock import STOPWATCH
from engine.testing.server import FrozenClock

SCHEMA: Final = "sched"
_CONNECTIONS: Final = 3
# Every default, view, trigger and query of the ledger says `clock_timestamp()` or
# `statement_timestamp()`, and finds these two first on its search path. They are created before the
# tables, whose defaults name a function and not its name.
_CLOCK: Final = """
CREATE TABLE virtual_clock (now timestamptz NOT NULL);
CREATE FUNCTION clock_timestamp() RETURNS timestamptz VOLATILE
    RETURN (SELECT now FROM virtual_clock);
CREATE FUNCTION statement_timestamp() RETURNS timestamptz STABLE
    RETURN (SELECT now FROM virtual_clock);
INSERT INTO virtual_clock VALUES ('2000-01-01');
"""


class _VirtualConnections(Connections):
    """Connections that set the ledger's clock before they are used."""

    clock: FrozenClock
    _set_to: object = None

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        async with super()._connection() as connection:
            if (now := self.clock.now()) != self._set_to:
                await connection.execute("UPDATE sched.virtual_clock SET now = $1", now)
                self._set_to = now
            yield connection


class VirtualLedger(Ledger):
    """A ledger in whose statements and triggers it is the time of a ``FrozenClock``.

    Driver timeouts, lock timeouts and notifications keep real time. The clock is set when a
    connection is taken from the pool: a transaction that is open meanwhile may see either time.
    """

    @classmethod
    async def open(
        cls, url: str, clock: FrozenClock, *, namespace: str = "default"
    ) -> VirtualLedger:
        """Connect to a database that ``virtual_database`` made."""
        opened = await _VirtualConnections.open(url, schema=SCHEMA, most=_CONNECTIONS)
        opened.clock = clock
        return cls(opened, namespace, schema=SCHEMA)


@asynccontextmanager
async def virtual_ledger(server: str, clock: FrozenClock) -> AsyncIterator[VirtualLedger]:
    """Yield an empty ledger in a database of its own; ``boottime`` follows its clock.

    Args:
        server: the address of a PostgreSQL database, whose role may create others.
        clock: the time of the ledger.
    """
    elapsed = STOPWATCH.set(lambda: clock.now().timestamp())
    try:
        async with virtual_database(server) as url:
            ledger = await VirtualLedger.open(url, clock)
            try:
                yield ledger
            finally:
                await ledger.close()
    finally:
        STOPWATCH.reset(elapsed)


@asynccontextmanager
async def virtual_database(server: str) -> AsyncIterator[str]:
    """Yield the address of a fresh database with an empty ledger in virtual time."""
    name = f"sched_test_{uuid.uuid4().hex}"
    template = await virtual_template(server)
    await _execute(server, f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
    try:
        yield _beside(server, name)
    finally:
        await _execute(server, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


async def virtual_template(server: str) -> str:
    """Return the database that is copied; the first call on a server makes it."""
    text = "\n".join(step for each in migrations() for step in each.steps)
    name = f"sched_virtual_{hashlib.sha256((_CLOCK + text).encode()).hexdigest()[:16]}"
    connection = await asyncpg.connect(server)
    try:
        # One process makes it, and the others wait.
        await connection.execute("SELECT pg_advisory_lock(hashtext($1))", name)
        if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name):
            await _make(connection, server, name)
    finally:
        await connection.close()
    return name


async def _make(connection: asyncpg.Connection[Any], server: str, name: str) -> None:
    """Make a database with the clock and the schema, complete or not at all."""
    unfinished = f"{name}_unfinished"
    await connection.execute(f'DROP DATABASE IF EXISTS "{unfinished}" WITH (FORCE)')
    await connection.execute(f'CREATE DATABASE "{unfinished}" TEMPLATE template0')
    url = _beside(server, unfinished)
    await _execute(
        url, f"CREATE SCHEMA {SCHEMA}; SET search_path = {search_path_of(SCHEMA)}; {_CLOCK}"
    )
    opened = await Connections.open(url, schema=SCHEMA, most=1)
    try:
        await migrate(opened, SCHEMA)
    finally:
        await opened.close()
    await connection.execute(f'ALTER DATABASE "{unfinished}" RENAME TO "{name}"')


async def _execute(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


def _beside(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))
