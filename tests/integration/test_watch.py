"""A watch outlives both servers, and tells of each of them that is away."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from engine.errors import TemporalUnavailable
from engine.ledger import Ledger
from engine.runtime import SchedulePlugin
from engine.runtime.apply.apply import apply
from engine.runtime.events import Event, Settled
from engine.runtime.settings import Settings
from engine.runtime.watch import watch as looks
from engine.schedules import load_schedules
from engine.service import ScheduleService
from tests.links import link_to
from tests.receiver import Receiver
from tests.sample_workflows import Noop
from tests.servers import Temporal
from tests.waiting import eventually

pytestmark = pytest.mark.slow

QUICK = timedelta(milliseconds=200)
FILE = "schedules: [{key: pulse, workflow: noop, everyMs: 1000, grace: 5s}]"
GRACE = timedelta(seconds=5)


def late(message: dict[str, Any]) -> timedelta:
    """How long after the time of its window a message was opened."""
    opened, since = (datetime.fromisoformat(message[name]) for name in ("openedAt", "since"))
    return opened - since


async def test_a_watch_tells_of_a_server_that_is_away_and_of_its_return(
    client: Client, database_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(looks, "_AWAY", timedelta(milliseconds=300))
    events: list[Event] = []
    receiver = Receiver()
    temporal_is_away = True

    async def connect() -> Client:
        if temporal_is_away:
            raise TemporalUnavailable("no Temporal server answers at example:7233", hint="start it")
        return client

    port = urlsplit(database_url).port
    assert port
    async with receiver.listening() as url, link_to(port) as link:
        settings = Settings(heartbeat=QUICK, alert_url=f"{url}/alerts")
        alone = looks.WatchProcess(
            link.way(database_url), settings, namespace=client.namespace, schema="sched",
            connect=connect, on_event=events.append,
        )  # fmt: skip
        watching = asyncio.create_task(alone.run())
        message = await receiver.heard("open", "TEMPORAL_UNAVAILABLE")
        assert "no Temporal server answers at example:7233" in message["summary"]
        temporal_is_away = False
        await receiver.heard("resolved", "TEMPORAL_UNAVAILABLE")
        with link.harmed("cut"):
            message = await receiver.heard("open", "LEDGER_UNAVAILABLE")
            assert message["dedupKey"] == f"{client.namespace}/away:SCHEDULE_LEDGER_UNAVAILABLE"
        await receiver.heard("resolved", "LEDGER_UNAVAILABLE")
        alone.stop()
        await watching


@pytest.mark.prove
async def test_windows_that_wait_for_temporal_have_that_cause_and_are_resolved_by_its_return(
    client: Client, temporal: Temporal, database_url: str
):
    receiver = Receiver()
    async with receiver.listening() as url, link_to(temporal.port) as link:
        settings = Settings(heartbeat=QUICK, rpc_timeout=timedelta(seconds=1))
        there = await Client.connect(link.way(temporal.address), namespace=client.namespace)

        async def connect() -> Client:
            return there

        events: list[Event] = []
        plugin = SchedulePlugin(
            load_schedules(FILE), database_url=database_url, settings=settings,
            on_event=events.append,
        )  # fmt: skip
        alone = looks.WatchProcess(
            database_url, replace(settings, alert_url=f"{url}/alerts"),
            namespace=client.namespace, schema="sched", connect=connect,
            on_event=lambda _: None,
        )  # fmt: skip
        looking = asyncio.create_task(alone.run())
        async with Worker(there, task_queue="sched", workflows=[Noop], plugins=[plugin]):
            await eventually(lambda: any(isinstance(each, Settled) for each in events))
            with link.harmed("cut"):
                message = await receiver.heard("open", "NOT_FIRED", cause="temporal_unreachable")
                assert "pulse has not fired" in message["summary"]
                assert late(message) <= 2 * GRACE
            await receiver.heard("resolved", "NOT_FIRED", cause="temporal_unreachable")
        alone.stop()
        await looking


CAUSES = """
schedules:
  - {key: pulse, workflow: noop, everyMs: 1000, grace: 5s}
  - {key: unknown, workflow: absent, everyMs: 1000, grace: 5s}
  - {key: spoilt, workflow: noop, everyMs: 1000, grace: 5s}
  - {key: held, workflow: noop, everyMs: 1000, grace: 5s, alert: {lateAfter: 5s}}
  - {key: lone, workflow: noop, everyMs: 1000, grace: 5s, taskQueue: nowhere}
  - {key: locked, workflow: noop, everyMs: 1000, grace: 5s}
"""


async def test_each_cause_beside_a_living_worker_is_named_within_one_more_grace(
    client: Client, temporal: Temporal, database_url: str
):
    receiver, events = Receiver(), list[Event]()
    ledger = await Ledger.connect(database_url, namespace=client.namespace)
    await apply(ledger, load_schedules(CAUSES), by="test")
    await ScheduleService(ledger, actor="ann").pause("held", reason="holiday")
    database = await asyncpg.connect(database_url)
    await database.execute(  # no version of ours reads this
        'UPDATE sched.definitions SET definition = definition || \'{"everyMs": "soon"}\''
        " WHERE key = 'spoilt'"
    )
    # A session that does not end: every replica passes over the key, as over one of another's.
    session = database.transaction()
    await session.start()
    await database.execute("SELECT FROM sched.positions WHERE key = 'locked' FOR UPDATE")
    async with receiver.listening() as url, link_to(temporal.port) as link:
        settings = Settings(heartbeat=timedelta(seconds=1), rpc_timeout=timedelta(seconds=1))
        there = await Client.connect(link.way(temporal.address), namespace=client.namespace)

        async def connect() -> Client:
            return client  # not by the link: from here Temporal answers

        plugin = SchedulePlugin(
            database_url=database_url, settings=settings, on_event=events.append
        )
        alone = looks.WatchProcess(
            database_url, replace(settings, alert_url=f"{url}/alerts"),
            namespace=client.namespace, schema="sched", connect=connect, on_event=lambda _: None,
        )  # fmt: skip
        looking = asyncio.create_task(alone.run())
        async with Worker(there, task_queue="sched", workflows=[Noop], plugins=[plugin]):
            found = [
                await receiver.heard("open", "NOT_FIRED", cause="workflow_unknown", key="unknown"),
                await receiver.heard("open", "NOT_FIRED", cause="plan_failed", key="spoilt"),
                await receiver.heard("open", "FIRED_LATE", cause="paused", key="held"),
                await receiver.heard("open", "NOT_FIRED", cause="task_queue_unserved", key="lone"),
                await receiver.heard("open", "NOT_FIRED", cause="undecided", key="locked"),
            ]
            await session.rollback()
            await receiver.heard("resolved", "NOT_FIRED", dedupKey=found[-1]["dedupKey"])
            assert any(isinstance(each, Settled) for each in events)
            with link.harmed("hold"):
                found.append(await receiver.heard("open", "NOT_FIRED", cause="no_answer"))
            # Its next window may be late for another reason: the alert then ends with that one.
            await receiver.heard("resolved", "NOT_FIRED", dedupKey=found[-1]["dedupKey"])
        alone.stop()
        await looking
    await ledger.close()
    await database.close()
    assert max(map(late, found)) <= 2 * GRACE, found
