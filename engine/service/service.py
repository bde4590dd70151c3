"""All verbs in one class, and the ledger that they work on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from engine.service.asking import Asking
from engine.service.dead_letters import DeadLetters
from engine.service.declaring import Declaring
from engine.service.holding import Holding
from engine.service.running import Running


class ScheduleService(Declaring, Asking, Holding, Running, DeadLetters):
    """What can be asked of, and done to, the schedules of one namespace.

    Args:
        ledger: the memory it works on; it stays the caller's to close.
        actor: who acts, for the ledger's records.
        migrated: the schema versions that were applied when the ledger was opened.
    """

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, database_url: str, *, namespace: str, schema: str, actor: str
    ) -> AsyncIterator[ScheduleService]:
        """Open a service on a PostgreSQL ledger for as long as the block lasts.

        Raises:
            LedgerUnavailable: when the database cannot be reached.
            LedgerTooNew: when it was written by a newer version.
        """
        # Whoever only reads a file waits for no driver.
        from engine.ledger import PostgresLedger  # noqa: PLC0415

        ledger = await PostgresLedger.connect(
            database_url, namespace=namespace, schema=schema, connections=2
        )
        try:
            yield cls(ledger, actor=actor, migrated=ledger.migrated)
        finally:
            await ledger.close()
