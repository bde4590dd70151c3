"""How fast windows that wait in line for short runs go on."""

from __future__ import annotations

import asyncio
import os

import pytest
from temporalio.worker import Worker

from engine.ledger import Ledger
from engine.runtime import SchedulePlugin, Settings
from engine.schedules import load_schedules
from engine.service import ScheduleService
from tests.slow_workflows import Short, takes_a_moment
from tests.waiting import eventually

LINE = 15
WINDOWS = int(os.environ.get("SCHED_LINE_WINDOWS", "15"))
"""600 is the long form: ten minutes of a schedule of one second."""


async def line(ledger: Ledger) -> int:
    return len(await ledger.fires(key="k", status="queued", limit=100))


async def completed(ledger: Ledger, runs: int) -> bool:
    return len(await ledger.fires(key="k", status="completed", limit=runs)) >= runs


async def let_a_line_form(ledger: Ledger) -> None:
    """A line that has formed does not go away by itself: nobody looks at the run before it."""
    service = ScheduleService(ledger, actor="test")

    async def formed() -> bool:  # five at once may end as quickly as requests are made
        await asyncio.gather(*(service.trigger("k") for _ in range(LINE)))
        return await line(ledger) > 2

    await eventually(formed)


async def longest_line(ledger: Ledger, runs: int) -> int:
    """How many windows wait at most until so many have run."""
    longest = 0

    async def done() -> bool:
        nonlocal longest
        longest = max(longest, await line(ledger))
        return await completed(ledger, runs)

    await eventually(done, timeout=runs * 3, every=0.1)
    return longest


@pytest.mark.slow
@pytest.mark.prove
@pytest.mark.parametrize("at_once", [1, 5])
async def test_of_a_schedule_with_short_runs_never_more_than_two_windows_wait(
    client, database_url, namespace, at_once
):
    file = load_schedules(
        "schedules: [{key: k, workflow: short, everyMs: 1000, overlap: queue,"
        f" maxConcurrentRuns: {at_once}}}]"
    )
    plugin = SchedulePlugin(file, database_url=database_url, settings=Settings())
    ledger = await Ledger.connect(database_url, namespace=namespace)
    try:
        async with Worker(
            client, task_queue="sched", workflows=[Short], activities=[takes_a_moment],
            plugins=[plugin],
        ):  # fmt: skip
            await eventually(lambda: completed(ledger, 2))
            await let_a_line_form(ledger)

            async def gone() -> bool:
                return await line(ledger) <= 1

            await eventually(gone, timeout=LINE * 3)
            longest = await longest_line(ledger, LINE + WINDOWS)
    finally:
        await ledger.close()
    assert longest <= 2
