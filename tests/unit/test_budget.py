"""The calls that start nothing are bounded, however much there is to ask and whoever asks."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from temporalio.client import WorkflowExecutionStatus as Status

from engine.flow.fire import FireInfo
from engine.ledger import Ledger
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.backpressure import (
    CALLS,
    PAGE,
    TRACKER_CALLS,
    Allowance,
    Breaker,
    Budget,
)
from engine.runtime.settings import Settings
from engine.runtime.tick.lookups import RunLookups
from engine.runtime.tracking.runs import RunAuditor, RunCanceller, RunInspector
from engine.runtime.tracking.tracker import Tracker
from engine.schedules import Schedule
from engine.schedules.planner.decisions import OpenFire, Plan, ScheduleState
from tests.virtual_time import VirtualTime, virtual_time

BEGIN = datetime(2026, 11, 21, 12, tzinfo=UTC)
OPEN_RUNS, REPLICAS = 1_500, 4  # more than can be looked at in the time
OF_ANOTHER_LEDGER = FireInfo(
    "elsewhere", 1, 1, BEGIN, "UTC", "on_time", 1, "default", "another", str(UUID(int=1))
)


@pytest.fixture
def time() -> Iterator[VirtualTime]:
    with virtual_time() as moves:
        yield moves


def most_in_a_second(moments: Sequence[float]) -> int:
    """The most calls in any stretch of a second."""
    ordered = sorted(moments)
    return max(n + 1 - bisect_left(ordered, at - 0.999) for n, at in enumerate(ordered))


class Temporal:
    """A namespace with very many open runs, which counts what it is asked, and by whom."""

    def __init__(self, time: VirtualTime) -> None:
        self.time = time
        self.lists: list[float] = []
        self.described: list[float] = []

    def list_workflows(self, query: str, **_: Any) -> AsyncIterator[Any]:
        return self._pages("CloseTime" in query)

    async def _pages(self, closed: bool) -> AsyncIterator[Any]:  # noqa: FBT001 - of a query
        for number in range(PAGE * 2 + 1):
            if number % PAGE == 0:
                self.lists.append(self.time.now)
                await asyncio.sleep(0.01)
            status = Status.COMPLETED if closed else Status.RUNNING
            yield self._run(f"sched:elsewhere:{number}", status)

    def get_workflow_handle(self, workflow_id: str, **_: Any) -> Any:
        async def describe(**_: Any) -> Any:
            self.described.append(self.time.now)
            await asyncio.sleep(0.01)
            return self._run(workflow_id, Status.RUNNING)

        return SimpleNamespace(describe=describe, cancel=describe)

    def _run(self, name: str, status: Status) -> Any:
        async def memo_value(*_: Any) -> dict[str, Any]:
            return OF_ANOTHER_LEDGER.to_memo()

        info = SimpleNamespace(first_run_id=name)
        return SimpleNamespace(
            id=name,
            run_id=name,
            status=status,
            start_time=BEGIN,
            close_time=None,
            memo_value=memo_value,
            raw_description=SimpleNamespace(workflow_execution_info=info),
        )


def replica(temporal: Temporal, ledger: Ledger, name: str) -> tuple[RunLookups, Tracker]:
    """What one replica has besides its starts."""
    budget, clock, client = Budget(), LedgerClock(), cast("Any", temporal)
    budget.share(REPLICAS)
    clock.observe(BEGIN)
    inspector = RunInspector(
        client, ledger, clock, Settings(), ledger_id="", budget=budget, on_event=print
    )
    auditor = RunAuditor(
        client, ledger, inspector, clock, Settings(), replica=name, budget=budget, on_event=print
    )
    canceller = SimpleNamespace()
    lookups = RunLookups(
        ledger, inspector=inspector, auditor=auditor, canceller=cast("RunCanceller", canceller)
    )
    tracker = Tracker(
        client, ledger, clock, Settings(), inspector=inspector, replica=name, budget=budget,
        on_event=print,
        breaker=Breaker(no_answer, on_event=print),
    )  # fmt: skip
    return lookups, tracker


async def no_answer() -> str | None:
    return "nobody asks"


def step(number: int, *, audit: bool) -> Plan:
    schedule = Schedule.from_json({"key": f"k{number}", "workflow": "w", "everyMs": 1000})
    cursor = BEGIN - timedelta(seconds=90)
    state = ScheduleState(
        schedule.key, "default", schedule, 1, "", 1, False, None, cursor, cursor, "w@1", None, None,
        None, 0, "", None,
    )  # fmt: skip
    fire = OpenFire(number, f"sched:k{number}:1", "started", BEGIN)
    looks = () if audit else (fire,)
    return Plan(state, (), cursor, BEGIN, looks=looks, audit=audit, withheld=True)


def test_thousands_of_open_runs_and_four_replicas_stay_within_one_budget(time, caplog, bridge):
    caplog.set_level(logging.INFO, "sched")
    ledger = time.ledger(bridge, BEGIN)
    temporals = [Temporal(time) for _ in range(REPLICAS)]
    replicas = [replica(each, ledger, f"r{n}") for n, each in enumerate(temporals)]

    async def course() -> None:
        for number in range(OPEN_RUNS):
            lookups, _ = replicas[number % REPLICAS]
            lookups.want([step(number, audit=number % 10 == 0)])
        await asyncio.gather(*(live(*each) for each in replicas))

    async def live(lookups: RunLookups, tracker: Tracker) -> None:
        while time.now < 7:
            await tracker.run_once()
            await asyncio.sleep(2)

    time.run(course())
    for each in temporals:
        assert len(each.described) / max(each.described) > CALLS * 0.9
        assert most_in_a_second(each.described) <= CALLS + TRACKER_CALLS
    lists = [at for each in temporals for at in each.lists]
    assert len(lists) > 6
    assert len([at for at in lists if at >= 4]) / (time.now - 4) <= 2
    budget = replicas[0][0]._inspector.budget
    budget.report()
    assert f"{budget.late} calls to Temporal waited for their turn" in caplog.text
    assert budget.late > 150


def test_who_asked_first_is_asked_for_first(time):
    allowance, order = Allowance(3), list[int]()

    async def call(number: int) -> None:
        await allowance.take()
        order.append(number)

    async def course() -> None:
        calls = []
        for number in range(20):
            calls.append(asyncio.ensure_future(call(number)))
            await asyncio.sleep(0.001)
        await asyncio.gather(*calls)

    time.run(course())
    assert sorted(order) == [*range(20)]
    assert all(abs(place - number) < 3 for place, number in enumerate(order))
    assert time.now == pytest.approx(6, abs=0.2)
    assert (allowance.late, allowance.waiting) == (17, 0)
