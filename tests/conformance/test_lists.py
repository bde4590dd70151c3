"""Lists of schedules: filters, pages and the words for a schedule's state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, get_args

import asyncpg
import pytest

from engine.errors import CursorInvalid, ScheduleError
from engine.ledger import JobStatus, Ledger, State
from engine.ledger.fires import ClosedStatus, Evidence, Status
from engine.service import ScheduleService
from tests.conformance.past import declare_ago

HOUR = timedelta(hours=1)
FILE = """
defaults: {taskQueue: reports}
schedules:
  - {key: report.daily, workflow: report@2, cron: "0 2 * * *", topic: reports.daily}
  - {key: report.hourly, workflow: report, cron: "0 * * * *", enabled: false, topic: reports,
     tags: [slow, billing]}
  - {key: sync, workflow: noop, everyMs: 3600000, firstFire: next, paused: true, tags: [slow]}
"""


@pytest.fixture
def service(bench) -> ScheduleService:
    return ScheduleService(bench.ledger, actor="shop")


async def fill(bench, service) -> None:
    """Schedules of a file and of applications, in every state but an ended one."""
    await bench.declare(FILE)
    soon = bench.now() + HOUR
    await service.schedule_at(
        "noop", soon, key="a", request_id="r-1", topic="orders.paid", owner_id="ann",
        tenant_id="acme", correlation_id="c-1", metadata={"n": 1},
    )  # fmt: skip
    await service.schedule_at("noop", soon, key="b", owner_id="bob", metadata={"n": True})
    await service.schedule_repeat("noop", key="c", everyMs=60_000, owner_id="bob", project="other")
    await service.cancel("b")


async def keys(service, **filters) -> list[str]:
    return [row.key for row in (await service.list(**filters)).schedules]


FOUND: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["a", "b", "c", "report.daily", "report.hourly", "sync"]),
    ({"kind": "one_shot"}, ["a", "b"]),
    ({"kind": "cron"}, ["report.daily", "report.hourly"]),
    ({"kind": "interval"}, ["c", "sync"]),
    ({"owner_id": "bob"}, ["b", "c"]),
    ({"owner_id": "bob", "project": "other"}, ["c"]),
    ({"tenant_id": "acme"}, ["a"]),
    ({"correlation_id": "c-1"}, ["a"]),
    ({"request_id": "r-1"}, ["a"]),
    ({"request_id": "r-2"}, []),
    ({"topic": "reports"}, ["report.hourly"]),
    ({"topic": "orders.paid"}, ["a"]),
    ({"tag": "slow"}, ["report.hourly", "sync"]),
    ({"tag": "billing"}, ["report.hourly"]),
    ({"tag": "bill"}, []),
    ({"metadata": {"n": 1}}, ["a"]),
    ({"metadata": {"n": True}}, ["b"]),
    ({"metadata": {"n": 1}, "owner_id": "bob"}, []),
    ({"project": "other"}, ["c"]),
    ({"origin": "api"}, ["a", "b", "c"]),
    ({"state": "disabled"}, ["report.hourly"]),
    ({"state": "paused"}, ["sync"]),
    ({"state": "retired"}, ["b"]),
    ({"status": "cancelled"}, ["b"]),
    ({"status": "pending"}, ["a", "c", "report.daily", "report.hourly", "sync"]),
    ({"workflow": "report"}, ["report.daily", "report.hourly"]),
    ({"workflow": "report@2"}, ["report.daily"]),
    ({"key_prefix": "report."}, ["report.daily", "report.hourly"]),
    ({"key_prefix": "report_"}, []),
    ({"due_before": datetime(1999, 1, 1, tzinfo=UTC)}, []),
]


async def test_a_list_has_what_all_its_filters_name(bench, service):
    """Seed 000: list(filter)."""
    await fill(bench, service)
    for filters, found in FOUND:
        assert await keys(service, **filters) == found, filters


async def test_what_is_due_before_a_moment_is_found_by_its_next_fire(bench, service):
    await fill(bench, service)
    (row,) = (await service.list(request_id="r-1")).schedules
    assert "a" not in await keys(service, due_before=row.next_fire_at)
    assert "a" in await keys(service, due_before=row.next_fire_at + timedelta(milliseconds=1))


async def test_pages_neither_repeat_nor_hide_what_stays_while_schedules_come_and_go(bench, service):
    for key in ("b", "d", "f", "h"):
        await service.schedule_repeat("noop", key=key, everyMs=60_000)
    first = await service.list(limit=2, kind="interval")
    assert [row.key for row in first.schedules] == ["b", "d"]
    for key in ("a", "c", "e"):
        await service.schedule_repeat("noop", key=key, everyMs=60_000)
    await service.cancel("d")
    second = await service.list(limit=2, kind="interval", cursor=first.cursor)
    assert [row.key for row in second.schedules] == ["e", "f"]
    last = await service.list(limit=2, kind="interval", cursor=second.cursor)
    assert ([row.key for row in last.schedules], last.cursor) == (["h"], None)


async def test_a_cursor_of_another_list_or_of_nobody_is_refused(bench, service):
    for key in ("a", "b"):
        await service.schedule_repeat("noop", key=key, everyMs=60_000)
    cursor = (await service.list(limit=1)).cursor
    assert cursor is not None
    for other in (cursor[:-4], f"{cursor}x", "", "é", "bnVsbA", "'; DROP TABLE schedules"):
        with pytest.raises(CursorInvalid):
            await service.list(cursor=other)
    with pytest.raises(CursorInvalid):
        await service.list(cursor=cursor, topic="orders")
    for limit in (0, 1001):
        with pytest.raises(ScheduleError, match="limit"):
            await service.list(limit=limit)


async def test_an_id_that_there_is_not_is_none(bench, service):
    assert await service.get("nobody") is None
    await service.schedule_repeat("noop", key="a", everyMs=60_000, owner_id="ann")
    assert (await service.get("a")).schedule.metadata == {"ownerId": "ann"}


OUTCOMES: dict[str, JobStatus] = {
    "completed": "completed", "failed": "failed", "timed_out": "failed", "expired": "failed",
    "rejected": "failed", "unvouched": "failed", "cancelled": "cancelled",
    "terminated": "cancelled", "skipped": "cancelled",
}  # fmt: skip


def word_for(state: State, last: Status | None, *, once: bool) -> JobStatus:
    """The table of docs/one-shots.md."""
    outcome = OUTCOMES.get(last or "")
    if state == "retired":
        return (once and outcome) or "cancelled"
    if last in {"claimed", "starting", "started"}:
        return "active"
    if state == "ended":
        return outcome or ("pending" if last == "queued" else "completed")
    return "pending"


async def test_each_state_has_one_word_of_job_queues(database_url):
    """Seed 000: pending, active, completed, failed, cancelled."""
    ledger = await Ledger.connect(database_url, namespace="test")
    await ledger.close()
    cases = product(get_args(State), (*get_args(Status), None), (False, True))
    columns = [list(column) for column in zip(*cases, strict=True)]
    connection = await asyncpg.connect(database_url, server_settings={"search_path": "sched"})
    rows = await connection.fetch(
        "SELECT *, job_status(state, last, once) AS word"
        " FROM unnest($1::text[], $2::text[], $3::bool[]) AS c (state, last, once)", *columns
    )  # fmt: skip
    await connection.close()
    assert [row["word"] for row in rows] == [
        word_for(row["state"], row["last"], once=row["once"]) for row in rows
    ]
    assert {row["word"] for row in rows} == {*get_args(JobStatus)}


async def test_one_that_has_run_is_ended_and_has_its_outcome(bench, service):
    """Seed 000: completed, failed and cancelled are terminal."""
    ends: dict[str, tuple[str, str]] = {}
    words: dict[ClosedStatus, JobStatus] = {
        "completed": "completed", "failed": "failed", "timed_out": "failed",
        "cancelled": "cancelled", "terminated": "cancelled",
    }  # fmt: skip
    for closed, status in words.items():
        at = bench.now() - HOUR
        await declare_ago(bench, f"at: {at.isoformat()}, grace: 2h", 2 * HOUR, key=closed)
        (claim,) = await bench.claim()
        assert (await service.get(closed)).status == "active"
        now = bench.now()
        await bench.ledger.record_evidence([Evidence(claim.workflow_id, "run", now, closed, now)])
        ends[closed] = (status, (await service.get(closed)).state)
        assert closed in await keys(service, status=status)
        assert closed in await keys(service, last_status=closed)
        assert (await service.get(closed)).status == status
    assert {state for _, state in ends.values()} == {"ended"}
