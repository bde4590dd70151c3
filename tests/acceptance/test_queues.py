"""A thousand runs in one queue, and workers that are killed meanwhile; and a rate, measured."""

from __future__ import annotations

import asyncio
import signal
from datetime import datetime
from typing import Any

import asyncpg
import pytest
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowHandle

from engine.ledger import Ledger
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from tests.acceptance.fleet import Fleet
from tests.waiting import eventually

pytestmark = [pytest.mark.prove, pytest.mark.slow, pytest.mark.timeout(400)]

RUNS, WIDTH, WAVE = 1000, 5, 100
FILE = 'schedules: [{key: never, workflow: queued, cron: "0 0 1 1 *", input: 0}]'
SETTINGS = {
    "SCHED_IMPORTS": "tests.queued_workflows",
    "SCHED_TICK": "200ms",
    "SCHED_LEASE": "6s",
    "SCHED_HEARTBEAT": "1s",
}
TABLE = """
CREATE TABLE attempts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, number int NOT NULL, attempt int NOT NULL,
    pid int NOT NULL, began timestamptz NOT NULL, ended timestamptz)
"""


@pytest.fixture
async def database(database_url):
    connection = await asyncpg.connect(database_url)
    await connection.execute(TABLE)
    yield connection
    await connection.close()


async def declare(database_url: str, client: Client, limits: str) -> None:
    ledger = await Ledger.connect(database_url, namespace=client.namespace)
    file = load_schedules(f"queues: {{narrow: {{{limits}}}}}\n{FILE}")
    await apply(ledger, file, by="test")
    await ledger.close()


async def waiting(client: Client) -> int:
    """How many steps wait in the queue."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name="sched/narrow"),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        report_stats=True,
    )
    described = await client.workflow_service.describe_task_queue(request)
    return described.stats.approximate_backlog_count


async def fill(client: Client, runs: int) -> list[WorkflowHandle[Any, Any]]:
    """Start so many runs in waves, each when the steps of all before wait in the queue.

    No file has declared the queue yet, so none of them begins.
    """
    handles: list[WorkflowHandle[Any, Any]] = []
    for first in range(0, runs, WAVE):
        handles += await asyncio.gather(
            *(
                client.start_workflow("queued@1", each, id=f"run-{each}", task_queue="sched")
                for each in range(first, min(first + WAVE, runs))
            )
        )

        async def all_wait(so_far: int = len(handles)) -> bool:
            return await waiting(client) >= so_far

        await eventually(all_wait, timeout=60, every=0.1)
    return handles


def overtaken(turn: list[asyncpg.Record]) -> int:
    """How many steps began after ``WIDTH`` others, or more, of a later wave."""
    waves = [row["number"] // WAVE for row in turn]
    return sum(
        sum(earlier > wave for earlier in waves[:place]) >= WIDTH
        for place, wave in enumerate(waves)
    )


def at_once(attempts: list[asyncpg.Record], killed: dict[int, datetime]) -> int:
    """The most attempts that lived side by side; that of a killed process ends at the kill."""
    moments = []
    for each in attempts:
        ended = each["ended"] or killed[each["pid"]]
        moments += [(each["began"], 1), (ended, -1)]
    now = most = 0
    for _, change in sorted(moments):
        most = max(most, now := now + change)
    return most


async def test_a_thousand_runs_wait_for_five_places_while_two_of_four_workers_are_killed(
    fleet: Fleet, client: Client, database, database_url
):
    workers = [await fleet.start(FILE, **SETTINGS) for _ in range(4)]
    handles = await fill(client, RUNS)
    await declare(database_url, client, f"concurrency: {WIDTH}")
    killed: dict[int, datetime] = {}
    for done in (150, 400):

        async def so_many_done(done: int = done) -> bool:
            count: int = await database.fetchval("SELECT count(ended) FROM attempts")
            return count >= done

        await eventually(so_many_done, timeout=90, every=0.05)

        # One that runs steps just now: its slots must not be anybody's while it lives.
        async def one_at_work() -> int | None:
            pid: int | None = await database.fetchval(
                "SELECT pid FROM attempts WHERE ended IS NULL AND NOT pid = ANY ($1) LIMIT 1",
                list(killed),
            )
            return pid

        pid = await eventually(one_at_work, every=0.01)
        assert pid is not None
        victim = next(worker for worker in workers if worker.process.pid == pid)
        victim.send(signal.SIGKILL)
        await victim.gone()
        killed[pid] = await database.fetchval("SELECT clock_timestamp()")

    await asyncio.gather(*(handle.result() for handle in handles))
    attempts = await database.fetch("SELECT * FROM attempts ORDER BY began")
    assert {row["number"] for row in attempts if row["ended"]} == set(range(RUNS))
    assert {row["pid"] for row in attempts if not row["ended"]} <= set(killed)
    assert len({row["pid"] for row in attempts}) >= 3, "the replicas share the work"
    assert at_once(attempts, killed) <= WIDTH

    first = [row for row in attempts if row["attempt"] == 1]
    urgent = [row for row in first if row["number"] % 2]
    others = [row for row in first if not row["number"] % 2]
    # A worker takes what is its turn, and one that stands still for a moment is overtaken.
    assert urgent[-1]["began"] <= others[WIDTH]["began"], "priority 1 comes before 5"
    for turn in (urgent, others):
        assert overtaken(turn) <= len(turn) // 100


async def test_no_more_steps_begin_in_a_minute_than_the_rate_says_and_hardly_fewer(
    fleet: Fleet, client: Client, database, database_url
):
    for _ in range(2):
        await fleet.start(FILE, **SETTINGS)
    await fill(client, 120)
    await declare(database_url, client, "rate: 100/1m")

    async def a_minute_has_passed() -> bool:
        passed: bool | None = await database.fetchval(
            "SELECT clock_timestamp() > min(began) + interval '61 s' FROM attempts"
        )
        return bool(passed)

    await eventually(a_minute_has_passed, timeout=120, every=0.5)
    begun = await database.fetchval(
        "SELECT count(*) FROM attempts"
        " WHERE began < (SELECT min(began) FROM attempts) + interval '60 s'"
    )
    assert 90 <= begun <= 110
