"""Workflows of other languages: ``external: true`` starts any type on any task queue."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from engine import FireInfo
from engine.ledger import Ledger
from engine.ledger.fires import Fire
from engine.runtime import SchedulePlugin
from engine.schedules import load_schedules
from tests.fundamentals.samples.foreign import Bare, SendInvoices
from tests.waiting import eventually

FILE = """
defaults: {taskQueue: golang}
schedules:
  - key: invoices
    workflow: SendInvoices
    external: true
    everyMs: 86400000
    input: {customers: [7, 9], dry: false, limit: 12.5, note: "día"}
  - {key: bare, workflow: Bare, external: true, everyMs: 86400000}
"""


@activity.defn
async def nothing() -> None:
    """A worker has to have something to serve."""


@pytest.fixture
async def fires(client: Client, shared_database_url: str) -> AsyncIterator[dict[str, Fire]]:
    """Fired by a worker that has none of these workflows, run by one that has no engine."""
    plugin = SchedulePlugin(load_schedules(FILE), database_url=shared_database_url)
    async with (
        Worker(client, task_queue="golang", workflows=[SendInvoices, Bare]),
        Worker(client, task_queue="sched", activities=[nothing], plugins=[plugin]),
    ):
        ledger = await Ledger.connect(shared_database_url, namespace=client.namespace)

        async def started() -> dict[str, Fire]:
            found = {fire.key: fire for fire in await ledger.fires() if fire.run_id}
            return found if len(found) == 2 else {}

        yield await eventually(started)
        await ledger.close()


def written(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


async def test_the_argument_is_the_input_as_json_and_the_memo_says_which_window(
    client: Client, fires: dict[str, Fire]
):
    fire = fires["invoices"]
    handle = client.get_workflow_handle(fire.workflow_id)
    encoding, data, memo_encoding, memo, attributes = await handle.result()
    assert encoding == memo_encoding == "json/plain"
    assert json.loads(data) == {"customers": [7, 9], "dry": False, "limit": 12.5, "note": "día"}
    told = json.loads(memo)
    assert told == {
        "v": 1,
        "key": "invoices",
        "series": fire.series,
        "bucket": fire.bucket,
        "fire_time": written(fire.fire_time),
        "timezone": "UTC",
        "timing": fire.timing,
        "definition_version": 1,
        "project": "default",
        "ledger": told["ledger"],
        "token": told["token"],
        "missed": 0,
    }  # and no data_from: no run came before
    assert FireInfo.from_memo(told).fire_time == fire.fire_time
    assert attributes == [f"TemporalScheduledStartTime {fire.fire_time}"]


async def test_without_an_input_there_is_no_argument(client: Client, fires: dict[str, Fire]):
    fire = fires["bare"]
    assert await client.get_workflow_handle(fire.workflow_id).result() == fire.workflow_id
