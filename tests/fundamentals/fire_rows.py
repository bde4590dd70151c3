"""History that a test did not live through: fires, put straight into a real ledger's table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import asyncpg

from engine.ledger import Ledger
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules

SCHEDULES = """
schedules:
  - {key: beat, workflow: w, everyMs: 10000}
  - {key: sync, workflow: w, everyMs: 60000}
"""


class FireRows:
    """Rows of the schedules ``beat`` and ``sync`` in a ledger."""

    def __init__(self, connection: asyncpg.Connection, namespace: str, schema: str) -> None:
        self._connection, self._namespace, self._schema = connection, namespace, schema
        self._bucket = 0

    async def add(self, key: str, at: str, status: str = "completed", **columns: object) -> None:
        first = datetime.fromisoformat(at)
        self._bucket += 1
        values = {
            "namespace": self._namespace,
            "project": "default",
            "key": key,
            "series": 1,
            "bucket": self._bucket,
            "fire_time": first,
            "last_fire_time": first,
            "definition_version": 1,
            "workflow_id": f"sched:{key}:{self._bucket}",
            "task_queue": "sched",
            "status": status,
        }
        if status in ("completed", "failed"):
            values |= {"run_id": "r", "started_at": first + timedelta(milliseconds=40)}
        values |= columns
        places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
        await self._connection.execute(
            f"INSERT INTO {self._schema}.fires ({', '.join(values)}) VALUES ({places})",
            *values.values(),
        )


@asynccontextmanager
async def fire_rows(address: str, namespace: str, schema: str = "sched") -> AsyncIterator[FireRows]:
    """Open a migrated ledger that knows the two schedules."""
    ledger = await Ledger.connect(address, namespace=namespace, schema=schema)
    await apply(ledger, load_schedules(SCHEDULES), by="test")
    await ledger.close()
    connection = await asyncpg.connect(address)
    yield FireRows(connection, namespace, schema)
    await connection.close()
