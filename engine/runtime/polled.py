"""Learns whether anybody polls the task queues on which external schedules start workflows.

Their workers are none of ours and announce nothing, so Temporal is asked: for the last poll and not
for who is listed, since a worker that was stopped stays listed for minutes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from engine.errors import Code
from engine.ledger import Ledger
from engine.runtime.budget import Budget
from engine.runtime.events import Alert, Listener
from engine.runtime.settings import Settings
from engine.runtime.trouble import trouble
from engine.runtime.unknown import nobody_polls

_AT_ONCE: Final = 10
"""Task queues that one look asks for; of more each has its turn."""


class Polls:
    """Asks Temporal, writes what it says to the ledger, and tells of queues that nobody polls."""

    def __init__(
        self, client: Client, ledger: Ledger, settings: Settings, *, budget: Budget, tell: Listener
    ) -> None:
        self._client, self._ledger, self._settings = client, ledger, settings
        self._budget, self._tell = budget, tell
        self._asked_last = ""
        self._told: set[str] = set()
        self._had_any = True

    async def look(self) -> None:
        """Ask for some task queues.

        Raises:
            RPCError: the server is away.
        """
        queues = await self._ledger.external_queues()
        later = [queue for queue in queues if queue > self._asked_last]
        turn = [*later, *(queue for queue in queues if queue not in later)][:_AT_ONCE]
        seen = {}
        for queue in turn:
            self._asked_last = queue
            try:
                seen[queue] = await self._asked(queue)
            except RPCError as error:
                if trouble(error) == "away":
                    raise
                if queue not in self._told:
                    self._told.add(queue)
                    text = f"whether anybody polls the task queue {queue}: {error}"
                    self._tell(Alert(Code.LOOK_FAILED, text))
        if not queues and not self._had_any:
            return
        self._had_any = bool(queues)
        for row in await self._ledger.note_polls(seen, of=queues):
            waits = row.is_left_alone and row.waiting > 0
            if waits and row.task_queue not in self._told:
                self._tell(Alert(Code.TASK_QUEUE_UNPOLLED, nobody_polls(row)))
            (self._told.add if waits else self._told.discard)(row.task_queue)
        self._told.intersection_update(queues)

    async def _asked(self, queue: str) -> tuple[datetime | None, int]:
        """Return when somebody polled a task queue last, and how many tasks wait there."""
        await self._budget.call(tracking=True)
        found = await self._client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=self._client.namespace,
                task_queue=TaskQueue(name=queue),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
                report_stats=True,
            ),
            timeout=self._settings.rpc_timeout,
        )
        polls = [each.last_access_time.ToDatetime(UTC) for each in found.pollers]
        return max(polls, default=None), found.stats.approximate_backlog_count
