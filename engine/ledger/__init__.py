"""Ledger, the record of every window: one interface, in PostgreSQL or in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.lazy import lazy_exports
from engine.ledger.access import *
from engine.ledger.alerts import *
from engine.ledger.failures import *
from engine.ledger.fires import *
from engine.ledger.interface import *
from engine.ledger.outbox import *
from engine.ledger.records import *
from engine.ledger.schedule_rows import *

if TYPE_CHECKING:
    from engine.ledger.memory.ledger import MemoryLedger as MemoryLedger
    from engine.ledger.postgres.ledger import PostgresLedger as PostgresLedger
else:
    __all__ = ["Ledger", "MemoryLedger", "PostgresLedger", "Transaction"]
    __getattr__ = lazy_exports(
        __name__, {"memory.ledger": "MemoryLedger", "postgres.ledger": "PostgresLedger"}
    )
