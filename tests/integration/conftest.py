"""Connections of tests that share a ledger, as statements are planned once for each connection."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from engine.ledger import Ledger


def pytest_itemcollected(item: pytest.Item) -> None:
    """Run a test that shares connections in the event loop of its module, to which they belong."""
    if "connected" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connected(shared_database_url: str) -> AsyncIterator[Ledger]:
    """The connections of a module whose tests have a namespace each."""
    ledger = await Ledger.connect(shared_database_url, connections=5)
    yield ledger
    await ledger.close()
