"""The queues of steps, as a transaction of the in-memory ledger declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.ledger.memory_rows import MemoryRows
from engine.ledger.queue_rows import QueueRow
from engine.schedules.queues import Queue


class MemoryQueues(MemoryRows):
    """See ``engine.ledger.transactions.Declaring``."""

    async def queues(self) -> dict[str, QueueRow]:
        """See ``Transaction``."""
        return dict(sorted(self._tables.queues.items()))

    async def declare_queues(
        self,
        project: str,
        queues: Mapping[str, Queue],
        *,
        by: str,  # noqa: ARG002 - told to nobody
    ) -> None:
        """See ``Transaction``."""
        now, table = self._clock(), self._tables.queues
        for name, limits in queues.items():
            if name not in table or table[name].project == project:
                self._tables.put(table, name, QueueRow(name, project, limits, now))
        for name, row in list(table.items()):
            if row.project == project and name not in queues and row.dropped_at is None:
                self._tables.put(table, name, replace(row, dropped_at=now))
