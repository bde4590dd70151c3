"""Runs that continue as new, are retried or reset: one fire, found and ended as a whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError
from temporalio.converter import DataConverter
from temporalio.worker import Worker

from engine.flow.fire import MEMO_KEY
from engine.ledger import UNREAD, Ledger
from engine.ledger.fires import Claim
from engine.ledger.records import Serving
from engine.runtime import SchedulePlugin, Settings
from engine.runtime.apply.apply import apply
from engine.runtime.clock import LedgerClock, boottime
from engine.runtime.dispatch.backpressure import Breaker, Budget
from engine.runtime.dispatch.starter import Starter
from engine.runtime.events import Alert, Event
from engine.runtime.runs.memo import UnreadableHere
from engine.runtime.tracking.end_reader import EndReader
from engine.runtime.tracking.runs import RunInspector
from engine.schedules import load_schedules
from engine.schedules.planner.planner import plan
from engine.service import ScheduleService
from tests.chained_workflows import Hapless, Pieces, Refused, Renamed, Stubborn
from tests.sealed import Sealed
from tests.waiting import eventually

WORKFLOWS = [Pieces, Renamed, Stubborn, Hapless, Refused]
LASTS = "everyMs: 86400000, input: 0, external: true"
SERVING = Serving("one", "default", "elsewhere", frozenset())
SETTINGS = Settings(track=timedelta(seconds=1))


@pytest.fixture
async def ledger(client, database_url) -> AsyncIterator[Ledger]:
    opened = await Ledger.connect(database_url, namespace=client.namespace)
    yield opened
    await opened.close()


@asynccontextmanager
async def engine(
    client: Client, database_url: str, fields: str, told: list[Event] | None = None, **where: Any
) -> AsyncIterator[None]:
    """A replica, and a worker of ours (``queue="sched"``) or of anybody for the runs."""
    queue = where.get("queue", "elsewhere")
    text = f"schedules: [{{key: k, {fields}, taskQueue: {queue}}}]"
    plugin = SchedulePlugin(
        load_schedules(text), database_url=database_url, settings=SETTINGS,
        on_event=(told if told is not None else []).append,
    )  # fmt: skip
    ours = Worker(client, task_queue="sched", workflows=WORKFLOWS, plugins=[plugin])
    plain = Worker(where.get("theirs", client), task_queue="elsewhere", workflows=WORKFLOWS)
    async with plain, ours:
        yield


async def run_of(ledger: Ledger, status: str = "started") -> Any:
    """The oldest fire with this status, once there is one."""

    async def found() -> Any:
        fires = await ledger.fires(key="k", status=status, limit=50)  # type: ignore[arg-type] # a word of it
        return fires[-1] if fires else None

    return await eventually(found, timeout=30)


async def next_run(client: Client, fire: Any) -> None:
    """Wait until the fire's run has gone on as another."""

    async def gone_on() -> bool:
        run = await client.get_workflow_handle(fire.workflow_id).describe()
        return bool(run.run_id != fire.run_id)

    await eventually(gone_on, timeout=30)


async def ended(ledger: Ledger, fire: Any) -> str:
    """How the fire ended, once it did."""

    async def found() -> str:
        now = await ledger.fire(fire.workflow_id)
        return now.status if now and now.closed_at else ""

    return await eventually(found, timeout=30)


@pytest.mark.parametrize(
    ("terminate", "how"),
    [(False, "cancelled"), pytest.param(True, "terminated", marks=pytest.mark.prove)],
)
async def test_a_run_that_has_continued_as_new_is_ended(
    client, database_url, ledger, terminate, how
):
    async with engine(client, database_url, f"workflow: Pieces, {LASTS}"):
        fire = await run_of(ledger)
        await next_run(client, fire)
        await ScheduleService(ledger, actor="ops").cancel("k", terminate=terminate)
        assert await ended(ledger, fire) == how


async def test_a_run_that_hears_of_a_cancel_and_goes_on_is_asked_again(
    client, database_url, ledger
):
    async with engine(client, database_url, f"workflow: Stubborn, {LASTS}"):
        fire = await run_of(ledger)
        await ScheduleService(ledger, actor="ops").cancel("k")
        assert await ended(ledger, fire) == "cancelled"


async def test_a_run_that_was_reset_is_ended(client, database_url, ledger):
    async with engine(client, database_url, f"workflow: Stubborn, {LASTS.replace('0,', '1,')}"):
        fire = await run_of(ledger)

        async def reset() -> bool:
            history = await client.get_workflow_handle(fire.workflow_id).fetch_history()
            if len(history.events) < 4:
                return False
            await client.workflow_service.reset_workflow_execution(
                ResetWorkflowExecutionRequest(
                    namespace=client.namespace, request_id="again",
                    workflow_execution=WorkflowExecution(workflow_id=fire.workflow_id),
                    workflow_task_finish_event_id=4,
                )
            )  # fmt: skip
            return True

        await eventually(reset)
        await next_run(client, fire)
        await ScheduleService(ledger, actor="ops").cancel("k")
        assert await ended(ledger, fire) == "cancelled"


@pytest.mark.prove
async def test_each_window_replaces_the_one_before_however_often_that_has_continued(
    client, database_url, ledger
):
    fields = (
        "workflow: Pieces, everyMs: 4000, input: 0, external: true, overlap: cancel_previous,"
        " firstFire: next"
    )
    async with engine(client, database_url, fields):

        async def three() -> bool:
            return len(await ledger.fires(key="k", status="cancelled", limit=9)) >= 3

        await eventually(three, timeout=60)


@pytest.mark.parametrize("queue", [pytest.param("sched", marks=pytest.mark.prove), "elsewhere"])
async def test_a_run_that_continues_with_a_memo_of_its_own_is_not_lost(
    client, database_url, ledger, queue
):
    """With our worker visibility goes on showing the window; with any other the chain does."""
    told: list[Event] = []
    fields = (
        "workflow: Renamed, everyMs: 2000, input: 0, external: true, overlap: skip, firstFire: next"
    )
    async with engine(client, database_url, fields, told, queue=queue):
        fire = await run_of(ledger)
        await next_run(client, fire)

        async def skipped() -> bool:
            return len(await ledger.fires(key="k", status="skipped", limit=9)) >= 3

        await eventually(skipped, timeout=30)
        shown = [run async for run in client.list_workflows('ExecutionStatus = "Running"')]
    assert [run.id for run in shown] == [fire.workflow_id]
    assert (MEMO_KEY in await shown[0].memo()) == (queue == "sched")
    assert (await shown[0].memo())["piece"] == 1
    assert [event for event in told if isinstance(event, Alert)] == []


async def test_a_run_that_waits_for_its_next_attempt_is_terminated(client, database_url, ledger):
    async with engine(client, database_url, "workflow: hapless, everyMs: 86400000", queue="sched"):
        fire = await run_of(ledger)
        await next_run(client, fire)
        await ScheduleService(ledger, actor="ops").cancel("k", terminate=True)
        assert await ended(ledger, fire) == "terminated"


class Bench:
    """The claim of one run, and what starts and finds it, without any loop."""

    def __init__(self, ledger: Ledger, claim: Claim, identity: str) -> None:
        self.ledger, self.claim, self.identity = ledger, claim, identity
        self.clock = LedgerClock()
        self.clock.observe(datetime.now(UTC))

    @classmethod
    async def of(cls, ledger: Ledger, workflow: str = "Renamed") -> Bench:
        text = f"schedules: [{{key: k, workflow: {workflow}, {LASTS}, taskQueue: elsewhere}}]"
        await apply(ledger, load_schedules(text), by="test")
        async with ledger.transaction() as transaction:
            states = await transaction.read(await transaction.lock_due(SERVING, 1))
            steps = [plan(state, await transaction.now()) for state in states]
            (claim,) = await transaction.record(steps, owner="one", lease=timedelta(0))
        return cls(ledger, claim, await ledger.identity())

    def starter(self, client: Client) -> Starter:
        starter = Starter(client, self.clock, Settings())
        starter.ledger = self.identity
        return starter

    def inspector(self, client: Client) -> RunInspector:
        return RunInspector(client, self.ledger, self.clock, Settings(),
                      ledger_id=self.identity, on_event=print)  # fmt: skip

    async def continued(self, client: Client) -> str:
        """Start the run and wait until it has continued as new; returns its first run."""
        answer = await self.starter(client).start(self.claim, boottime() + 30)
        assert answer
        assert answer.outcome.run_id
        async with Worker(client, task_queue="elsewhere", workflows=WORKFLOWS):
            await next_run(client, SimpleNamespace(
                workflow_id=self.claim.workflow_id, run_id=answer.outcome.run_id
            ))  # fmt: skip
        self.outcome = answer.outcome
        return answer.outcome.run_id


async def test_a_run_whose_start_nobody_wrote_down_is_ours_by_its_first_run(client, ledger):
    bench = await Bench.of(ledger)
    first = await bench.continued(client)
    (again,) = await ledger.take_over(SERVING, limit=1, lease=timedelta(seconds=30))
    answer = await bench.starter(client).start(again, boottime() + 30)
    assert answer
    assert (answer.outcome.status, answer.outcome.first_run_id) == ("started", first)
    assert answer.alert is None


async def test_a_replica_without_the_codec_knows_a_run_by_its_chain(client, ledger, temporal):
    codec = replace(DataConverter.default, payload_codec=Sealed())
    sealing = await Client.connect(
        temporal.address, namespace=client.namespace, data_converter=codec
    )
    bench = await Bench.of(ledger)
    first = await bench.continued(sealing)
    assert await ledger.settle([bench.outcome]) == 1
    seen = await bench.inspector(client).find(bench.claim.workflow_id)
    assert seen
    assert seen[0].first_run_id == first


async def test_what_a_replica_cannot_read_is_neither_foreign_nor_lost(client, ledger, temporal):
    codec = replace(DataConverter.default, payload_codec=Sealed())
    sealing = await Client.connect(
        temporal.address, namespace=client.namespace, data_converter=codec
    )
    bench = await Bench.of(ledger)
    await bench.continued(sealing)
    (again,) = await ledger.take_over(SERVING, limit=1, lease=timedelta(0))
    answer = await bench.starter(client).start(again, boottime() + 30)
    assert answer
    assert answer.outcome.status == "starting"
    assert "could not be read" in (answer.outcome.error or "")
    with pytest.raises(ValueError, match="could not be read"):
        await bench.inspector(client).inspect([bench.claim.workflow_id])
    (fire,) = await ledger.fires()
    assert fire.error is None, "nothing was written of it"
    readable = await bench.starter(sealing).start(again, boottime() + 30)
    assert readable
    assert readable.outcome.status == "started"


async def test_the_cause_of_a_failure_is_recorded_by_a_replica_that_can_read_it(
    client, ledger, temporal
):
    codec = replace(DataConverter.default, payload_codec=Sealed())
    sealing = await Client.connect(
        temporal.address, namespace=client.namespace, data_converter=codec
    )
    bench = await Bench.of(ledger, "Refused")
    answer = await bench.starter(sealing).start(bench.claim, boottime() + 30)
    assert answer
    assert await ledger.settle([answer.outcome]) == 1
    name = [bench.claim.workflow_id]
    async with Worker(sealing, task_queue="elsewhere", workflows=WORKFLOWS):
        with pytest.raises(WorkflowFailureError):
            await sealing.get_workflow_handle(*name).result()
    await bench.inspector(client).inspect(name)
    left: list[str] = []

    def passed_on(workflow_id: str, _: UnreadableHere) -> bool:
        left.append(workflow_id)
        return True

    for _ in range(2):
        await reader(client, ledger, passed_on).run_once()
        (fire,) = await ledger.fires()
        assert (fire.status, fire.error) == ("failed", UNREAD), "its reason is left to others"
        assert not await ledger.anything_ended(), "nothing follows before"
    assert left == name * 2
    await reader(sealing, ledger, lambda *_: True).run_once()
    (fire,) = await ledger.fires()
    assert (fire.status, fire.error) == ("failed", "no money")
    assert await ledger.anything_ended()


def reader(
    client: Client, ledger: Ledger, pass_on: Callable[[str, UnreadableHere], bool]
) -> EndReader:
    return EndReader(
        client, ledger, Settings(), budget=Budget(),
        breaker=cast("Breaker", SimpleNamespace(holds=False)),
        is_mine=lambda: True, pass_on=pass_on, on_event=lambda _: None,
    )  # fmt: skip
