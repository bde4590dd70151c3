"""Start and stop of both embedded servers.

Both servers of ``sched up``, started together and stopped in reverse.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from engine.embedded.ports import require_free
from engine.embedded.postgres import PostgresServer
from engine.embedded.process import FolderLock
from engine.embedded.temporal import TemporalServer
from engine.errors import EmbeddedError


@dataclass(frozen=True, slots=True)
class EmbeddedServers:
    """The running servers.

    Attributes:
        temporal: always.
        postgres: None where the user brought a database of his own.
        ended_orphans: whether servers still ran that a killed owner had left behind.
    """

    temporal: TemporalServer
    postgres: PostgresServer | None
    ended_orphans: bool = False

    def abandon(self) -> None:
        """Tell both to end as fast as they can without losing anything, and wait for neither."""
        self.temporal.abandon()
        if self.postgres:
            self.postgres.abandon()


@contextlib.asynccontextmanager
async def servers(
    data_dir: Path,
    *,
    temporal_port: int,
    ui_port: int | None,
    postgres_port: int,
    with_postgres: bool = True,
    durable: bool = True,
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
        durable: False trades PostgreSQL's survival of a power loss for speed (tests).

    Raises:
        EmbeddedError: one sentence that says what is in the way and how to get past it.
    """
    ports = {
        "--temporal-port": temporal_port,
        "--ui-port": ui_port,
        "--postgres-port": postgres_port if with_postgres else None,
    }
    _require_distinct(*ports.values())
    temporal = TemporalServer(data_dir, temporal_port, ui_port)
    postgres = PostgresServer(data_dir, postgres_port, durable=durable)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(FolderLock(temporal.data_dir))
        # What a killed owner left behind goes first, whichever servers are wanted this time.
        ended = [await server.stop_orphan() for server in (temporal, postgres)]
        require_free(ports)  # all at once: each server by itself would name its own only
        if with_postgres:
            stack.push_async_callback(postgres.stop)
            await postgres.start()
        stack.push_async_callback(temporal.stop)
        await temporal.start()
        yield EmbeddedServers(temporal, postgres if with_postgres else None, any(ended))


def _require_distinct(*ports: int | None) -> None:
    chosen = [port for port in ports if port]
    if len(set(chosen)) < len(chosen):
        raise EmbeddedError(
            f"two of the ports {', '.join(map(str, chosen))} are the same",
            cure="give --temporal-port, --ui-port and --postgres-port one each",
        )
