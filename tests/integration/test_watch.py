"""A watch outlives both servers, and tells of each of them that is away."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta

import pytest
from temporalio.client import Client

from engine.embedded import PostgresServer
from engine.errors import TemporalUnavailable
from engine.runtime.events import Event
from engine.runtime.settings import Settings
from engine.runtime.watch import watch as looks
from tests.receiver import Receiver
from tests.servers import shared_folder

pytestmark = pytest.mark.slow


async def test_a_watch_tells_of_a_server_that_is_away_and_of_its_return(
    client: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(looks, "_AWAY", timedelta(milliseconds=300))
    events: list[Event] = []
    receiver = Receiver()
    temporal_is_away = True

    async def connect() -> Client:
        if temporal_is_away:
            raise TemporalUnavailable("no Temporal server answers at example:7233", cure="start it")
        return client

    with shared_folder() as folder:
        postgres = PostgresServer(folder / "pg")
        await postgres.start()
        async with receiver.listening() as url:
            settings = Settings(heartbeat=timedelta(milliseconds=200), alert_url=f"{url}/alerts")
            alone = looks.Alone(
                postgres.url, settings, namespace=client.namespace, schema="sched",
                connect=connect, on_event=events.append,
            )  # fmt: skip
            watching = asyncio.create_task(alone.run())
            message = await receiver.heard("open", "TEMPORAL_UNAVAILABLE")
            assert "no Temporal server answers at example:7233" in message["summary"]
            temporal_is_away = False
            await receiver.heard("resolved", "TEMPORAL_UNAVAILABLE")

            os.kill(postgres.pid, signal.SIGKILL)
            message = await receiver.heard("open", "LEDGER_UNAVAILABLE")
            assert message["dedup_key"] == f"{client.namespace}/away:SCHEDULE_LEDGER_UNAVAILABLE"
            await postgres.stop()
            await postgres.start()
            await receiver.heard("resolved", "LEDGER_UNAVAILABLE")
            alone.stop()
            await watching
        await postgres.stop()
