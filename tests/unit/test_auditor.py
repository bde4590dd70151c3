"""What it costs to find out which windows have run, counted in calls to Temporal."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

import engine.runtime.tracking.runs
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.backpressure import Allowance
from engine.runtime.settings import Settings
from engine.runtime.tracking.runs import RunAuditor, RunInspector
from engine.schedules import Schedule
from engine.schedules.planner.decisions import ScheduleState
from tests.virtual_time import VirtualTime, virtual_time

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


def auditor_of(temporal: Temporal) -> RunAuditor:
    """An auditor without a ledger: of runs that name no window it has nothing to write."""
    clock = LedgerClock()
    clock.observe(NOW)
    return RunAuditor(
        cast("Any", temporal), cast("Any", None), cast("RunInspector", temporal),
        clock, Settings(), replica="one", on_event=print,
    )  # fmt: skip


async def audited(auditor: RunAuditor, states: list[ScheduleState]) -> None:
    """Let as many turns pass as it takes."""
    while left := [state for state in states if not auditor.is_audited(state)]:
        assert not await auditor.audit(left)


def batch(number: int) -> list[ScheduleState]:
    cursor = NOW - timedelta(seconds=100)
    return [state(f"k{number}-{each}", cursor, everyMs=60_000) for each in range(200)]


async def test_one_question_covers_all_keys_however_many_turns_their_plans_take():
    temporal = Temporal()
    auditor = auditor_of(temporal)
    for number in range(5):
        states = batch(number)
        await audited(auditor, states)
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
    monkeypatch.setattr(engine.runtime.tracking.runs, "_MOST", 10)
    temporal = Temporal(runs=10)
    await auditor_of(temporal).audit(batch(0)[:3])
    names = [re.findall('"(sched:.*?)"', query) for query in temporal.queries]
    keys = ["sched:k0-0:", "sched:k0-1:", "sched:k0-2:"]
    assert names == [["sched:"], keys, *([key] for key in keys)]


async def test_a_renamed_schedule_is_asked_for_by_all_its_keys_and_each_young_id_described():
    temporal = Temporal()
    auditor = auditor_of(temporal)
    old = replace(state("new", NOW - timedelta(hours=5), everyMs=60_000), former=("old",))
    await auditor.audit([old])
    assert re.findall('"(sched:.*?)"', temporal.queries[-1]) == ["sched:new:", "sched:old:"]
    assert {name.split(":")[1] for name in temporal.described} == {"new", "old"}
    assert len(temporal.described) == 2


async def test_after_a_sign_of_lost_commits_no_answer_of_before_is_trusted():
    temporal = Temporal()
    auditor = auditor_of(temporal)
    states = batch(0)
    await audited(auditor, states)
    auditor.forget()
    assert not any(map(auditor.is_audited, states))
    await audited(auditor, states)
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
    monkeypatch.setattr(Allowance, "take", AsyncMock())
    monkeypatch.setattr(engine.runtime.tracking.runs, "boottime", lambda: 1000.0)


async def _many_keys_behind(time: VirtualTime, delay: float) -> None:
    """After an outage of 75 seconds, over a slow link: every key is told to be known in time."""
    temporal = Temporal()

    async def find(workflow_id: str) -> None:
        await asyncio.sleep(delay)
        temporal.described.append(workflow_id)

    temporal.find = find  # type: ignore[method-assign] # slower
    began = NOW - timedelta(seconds=75)
    states = [state(f"k{number}", began, everyMs=1000) for number in range(110)]
    auditor = auditor_of(temporal)
    answered: dict[str, float] = {}

    async def known(keys: Sequence[str]) -> None:
        for key in keys:
            assert auditor.is_audited(states[int(key[1:])]), "it can be planned now"
            answered[key] = time.now

    while len(answered) < len(states) and time.now < 300:
        await auditor.audit([each for each in states if each.key not in answered], known)
    assert len(answered) == len(states)
    assert max(answered.values()) < 75
    assert min(answered.values()) < 10, "the first is not kept waiting for the last"
    assert len(temporal.described) <= 20 * time.now + 20


@pytest.mark.parametrize("delay", [0.01, 0.2])
def test_after_an_outage_all_keys_are_decided_soon_over_a_slow_link(monkeypatch, delay):
    monkeypatch.undo()
    with virtual_time() as time:
        time.run(_many_keys_behind(time, delay))


@pytest.mark.parametrize("behind", [timedelta(minutes=30), timedelta(hours=5)])
def test_a_question_that_takes_longer_than_an_answer_is_good_for_is_asked_once(monkeypatch, behind):
    monkeypatch.undo()

    class Slow(Temporal):
        async def _listed(self, count: int) -> AsyncIterator[object]:
            await asyncio.sleep(90)
            async for each in super()._listed(count):
                yield each

    async def course() -> None:
        auditor = auditor_of(Slow())
        states = [state(f"k{number}", NOW - behind, everyMs=600_000) for number in range(90)]
        answered: list[str] = []

        async def known(keys: Sequence[str]) -> None:
            assert all(auditor.is_audited(each) for each in states if each.key in keys)
            answered.extend(keys)

        await auditor.audit(states, known)
        assert sorted(answered) == sorted(state.key for state in states)

    with virtual_time() as time:
        time.run(course())


def test_windows_that_opened_since_the_ledger_is_watched_are_not_described(monkeypatch):
    monkeypatch.undo()

    async def course(time: VirtualTime) -> None:
        temporal = Temporal()
        auditor = auditor_of(temporal)
        await audited(auditor, [state("first", NOW - timedelta(seconds=75), everyMs=60_000)])
        await asyncio.sleep(200)
        temporal.described.clear()
        await audited(auditor, [state("k", NOW, everyMs=1000)])
        assert temporal.described == []
        auditor.forget()
        await audited(auditor, [state("k", NOW, everyMs=10_000)])
        assert temporal.described != [], "rows may be gone of whatever opened until now"

    with virtual_time() as time:
        time.run(course(time))
