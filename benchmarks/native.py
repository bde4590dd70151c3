"""The named rival: native Temporal Schedules, as a user would declare them.

Overlap is allowed, as it is by the engine's default; with the server's own default (skip) a
schedule also waits to learn that its last run has closed.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleCalendarSpec,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
)

from benchmarks.workflows import TYPE

_CREATING = 16


async def create_daily(client: Client, count: int, at: datetime, task_queue: str) -> None:
    """Create so many schedules that all fire at this second of each day."""
    second, minute, hour = ([ScheduleRange(value)] for value in (at.second, at.minute, at.hour))
    daily = ScheduleSpec(calendars=[ScheduleCalendarSpec(second, minute, hour)])
    numbers = iter(range(count))

    async def creator() -> None:
        for number in numbers:
            await _create(client, f"native-{number:05}", daily, task_queue)

    await asyncio.gather(*(creator() for _ in range(_CREATING)))


async def create_interval(client: Client, name: str, every: timedelta, task_queue: str) -> None:
    """Create one schedule that fires at each full interval."""
    spec = ScheduleSpec(intervals=[ScheduleIntervalSpec(every)])
    await _create(client, name, spec, task_queue)


async def _create(client: Client, name: str, spec: ScheduleSpec, task_queue: str) -> None:
    action = ScheduleActionStartWorkflow(TYPE, id=name, task_queue=task_queue)
    policy = SchedulePolicy(overlap=ScheduleOverlapPolicy.ALLOW_ALL)
    await client.create_schedule(name, Schedule(action, spec, policy))
