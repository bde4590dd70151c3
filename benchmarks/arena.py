"""The servers a benchmark runs on, started for it and stopped with it, on loopback only."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
from temporalio.client import Client

from engine.embedded import PostgresServer, TemporalServer
from tests.postgres import Postgres


@dataclass(frozen=True, slots=True)
class Arena:
    """One sample's surroundings: an empty database and a Temporal server without history.

    Attributes:
        folder: for files and logs of the sample.
        client: connected to the Temporal server's namespace ``default``.
        address: the Temporal server's.
        database_url: the engine's empty database.
        limited: whether the server has limits; then runs take long to close, and only their
            starts are waited for.
    """

    folder: Path
    client: Client
    address: str
    database_url: str
    limited: bool = False


@contextlib.asynccontextmanager
async def postgres(**settings: str) -> AsyncIterator[PostgresServer]:
    """Run PostgreSQL as ``sched up`` does: commits reach the disk. ``settings``: other ones."""
    with TemporaryDirectory(prefix="sched-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # noqa: ASYNC240 - nothing else runs yet; PostgreSQL may run as another user
        server = PostgresServer(folder / "pg", settings=settings)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()


@contextlib.asynccontextmanager
async def arena(
    server: PostgresServer, *, limits: Mapping[str, float] | None = None
) -> AsyncIterator[Arena]:
    """Run a fresh in-memory Temporal server, beside a fresh database.

    Its settings are the default ones but for ``limits``, named as in its dynamic config. A used
    Temporal server grows slower (5 to 8 s for the same herd), so samples never share one.
    """
    name = f"bench_{uuid.uuid4().hex}"
    url = await Postgres(server.url_of("postgres")).create_database(name)
    with TemporaryDirectory(prefix="sched-bench-") as folder:
        temporal = TemporalServer(
            Path(folder) / "temporal", in_memory=True, dynamic_config=limits or {}
        )
        await temporal.start()
        try:
            client = await Client.connect(temporal.address)
            yield Arena(Path(folder), client, temporal.address, url, limited=bool(limits))
        finally:
            await temporal.stop()
    await Postgres(server.url_of("postgres")).drop_database(name)


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Connect to a ledger's database by other means than the engine's own."""
    connection = await asyncpg.connect(url, ssl=False, server_settings={"search_path": "sched"})
    try:
        yield connection
    finally:
        await connection.close()
