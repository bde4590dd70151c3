"""``heartbeat``: the smallest scheduled workflow."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import asyncpg
import pytest

from activities.database import database
from activities.example_data import Beat, record_beat
from engine.errors import ResourceFailed
from tests.fundamentals.example_app import MORNING, ExampleApp, fire


async def test_it_records_one_beat_per_window(app: ExampleApp):
    later = MORNING + timedelta(seconds=10)
    assert await app.run("heartbeat@1", fire("heartbeat", 1)) == 1
    assert await app.run("heartbeat@1", fire("heartbeat", 2, later)) == 2
    beats = await app.rows("SELECT name, beats, fire_time FROM example.heartbeat")
    assert beats == [("heartbeat", 2, later)]


async def test_it_can_be_started_by_hand(app: ExampleApp):
    assert await app.run("heartbeat@1", None) == 1


async def test_its_step_may_be_repeated_without_harm(pool: asyncpg.Pool):
    beat = Beat("heartbeat", MORNING)
    assert [await record_beat(beat, pool=pool) for _ in range(2)] == [1, 1]


async def test_the_first_beats_of_many_replicas_may_come_at_once(pool: asyncpg.Pool):
    beats = [record_beat(Beat(f"replica-{n}", MORNING), pool=pool) for n in range(10)]
    assert await asyncio.gather(*beats) == [1] * 10


async def test_without_a_database_the_worker_does_not_start_and_says_what_to_do(
    app: ExampleApp, monkeypatch
):
    monkeypatch.delenv("SCHED_DATABASE_URL")
    sentence = "SCHED_DATABASE_URL is not set: start the worker with `sched up`"
    with pytest.raises(ResourceFailed, match=sentence):
        await app.run("heartbeat@1", fire("heartbeat"))


async def test_the_tables_of_many_replicas_may_be_made_at_once(app: ExampleApp):
    async with AsyncExitStack() as stack:
        opening = (stack.enter_async_context(asynccontextmanager(database)()) for _ in range(5))
        assert len(await asyncio.gather(*opening)) == 5
