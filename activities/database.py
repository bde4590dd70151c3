"""The example's own tables, in schema ``example`` of the database that ``sched up`` runs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from temporalio.exceptions import ApplicationError

_TABLES = """
CREATE SCHEMA IF NOT EXISTS example;

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
"""


@asynccontextmanager
async def transaction() -> AsyncIterator[asyncpg.Connection]:
    """Yield a connection inside one transaction, with the example's tables in place."""
    connection = await asyncpg.connect(_address(), timeout=10)
    try:
        async with connection.transaction():
            # `IF NOT EXISTS` does not protect two replicas that create at the same moment: one
            # of them fails on a duplicate key. So they take turns; the lock ends with the
            # transaction.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext('sched example'))")
            await connection.execute(_TABLES)
            yield connection
    finally:
        await connection.close()


def _address() -> str:
    address = os.environ.get("SCHED_DATABASE_URL", "")
    if not address:
        # Trying again cannot help, so the run fails at once and says what to do.
        raise ApplicationError(
            "SCHED_DATABASE_URL is not set: start the worker with `sched up`, which sets it, or "
            "export the address of a PostgreSQL database",
            non_retryable=True,
        )
    return address
