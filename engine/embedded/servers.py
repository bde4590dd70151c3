"""Start of both servers of ``sched up`` together, and stop in reverse order."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from engine.embedded.postgres import PostgresServer
from engine.embedded.process import folder_lock, require_free
from engine.embedded.temporal import TemporalServer
from engine.errors import EmbeddedError


@dataclass(frozen=True, slots=True)
class EmbeddedServers:
    """The running servers.

    Attributes:
        temporal: the Temporal server.
        postgres: None if the user brought a database.
        ended_orphans: whether servers of a killed owner were still running and were stopped.
    """

    temporal: TemporalServer
    postgres: PostgresServer | None
    ended_orphans: bool = False

    def abandon(self) -> None:
        """Signal both to end as fast as possible without losing data, and do not wait."""
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
    """Run the servers of a data folder while the block lasts.

    This process holds the folder's lock meanwhile. PostgreSQL starts first and stops last, because
    a draining worker writes to the ledger until its end.

    Args:
        data_dir: created if missing.
        temporal_port: port of Temporal's frontend; 0 takes a free one, as for all ports.
        ui_port: port of the Web UI; None disables it.
        postgres_port: port of PostgreSQL.
        with_postgres: False if ``SCHED_DATABASE_URL`` names a database.
        durable: False trades PostgreSQL's survival of a power loss for speed (tests).

    Raises:
        EmbeddedError: one sentence with the obstacle and its hint.
    """
    ports = {
        "--temporal-port": temporal_port,
        "--ui-port": ui_port,
        "--postgres-port": postgres_port if with_postgres else None,
    }
    chosen = [port for port in ports.values() if port]
    if len(set(chosen)) < len(chosen):
        raise EmbeddedError(
            f"two of the ports {', '.join(map(str, chosen))} are the same",
            hint="give --temporal-port, --ui-port and --postgres-port one each",
        )
    temporal = TemporalServer(data_dir, temporal_port, ui_port)
    postgres = PostgresServer(data_dir, postgres_port, durable=durable)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(folder_lock(temporal.data_dir))
        # First stop servers of a killed owner, whichever servers are wanted this time.
        ended = [await server.stop_orphan() for server in (temporal, postgres)]
        require_free(ports)  # all at once: a server alone would name its own port only
        if with_postgres:
            stack.push_async_callback(postgres.stop)
            await postgres.start()
        stack.push_async_callback(temporal.stop)
        await temporal.start()
        yield EmbeddedServers(temporal, postgres if with_postgres else None, any(ended))
