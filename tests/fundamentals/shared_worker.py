"""A worker that the tests of a module share, as starting one costs more than most of their runs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeAlias

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.worker import Worker

from engine.runtime import SchedulePlugin
from tests.fundamentals.replays import CACHED
from tests.servers import Temporal, register_namespace

PluginOf: TypeAlias = "Callable[[str], SchedulePlugin]"
"""Makes a plugin, from the address of its ledger."""


def without_schedules(database_url: str) -> SchedulePlugin:
    """Return a plugin for runs that no schedule starts."""
    return SchedulePlugin(None, database_url=database_url)


class SharedWorker:
    """A running worker in a namespace of its own.

    Args:
        address: of Temporal.
        plugin: makes its plugin; None of a plain worker.
        on_client: whether the client has the plugin, instead of the worker.
        options: of ``Worker``.
    """

    client: Client

    def __init__(
        self, address: str, plugin: Callable[[], SchedulePlugin] | None, *, on_client: bool,
        **options: Any,
    ) -> None:  # fmt: skip
        self._address, self._plugin = address, plugin
        self._on_client, self._options = on_client, options

    async def start(self) -> None:
        """Start it in a new namespace."""
        name = f"test-{uuid.uuid4().hex}"
        await register_namespace(await Client.connect(self._address), name)
        plugins = [self._plugin()] if self._plugin else []
        ours, its = (plugins, []) if self._on_client else ([], plugins)
        self.client = await Client.connect(self._address, namespace=name, plugins=ours)
        self._worker = Worker(self.client, plugins=its, **self._options)
        self._running = asyncio.create_task(self._worker.run())

    async def stop(self) -> None:
        """Stop it, and every step that still runs."""
        await self._worker.shutdown()
        await self._running


def shared_worker(
    task_queue: str,
    workflows: Sequence[type],
    steps: Sequence[Callable[..., Any]],
    *,
    plugin: PluginOf | None = without_schedules,
    on_client: bool = False,
    cached: Sequence[Any] = CACHED,
    **options: Any,
) -> Any:
    """Return the fixture ``worker`` of a module; its tests use it by the fixture ``served``."""

    @pytest_asyncio.fixture(scope="module", loop_scope="module", params=cached)
    async def worker(
        temporal: Temporal, shared_database_url: str, request: pytest.FixtureRequest
    ) -> AsyncIterator[SharedWorker]:
        shared = SharedWorker(
            temporal.address, plugin and (lambda: plugin(shared_database_url)),
            on_client=on_client, task_queue=task_queue, workflows=workflows, activities=steps,
            max_cached_workflows=request.param, **options,
        )  # fmt: skip
        await shared.start()
        yield shared
        await shared.stop()

    return worker
