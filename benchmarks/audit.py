"""How long an audit of 100,000 windows takes, of one schedule of a second and of a hundred others.

The rows are written by SQL, as the engine would have left them; the audit reads and judges them
through the service, as `sched audit` does. Run it with ``python -m benchmarks.audit``; it is to
take at most a minute, and says so with its exit code.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import asyncpg

from engine.embedded import PostgresServer
from engine.ledger import Ledger
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from engine.service import AuditReport, ScheduleService
from tests.postgres import Postgres

BUSY, OTHERS = 50_000, 100
"""Windows of the schedule of a second; schedules of a minute that share as many."""
LIMIT = 60.0
"""Seconds that the audit may take."""

FILE = "schedules:\n  - {key: busy, workflow: noop, everyMs: 1000, firstFire: next}\n" + "\n".join(
    f"  - {{key: other-{n}, workflow: noop, everyMs: 60000, firstFire: next}}"
    for n in range(OTHERS)
)
EARLIER = """
UPDATE definitions SET effective_from = effective_from - CASE key
    WHEN 'busy' THEN $1::int * interval '1 s' ELSE $1::int / $2::int * interval '1 min' END
"""
FILL = """
INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time,
                   definition_version, workflow_id, workflow_type, task_queue, status, timing,
                   run_id, started_at, closed_at, replica, decided_at)
SELECT 'default', 'default', d.key, 1, at / d.every, to_timestamp(at), to_timestamp(at), 1,
       'sched:' || d.key || ':' || at / d.every, 'noop@1', 'sched', 'completed', 'on_time',
       'run', to_timestamp(at + 0.01), to_timestamp(at + 0.5), 'one', to_timestamp(at + 0.005)
FROM (SELECT s.key, (d.definition ->> 'everyMs')::bigint / 1000 AS every,
             ceil(extract(epoch FROM d.effective_from))::bigint AS first,
             floor(extract(epoch FROM s.cursor))::bigint AS last
      FROM schedules s JOIN definitions d USING (namespace, key)) AS d
CROSS JOIN LATERAL generate_series((d.first + d.every - 1) / d.every * d.every, d.last, d.every) at
"""


async def audited(url: str) -> tuple[AuditReport, float]:
    """Fill a new ledger and audit it; return the report, and the seconds that it took."""
    ledger = await Ledger.connect(url)
    connection = await asyncpg.connect(url, server_settings={"search_path": "sched"})
    await apply(ledger, load_schedules(FILE), by="benchmark")
    await connection.execute(EARLIER.replace("$1", str(BUSY)).replace("$2", str(OTHERS)))
    await connection.execute("SET session_replication_role = replica")  # no triggers
    await connection.execute(FILL)
    await connection.execute("ANALYZE")
    await connection.close()
    begun = time.monotonic()
    report = await ScheduleService(ledger, actor="benchmark").audit(timedelta(days=2))
    took = time.monotonic() - begun
    await ledger.close()
    return report, took


async def run() -> int:
    """Measure, print, and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="sched-audit-") as folder:
        server = PostgresServer(Path(folder) / "pg", durable=False)
        await server.start()
        try:
            report, took = await audited(
                await Postgres(server.url_of("postgres")).create_database("audit")
            )
        finally:
            await server.stop()
    windows = sum(each.expected for each in report.schedules)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{windows:,} windows of {len(report.schedules)} schedules in {took:.1f} s, {peak:.0f} MB"
    )
    print(f"verdicts: {report.verdict}")
    return 0 if took <= LIMIT and windows >= 2 * BUSY else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(run()))
