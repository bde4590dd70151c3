"""A fleet that loses a worker, and then all of them, leaves a ledger that the audit accepts."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from engine.service import ScheduleService
from tests.acceptance.fleet import SCHED
from tests.waiting import eventually

FILE = """
defaults: {grace: 2s, firstFire: next}
schedules:
  - {key: all, workflow: noop, everyMs: 1000, catchUp: {policy: all, max: 3}}
  - {key: latest, workflow: noop, everyMs: 1000}
  - {key: none, workflow: noop, everyMs: 1000, catchUp: {policy: none}}
  - {key: queue, workflow: noop, everyMs: 2000, overlap: queue}
  - {key: local, workflow: noop, cron: "*/2 * * * * *", timezone: America/Sao_Paulo}
  - {key: skips, workflow: noop, cron: "* * * * * *", overlap: skip}
  - {key: fails, workflow: fails, everyMs: 3000}
"""
KEYS = ("all", "latest", "none", "queue", "local", "skips", "fails")


AUDIT = ("audit", "--since", "1h", "--against", "temporal")


def sched(fleet, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCHED, *arguments],
        check=False, capture_output=True, text=True, cwd=fleet.folder, env=fleet.environment,
        timeout=60,
    )  # fmt: skip


@pytest.mark.prove
@pytest.mark.slow
async def test_kills_and_an_outage_leave_every_window_accounted_for(fleet, books):
    first, *others = [await fleet.start(FILE, SCHED_LEASE="3s") for _ in range(3)]
    await books.until_fired(KEYS, 2, timeout=60)
    first.send(signal.SIGKILL)
    await books.until_fired(KEYS, 3, timeout=60)
    for replica in others:  # from now on nobody is there
        replica.send(signal.SIGKILL)
    await asyncio.gather(*(replica.gone() for replica in fleet.replicas))
    away = datetime.now(UTC)
    # The outage has to be longer than the grace, on a clock that no test can move.
    await eventually(lambda: datetime.now(UTC) > away + timedelta(seconds=5), timeout=30)
    for _ in range(2):
        await fleet.start(FILE, SCHED_LEASE="3s")
    await books.until_fired(KEYS, 2, timeout=60, since=datetime.now(UTC))
    async with ScheduleService.connect(
        fleet.environment["SCHED_DATABASE_URL"], namespace=books.namespace, schema="sched",
        actor="test",
    ) as service:  # fmt: skip
        for key in KEYS:
            await service.pause(key, reason="nothing is due from here on")
    await books.until_settled(datetime.now(UTC), timeout=60)
    ended = await asyncio.to_thread(sched, fleet, *AUDIT, "--json")
    report = json.loads(ended.stdout)
    assert [each["faults"] for each in report["schedules"] if each["faults"]] == []
    assert (ended.returncode, report["complete"]) == (0, True), ended.stderr
    assert report["againstTemporal"]
    statuses = {each["key"]: each["statuses"] for each in report["schedules"]}
    assert statuses.keys() == set(KEYS)
    assert statuses["latest"]["skipped"] >= 2  # coalesced
    assert statuses["none"]["expired"] >= 2
    assert statuses["all"]["expired"] >= 1
    row = next(row for row in await books.fires() if row["status"] == "completed")
    await books.forget(row["workflow_id"])
    ended = await asyncio.to_thread(sched, fleet, *AUDIT)
    assert ended.returncode == 1
    fault = f"{row['key']}  missing  {row['fire_time']:%Y-%m-%dT%H:%M:%SZ}: no row accounts for it"
    assert f"{fault}; Temporal has its run {row['workflow_id']}" in ended.stdout
    assert "against the ledger and Temporal: 6 complete, 1 missing" in ended.stdout
