"""Sessions whose locks block a migration, an apply or a command.

Each is named in the log and in the error, so that an operator can end it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import asyncpg

from engine.errors import LedgerError, LedgerTimeout
from engine.ledger.postgres.connections import Connection, Connections

logger = logging.getLogger("sched.waits")
"""Apart, because a command shows these lines and no others."""
_EVERY = 0.5
"""Seconds between two checks; a migration waits for a lock for at most a second."""
ORDINARY = 3.0
"""Seconds for which transactions of the engine may wait for each other without a log line."""
# A role sees state and times of another role's session only as a member of pg_read_all_stats.
_BLOCKERS = """
SELECT b.pid, a.application_name AS name, a.usename AS role, a.state,
       a.xact_start IS NOT NULL AS in_transaction,
       round(extract(epoch FROM
           pg_catalog.clock_timestamp() - coalesce(a.xact_start, a.state_change)))::bigint
           AS age
FROM (SELECT unnest(pg_blocking_pids($1))
      UNION
      SELECT l.pid FROM pg_locks l
      WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended($2, 0)) AS b (pid)
LEFT JOIN pg_stat_activity a ON a.pid = b.pid
ORDER BY b.pid
"""


@dataclass
class Blockers:
    """Sessions that hold a lock which something waits for.

    Attributes:
        connections: to ask for them.
        what: what waits, for messages.
        pid: of the session that waits in a statement.
        lock: name of the advisory lock that is tried again and again instead.
        after: seconds after which the sessions are logged.
        last: a description of the sessions found last.
        since: event loop time since when it is blocked without a break; None if it is not.
    """

    connections: Connections
    what: str
    pid: int | None = None
    lock: str | None = None
    after: float = 0.0
    last: str = "another session"
    since: float | None = None
    _reported: set[int] = field(default_factory=set)

    @property
    def lasted(self) -> float:
        """The seconds for which it has been blocked."""
        return asyncio.get_running_loop().time() - self.since if self.since is not None else 0.0

    async def check(self) -> None:
        """Find the sessions, and log each of them once."""
        rows = await self.connections.fetch(_BLOCKERS, self.pid, self.lock)
        if not rows:
            self.since = None
            return
        if self.since is None:
            self.since = asyncio.get_running_loop().time()
        self.last = "; ".join(map(_described, rows))
        pids = {row["pid"] for row in rows}
        if self.lasted >= self.after and not pids <= self._reported:
            self._reported |= pids
            logger.warning("%s waits for %s", self.what, self.last)


@asynccontextmanager
async def naming_blockers(
    connections: Connections,
    connection: Connection | asyncpg.Connection[asyncpg.Record],
    what: str,
    *,
    after: float = 0.0,
) -> AsyncIterator[Blockers]:
    """Log the sessions that ``connection`` waits for while the block lasts.

    Raises:
        LedgerTimeout: PostgreSQL ended a statement that waited for one of them.
    """
    blockers = Blockers(connections, what, pid=connection.get_server_pid(), after=after)
    done = asyncio.Event()
    task = asyncio.create_task(_watch(blockers, done))
    try:
        yield blockers
    except asyncpg.LockNotAvailableError as error:
        raise LedgerTimeout(
            f"{what} waited {blockers.lasted:.0f} s for a lock that {blockers.last} holds",
            hint="end that session, or try again later",
        ) from error
    finally:
        # A check in flight is not cancelled, because a silent server would not answer that either.
        done.set()
        await asyncio.wait({task}, timeout=_EVERY)


async def _watch(blockers: Blockers, done: asyncio.Event) -> None:
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), _EVERY)
            return
        with suppress(LedgerError):  # the waiting statement reports the error itself
            await blockers.check()


def _described(row: asyncpg.Record) -> str:
    if row["pid"] == 0:
        return "a prepared transaction"
    state = row["state"]
    if state is not None and row["age"] is not None:
        state += f"{', in a transaction' if row['in_transaction'] else ''} for {row['age']} s"
    words = [row["name"], row["role"] and f"role {row['role']}", state]
    return f"session {row['pid']} ({', '.join(filter(None, words))})"
