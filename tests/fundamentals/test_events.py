"""Events: a function of the worker and a webhook get what becomes of each fire."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest
from standardwebhooks import Webhook
from temporalio.client import Client
from temporalio.worker import Worker

from engine.events import ScheduleEvent, on
from engine.runtime import SchedulePlugin, Settings
from engine.schedules import load_schedules
from tests.links import accepting
from tests.receiver import Request
from tests.sample_workflows import Noop
from tests.waiting import eventually

SECRET = "whsec_" + "c2VjcmV0" * 4
FILE = """
hooks:
  - {url: "http://127.0.0.1:%d/sched", secret: "${env:HOOK_SECRET}", events: [schedule.arrived]}
schedules:
  - key: remind
    workflow: noop
    everyMs: 1000
    topic: notifications.task-reminder
    input: {n: one}
"""
GOT: list[ScheduleEvent] = []


@on("schedule.*.arrived", "schedule.completed")
async def remember(event: ScheduleEvent) -> None:
    GOT.append(event)


async def test_a_listener_and_a_hook_get_what_becomes_of_a_fire(
    client: Client, shared_database_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    GOT.clear()
    posted: list[tuple[dict[str, str], bytes]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await Request.read(reader)
        posted.append((request.headers, request.body))
        writer.write(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
        await writer.drain()

    async with accepting(answer) as port:
        plugin = SchedulePlugin(
            load_schedules(FILE % port),
            database_url=shared_database_url,
            settings=Settings(
                hooks_allow="127.0.0.1", tick=timedelta(milliseconds=100),
                track=timedelta(milliseconds=200), heartbeat=timedelta(milliseconds=500),
            ),
            listeners=[remember],
        )  # fmt: skip
        async with Worker(client, task_queue="sched", workflows=[Noop], plugins=[plugin]):
            await eventually(lambda: "schedule.completed" in [e.name for e in GOT], timeout=30)
            await eventually(lambda: posted, timeout=30)

    arrived, completed = GOT[0], next(e for e in GOT if e.name == "schedule.completed")
    assert arrived.name == "schedule.notifications.task-reminder.arrived"
    assert arrived.data["userPayload"] == {"n": "one"}
    assert (arrived.data["attempt"], arrived.data["timing"]) == (1, "on_time")
    assert completed.data["workflowId"].startswith("sched:remind:")
    its = [event for event in GOT if event.data["workflowId"] == completed.data["workflowId"]]
    assert [event.type for event in its] == ["arrived", "completed"]

    headers, body = posted[0]
    Webhook(SECRET).verify(body, headers)
    document = json.loads(body)
    assert (document["specversion"], document["type"]) == ("1.0", "schedule.arrived")
    assert document["data"]["scheduledJobId"] == "remind"
