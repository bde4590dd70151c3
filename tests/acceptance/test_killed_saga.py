"""The only worker is killed in the middle of a saga; another one goes on where it was."""

from __future__ import annotations

import os
import signal
from itertools import pairwise, product

import asyncpg
import pytest
from temporalio.client import Client, WorkflowFailureError

from tests.killed_saga import TABLE, Plan
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.prove]

STEPS = ["reserve", "charge", "send"]
UNDONE = ["void", "refund", "release"]
MOMENTS = ["before", "in", "after"]
ALL = os.environ.get("SCHED_PROVE_KILLS")
# Where nobody knows what the step has done; `make prove-kills` tries each place in each moment.
KILLS = [*product([*STEPS, *UNDONE], MOMENTS)] if ALL else [("charge", "in")]
FILE = """
schedules:
  - key: journey
    workflow: killed-saga
    everyMs: 86400000
    input: {{step: {0.step}, moment: {0.moment}}}
"""
PATIENT_FILE = "schedules: [{key: patient, workflow: killed-retry, everyMs: 86400000}]"


@pytest.mark.parametrize(("place", "moment"), KILLS)
async def test_every_step_and_every_undo_has_its_effect_once_wherever_the_worker_is_killed(
    place: str, moment: str, fleet, books, database_url: str, client: Client
):
    connection = await asyncpg.connect(database_url)
    await connection.execute(TABLE)
    file = FILE.format(Plan(place, moment))
    doomed = await fleet.start(file, SCHED_IMPORTS="tests.killed_saga")
    assert await doomed.gone() == -signal.SIGKILL
    # Another interpreter hashes texts differently; one of them is enough.
    go_on = fleet.start_by_command if moment == "in" else fleet.start
    await go_on(file, SCHED_IMPORTS="tests.killed_saga")
    await books.until_fired(["journey"], 1, timeout=60)
    (fire,) = await books.fires()
    with pytest.raises(WorkflowFailureError) as failure:
        await client.get_workflow_handle(fire["workflow_id"]).result()
    assert "no such train" in str(failure.value.cause)
    done = [row["name"] for row in await connection.fetch("SELECT name FROM effects ORDER BY id")]
    assert done == STEPS + UNDONE
    await connection.close()


async def _effects(connection: asyncpg.Connection) -> list[str]:
    rows = await connection.fetch("SELECT name FROM effects ORDER BY id")
    return [row["name"] for row in rows]


@pytest.mark.parametrize(
    ("place", "moment"),
    [(place, moment) for place, moment in
     [("void", "after"), ("refund", "before"), ("refund", "in"), ("refund", "after"),
      ("refund", "own")]
     if ALL or moment == "own"],
)  # fmt: skip
async def test_a_run_that_is_terminated_is_undone_once_wherever_the_worker_is_killed(
    place: str, moment: str, fleet, books, database_url: str, client: Client
):
    connection = await asyncpg.connect(database_url)
    await connection.execute(TABLE)
    file = FILE.format(Plan(place, moment)).replace("killed-saga", "killed-undo")
    doomed = await fleet.start(file, SCHED_IMPORTS="tests.killed_saga")
    if moment == "own":  # in the middle of undoing itself: only the rest is left
        assert await doomed.gone() == -signal.SIGKILL

    async def has_acted() -> bool:
        return set(STEPS) <= set(await _effects(connection))

    await eventually(has_acted, timeout=60)
    (fire,) = await books.fires()
    await client.get_workflow_handle(fire["workflow_id"]).terminate("by hand")
    if moment != "own":
        assert await doomed.gone() == -signal.SIGKILL
    await fleet.start(file, SCHED_IMPORTS="tests.killed_saga")

    async def is_undone() -> bool:
        return any(row["status"] == "completed" for row in await books.fires())

    await eventually(is_undone, timeout=90, every=0.2)
    assert await _effects(connection) == STEPS + UNDONE
    await connection.close()


async def test_attempts_and_their_waits_go_on_where_a_killed_worker_left_them(
    fleet, books, database_url: str, client: Client
):
    connection = await asyncpg.connect(database_url)
    await connection.execute(TABLE)
    doomed = await fleet.start(PATIENT_FILE, SCHED_IMPORTS="tests.killed_saga")
    assert await doomed.gone() == -signal.SIGKILL
    await fleet.start(PATIENT_FILE, SCHED_IMPORTS="tests.killed_saga")
    await books.until_fired(["patient"], 1, timeout=60)
    (fire,) = await books.fires()
    await client.get_workflow_handle(fire["workflow_id"]).result()
    rows = await connection.fetch("SELECT name, at FROM effects ORDER BY id")
    await connection.close()
    assert [row["name"] for row in rows] == ["attempt 1", "attempt 2", "attempt 3", "attempt 4"]
    waits = [(after["at"] - before["at"]).total_seconds() for before, after in pairwise(rows)]
    assert 0.95 < waits[0] < 2
    assert 2.95 < waits[2] < 4, "the third wait, not the first again"
