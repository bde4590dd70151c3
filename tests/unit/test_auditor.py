"""What it costs to find out which windows have run, counted in calls to Temporal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

import engine.runtime.auditor
from engine.ledger import MemoryLedger
from engine.ledger.schedule_records import ScheduleState
from engine.runtime.auditor import Auditor
from engine.runtime.clock import LedgerClock
from engine.runtime.looking import Looker
from engine.runtime.settings import Settings
from engine.schedules import Schedule

NOW = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC)


class Temporal:
    """Answers nothing, and keeps what it was asked."""

    def __init__(self, runs: int = 0) -> None:
        self.queries: list[str] = []
        self.described: list[str] = []
        self.runs = runs

    def list_workflows(self, query: str, *, limit: int, **_: Any) -> AsyncIterator[object]:
        self.queries.append(query)
        return self._listed(min(self.runs, limit))

    async def _listed(self, count: int) -> AsyncIterator[object]:
        for _ in range(count):
            yield object()

    async def fire_of(self, _: object) -> None:
        return None

    async def find(self, workflow_id: str) -> None:
        self.described.append(workflow_id)


def state(key: str, cursor: datetime, **when: Any) -> ScheduleState:
    schedule = Schedule.from_json({"key": key, "workflow": "w", **when})
    return ScheduleState(
        key, "default", schedule, 1, "", 1, False, None, cursor, cursor, "w@1", None, None, None,
        0, "", None,
    )  # fmt: skip


def auditor_of(temporal: Temporal) -> Auditor:
    clock = LedgerClock()
    clock.observe(NOW)
    return Auditor(
        cast("Any", temporal), MemoryLedger(), cast("Looker", temporal), clock, Settings(),
        replica="one", tell=print,
    )  # fmt: skip


def batch(number: int) -> list[ScheduleState]:
    cursor = NOW - timedelta(seconds=100)
    return [state(f"k{number}-{each}", cursor, everyMs=60_000) for each in range(200)]


async def test_one_question_covers_all_keys_however_many_turns_their_plans_take():
    temporal = Temporal()
    auditor = auditor_of(temporal)
    for number in range(5):
        states = batch(number)
        await auditor.audit(states)
        assert all(map(auditor.is_audited, states))
    assert len(temporal.queries) == 1
    assert len(temporal.described) == 5 * 200, "each has one window that visibility may not show"


async def test_a_key_that_seldom_fires_shares_the_question_when_its_window_is_recent():
    temporal = Temporal()
    yearly = state("y", NOW - timedelta(days=365), cron="0 12 21 11 *")
    await auditor_of(temporal).audit([yearly, *batch(0)])
    assert len(temporal.queries) == 1


async def test_only_a_key_whose_window_is_old_is_asked_for_by_itself():
    temporal = Temporal()
    old = state("old", NOW - timedelta(hours=5), everyMs=60_000)
    await auditor_of(temporal).audit([old, *batch(0)])
    assert [query for query in temporal.queries if "sched:old:" in query] == temporal.queries[1:]


async def test_where_one_question_cannot_name_all_runs_each_key_is_asked_for(monkeypatch):
    monkeypatch.setattr(engine.runtime.auditor, "_MOST", 10)
    temporal = Temporal(runs=10)
    await auditor_of(temporal).audit(batch(0)[:3])
    assert [query.split('"')[1] for query in temporal.queries] == [
        "sched:", "sched:k0-0:", "sched:k0-1:", "sched:k0-2:",
    ]  # fmt: skip


async def test_after_a_sign_of_lost_commits_no_answer_of_before_is_trusted():
    temporal = Temporal()
    auditor = auditor_of(temporal)
    states = batch(0)
    await auditor.audit(states)
    auditor.forget()
    assert not any(map(auditor.is_audited, states))
    await auditor.audit(states)
    assert len(temporal.queries) == 2


async def test_a_window_that_has_its_row_is_not_described():
    temporal = Temporal()
    known = state("k", NOW - timedelta(seconds=15), everyMs=10_000)
    known.known[NOW.replace(second=20)] = True  # type: ignore[index] # a dict here
    await auditor_of(temporal).audit([known])
    (name,) = temporal.described
    assert name == known.window(NOW).workflow_id(suffixed=False)


@pytest.fixture(autouse=True)
def standing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.runtime.auditor, "boottime", lambda: 1000.0)
