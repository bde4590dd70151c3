"""A fleet of workers and the books they keep, and the folder of one who runs ``sched up``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from temporalio.client import Client

from tests.acceptance.fleet import Books, Fleet
from tests.acceptance.home import Home
from tests.servers import Temporal, shared_folder


@pytest.fixture
async def fleet(
    tmp_path: Path, temporal: Temporal, namespace: str, database_url: str
) -> AsyncIterator[Fleet]:
    async with Fleet(
        tmp_path, address=temporal.address, namespace=namespace, database_url=database_url
    ) as made:
        yield made


@pytest.fixture
async def books(database_url: str, client: Client) -> AsyncIterator[Books]:
    connection = await asyncpg.connect(database_url)
    yield Books(connection, client)
    await connection.close()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url, server_settings={"search_path": "sched"})
    yield connection
    await connection.close()


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    with shared_folder() as folder:
        made = Home(folder)
        yield made
        if made.running and made.running.returncode is None:
            await made.stop()
