"""What a listener hears of closed runs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from temporalio.worker import Worker

from engine.runtime import SchedulePlugin, Settings
from engine.runtime.events import Closed, Event
from engine.schedules import load_schedules
from tests.sample_workflows import Fails
from tests.waiting import eventually

FILE = "schedules: [{key: unlucky, workflow: fails, everyMs: 1000}]"


@pytest.mark.prove
async def test_each_run_that_closes_between_two_looks_is_reported_once(client, database_url):
    told: list[Event] = []
    plugin = SchedulePlugin(
        load_schedules(FILE), database_url=database_url, on_event=told.append,
        settings=Settings(track=timedelta(seconds=3)),
    )  # fmt: skip

    def closed() -> list[Closed]:
        found = [event for event in told if isinstance(event, Closed)]
        return found if len(found) >= 6 else []

    async with Worker(client, task_queue="sched", workflows=[Fails], plugins=[plugin]):
        events = await eventually(closed, timeout=30)
    names = [event.evidence.workflow_id for event in events]
    assert len(names) == len({*names})
    assert all(event.evidence.error for event in events), "with its reason"
