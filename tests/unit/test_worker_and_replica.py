"""The worker of a plugin and its replica run side by side, and end together."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from engine.errors import LedgerRequired
from engine.runtime import SchedulePlugin, plugin


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


async def test_a_worker_without_a_ledger_is_refused_with_one_sentence_before_it_asks_any_server(
    monkeypatch,
):
    monkeypatch.delenv("SCHED_DATABASE_URL", raising=False)
    client = await Client.connect("nowhere.invalid:7233", lazy=True)
    with pytest.raises(LedgerRequired) as refused:
        Worker(client, task_queue="sched", plugins=[SchedulePlugin()])
    assert str(refused.value) == (
        "there is no ledger: SCHED_DATABASE_URL is not set; set it, or run `sched up`, which"
        " brings a PostgreSQL of its own"
    )
