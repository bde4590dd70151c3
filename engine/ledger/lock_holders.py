"""Sessions that hold up a change of the schema, by name: they are the operator's to end.

It stands alone because migrations and indexes both wait for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import asyncpg

from engine.errors import LedgerError
from engine.ledger.connections import Connection, Connections

logger = logging.getLogger("sched")
_EVERY = 0.5
"""Seconds between two looks: a lock is waited for at most a second."""
_HOLDERS = """
SELECT DISTINCT b.pid, a.application_name AS name, a.usename AS role, a.state,
       round(extract(epoch FROM clock_timestamp() - a.xact_start))::bigint AS age
FROM unnest(pg_blocking_pids($1)) AS b (pid) LEFT JOIN pg_stat_activity a ON a.pid = b.pid
ORDER BY b.pid
"""


@dataclass
class Holders:
    """Who held it up when it was looked at last.

    Attributes:
        last: the sessions, in words.
        since: the loop's time since when somebody does without a break; None while nobody does.
    """

    last: str = "another session"
    since: float | None = None
    told: set[int] = field(default_factory=set)

    @property
    def lasted(self) -> float:
        """For how many seconds somebody does by now."""
        return asyncio.get_running_loop().time() - self.since if self.since is not None else 0.0


@asynccontextmanager
async def naming_who_holds_it_up(
    connections: Connections, connection: Connection | asyncpg.Connection[asyncpg.Record], what: str
) -> AsyncIterator[Holders]:
    """Log each session once for which ``connection`` waits while the block lasts."""
    holders = Holders()
    task = asyncio.create_task(_watch(connections, connection.get_server_pid(), what, holders))
    try:
        yield holders
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _watch(connections: Connections, pid: int, what: str, holders: Holders) -> None:
    while True:
        await asyncio.sleep(_EVERY)
        with suppress(LedgerError):  # the wait itself says what is wrong
            rows = await connections.fetch(_HOLDERS, pid)
            if not rows:
                holders.since = None
                continue
            if holders.since is None:
                holders.since = asyncio.get_running_loop().time()
            holders.last = "; ".join(map(_said, rows))
            pids = {row["pid"] for row in rows}
            if not pids <= holders.told:
                holders.told |= pids
                logger.warning("%s waits for %s", what, holders.last)


def _said(row: asyncpg.Record) -> str:
    if row["pid"] == 0:
        return "a prepared transaction"
    words = [row["name"], row["role"] and f"role {row['role']}", row["state"]]
    if row["age"] is not None:
        words.append(f"in a transaction for {row['age']} s")
    return f"session {row['pid']} ({', '.join(filter(None, words))})"
