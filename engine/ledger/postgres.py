"""The ledger in PostgreSQL 17 or newer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from typing import Any, Literal

import asyncpg

from engine.errors import LedgerUnavailable
from engine.ledger.migrate import check_schema_name, migrate
from engine.ledger.records import (
    Claim,
    Evidence,
    Fire,
    OpenRun,
    Outcome,
    Probe,
    ScheduleRow,
    Serving,
    Status,
)
from engine.ledger.rows import as_claim, as_fire, as_schedule
from engine.ledger.sql import query
from engine.ledger.transaction import PostgresTransaction

_UNREACHABLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
)
_SETTINGS = {
    # A process that is stopped inside a transaction hides its locked rows from every SKIP
    # LOCKED query until one of these ends it. A tick's own work takes milliseconds.
    "idle_in_transaction_session_timeout": "2s",
    "transaction_timeout": "4s",
    "lock_timeout": "3s",
    "TimeZone": "UTC",
    "jit": "off",
}
_LONG = (
    "SELECT set_config('transaction_timeout', '0', true),"
    " set_config('idle_in_transaction_session_timeout', '120s', true),"
    " set_config('lock_timeout', '30s', true)"
)


class PostgresLedger:
    """The memory of every window of one Temporal namespace, shared by all replicas."""

    durable: Literal[True] = True

    def __init__(
        self, pool: asyncpg.Pool[Any], namespace: str, migrated: Sequence[int] = ()
    ) -> None:
        self._pool = pool
        self._namespace = namespace
        self.migrated = tuple(migrated)

    @classmethod
    async def connect(
        cls, url: str, *, namespace: str = "default", schema: str = "sched", connections: int = 5
    ) -> PostgresLedger:
        """Connect, and migrate the schema.

        Raises:
            LedgerUnavailable: when the database cannot be reached.
            LedgerTooNew: when it was written by a newer version.
        """
        check_schema_name(schema)
        with _translated():
            pool = await asyncpg.create_pool(
                url,
                min_size=1,
                max_size=connections,
                timeout=5,
                command_timeout=60,
                # Everything is SET LOCAL, so there is nothing to reset, and an idle tick is one
                # statement and not two.
                reset=_nothing_to_reset,
                server_settings={
                    **_SETTINGS, "search_path": schema, "application_name": "sched-engine",
                },
            )  # fmt: skip
            try:
                async with pool.acquire() as connection, connection.transaction():
                    await connection.execute(_LONG)
                    migrated = await migrate(connection, schema)
            except BaseException:
                pool.terminate()
                raise
        return cls(pool, namespace, migrated)

    async def close(self) -> None:
        """Close every connection; a database that is away is no error here."""
        try:
            await self._pool.close()
        except _UNREACHABLE:
            self._pool.terminate()

    async def identity(self) -> str:
        """See ``Ledger``."""
        return str((await self._row("SELECT ledger_id FROM ledger"))["ledger_id"])

    @asynccontextmanager
    async def transaction(self, *, long: bool = False) -> AsyncIterator[PostgresTransaction]:
        """See ``Ledger``."""
        with _translated():
            async with self._pool.acquire(timeout=5) as connection, connection.transaction():
                if long:
                    await connection.execute(_LONG)
                yield PostgresTransaction(connection, self._namespace)

    async def probe(self, serving: Serving) -> Probe:
        """See ``Ledger``. One statement, outside any transaction."""
        row = await self._row(
            query("probe"), self._namespace, serving.project, serving.lanes, list(serving.types)
        )
        return Probe(**row)

    async def take_over(self, serving: Serving, *, limit: int, lease: timedelta) -> list[Claim]:
        """See ``Ledger``."""
        rows = await self._rows(
            query("take_over"), self._namespace, serving.project, serving.replica, limit, lease
        )
        return [as_claim(row) for row in rows]

    async def settle(self, outcomes: Sequence[Outcome]) -> int:
        """See ``Ledger``."""
        fields = ("fire_id", "token", "status", "timing", "run_id", "started_at", "reason",
                  "error", "retry_after")  # fmt: skip
        columns = [[getattr(outcome, field) for outcome in outcomes] for field in fields]
        return len(await self._rows(query("settle"), *columns))

    async def witness(self, evidence: Sequence[Evidence]) -> list[str]:
        """See ``Ledger``."""
        fields = ("workflow_id", "run_id", "started_at", "closed", "closed_at", "error")
        columns = [[getattr(seen, field) for seen in evidence] for field in fields]
        rows = await self._rows(query("witness"), self._namespace, *columns)
        return [row["workflow_id"] for row in rows]

    async def open_runs(self, limit: int, *, started_before: datetime) -> list[OpenRun]:
        """See ``Ledger``."""
        rows = await self._rows(query("open_runs"), self._namespace, limit, started_before)
        return [OpenRun(**row) for row in rows]

    async def announce(
        self, serving: Serving, *, engine: str, tzdata: str, retention: timedelta | None
    ) -> None:
        """See ``Ledger``."""
        types = sorted(serving.types)
        async with self.transaction() as transaction:
            run = transaction.connection.fetch
            namespace, task_queue = self._namespace, serving.task_queue
            await run(query("announce_replica"), namespace, serving.replica, serving.project,
                      task_queue, types, engine, tzdata)  # fmt: skip
            if retention is not None:
                await run(query("announce_retention"), namespace, retention)
            await run(query("forget_replicas"), namespace)
            new = await run(query("announce_types"), namespace, task_queue, types)
            rows = await run(query("wanted_workflows"), namespace, task_queue, bool(new))
            wanted = {(task_queue, row["workflow"]) for row in rows}
            resolved = await transaction.resolve(wanted)
            found = {workflow: kind for (_, workflow), kind in resolved.items() if kind}
            if found:
                await run(
                    query("set_types"), namespace, task_queue, list(found), list(found.values())
                )

    async def withdraw(self, serving: Serving) -> None:
        """See ``Ledger``."""
        await self._rows(query("withdraw"), self._namespace, serving.replica)

    async def unservable(self, serving: Serving, *, alive: timedelta, limit: int) -> list[str]:
        """See ``Ledger``."""
        rows = await self._rows(
            query("unservable"), self._namespace, serving.project, serving.task_queue, alive, limit
        )
        return [row["key"] for row in rows]

    async def hold_duty(self, duty: str, holder: str, lease: timedelta) -> datetime | None:
        """See ``Ledger``."""
        rows = await self._rows(query("hold_duty"), self._namespace, duty, holder, lease)
        return rows[0]["watermark"] if rows else None

    async def set_watermark(self, duty: str, holder: str, watermark: datetime) -> None:
        """See ``Ledger``."""
        await self._rows(query("set_watermark"), self._namespace, duty, holder, watermark)

    async def schedules(self, project: str | None = None) -> list[ScheduleRow]:
        """See ``Ledger``."""
        return [
            as_schedule(row)
            for row in await self._rows(query("list_schedules"), self._namespace, project)
        ]

    async def fires(
        self, *, key: str | None = None, status: Status | None = None, limit: int = 50
    ) -> list[Fire]:
        """See ``Ledger``."""
        rows = await self._rows(query("list_fires"), self._namespace, key, status, None, limit)
        return [as_fire(row) for row in rows]

    async def fire(self, workflow_id: str) -> Fire | None:
        """See ``Ledger``."""
        rows = await self._rows(query("list_fires"), self._namespace, None, None, workflow_id, 1)
        return as_fire(rows[0]) if rows else None

    async def _rows(self, text: str, *arguments: object) -> list[asyncpg.Record]:
        with _translated():
            return await self._pool.fetch(text, *arguments)

    async def _row(self, text: str, *arguments: object) -> asyncpg.Record:
        rows = await self._rows(text, *arguments)
        return rows[0]


async def _nothing_to_reset(connection: asyncpg.Connection[Any]) -> None:
    """Leave the connection as it is."""


@contextmanager
def _translated() -> Iterator[None]:
    """Turn "the database is away" into one error; a wrong statement stays what it is."""
    try:
        yield
    except _UNREACHABLE as error:
        detail = str(error) or type(error).__name__
        raise LedgerUnavailable(f"the ledger's database cannot be reached: {detail}") from error
