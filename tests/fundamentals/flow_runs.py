"""Runs of one test's workflows, each replayed from its history when it has ended."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

from tests.fundamentals.replays import replay


@dataclass(frozen=True)
class Runs:
    """Starts runs of one test on one task queue, each after the end of the one before."""

    client: Client
    task_queue: str
    samples: ModuleType
    id: str = field(default_factory=lambda: f"run-{uuid.uuid4().hex[:8]}")

    async def start(
        self, workflow_type: str, *args: object, **options: Any
    ) -> WorkflowHandle[Any, Any]:
        """Start the run that has the id of these runs."""
        return await self.client.start_workflow(
            workflow_type, args=args, id=self.id, task_queue=self.task_queue, **options
        )

    async def result(self, workflow_type: str, *args: object) -> Any:
        """Start it, wait for the end, replay it and return the result."""
        return await self.end(await self.start(workflow_type, *args))

    async def end(self, handle: WorkflowHandle[Any, Any]) -> Any:
        """Wait for the end, replay it and return the result; or the error that ended it."""
        try:
            found: Any = await handle.result()
        except WorkflowFailureError as failure:
            found = failure.cause
        await replay(self.client, handle, self.samples)
        return found


async def tasks_of(handle: WorkflowHandle[Any, Any]) -> list[int]:
    """Return the events to which a run can be reset."""
    history = await handle.fetch_history()
    return [
        event.event_id for event in history.events
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    ]  # fmt: skip


async def reset(client: Client, handle: WorkflowHandle[Any, Any], event: int) -> Any:
    """Reset a run, and return a handle of the new one."""
    run_id = handle.run_id or handle.first_execution_run_id or ""
    answer = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace, request_id=uuid.uuid4().hex, reason="a test",
            workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=run_id),
            workflow_task_finish_event_id=event,
        )
    )  # fmt: skip
    return client.get_workflow_handle(handle.id, run_id=answer.run_id)
