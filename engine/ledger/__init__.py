"""The memory of every window: one interface, in PostgreSQL or in memory."""

from engine.ledger.ledger import Ledger, Transaction
from engine.ledger.memory import MemoryLedger
from engine.ledger.postgres import PostgresLedger

__all__ = ["Ledger", "MemoryLedger", "PostgresLedger", "Transaction"]
