"""Schedules get other keys while workers race on every window, and die."""

from __future__ import annotations

import signal
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from engine.api.app import create_app
from engine.api.requests import ApiOptions
from engine.ledger import Ledger
from engine.schedules import load_schedules
from engine.service import ScheduleService
from tests.rest import PATH, RestApi

COUNT = 4
SECOND = timedelta(seconds=1)


def file_of(generation: int) -> str:
    """Return the file in which the schedules have the keys of a generation; every other queues."""
    lines = []
    for number in range(COUNT):
        was = f", was: k{number}.{generation - 1}" if generation else ""
        policy = ", overlap: queue" if number % 2 else ""
        lines.append(
            f"  - {{key: k{number}.{generation}, workflow: noop, every: 1s,"
            f" offsetMs: {number * 200}{policy}{was}}}"
        )
    return "schedules:\n" + "\n".join(lines)


@pytest.mark.prove
async def test_each_window_has_one_run_under_one_key_while_schedules_are_renamed_and_workers_die(
    fleet, books, database_url, client
):
    """Renames in a file and over REST, a worker with an older file, and SIGKILL."""
    ledger = await Ledger.connect(database_url, namespace=client.namespace)
    service = ScheduleService(ledger, actor="test")
    fast = {"SCHED_LEASE": "3s"}
    doomed = await fleet.start(file_of(0), **fast)
    replicas = [await fleet.start(file_of(0), **fast)]
    await books.until_fired([f"k{number}.0" for number in range(COUNT)], 2, timeout=60)
    api = RestApi(ledger, create_app(ledger, ApiOptions(open_door=True))).client()
    declared = {"key": "api.0", "workflow": "noop", "everyMs": 1000}
    assert (await api.post(PATH, json=declared)).status_code == 201
    for generation in (1, 2):
        # The new file comes with a new worker; the older one still has the file before.
        replicas.append(await fleet.start(file_of(generation), **fast))
        doomed.send(signal.SIGKILL)
        await doomed.gone()
        to = {"key": f"api.{generation}"}
        answer = await api.post(f"{PATH}/api.{generation - 1}/rename", json=to)
        assert answer.status_code == 200, answer.text
        keys = [f"k{number}.{generation}" for number in range(COUNT)]
        await books.until_fired([*keys, f"api.{generation}"], 2, timeout=60)
        doomed = await fleet.start(file_of(generation - 1), **fast)
        await fleet.until_started_some(doomed)
    last = [f"k{number}.2" for number in range(COUNT)]
    doomed.send(signal.SIGKILL)
    until = await books.until_owed_settled([*last, "api.2"])
    for replica in replicas:
        replica.send(signal.SIGTERM)
        assert await replica.gone() == 0
    await books.agree(load_schedules(file_of(2)), until=until)
    rows = [row for row in await books.fires() if row["fire_time"] < until]
    for name in (*(f"k{number}" for number in range(COUNT)), "api"):
        assert_each_once(name, [row for row in rows if row["key"].startswith(f"{name}.")])
    names = {row.key for row in await service.schedules() if row.state != "retired"}
    assert names == {*last, "api.2"}
    report = await service.audit(timedelta(minutes=10))
    assert {each.key: each.verdict for each in report.schedules} == dict.fromkeys(names, "complete")
    await ledger.close()


def assert_each_once(name: str, rows: list) -> None:
    """Check that each window has one row, and that the keys follow each other."""
    found: dict[datetime, str] = {}
    for row in rows:
        assert row["windows"] == 1, row
        assert found.setdefault(row["fire_time"], row["key"]) == row["key"], "shared by two keys"
    moments = sorted(found)
    assert all(later - earlier == SECOND for earlier, later in pairwise(moments)), name
    keys = [found[moment] for moment in moments]
    assert keys == sorted(keys), "a later window of an earlier key"
    assert {*keys} == {f"{name}.0", f"{name}.1", f"{name}.2"}
