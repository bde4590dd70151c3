"""The example application: what a newcomer copies has to work, again and again.

These tests are also the model for tests of one's own workflows: a real Temporal server, a real
database, a plain worker.
"""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ActivityError, RetryState
from temporalio.worker import Replayer, Worker

from activities.example_data import (
    CUSTOMERS,
    ORDERS,
    Beat,
    Summary,
    record_beat,
    refresh_order_summary,
    seed_orders,
)
from engine import FireInfo
from engine.flow import MEMO_KEY, registered_workflows
from engine.schedules import Interval, load_schedules
from workflows.cache_sync import CacheSync
from workflows.heartbeat import Heartbeat

WORKFLOWS = [CacheSync, Heartbeat]
FIRE = FireInfo(
    key="cache-sync",
    series=0,
    bucket=5984124,
    fire_time=datetime(2026, 11, 21, 5, tzinfo=UTC),
    timezone="UTC",
    timing="on_time",
    definition_version=1,
    project="default",
    ledger="ledger-1",
    token="token-1",  # noqa: S106 - a claim's number, not a secret
)


@pytest.fixture(autouse=True)
def database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The steps find their database as under `sched up`: by the environment."""
    monkeypatch.setenv("SCHED_DATABASE_URL", database_url)
    return database_url


async def run(client: Client, workflow_type: str, fire: FireInfo | None):
    worker = Worker(
        client,
        task_queue="examples",
        workflows=WORKFLOWS,
        activities=[seed_orders, refresh_order_summary, record_beat],
    )
    async with worker:
        handle = await client.start_workflow(
            workflow_type,
            id=f"sched:{fire.key}:{fire.bucket}" if fire else "by-hand",
            task_queue="examples",
            memo={MEMO_KEY: fire.to_memo()} if fire else None,
        )
        return await handle.result(), await handle.fetch_history()


async def rows(address: str, query: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(address)
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


async def test_cache_sync_sums_up_the_orders_it_seeded(client: Client, database: str):
    result, history = await run(client, "cache-sync@1", FIRE)
    assert result == {"customers": len(CUSTOMERS), "orders": ORDERS}

    summary = await rows(database, "SELECT customer, orders, total FROM example.order_summary")
    counted = await rows(
        database,
        "SELECT customer, count(*), sum(amount) FROM example.orders GROUP BY customer",
    )
    assert sorted(summary) == sorted(counted)
    assert {row[0] for row in summary} == set(CUSTOMERS)
    times = await rows(database, "SELECT DISTINCT fire_time FROM example.order_summary")
    assert times == [(FIRE.fire_time,)]

    replayed = await Replayer(workflows=WORKFLOWS).replay_workflow(history)
    assert replayed.replay_failure is None


async def test_cache_sync_sees_what_has_changed_since_the_window_before(
    client: Client,
    database: str,
):
    await run(client, "cache-sync@1", FIRE)
    await rows(database, "DELETE FROM example.order_summary WHERE customer = 'Fir Foods'")
    await rows(
        database,
        "INSERT INTO example.orders VALUES (9001, 'Zelkova Zips', 10.50, '2026-11-21 05:03Z')",
    )
    following = dataclasses.replace(
        FIRE, bucket=FIRE.bucket + 1, fire_time=FIRE.fire_time + timedelta(minutes=5)
    )
    result, _ = await run(client, "cache-sync@1", following)
    assert result == {"customers": len(CUSTOMERS) + 1, "orders": ORDERS + 1}


async def test_heartbeat_records_one_beat_per_window(client: Client, database: str):
    fire = dataclasses.replace(FIRE, key="heartbeat", bucket=1)
    later = dataclasses.replace(fire, bucket=2, fire_time=fire.fire_time + timedelta(seconds=10))
    assert (await run(client, "heartbeat@1", fire))[0] == 1
    result, history = await run(client, "heartbeat@1", later)
    assert result == 2
    beats = await rows(database, "SELECT name, beats, fire_time FROM example.heartbeat")
    assert beats == [("heartbeat", 2, later.fire_time)]
    replayed = await Replayer(workflows=WORKFLOWS).replay_workflow(history)
    assert replayed.replay_failure is None


async def test_both_can_be_started_by_hand(client: Client):
    assert (await run(client, "cache-sync@1", None))[0]["orders"] == ORDERS
    assert (await run(client, "heartbeat@1", None))[0] == 1


async def test_steps_may_be_repeated_without_harm():
    at = FIRE.fire_time
    assert [await seed_orders() for _ in range(2)] == [ORDERS, ORDERS]
    expected = Summary(len(CUSTOMERS), ORDERS)
    assert [await refresh_order_summary(at) for _ in range(2)] == [expected, expected]
    assert [await record_beat(Beat("heartbeat", at)) for _ in range(2)] == [1, 1]


async def test_a_late_window_does_not_undo_a_newer_one(database: str):
    await seed_orders()
    await refresh_order_summary(FIRE.fire_time)
    await refresh_order_summary(FIRE.fire_time - timedelta(minutes=5))
    times = await rows(database, "SELECT DISTINCT fire_time FROM example.order_summary")
    assert times == [(FIRE.fire_time,)]


async def test_the_first_runs_of_many_replicas_may_come_at_once():
    beats = [record_beat(Beat(f"replica-{n}", FIRE.fire_time)) for n in range(10)]
    counts = await asyncio.gather(*(seed_orders() for _ in range(10)))
    assert counts == [ORDERS] * 10
    assert await asyncio.gather(*beats) == [1] * 10


async def test_without_a_database_the_run_fails_at_once_and_says_what_to_do(client, monkeypatch):
    monkeypatch.delenv("SCHED_DATABASE_URL")
    with pytest.raises(WorkflowFailureError) as failure:
        await run(client, "heartbeat@1", FIRE)
    step_failure = failure.value.cause
    assert isinstance(step_failure, ActivityError)
    assert step_failure.retry_state is RetryState.NON_RETRYABLE_FAILURE
    cause = str(step_failure.cause)
    assert "SCHED_DATABASE_URL is not set: start the worker with `sched up`" in cause


def test_the_shipped_schedules_name_workflows_that_exist():
    text = (Path(__file__).parents[2] / "schedules.yaml").read_text()
    schedules = load_schedules(text).schedules
    names = {definition.name for definition in registered_workflows().values()}
    assert [(each.key, each.spec) for each in schedules] == [
        ("heartbeat", Interval(every_ms=10_000)),
        ("cache-sync", Interval(every_ms=300_000)),
    ]
    assert {each.workflow for each in schedules} <= names
