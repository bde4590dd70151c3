"""Both servers of ``sched up``, started together and stopped in reverse."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.embedded.lock import FolderLock
from engine.embedded.postgres import PostgresServer
from engine.embedded.temporal import TemporalServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class EmbeddedServers:
    """What runs; ``postgres`` is None where the user brought a database of his own."""

    temporal: TemporalServer
    postgres: PostgresServer | None


@contextlib.asynccontextmanager
async def servers(
    data_dir: Path,
    *,
    temporal_port: int,
    ui_port: int | None,
    postgres_port: int,
    with_postgres: bool = True,
) -> AsyncIterator[EmbeddedServers]:
    """Run the servers of a data folder for as long as the block lasts.

    The folder belongs to this process meanwhile. PostgreSQL starts first and stops last,
    because whoever drains writes to the ledger until the end.

    Args:
        data_dir: made where it is missing.
        temporal_port: of Temporal's frontend; 0 takes a free one, as for all ports.
        ui_port: of the Web UI; None goes without.
        postgres_port: of PostgreSQL.
        with_postgres: False where ``SCHED_DATABASE_URL`` names one.

    Raises:
        EmbeddedError: one sentence that says what is in the way and how to get past it.
    """
    data_dir = data_dir.absolute()
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(FolderLock(data_dir))
        temporal = TemporalServer(data_dir, temporal_port, ui_port)
        postgres = PostgresServer(data_dir, postgres_port) if with_postgres else None
        if postgres is not None:
            await postgres.start()
            stack.push_async_callback(postgres.stop)
        await temporal.start()
        stack.push_async_callback(temporal.stop)
        yield EmbeddedServers(temporal, postgres)
