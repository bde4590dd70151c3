"""Index builds: the steps of migrations that no transaction may hold, done while others write.

Nothing depends on them for being right, so a worker does not wait for them: an index that is built
concurrently waits for every transaction that was open before it, a dump of hours for instance. It
stands alone because workers build in the background what ``migrate`` has left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import asyncpg

from engine.ledger.connections import Connections
from engine.ledger.lock_holders import naming_who_holds_it_up
from engine.ledger.migrate import (
    IndexStep,
    Migration,
    migrations,
    missing_indexes,
    note_step,
    read_applied,
)

_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('sched-engine indexes ' || $1, 0))"
"""Of the session, so that an index that is not valid is known to be built by nobody."""
_UNLIMITED = (
    "SELECT set_config($1, '0', false), set_config('lock_timeout', '0', false),"
    " set_config('statement_timeout', '0', false),"
    " set_config('application_name', 'sched-engine indexes', false)"
)
_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)"
_LONG = 7 * 86_400.0
"""Seconds of one build. It is in nobody's way while it waits."""
_LOOK = 0.5


async def build_indexes(
    connections: Connections,
    schema: str,
    *,
    known: Sequence[Migration] | None = None,
    patience: float | None = None,
) -> list[str]:
    """Build and drop what migrations ask for; return the names of the indexes that are left.

    One process at a time does; the others leave it to that one. A build that was broken off, by a
    crash or by ``patience``, is begun anew.

    Args:
        connections: to the database.
        schema: of the ledger.
        known: what this code carries; tests give another list.
        patience: seconds to wait for other sessions at a stretch; None is as long as it takes.

    Raises:
        LedgerError: when the role does not own the tables.
    """
    known = migrations() if known is None else known
    if not (missing := missing_indexes(known, await read_applied(connections, schema) or {})):
        return []
    async with connections.apart() as connection:
        if not await connection.fetchval(_LOCK, schema):
            return [step.index for step in missing]
        await connection.execute(_UNLIMITED, connections.limit)
        # Somebody may have finished between the look and the lock.
        missing = missing_indexes(known, await read_applied(connections, schema) or {})
        while missing and await _do(connections, connection, schema, missing[0], patience):
            await note_step(connection, missing[0].version, missing[0].number)
            del missing[0]
    return [step.index for step in missing]


async def _do(
    connections: Connections,
    connection: asyncpg.Connection[Any],
    schema: str,
    step: IndexStep,
    patience: float | None,
) -> bool:
    """Do one step, also where an earlier try was broken off; False when patience ended."""
    valid = await connection.fetchval(_VALID, f"{schema}.{step.index}")
    if valid and not step.drops:
        return True
    what = f"the index {step.index} of migration {step.version:04}"
    async with naming_who_holds_it_up(connections, connection, what) as holders:
        drop = f"DROP INDEX CONCURRENTLY IF EXISTS {schema}.{step.index}"
        for sql in [drop] if step.drops else [drop, step.sql]:
            work = asyncio.create_task(connection.execute(sql, timeout=_LONG))
            try:
                while not work.done():
                    await asyncio.wait({work}, timeout=_LOOK)
                    if patience is not None and holders.lasted > patience:
                        return False
            finally:
                if not work.done():
                    work.cancel()
                    with suppress(asyncio.CancelledError, asyncpg.QueryCanceledError):
                        await work
            await work
    return True
