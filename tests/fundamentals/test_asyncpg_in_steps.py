"""Modules of workflows may import asyncpg, which crashes a process that loads it in the sandbox."""

from __future__ import annotations

from temporalio.client import Client
from temporalio.worker import Worker

from engine.runtime import SchedulePlugin
from tests.fundamentals.samples.with_asyncpg import AsksDatabase, ask_database


async def test_workers_start_one_after_another_and_none_crashes(client: Client):
    for number in range(4):
        async with Worker(
            client,
            task_queue="asyncpg",
            workflows=[AsksDatabase],
            activities=[ask_database],
            plugins=[SchedulePlugin(None)],
        ):
            found = await client.execute_workflow(
                "asks-database@1", id=f"run-{number}", task_queue="asyncpg"
            )
        assert found == 42
