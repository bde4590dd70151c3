"""A worker that stands still for a while, and one that is asked to go in the middle of a step."""

from __future__ import annotations

import asyncio
import signal
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.api.enums.v1 import PendingActivityState as State

from engine.schedules import load_schedules
from tests.acceptance.fleet import windows_between
from tests.waiting import eventually

pytestmark = pytest.mark.slow

COUNT = 60
FILE = "schedules:\n" + "\n".join(
    f"  - {{key: k{n:02}, workflow: noop, everyMs: 3000, offsetMs: {n * 50}, grace: 2s}}"
    for n in range(COUNT)
)
KEYS = [f"k{n:02}" for n in range(COUNT)]
STARTED = State.PENDING_ACTIVITY_STATE_STARTED
SLOW = "schedules: [{key: slow, workflow: slow, everyMs: 86400000}]"
ORPHANED = SLOW.replace("slow", "orphaned")


@pytest.mark.prove
async def test_a_worker_that_stood_still_catches_up_by_policy_and_rejects_nothing(
    fleet, books, database
):
    replica = await fleet.start(FILE, SCHED_HEARTBEAT="500ms")
    await books.until_fired(KEYS, 2, timeout=120)
    replica.send(signal.SIGSTOP)

    async def beyond_grace_and_heartbeats():
        return await database.fetchval(
            "SELECT (SELECT max(next_fire_at) FROM positions) < now.now - interval '3 s'"
            " AND (SELECT max(seen_at) FROM replicas) < now.now - interval '3 s'"
            " FROM (SELECT clock_timestamp() AS now) AS now"
        )

    await eventually(beyond_grace_and_heartbeats, timeout=30)
    woken_at = await database.fetchval("SELECT clock_timestamp()")
    replica.send(signal.SIGCONT)

    async def caught_up():
        rows = [row for row in await books.fires() if row["decided_at"] > woken_at]
        return {row["key"] for row in rows if row["timing"] == "caught_up" and row["run_id"]}

    async def all_caught_up():
        return await caught_up() == set(KEYS)

    await eventually(all_caught_up, timeout=30, every=0.2)
    replica.send(signal.SIGTERM)
    assert await replica.gone() == 0
    rows = await books.fires()
    # What a busy server has not taken is handed to a successor when the only worker leaves.
    assert {row["status"] for row in rows} <= {"starting", "started", "completed", "skipped"}
    for row in rows:
        if row["status"] == "skipped":
            assert row["reason"].startswith("coalesced into")
    assert_no_window_is_missing(rows)


def assert_no_window_is_missing(rows) -> None:
    """Every window between a key's first and last was decided exactly once."""
    schedules = {schedule.key: schedule for schedule in load_schedules(FILE).schedules}
    decided: dict[str, list[datetime]] = defaultdict(list)
    for row in rows:
        windows = windows_between(
            schedules[row["key"]], row["fire_time"], row["last_fire_time"] or row["fire_time"]
        )
        assert len(windows) == row["windows"]
        decided[row["key"]] += windows
    for key, windows in decided.items():
        assert windows == windows_between(schedules[key], windows[0], windows[-1]), key


@pytest.mark.prove
async def test_closes_go_on_when_the_replica_that_looks_for_them_stands_still(
    fleet, books, database
):
    pulse = "schedules: [{key: pulse, workflow: noop, everyMs: 1000}]"
    replicas = [await fleet.start(pulse, SCHED_LEASE="3s", SCHED_TRACK="500ms") for _ in range(3)]
    await books.until_fired(["pulse"], 4, timeout=60)
    duty = "SELECT holder, expires_at FROM duties WHERE duty = 'tracker:1'"
    holder = (await database.fetchrow(duty))["holder"]
    stopped = next(r for r in replicas if f":{r.process.pid}:" in holder)
    stopped.send(signal.SIGSTOP)
    await eventually(lambda: stopped.state == "T")
    stood = await database.fetchrow(duty)
    assert stood["holder"] == holder

    async def taken_over():
        row = await database.fetchrow(
            "SELECT *, clock_timestamp() AS now FROM duties WHERE duty = 'tracker:1'"
        )
        return row if row["holder"] != holder else None

    row = await eventually(taken_over)
    assert row["now"] - stood["expires_at"] < timedelta(seconds=4), "nobody took the duty over"

    async def closed():
        rows = [r for r in await books.fires() if r["fire_time"] > stood["expires_at"]]
        return len([r for r in rows if r["status"] == "completed"]) >= 4

    await eventually(closed)
    stopped.send(signal.SIGCONT)
    for replica in replicas:
        replica.send(signal.SIGTERM)
        assert await replica.gone() == 0


@pytest.mark.prove
async def test_a_replica_that_stood_still_beyond_its_lease_starts_nothing_it_had_claimed(
    fleet, books
):
    daily = "schedules: [{key: daily, workflow: noop, everyMs: 86400000}]"
    stopped = await fleet.start(daily, SCHED_LEASE="2s", SCHED_FAULT="after_commit:stop")
    await eventually(lambda: stopped.state == "T", timeout=60)
    other = await fleet.start(daily, SCHED_LEASE="2s")
    await books.until_fired(["daily"], 1, timeout=60)
    stopped.send(signal.SIGCONT)
    stopped.send(signal.SIGTERM)
    assert await stopped.gone() == 0
    told = [line for line in stopped.log.read_text().splitlines() if "sched:daily" in line]
    # That the run has ended it may be the one to see.
    sent = [line for line in told if not line.endswith("completed")]
    assert not sent, "it sent what another had taken over"
    await books.agree(load_schedules(daily), until=datetime.now(UTC))
    other.send(signal.SIGTERM)
    assert await other.gone() == 0


async def first_run(fleet, books, client, file):
    """A worker, and the first run of the file's only schedule; its step is in flight."""
    worker = await fleet.start(file, SCHED_IMPORTS="tests.slow_workflows")
    await eventually(books.runs, timeout=60)
    ((workflow_id, _),) = (await books.runs()).items()
    run = client.get_workflow_handle(workflow_id)

    async def in_flight():
        pending = (await run.describe()).raw_description.pending_activities
        return [step for step in pending if step.state == STARTED]

    await eventually(in_flight)
    return worker, run


async def test_a_step_in_flight_finishes_before_the_worker_goes_and_is_not_repeated(
    fleet, books, client
):
    """The run itself ends at a successor: a worker that leaves takes no further workflow task."""
    leaving, run = await first_run(fleet, books, client, SLOW)

    async def steps_done():
        """The attempt of each step that the history says is done."""
        events = {event.event_id: event for event in (await run.fetch_history()).events}
        ends = [
            event.activity_task_completed_event_attributes
            for event in events.values()
            if event.HasField("activity_task_completed_event_attributes")
        ]
        begins = [events[end.started_event_id] for end in ends]
        return [begin.activity_task_started_event_attributes.attempt for begin in begins]

    leaving.send(signal.SIGTERM)
    assert await leaving.gone() == 0
    assert await steps_done() == [1]
    await fleet.start(SLOW, SCHED_IMPORTS="tests.slow_workflows")
    assert await run.result() == "done"
    assert await steps_done() == [1]


@pytest.mark.prove
async def test_a_step_whose_worker_dies_is_tried_again_when_its_heartbeats_stay_out(
    fleet, books, client
):
    """Not when its timeout of ten minutes has passed."""
    dying, run = await first_run(fleet, books, client, ORPHANED)
    dying.send(signal.SIGKILL)
    await dying.gone()
    await fleet.start(ORPHANED, SCHED_IMPORTS="tests.slow_workflows")
    async with asyncio.timeout(45):
        assert await run.result() == 2
