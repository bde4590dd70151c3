"""``heartbeat``: the smallest scheduled workflow."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio.exceptions import ApplicationError

from activities.example_data import Beat, record_beat
from tests.fundamentals.example_app import MORNING, ExampleApp, fire


async def test_it_records_one_beat_per_window(app: ExampleApp):
    later = MORNING + timedelta(seconds=10)
    assert await app.run("heartbeat@1", fire("heartbeat", 1)) == 1
    assert await app.run("heartbeat@1", fire("heartbeat", 2, later)) == 2
    beats = await app.rows("SELECT name, beats, fire_time FROM example.heartbeat")
    assert beats == [("heartbeat", 2, later)]


async def test_it_can_be_started_by_hand(app: ExampleApp):
    assert await app.run("heartbeat@1", None) == 1


async def test_its_step_may_be_repeated_without_harm(app: ExampleApp):
    assert [await record_beat(Beat("heartbeat", MORNING)) for _ in range(2)] == [1, 1]


async def test_the_first_beats_of_many_replicas_may_come_at_once(app: ExampleApp):
    beats = [record_beat(Beat(f"replica-{n}", MORNING)) for n in range(10)]
    assert await asyncio.gather(*beats) == [1] * 10


async def test_without_a_database_the_run_fails_at_once_and_says_what_to_do(
    app: ExampleApp, monkeypatch
):
    monkeypatch.delenv("SCHED_DATABASE_URL")
    cause = await app.failure("heartbeat@1", fire("heartbeat"))
    assert isinstance(cause, ApplicationError)
    assert cause.non_retryable
    assert "SCHED_DATABASE_URL is not set: start the worker with `sched up`" in str(cause)
