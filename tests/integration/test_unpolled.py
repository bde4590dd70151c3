"""External schedules whose task queue nobody polls: that is told, and how many runs wait."""

from __future__ import annotations

from datetime import timedelta

from temporalio.worker import Worker

from engine.ledger import Ledger
from engine.runtime.dispatch.backpressure import Budget
from engine.runtime.events import Alert
from engine.runtime.settings import Settings
from engine.runtime.tracking.tracker import Polls
from engine.schedules import load_schedules
from engine.service import ScheduleService
from tests.sample_workflows import Plain
from tests.waiting import eventually

FILE = """
schedules:
  - {key: go, workflow: PlainWorkflow, external: true, taskQueue: golang, everyMs: 60000}
"""
NOBODY = "no worker has polled the task queue golang, and"
MOMENT = timedelta(milliseconds=200)


async def test_runs_that_wait_for_a_worker_nobody_has_started_are_told_with_their_number(
    client, database_url, monkeypatch
):
    monkeypatch.setattr("engine.ledger.records.UNPOLLED", MOMENT)
    ledger = await Ledger.connect(database_url, namespace=client.namespace)
    service = ScheduleService(ledger, actor="test")
    await service.apply(load_schedules(FILE))
    told: list[Alert] = []
    polls = Polls(client, ledger, Settings(), budget=Budget(), on_event=told.append)  # type: ignore[arg-type] # all that it tells

    async def said() -> list[str]:
        await polls.look()
        return await service.left_alone(await service.schedules())

    await polls.look()
    assert await service.left_alone(await service.schedules()) == [], "it may come soon"
    runs = [
        await client.start_workflow("PlainWorkflow", id=f"sched:go:{number}", task_queue="golang")
        for number in range(2)
    ]

    async def waits() -> bool:
        expected = (
            "no worker has polled the task queue golang, and 2 runs wait there; start its worker"
        )
        return await said() == [expected]

    await eventually(waits, every=0.1)
    await polls.look()
    (alert,) = told
    assert alert.code == "SCHEDULE_TASK_QUEUE_UNPOLLED"
    assert alert.text.startswith(NOBODY)
    monkeypatch.setattr("engine.ledger.records.UNPOLLED", timedelta(minutes=2))
    async with Worker(client, task_queue="golang", workflows=[Plain]):
        for run in runs:
            await run.result()

        async def polled() -> bool:
            await polls.look()
            (row,) = await ledger.polled_queues(within=timedelta(minutes=1))
            return row.polled_at is not None and row.waiting == 0

        await eventually(polled, timeout=30, every=0.2)
    assert await said() == []
    assert len(told) == 1
    await ledger.close()
