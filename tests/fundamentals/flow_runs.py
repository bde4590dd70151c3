"""Runs of one test's workflows, each replayed from its history when it has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.worker import Replayer


@dataclass(frozen=True)
class Runs:
    """Starts runs on one task queue."""

    client: Client
    task_queue: str
    workflows: list[Any]

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
        history = await handle.fetch_history()
        converter = self.client.data_converter
        replayer = Replayer(workflows=self.workflows, data_converter=converter)
        replayed = await replayer.replay_workflow(history)
        assert replayed.replay_failure is None
        return found
