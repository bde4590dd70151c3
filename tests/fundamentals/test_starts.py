"""``service.start``: an application starts a workflow, each id once for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio.client import Client

from engine.api.app import create_app
from engine.api.requests import ApiOptions
from engine.cli.run_page import RunReport, details_lines
from engine.errors import EnqueueFailure, StartInUse
from engine.runtime import SchedulePlugin, Settings
from engine.service import Fire, ScheduleService
from tests.fundamentals.replays import CACHED
from tests.fundamentals.samples import started
from tests.fundamentals.samples.started import CHARGED, FulfilOrder, HoldOrder, Order, PackOrder
from tests.fundamentals.shared_worker import shared_worker
from tests.rest import PATH, RestApi
from tests.waiting import eventually

SOON = Settings(track=timedelta(milliseconds=200), tick=timedelta(milliseconds=200))


worker = shared_worker(
    "sched", started.ALL, started.STEPS, cached=CACHED[:1],
    plugin=lambda url: SchedulePlugin(None, database_url=url, settings=SOON),
)  # fmt: skip


@pytest_asyncio.fixture(loop_scope="module")
async def service(served: Client, shared_database_url: str) -> AsyncIterator[ScheduleService]:
    """What the web application of a shop uses, beside a worker of the shop."""
    CHARGED.clear()
    started.HELD.clear()
    connecting = ScheduleService.connect(
        shared_database_url, namespace=served.namespace, schema="sched", actor="shop"
    )
    async with connecting as connected:
        await eventually(connected.served)
        yield connected


async def closed(service: ScheduleService, workflow_id: str) -> Fire:
    async def fire() -> Fire | None:
        found = await service.fire(workflow_id)
        return found if found and found.closed_at and not found.is_unread else None

    return await eventually(fire, timeout=30, every=0.1)


async def test_an_order_is_fulfilled_once_however_often_and_by_whomever_it_is_started(
    served, service
):
    order = Order("2026:42", 250)
    other = ScheduleService(service._ledger, actor="another replica")
    done = await asyncio.gather(
        *(each.start(FulfilOrder, order, id=order.id, wait=20) for each in (service, other) * 3)
    )
    assert [each.new for each in done].count(True) == 1
    handle = served.get_workflow_handle(done[0].workflow_id)
    assert handle.id == "sched:@fulfil-order:2026:42"
    assert await handle.result() == "2026:42: 250, @fulfil-order, manual, None"
    fire = await closed(service, handle.id)
    assert (fire.status, fire.key, fire.project) == ("completed", "@fulfil-order", "default")
    again = await service.start("fulfil-order", {"id": "2026:42", "cents": 250}, id="2026:42")
    assert not again.new
    assert again.fire
    assert again.fire.run_id == fire.run_id
    with pytest.raises(StartInUse):
        await service.start(FulfilOrder, Order("2026:42", 9), id=order.id)
    assert CHARGED == [("2026:42", 250)]


async def test_a_run_has_the_rules_of_its_class_and_says_what_it_is_for(served, service):
    done = await service.start("fulfil-order@1", Order("7", 1), id="7", wait=20)
    run = served.get_workflow_handle(done.workflow_id)
    described = await run.describe()
    config = described.raw_description.execution_config
    assert described.workflow_type == "fulfil-order@1"
    assert config.workflow_run_timeout.ToTimedelta() == timedelta(hours=1)
    assert await described.static_summary() == "fulfil-order · 7"
    details = await described.static_details()
    assert "an application started it" in details
    assert "id `7`" in details
    assert await run.result()  # what it charges is of this test


async def test_an_order_that_failed_is_a_dead_letter_and_runs_again_with_a_mended_input(
    served, service
):
    await service.start(FulfilOrder, Order("a:b", -1), id="a:b")
    assert (await closed(service, "sched:@fulfil-order:a:b")).status == "failed"
    (letter,) = await service.dead_letters()
    assert letter.error is not None
    assert letter.error.endswith("-1 cannot be charged")
    assert letter.arguments == ({"id": "a:b", "cents": -1},)
    asked = await service.rerun_dead(letter.workflow_id, own_input=({"id": "a:b", "cents": 1},))
    fire = await closed(service, asked.fire.workflow_id)
    assert (fire.workflow_id, fire.status) == ("sched:@fulfil-order:a:b:rerun:1", "completed")
    assert await service.dead_letters() == []
    assert CHARGED == [("a:b", 1)]


async def test_a_run_that_is_terminated_is_undone_by_another(served, service):
    done = await service.start(HoldOrder, Order("7", 5), id="7", wait=20)
    await eventually(lambda: CHARGED)
    await served.get_workflow_handle(done.workflow_id).terminate()
    undone = await closed(service, "sched:@hold-order:7:undo")
    assert (undone.status, undone.timing) == ("completed", "handler")
    assert CHARGED == [("7", 5), ("7", -5)]
    assert started.HELD == ["sched:@hold-order:7:undo"]


async def test_a_run_is_cancelled_by_its_id(served, service):
    done = await service.start(HoldOrder, Order("8", 5), id="8", wait=20)
    await eventually(lambda: CHARGED)
    assert (await service.cancel(done.workflow_id)).asked == (done.workflow_id,)
    assert (await closed(service, done.workflow_id)).status == "cancelled"
    assert CHARGED == [("8", 5), ("8", -5)]


async def test_what_temporal_refuses_is_raised_to_who_waits(served, service):
    huge = Order("x" * 3_000_000, 1)
    with pytest.raises(EnqueueFailure, match="size exceeds limit") as refused:
        await service.start(FulfilOrder, huge, id="9", wait=20)
    (letter,) = await service.dead_letters()
    assert letter.workflow_id == refused.value.workflow_id == "sched:@fulfil-order:9"


async def test_how_far_a_step_is_stands_in_its_run_on_the_page_and_in_the_api(
    served: Client, service
):
    async def client() -> Client:
        return served

    ledger = service._ledger
    api = RestApi(ledger, create_app(ledger, ApiOptions(open_door=True), client=client)).client()
    started.PACKED.clear()
    done = await service.start(PackOrder, Order("9", 42), id="9", wait=20)
    path = f"{PATH}/@pack-order/executions/{done.workflow_id}"

    async def reported() -> list[dict[str, object]]:
        answer = await api.get(path)
        assert answer.status_code == 200, answer.text
        steps = answer.json()["stepsInProgress"]
        return steps if steps and steps[0]["progress"] else []

    expected = {"step": "started-pack", "attempt": 1, "progress": ["boxes", 42]}
    assert await eventually(reported, timeout=60) == [expected]
    assert "in step started-pack: boxes, 42" in (await api.get("/schedules/@pack-order")).text
    asking = ScheduleService(ledger, actor="shop", client=served)
    fire = await asking.fire(done.workflow_id)
    assert fire
    steps = await asking.steps_in_progress(fire)
    assert details_lines(RunReport((), steps_in_progress=steps)) == [
        "in step    started-pack: boxes, 42"
    ]
    started.PACKED.set()
    await closed(service, done.workflow_id)
    assert (await api.get(path)).json()["stepsInProgress"] == []
    another = f"{PATH}/@hold-order/executions/{done.workflow_id}"
    assert (await api.get(another)).status_code == 404
