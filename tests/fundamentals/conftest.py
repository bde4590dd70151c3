"""Fixtures of the tests that show one feature each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from temporalio.client import Client

from activities.database import database
from engine.embedded import TemporalServer
from engine.testing import DevServer
from tests.fundamentals.example_app import ExampleApp
from tests.fundamentals.fire_rows import FireRows


@pytest.fixture(scope="session")
def server(temporal: TemporalServer) -> DevServer:
    """The session's Temporal server, for the testing kit."""
    return DevServer(temporal.address)


@pytest.fixture
def app(
    client: Client,
    temporal: TemporalServer,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> ExampleApp:
    """The example application; its steps find their database as under ``sched up``."""
    monkeypatch.setenv("SCHED_DATABASE_URL", database_url)
    monkeypatch.setenv("SCHED_DATA_DIR", str(tmp_path / "data"))
    server = DevServer(temporal.address, namespace=client.namespace)
    return ExampleApp(client, server, database_url, reports=tmp_path / "data" / "reports")


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
