"""A run that cannot continue, because its code was changed, is told while it is open."""

from __future__ import annotations

from datetime import timedelta

import pytest
from temporalio import workflow as temporal
from temporalio.worker import Worker

from engine import Context, step, workflow
from engine.ledger import Ledger
from engine.runtime import SchedulePlugin, Settings
from engine.runtime.events import Alert
from engine.runtime.tracking import tracker
from engine.schedules import load_schedules
from tests.waiting import eventually

FILE = "schedules: [{key: parcel, workflow: stuck-parcel, everyMs: 3600000}]"


@step(name="stuck-pack")
async def pack() -> None: ...


@step(name="stuck-send")
async def send() -> None: ...


@workflow(name="stuck-parcel")
class Parcel:
    async def run(self, ctx: Context) -> None:
        await ctx.step(pack)
        await ctx.wait_for("go", timeout=timedelta(hours=1))


@temporal.defn(name="stuck-parcel@1", sandboxed=False)
class Edited:
    @temporal.run
    async def run(self) -> None:
        await Context().step(send)
        await Context().wait_for("go", timeout=timedelta(hours=1))


@workflow(name="stuck-report")
class Report:
    async def run(self, ctx: Context) -> str:
        return "x" * 3_000_000


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are looked at after two seconds, instead of a minute."""
    monkeypatch.setattr(tracker, "VISIBILITY_LAG", timedelta(seconds=2))


async def test_it_is_told_with_the_step_where_history_and_code_part(client, database_url, soon):
    ledger = await Ledger.connect(database_url, namespace=client.namespace)

    def worker(code: type, told: list[object]) -> Worker:
        plugin = SchedulePlugin(
            load_schedules(FILE), database_url=database_url, on_event=told.append,
            settings=Settings(track=timedelta(milliseconds=200)),
        )  # fmt: skip
        return Worker(
            client, task_queue="sched", workflows=[code], activities=[pack, send],
            plugins=[plugin], max_cached_workflows=0,
        )  # fmt: skip

    async def packed() -> bool:
        for fire in await ledger.fires():
            if fire.run_id is None:
                continue  # claimed, and Temporal may not know it yet
            history = await client.get_workflow_handle(fire.workflow_id).fetch_history()
            if any(event.HasField("timer_started_event_attributes") for event in history.events):
                return True
        return False

    before: list[object] = []
    async with worker(Parcel, before):
        await eventually(packed)
    assert [event for event in before if isinstance(event, Alert)] == []

    told: list[object] = []
    async with worker(Edited, told):
        (fire,) = await ledger.fires()
        await client.get_workflow_handle(fire.workflow_id).signal("go")
        (alert, *more) = await eventually(
            lambda: [event for event in told if isinstance(event, Alert)], timeout=60
        )
    await ledger.close()
    assert (alert.code, more) == ("SCHEDULE_RUN_STUCK", [])
    assert f"{fire.workflow_id} (stuck-parcel@1) cannot continue, attempt " in alert.text
    assert (
        "the history has the step stuck-pack (stuck-pack/1), the code begins stuck-send/1;"
        " give the workflow a new version, or ask ctx.patched() before the changed part"
    ) in alert.text


@pytest.mark.prove
async def test_a_result_that_is_larger_than_temporal_takes_is_told(client, database_url, soon):
    """The limit is the namespace's, so that the run cannot know it: its last task is repeated."""
    told: list[object] = []
    plugin = SchedulePlugin(
        load_schedules(FILE.replace("stuck-parcel", "stuck-report")),
        database_url=database_url, on_event=told.append,
        settings=Settings(track=timedelta(milliseconds=200)),
    )  # fmt: skip
    async with Worker(client, task_queue="sched", workflows=[Report], plugins=[plugin]):
        (alert, *_) = await eventually(
            lambda: [event for event in told if isinstance(event, Alert)], timeout=60
        )
    assert alert.code == "SCHEDULE_RUN_STUCK"
    assert "(stuck-report@1) cannot continue, attempt " in alert.text
    assert "size" in alert.text.lower()
