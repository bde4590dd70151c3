"""A ledger full of idle schedules, and one that is due when a worker comes up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import asyncpg

from benchmarks.workflows import TYPE
from engine.ledger import Ledger
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules

SERVING = Serving("benchmark", "default", "sched", frozenset({TYPE}))
_FILE = """
schedules:
  - {{key: due, workflow: bare, at: "{due:%Y-%m-%dT%H:%M:%SZ}"}}
  - {{key: idle, workflow: bare, cron: "0 0 1 1 *"}}
"""
_COLUMNS = """
SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute
WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
"""
_COPY = """
INSERT INTO {table} ({columns})
SELECT {columns} FROM generate_series(1, $1::bigint) AS n,
    LATERAL (SELECT jsonb_build_object('key', 'idle-' || n) AS own) AS o,
    LATERAL (SELECT (jsonb_populate_record(t, {own})).* FROM {table} t WHERE t.key = 'idle') AS copy
"""
_OWN = {
    "schedules": "own",
    "definitions": "own || jsonb_build_object('definition', t.definition || own)",
}
"""What a copy has of its own, in each table."""
_DUE_IN = timedelta(seconds=2)


async def fill(ledger: Ledger, connection: asyncpg.Connection, count: int) -> None:
    """Declare ``count`` yearly schedules and one that is due two seconds from now."""
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
    due = datetime.now(UTC) + _DUE_IN
    await apply(ledger, load_schedules(_FILE.format(due=due)), by="benchmark")
    for table, own in _OWN.items():
        columns = await connection.fetchval(_COLUMNS, table)
        copy = _COPY.format(table=table, columns=columns, own=own)
        await connection.execute(copy, count - 1)
    await connection.execute("ANALYZE schedules, positions, definitions")
