"""The slots of step queues that replicas hold."""

from __future__ import annotations

from engine.ledger import Ledger

_HELD = """
SELECT holder, count(*) AS slots FROM queue_slots
WHERE namespace = $1 AND lease_until > clock_timestamp() GROUP BY holder
"""


async def held_slots(ledger: Ledger) -> dict[str, int]:
    """How many slots each holder has, of all lanes."""
    rows = await ledger._connections.fetch(_HELD, ledger.namespace)
    return {row["holder"]: row["slots"] for row in rows}
