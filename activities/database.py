"""The example's own tables, in schema ``example`` of the database that ``sched up`` runs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg

from engine import resource

_TABLES = """
CREATE TABLE IF NOT EXISTS example.orders (
    id         integer PRIMARY KEY,
    customer   text NOT NULL,
    amount     numeric(10, 2) NOT NULL,
    ordered_at timestamptz NOT NULL
);

CREATE TABLE IF NOT EXISTS example.order_summary (
    customer     text PRIMARY KEY,
    orders       integer NOT NULL,
    total        numeric(12, 2) NOT NULL,
    fire_time    timestamptz NOT NULL,
    refreshed_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS example.heartbeat (
    name      text PRIMARY KEY,
    beats     bigint NOT NULL,
    fire_time timestamptz NOT NULL,
    beaten_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS example.invoices (
    id        text PRIMARY KEY,
    customer  text NOT NULL,
    cents     bigint NOT NULL,
    voided_at timestamptz
);

CREATE TABLE IF NOT EXISTS example.credit_reservations (
    invoice     text PRIMARY KEY REFERENCES example.invoices,
    cents       bigint NOT NULL,
    released_at timestamptz
);

CREATE TABLE IF NOT EXISTS example.charges (
    invoice     text PRIMARY KEY REFERENCES example.invoices,
    cents       bigint NOT NULL,
    refunded_at timestamptz
);

CREATE TABLE IF NOT EXISTS example.notices (
    invoice text NOT NULL REFERENCES example.invoices,
    kind    text NOT NULL,
    body    text NOT NULL,
    PRIMARY KEY (invoice, kind)
);

-- Only ever added to: what was done and taken back, in this order.
CREATE TABLE IF NOT EXISTS example.invoice_journal (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    invoice  text NOT NULL REFERENCES example.invoices,
    customer text NOT NULL,
    act      text NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (invoice, act)
);
"""


Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy"


@resource(retry_on=[asyncpg.CannotConnectNowError])
async def database() -> AsyncIterator[asyncpg.Pool]:
    """Open a pool of connections, once per worker, with the example's tables in place."""
    async with asyncpg.create_pool(_address(), min_size=1, max_size=5, timeout=10) as pool:
        async with transaction(pool) as connection:
            # `IF NOT EXISTS` does not protect two replicas that create at the same moment: one of
            # them fails on a duplicate key. So they take turns; the lock ends with the transaction.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext('sched example'))")
            # Where the schema exists, `IF NOT EXISTS` would still need CREATE on the database.
            if await connection.fetchval("SELECT to_regnamespace('example') IS NULL"):
                await connection.execute("CREATE SCHEMA example")
            await connection.execute(_TABLES)
        yield pool


@asynccontextmanager
async def transaction(pool: asyncpg.Pool) -> AsyncIterator[Connection]:
    """Yield a connection of the pool inside one transaction."""
    async with pool.acquire() as connection, connection.transaction():
        yield connection


def _address() -> str:
    address = os.environ.get("SCHED_DATABASE_URL", "")
    if not address:
        raise RuntimeError(
            "SCHED_DATABASE_URL is not set: start the worker with `sched up`, which sets it, or "
            "export the address of a PostgreSQL database"
        )
    return address
