"""History that a test did not live through: fires, put straight into a real ledger's table."""

from __future__ import annotations

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
    """A migrated ledger that knows the schedules ``beat`` and ``sync``, and rows of theirs."""

    def __init__(self, address: str, namespace: str, schema: str = "sched") -> None:
        self._address, self._namespace, self._schema = address, namespace, schema
        self._bucket = 0

    async def migrate(self) -> None:
        ledger = await Ledger.connect(self._address, namespace=self._namespace, schema=self._schema)
        await apply(ledger, load_schedules(SCHEDULES), by="test")
        await ledger.close()

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
        connection = await asyncpg.connect(self._address)
        await connection.execute(
            f"INSERT INTO {self._schema}.fires ({', '.join(values)}) VALUES ({places})",
            *values.values(),
        )
        await connection.close()
