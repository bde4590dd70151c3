"""A backfill outlives its replica: each of its windows has one run, whoever is killed when."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta

import pytest

from engine.service import ScheduleService
from tests.waiting import eventually

pytestmark = [pytest.mark.prove, pytest.mark.slow]

FILE = """
schedules:
  - {key: past, workflow: noop, everyMs: 1000, firstFire: next, overlap: allow}
  - {key: good, workflow: noop, everyMs: 1000}
"""
WINDOWS = 400


async def test_every_window_of_a_backfill_runs_once_though_its_replica_is_killed_in_the_middle(
    fleet, books, database_url, namespace
):
    doomed = await fleet.start(FILE, SCHED_LEASE="2s")
    await books.until_fired(["good"], 1, timeout=60)
    async with ScheduleService.connect(
        database_url, namespace=namespace, schema="sched", actor="ops"
    ) as service:
        end = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
        begin = end - timedelta(seconds=WINDOWS - 1)
        asked = await service.backfill("past", begin, end)
        assert asked.backfill.windows == WINDOWS

        async def laid() -> int:
            (row,) = await service.backfills("past")
            return row.laid

        async def midway() -> bool:
            return await laid() > WINDOWS // 8

        await eventually(midway, timeout=60)
        doomed.send(signal.SIGKILL)
        assert await doomed.gone() == -signal.SIGKILL
        assert await laid() < WINDOWS, "it was done before"
        survivor = await fleet.start(FILE, SCHED_LEASE="2s")

        async def all_ran() -> bool:
            (row,) = await service.backfills("past")
            fires = await service.laid(row)
            return row.state == "done" and sum(bool(each.run_id) for each in fires) == WINDOWS

        await eventually(all_ran, timeout=300, every=0.5)
        (row,) = await service.backfills("past")
        assert (row.laid, row.left_alone) == (WINDOWS, {})
        names = {fire.workflow_id for fire in await service.laid(row)}
    survivor.send(signal.SIGTERM)
    assert await survivor.gone() == 0

    async def once() -> bool:
        runs = await books.runs()
        return {name: runs[name] for name in names} == dict.fromkeys(names, 1)

    await eventually(once, timeout=40, every=0.5)
