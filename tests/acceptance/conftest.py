"""A fleet of workers and the books they keep, for every test that kills something."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from temporalio.client import Client

from engine.embedded import TemporalServer
from tests.acceptance.fleet import Books, Fleet


@pytest.fixture
async def fleet(
    tmp_path: Path, temporal: TemporalServer, namespace: str, database_url: str
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
