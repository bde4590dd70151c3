"""A replica is killed, stopped or broken at each point where that could cost a window."""

from __future__ import annotations

import signal
from typing import get_args

import pytest

from engine.faults import Point
from engine.schedules import load_schedules
from tests.waiting import eventually

pytestmark = pytest.mark.slow

FILE = """
schedules:
  - {key: one, workflow: noop, everyMs: 1000}
  - {key: two, workflow: noop, everyMs: 1000, offsetMs: 400}
  - {key: ten, workflow: noop, everyMs: 10000}
"""
KEYS = ("one", "two")
UNSURE = {"after_start"}
"""A start that nobody has noted; all others are left to `make prove-tests`."""


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=() if point in UNSURE else pytest.mark.prove)
        for point in get_args(Point)
    ],
)
async def test_no_window_is_lost_or_doubled_when_a_replica_is_killed(point, fleet, books):
    doomed = await fleet.start(FILE, SCHED_LEASE="2s", SCHED_FAULT=f"{point}:kill:3")
    assert await doomed.gone() == -signal.SIGKILL
    survivor = await fleet.start(FILE, SCHED_LEASE="2s")
    await books.until_fired(KEYS, 6, timeout=60)
    await fleet.until_started_some(survivor)
    until = await books.until_owed_settled(KEYS)
    survivor.send(signal.SIGTERM)
    assert await survivor.gone() == 0
    await books.agree(load_schedules(FILE), until=until)


@pytest.mark.prove
@pytest.mark.parametrize("point", get_args(Point))
async def test_a_replica_goes_on_after_an_error_at(point, fleet, books):
    replica = await fleet.start(FILE, SCHED_LEASE="2s", SCHED_FAULT=f"{point}:raise:2")
    await books.until_fired(KEYS, 6, timeout=60)
    replica.send(signal.SIGTERM)
    assert await replica.gone() == 0
    successor = await fleet.start(FILE, SCHED_LEASE="2s")
    await books.until_fired(KEYS, 8, timeout=60)
    await fleet.until_started_some(successor)
    until = await books.until_owed_settled(KEYS)
    successor.send(signal.SIGTERM)
    assert await successor.gone() == 0
    await books.agree(load_schedules(FILE), until=until)


@pytest.mark.prove
@pytest.mark.parametrize("point", ["after_due", "before_commit"])
async def test_a_replica_stopped_in_its_transaction_locks_windows_for_five_seconds_at_most(
    point, fleet, books, database
):
    stopped = await fleet.start(FILE, SCHED_LEASE="2s", SCHED_FAULT=f"{point}:stop:3")
    await eventually(lambda: stopped.state == "T", timeout=60)
    seen = await database.fetchval("SELECT clock_timestamp()")
    other = await fleet.start(FILE, SCHED_LEASE="2s")

    async def unlocked():
        # What the other replica then needs for its starts depends on the machine.
        return await database.fetchval(
            "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'sched-engine' AND xact_start < $1",
            seen,
        )

    await eventually(unlocked, timeout=5)
    await books.until_fired(KEYS, 8, timeout=60)
    await fleet.until_started_some(other)
    stopped.send(signal.SIGCONT)
    await books.until_fired(KEYS, 12, timeout=60)
    stopped.send(signal.SIGTERM)
    assert await stopped.gone() == 0
    until = await books.until_owed_settled(KEYS)
    other.send(signal.SIGTERM)
    assert await other.gone() == 0
    await books.agree(load_schedules(FILE), until=until)


async def test_a_worker_whose_file_is_lost_ends_where_the_ledger_has_nothing_either(fleet):
    code, told = await fleet.sched("worker", "--schedules", "nofile.yaml")
    assert code == 2
    assert "nofile.yaml: SCHEDULE_FILE_UNREADABLE" in told
