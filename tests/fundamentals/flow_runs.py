"""Runs of one test's workflows, each replayed from its history when it has ended."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

from tests.fundamentals.replays import replay


@dataclass(frozen=True)
class Runs:
    """Starts runs on one task queue."""

    client: Client
    task_queue: str
    samples: ModuleType

    async def start(self, workflow_type: str, *args: object) -> WorkflowHandle[Any, Any]:
        """Start the run that is called ``run``."""
        return await self.client.start_workflow(
            workflow_type, args=args, id="run", task_queue=self.task_queue
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
