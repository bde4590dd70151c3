"""The worker of a plugin and its replica run side by side, and end together."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from engine.runtime import plugin


class Drained:
    """A worker that runs until it is shut down."""

    is_running, is_shutdown = True, False

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.drained = False

    async def shutdown(self) -> None:
        self.asked.set()

    async def run(self, _: Any) -> None:
        await self.asked.wait()
        self.drained = True


class Cancelled:
    """A replica whose run something else than the worker cancels."""

    async def run(self) -> None:
        raise asyncio.CancelledError

    def stop(self) -> None:
        """It has ended."""


async def test_a_replica_whose_run_was_cancelled_lets_its_worker_drain():
    worker = Drained()
    with pytest.raises(asyncio.CancelledError):
        await plugin._side_by_side(cast("Any", worker), worker.run, cast("Any", Cancelled()))
    assert worker.drained
