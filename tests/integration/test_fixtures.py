"""The harness itself: what other tests take for granted."""

from __future__ import annotations

import uuid
from datetime import timedelta

import asyncpg
import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tests.servers import register_namespace
from tests.waiting import eventually


@workflow.defn
class Echo:
    @workflow.run
    async def run(self, word: str) -> str:
        return word


@pytest.mark.parametrize("turn", [1, 2])
async def test_each_test_has_a_database_of_its_own(database_url: str, turn: int) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute("CREATE TABLE only_here (turn int)")
    await connection.close()


async def test_a_fresh_namespace_runs_workflows_at_once(client: Client) -> None:
    async with Worker(
        client, task_queue="q", workflows=[Echo], workflow_runner=UnsandboxedWorkflowRunner()
    ):
        run = await client.start_workflow(Echo.run, "hello", id="echo", task_queue="q")
        assert await run.result() == "hello"

    async def seen() -> list[WorkflowExecutionStatus | None]:
        return [entry.status async for entry in client.list_workflows("WorkflowId = 'echo'")]

    assert await eventually(seen) == [WorkflowExecutionStatus.COMPLETED]


async def test_a_namespace_can_forget_its_runs_within_seconds(client: Client) -> None:
    name = f"short-{uuid.uuid4().hex}"
    await register_namespace(client, name, retention=timedelta(seconds=1))
    other = await Client.connect(client.service_client.config.target_host, namespace=name)
    async with Worker(
        other, task_queue="q", workflows=[Echo], workflow_runner=UnsandboxedWorkflowRunner()
    ):
        await other.execute_workflow(Echo.run, "hello", id="echo", task_queue="q")

    async def forgotten() -> bool:
        return not [entry async for entry in other.list_workflows("WorkflowId = 'echo'")]

    await eventually(forgotten)


async def test_waiting_says_what_it_last_saw() -> None:
    seen = iter(range(100))
    with pytest.raises(AssertionError, match="was still 0 after"):
        await eventually(lambda: next(seen) * 0, timeout=0.1)


async def test_waiting_takes_a_failed_assertion_for_not_yet() -> None:
    seen: list[int] = []

    def third_time() -> bool:
        seen.append(1)
        assert len(seen) == 3, len(seen)
        return True

    assert await eventually(third_time, every=0)
