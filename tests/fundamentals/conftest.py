"""Fixtures of the tests that show one feature each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio
from temporalio.client import Client

from activities.database import database
from engine.testing import DevServer
from tests.fundamentals.example_app import ExampleApp
from tests.fundamentals.fire_rows import FireRows, fire_rows
from tests.fundamentals.samples.stored import STORED
from tests.fundamentals.shared_worker import SharedWorker
from tests.postgres import Postgres
from tests.servers import Temporal


def pytest_itemcollected(item: pytest.Item) -> None:
    """Run a test that shares a worker in the event loop of its module, which the worker is in."""
    if "served" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest_asyncio.fixture(loop_scope="module")
async def served(worker: SharedWorker, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client of the worker that the module shares.

    A test that fails may leave runs and steps behind: those after it have another namespace.
    """
    failed = request.session.testsfailed
    yield worker.client
    if request.session.testsfailed > failed:
        await worker.stop()
        await worker.start()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stored(shared_database_url: str) -> AsyncIterator[asyncpg.Pool]:
    """The database in which steps have their effects, for tests that share a worker."""
    async with asyncpg.create_pool(shared_database_url, min_size=1) as pool:
        STORED.pool = pool
        yield pool


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
async def fires(app: ExampleApp) -> AsyncIterator[FireRows]:
    """A ledger in the example's database."""
    async with fire_rows(app.database, app.client.namespace) as rows:
        yield rows
