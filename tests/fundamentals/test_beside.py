"""Local steps, and the versioning behavior of a class."""

from __future__ import annotations

import uuid

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError
from temporalio.worker import Worker, WorkerDeploymentConfig

from engine.errors import WorkflowInvalid
from engine.testing import run_workflow
from engine.testing.worker import PluginWithoutReplica
from tests.fundamentals.flow_runs import Runs
from tests.fundamentals.samples import beside
from tests.fundamentals.samples.beside import ALL, STEPS, TRIED, Looks, Pinned
from tests.servers import Temporal, register_namespace
from tests.waiting import eventually


def worker(client: Client, **options) -> Worker:
    return Worker(
        client, task_queue="beside", workflows=options.pop("workflows", [*ALL[:2]]),
        activities=STEPS, plugins=[PluginWithoutReplica()], **options,
    )  # fmt: skip


async def test_a_local_step_is_retried_and_has_a_key_and_no_event_of_its_own(client: Client):
    TRIED.clear()
    async with worker(client):
        runs = Runs(client, "beside", beside)
        handle = await runs.start("looks@1")
        found = await runs.end(handle)
    run_id = (await handle.describe()).run_id
    assert found == [
        ["a", "True", f"{run_id}/beside-look/1"],
        ["b", "True", f"{run_id}/beside-look/2"],
    ]
    assert TRIED == [1, 2, 3, 1]
    kinds = {event.event_type async for event in handle.fetch_history_events()}
    assert EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED not in kinds
    assert EventType.EVENT_TYPE_MARKER_RECORDED in kinds


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("compensate", "leave local or compensate out"),
        ("on_failure", "takes no local"),
        ("queue", "a local step takes no queue"),
    ],
)
async def test_a_local_step_that_a_terminated_run_could_not_undo_is_refused(
    client: Client, way: str, said: str
):
    async with worker(client):
        error = await Runs(client, "beside", beside).result("misuses-local@1", way)
    assert said in str(error)


async def test_a_class_with_a_versioning_behavior_needs_a_worker_with_a_version(client: Client):
    with pytest.raises(WorkflowInvalid) as refused:
        worker(client, workflows=[Looks, Pinned])
    assert "the workflow pinned@1 has the versioning behavior PINNED" in str(refused.value)
    assert "samples/beside.py" in str(refused.value)
    run = await run_workflow(Pinned, "x", workflows=[Pinned], steps=STEPS)
    assert run.result == "x", "a test has no deployment"


async def test_a_run_of_it_stays_with_its_version_and_is_undone_from_outside_too(
    native_temporal: Temporal,
):
    name = f"test-{uuid.uuid4().hex}"
    await register_namespace(await Client.connect(native_temporal.address), name)
    client = await Client.connect(native_temporal.address, namespace=name)
    version = WorkerDeploymentVersion("shop", "one")
    deployment = WorkerDeploymentConfig(version=version, use_worker_versioning=True)

    async def becomes_current() -> bool:
        request = SetWorkerDeploymentCurrentVersionRequest(
            namespace=client.namespace, deployment_name="shop", build_id="one"
        )
        try:
            await client.workflow_service.set_worker_deployment_current_version(request)
        except RPCError:  # its worker has not polled yet
            return False
        return True

    async with worker(client, workflows=[Pinned], deployment_config=deployment):
        await eventually(becomes_current, timeout=60)
        handle = await client.start_workflow(
            "pinned@1", "x", id=uuid.uuid4().hex, task_queue="beside"
        )
        assert await handle.result() == "x"
        info = (await handle.describe()).raw_description.workflow_execution_info
        assert info.versioning_info.behavior == VersioningBehavior.PINNED.value
        assert info.versioning_info.deployment_version.build_id == "one"
        # The engine's own workflow, for work that such a run has left.
        own = await client.start_workflow(
            "sched.undo@1",
            {"workflow_id": handle.id, "run_id": info.execution.run_id, "workflow": "pinned@1"},
            id=f"{handle.id}:undo", task_queue="beside",
        )  # fmt: skip
        assert await own.result() >= 0
