"""What an idle tick costs as schedules grow: its time beside that of ``SELECT 1``."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg

from engine.embedded import PostgresServer
from engine.ledger import PostgresLedger
from engine.ledger.records import Serving

COUNTS = (10, 10_000, 100_000)
PROBES = 300
SERVING = Serving("bench", "default", "sched", frozenset({"noop@1"}))
FILL = """
INSERT INTO schedules (namespace, key, project, definition_version, digest, series, suffixed,
                       effective_from, cursor, next_fire_at, workflow, workflow_type, task_queue,
                       external, grace, enabled)
SELECT 'bench', 'k' || n, 'default', 1, '', 1, false, now(), now(),
       now() + (3600 + n) * interval '1 second', 'noop', 'noop@1', 'sched', false, '60s', true
FROM generate_series((SELECT count(*) + 1 FROM schedules), $1::bigint) AS n
"""


def run() -> list[dict[str, object]]:
    """Measure the probe, which is all that an idle tick does."""
    return asyncio.run(_run())


async def _run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 - PostgreSQL may run as another user
        server = PostgresServer(Path(folder) / "pg")
        await server.start()
        try:
            ledger = await PostgresLedger.connect(server.url, namespace="bench", connections=1)
            other = await asyncpg.connect(server.url, server_settings={"search_path": "sched"})
            for count in COUNTS:
                await other.execute(FILL, count)
                await other.execute("ANALYZE schedules")
                floor = await _median(lambda: other.fetchval("SELECT 1"))
                probe = await _median(lambda: ledger.probe(SERVING))
                rows.append(
                    {
                        "schedules": f"{count:,}",
                        "SELECT 1 µs": round(floor),
                        "idle tick µs": round(probe),
                        "ratio": round(probe / floor, 2),
                    }
                )
            await other.close()
            await ledger.close()
        finally:
            await server.stop()
    return rows


async def _median(call: Callable[[], Awaitable[object]]) -> float:
    times = []
    for _ in range(PROBES):
        begin = time.perf_counter()
        await call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6
