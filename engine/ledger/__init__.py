"""The memory of every window: one interface, in PostgreSQL or in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.doors import door
from engine.ledger.ledger import Ledger
from engine.ledger.transactions import Transaction

if TYPE_CHECKING:
    from engine.ledger.memory import MemoryLedger
    from engine.ledger.postgres import PostgresLedger
else:
    __getattr__ = door(
        __name__,
        {"MemoryLedger": "engine.ledger.memory", "PostgresLedger": "engine.ledger.postgres"},
    )

__all__ = ["Ledger", "MemoryLedger", "PostgresLedger", "Transaction"]
