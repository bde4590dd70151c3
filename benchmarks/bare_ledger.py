"""The floor under a ledger: the same rows by bare asyncpg, as fast as PostgreSQL takes them.

    python -m benchmarks.bare_ledger SHARE SHARES

A ledger that accounts for a window after a crash has its row before the start, moves the schedule's
cursor in the same transaction, and gets the outcome afterwards. This does only that, for its
share of the schedules and for a hundred at a time: two commits. It asks for nothing, locks nothing
and decides nothing. SCHED_DATABASE_URL names the ledger; SIGTERM ends it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from datetime import UTC, datetime, timedelta
from itertools import count

import asyncpg

from benchmarks.arena import connected
from benchmarks.workflows import TYPE

AT_ONCE = 100
_SHARE = "SELECT key FROM schedules WHERE abs(hashtext(key)) % $2 = $1 ORDER BY key"
_BEGIN = datetime(2100, 1, 1, tzinfo=UTC)
"""Its windows: after all others, because no cursor goes back."""
_CLAIM = """
INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time,
                   definition_version, workflow_id, workflow_type, task_queue, status, timing,
                   owner, replica, token, lease_until, starting_at, attempts)
SELECT s.namespace, s.project, s.key, s.series, $2::bigint, $3, $3, s.definition_version,
       'sched:' || s.key || ':' || $2::bigint, $4, s.task_queue, 'starting', 'on_time',
       'floor', 'floor', claimed.token, clock_timestamp() + interval '30 seconds',
       clock_timestamp(), 1
FROM schedules s JOIN unnest($1::text[], $5::uuid[]) AS claimed (key, token) USING (key)
RETURNING id
"""
_MOVE = """
UPDATE schedules SET cursor = $2, next_fire_at = $2::timestamptz + interval '1 second',
                     max_bucket = $3
WHERE key = ANY($1::text[])
"""
_SETTLE = """
UPDATE fires f SET status = 'started', run_id = o.run_id, started_at = clock_timestamp(),
                   owner = NULL, token = NULL, lease_until = NULL
FROM unnest($1::bigint[], $2::text[]) AS o (id, run_id) WHERE f.id = o.id
"""


async def _main(share: int, shares: int) -> None:
    async with connected(os.environ["SCHED_DATABASE_URL"]) as connection:
        keys = [row["key"] for row in await connection.fetch(_SHARE, share, shares)]
        for second in count():
            at = _BEGIN + timedelta(seconds=second)
            for first in range(0, len(keys), AT_ONCE):
                await _windows(connection, keys[first : first + AT_ONCE], at)


async def _windows(connection: asyncpg.Connection, keys: list[str], at: datetime) -> None:
    bucket, tokens = int(at.timestamp()), [uuid.uuid4() for _ in keys]
    async with connection.transaction():
        rows = await connection.fetch(_CLAIM, keys, bucket, at, TYPE, tokens)
        await connection.execute(_MOVE, keys, at, bucket)
    ids = [row["id"] for row in rows]
    await connection.execute(_SETTLE, ids, [str(uuid.uuid4()) for _ in ids])


if __name__ == "__main__":
    asyncio.run(_main(*map(int, sys.argv[1:])))
