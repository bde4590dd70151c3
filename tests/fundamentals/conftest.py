"""Fixtures of the tests that show one feature each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from temporalio.client import Client

from activities.database import database
from engine.testing import DevServer
from tests.fundamentals.example_app import ExampleApp
from tests.fundamentals.fire_rows import FireRows
from tests.postgres import Postgres
from tests.servers import Temporal


@pytest.fixture(scope="session")
def server(temporal: Temporal, postgres: Postgres) -> DevServer:
    """The session's servers, for the testing kit."""
    return DevServer(temporal.address, database_url=postgres.url_of("postgres"))


@pytest.fixture
def client(client: Client, shared_database_url: str, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client whose workers find their ledger in the environment."""
    monkeypatch.setenv("SCHED_DATABASE_URL", shared_database_url)
    return client


@pytest.fixture
def app(
    client: Client,
    server: DevServer,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> ExampleApp:
    """The example application; its steps find their database as under ``sched up``."""
    monkeypatch.setenv("SCHED_DATABASE_URL", database_url)
    monkeypatch.setenv("SCHED_DATA_DIR", str(tmp_path / "data"))
    own = DevServer(server.address, namespace=client.namespace, database_url=server.database_url())
    return ExampleApp(client, own, database_url, reports=tmp_path / "data" / "reports")


@pytest.fixture
async def pool(app: ExampleApp) -> AsyncIterator[asyncpg.Pool]:
    """The resource that the example's steps are given, for those that a test calls itself."""
    async with asynccontextmanager(database)() as opened:
        yield opened


@pytest.fixture
async def fires(app: ExampleApp) -> FireRows:
    """A ledger in the example's database."""
    made = FireRows(app.database, app.client.namespace)
    await made.migrate()
    return made
