"""Tells of runs that cannot go on: the server hands out their next task, and workers fail it.

The usual reason is code that was changed under a run that is open. Temporal tries for ever and
shows it on the run's page; a window that was to be done by now deserves a word before somebody
looks there.
"""

from __future__ import annotations

from typing import Final

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHistory
from temporalio.service import RPCError

from engine.errors import Code
from engine.runtime.budget import Budget
from engine.runtime.events import Alert, Listener
from engine.runtime.settings import Settings
from engine.runtime.stories import CURE, told, workflow_type

_ATTEMPTS: Final = 3
"""One failed task is a deploy under way, or a worker that was killed."""
_REMEMBERED: Final = 10_000
_DIFFERS: Final = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR


class StuckRuns:
    """Notices them among the runs that are described, and tells of each once."""

    def __init__(
        self, client: Client, settings: Settings, *, budget: Budget | None = None, tell: Listener
    ) -> None:
        self._budget = budget or Budget()
        self._client, self._settings, self._tell = client, settings, tell
        self._known: dict[str, None] = {}

    async def notice(self, run: WorkflowExecutionDescription) -> None:
        """Look at an open run, whose description is at hand."""
        task = run.raw_description.pending_workflow_task
        if task.attempt < _ATTEMPTS or run.run_id in self._known:
            return
        handle = self._client.get_workflow_handle(run.id, run_id=run.run_id)
        await self._budget.call()
        try:
            history = await handle.fetch_history(rpc_timeout=self._settings.rpc_timeout)
        except RPCError:
            return  # it is looked at again
        why = _failure(history)
        if why is None:
            return  # its tasks are lost, not failed: no worker, or one that is killed each time
        self._known[run.run_id] = None
        while len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        text = f"{run.id} ({workflow_type(history)}) cannot go on, attempt {task.attempt}"
        self._tell(Alert(Code.RUN_STUCK, f"{text}: {why}"))


def _failure(history: WorkflowHistory) -> str | None:
    """Return why its last task failed; None when none failed since one was completed."""
    for event in reversed(history.events):
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            return None
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            failed = event.workflow_task_failed_event_attributes
            said = failed.failure.message
            if failed.cause == _DIFFERS:
                return f"{told(history, said, ())}; {CURE}"
            return said or WorkflowTaskFailedCause.Name(failed.cause)
    return None
