"""Tells the Temporal server how fast the steps of a queue may begin.

The server limits a task queue as a whole, wherever its steps are taken from; no replica counts.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import RateLimit, TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    UpdateTaskQueueConfigRequest,
)
from temporalio.client import Client

from engine.schedules.rates import Rate

_CLOSE = 1e-3
"""The server keeps a rate in fewer digits than we do."""

_ACTIVITY = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY


async def limit_rate(client: Client, lane: str, rate: Rate | None, *, patience: timedelta) -> bool:
    """Make ``rate`` the limit of a lane, or take its limit away; return whether that was news.

    Raises:
        RPCError: the server did not answer, or cannot limit a task queue.
    """
    per_second = rate.count / rate.per.total_seconds() if rate else 0.0
    described = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=lane),
            task_queue_type=_ACTIVITY,
            report_config=True,
        ),
        timeout=patience,
    )
    now = described.config.queue_rate_limit.rate_limit.requests_per_second
    if abs(now - per_second) <= _CLOSE * per_second:
        return False
    update = UpdateTaskQueueConfigRequest.RateLimitUpdate(reason="queues of sched-engine")
    if rate:
        update.rate_limit.CopyFrom(RateLimit(requests_per_second=per_second))
    await client.workflow_service.update_task_queue_config(
        UpdateTaskQueueConfigRequest(
            namespace=client.namespace,
            identity=client.identity,
            task_queue=lane,
            task_queue_type=_ACTIVITY,
            update_queue_rate_limit=update,
        ),
        timeout=patience,
    )
    return True
