"""The slots of step queues that replicas hold, as each ledger keeps them."""

from __future__ import annotations

from collections import Counter

from engine.ledger import Ledger, MemoryLedger, PostgresLedger

_HELD = """
SELECT holder, count(*) AS slots FROM queue_slots
WHERE namespace = $1 AND lease_until > clock_timestamp() GROUP BY holder
"""


async def held_slots(ledger: Ledger) -> dict[str, int]:
    """How many slots each holder has, of all lanes."""
    if isinstance(ledger, PostgresLedger):
        rows = await ledger._connections.fetch(_HELD, ledger._namespace)
        return {row["holder"]: row["slots"] for row in rows}
    assert isinstance(ledger, MemoryLedger)
    now = ledger.clock()
    return Counter(holder for _, holder, until in ledger._slots.values() if until > now)
