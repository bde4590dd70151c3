"""Ledger, the record of every window: one interface, in PostgreSQL or in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.lazy import lazy_exports
from engine.ledger.interface import Ledger, Transaction

if TYPE_CHECKING:
    from engine.ledger.memory.ledger import MemoryLedger
    from engine.ledger.postgres.ledger import PostgresLedger
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "MemoryLedger": "engine.ledger.memory.ledger",
            "PostgresLedger": "engine.ledger.postgres.ledger",
        },
    )

__all__ = ["Ledger", "MemoryLedger", "PostgresLedger", "Transaction"]
