"""A ledger full of idle schedules, and one that is due when a worker comes up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import asyncpg

from benchmarks.workflows import TYPE
from engine.ledger import PostgresLedger
from engine.ledger.replica_records import Serving
from engine.runtime.declare import apply
from engine.schedules import load_schedules

SERVING = Serving("benchmark", "default", "sched", frozenset({TYPE}))
_FILE = """
schedules:
  - {{key: due, workflow: bare, at: "{due:%Y-%m-%dT%H:%M:%SZ}"}}
  - {{key: idle, workflow: bare, cron: "0 0 1 1 *"}}
"""
_COPY = """
WITH copies AS (SELECT 'idle-' || n AS key FROM generate_series(1, $1::bigint) AS n),
headers AS (
    INSERT INTO schedules (namespace, key, project, definition_version, digest, series, suffixed,
                           effective_from, cursor, next_fire_at, workflow, workflow_type,
                           task_queue, external, grace, enabled)
    SELECT s.namespace, copies.key, s.project, s.definition_version, s.digest, s.series,
           s.suffixed, s.effective_from, s.cursor, s.next_fire_at, s.workflow, s.workflow_type,
           s.task_queue, s.external, s.grace, s.enabled
    FROM schedules s CROSS JOIN copies WHERE s.key = 'idle')
INSERT INTO definitions (namespace, key, version, series, project, definition, digest,
                         effective_from, applied_at, applied_by)
SELECT d.namespace, copies.key, d.version, d.series, d.project,
       jsonb_set(d.definition, '{key}', to_jsonb(copies.key)), d.digest, d.effective_from,
       d.applied_at, d.applied_by
FROM definitions d CROSS JOIN copies WHERE d.key = 'idle'
"""
_DUE_IN = timedelta(seconds=2)


async def fill(ledger: PostgresLedger, connection: asyncpg.Connection, count: int) -> None:
    """Declare ``count`` yearly schedules and one that is due two seconds from now."""
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
    due = datetime.now(UTC) + _DUE_IN
    await apply(ledger, load_schedules(_FILE.format(due=due)), by="benchmark")
    await connection.execute(_COPY, count - 1)
    await connection.execute("ANALYZE schedules, definitions")
