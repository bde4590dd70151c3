"""The PostgreSQL ledger's statements about slots of queues, outside any transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from engine.ledger.connections import Connections
from engine.ledger.queue_rows import SlotAsk, SlotsHeld
from engine.ledger.sql import query


class PostgresSlots:
    """See ``Slots``."""

    _connections: Connections
    _namespace: str

    async def hold_slots(
        self,
        holder: str,
        asks: Sequence[SlotAsk],
        lease: timedelta,
        *,
        take_over: bool,
        number: int,
    ) -> dict[str, int]:
        """See ``Slots``. One statement for all lanes."""
        columns = [
            [getattr(ask, field) for ask in asks]
            for field in ("lane", "queue", "running", "wanted")
        ]
        rows = await self._connections.fetch(
            query("hold_slots"), self._namespace, holder, *columns, lease, take_over, number
        )
        return {row["lane"]: row["usable"] for row in rows}

    async def give_back_slots(self, holder: str) -> None:
        """See ``Slots``."""
        await self._connections.fetch(query("give_back_slots"), self._namespace, holder)

    async def slots_held(self) -> list[SlotsHeld]:
        """See ``Slots``."""
        rows = await self._connections.fetch(query("slots_held"), self._namespace)
        return [SlotsHeld(**row) for row in rows]
