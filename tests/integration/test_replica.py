"""One replica on real servers, from the file to the run and its close."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from engine.errors import Code, RetentionTooShort
from engine.flow import FireInfo
from engine.ledger import Ledger
from engine.runtime import SchedulePlugin, Settings
from engine.runtime.apply.apply import apply
from engine.runtime.events import Alert, Applied, Notice, Settled
from engine.schedules import load_schedules
from tests.sample_workflows import Fails, Noop, Plain
from tests.servers import register_namespace
from tests.waiting import eventually

FILE = """
project: shop
defaults: {timezone: America/Sao_Paulo}
schedules:
  - {key: quick, workflow: noop, everyMs: 1000, input: {to: you}, description: Says hello.}
  - {key: plain, workflow: PlainWorkflow, everyMs: 3600000, input: world}
  - {key: unlucky, workflow: fails, everyMs: 3600000}
"""


@pytest.fixture
async def ledger(client, database_url):
    opened = await Ledger.connect(database_url, namespace=client.namespace)
    yield opened
    await opened.close()


def replica(client, plugin, **options):
    options = {"task_queue": "sched", "workflows": [Noop, Plain, Fails], **options}
    return Worker(client, plugins=[plugin], **options)


async def closed_fire(ledger, key: str):
    """Wait for the newest fire of a key to be closed, and return it."""

    async def closed():
        fires = await ledger.fires(key=key)
        return [fire for fire in fires if fire.closed_at and not fire.is_unread]

    return (await eventually(closed))[0]


async def test_windows_become_runs_and_their_closes_reach_the_ledger(client, database_url, ledger):
    plugin = SchedulePlugin(load_schedules(FILE), database_url=database_url)
    async with replica(client, plugin):
        quick = await closed_fire(ledger, "quick")
        assert (quick.status, quick.timing, quick.project) == ("completed", "on_time", "shop")
        handle = client.get_workflow_handle(quick.workflow_id)
        assert await handle.result() == "quick {'to': 'you'}"
        plain = await closed_fire(ledger, "plain")
        assert await client.get_workflow_handle(plain.workflow_id).result() == "hello world"
        unlucky = await closed_fire(ledger, "unlucky")
        assert (unlucky.status, unlucky.error) == (
            "failed",
            "ValueError: no luck for unlucky",
        )


async def test_a_run_shows_its_window_in_the_web_ui(client, database_url, ledger):
    text = FILE.replace("everyMs: 1000", 'cron: "0 2 * * *", firstFire: now')
    plugin = SchedulePlugin(load_schedules(text), database_url=database_url)
    async with replica(client, plugin):
        fire = await closed_fire(ledger, "quick")
        run = await client.get_workflow_handle(fire.workflow_id).describe()
    local = f"{fire.fire_time:%Y-%m-%d} 02:00 America/Sao_Paulo"
    assert fire.fire_time.hour == 5
    assert await run.static_summary() == f"quick · {local}"
    details = await run.static_details()
    for expected in ("Says hello.", "`quick`", local, f"{fire.bucket}", "**Lag**", "**Why**"):
        assert expected in details
    assert (await run.memo())["sched"]["key"] == "quick"
    assert run.search_attributes["TemporalScheduledStartTime"] == [fire.fire_time]


@pytest.mark.parametrize("it", ["is open", "has closed", "is another ledger's"])
async def test_a_foreign_run_under_a_windows_id_is_rejected_and_told(
    client, database_url, ledger, it
):
    text = "schedules: [{key: daily, workflow: noop, everyMs: 86400000}]"
    schedule = load_schedules(text).schedules[0]
    told: list[object] = []
    async with Worker(client, task_queue="elsewhere", workflows=[Plain]):
        opened = schedule.spec.previous(datetime.now(UTC))
        assert opened
        bucket = schedule.spec.bucket(opened)
        info = FireInfo("daily", 1, bucket, opened, "UTC", "on_time", 1, "default", "another", "t")
        intruder = await client.start_workflow(
            "PlainWorkflow", id=f"sched:daily:{bucket}",
            task_queue="elsewhere" if it == "has closed" else "nowhere",
            memo={"sched": info.to_memo() if it == "is another ledger's" else "mine"},
        )  # fmt: skip
        if it == "has closed":
            await intruder.result()
        plugin = SchedulePlugin(
            load_schedules(text), database_url=database_url, on_event=told.append
        )
        async with replica(client, plugin):

            async def rejected():
                return await ledger.fires(key="daily", status="rejected")

            (fire,) = await eventually(rejected)
        assert fire.reason == "foreign run"
        assert intruder.first_execution_run_id in fire.error
        assert fire.error.endswith("ledger another" if it == "is another ledger's" else "a ledger")
        assert fire.run_id is None
        assert [event.code for event in told if isinstance(event, Alert)] == [
            "SCHEDULE_FIRE_REJECTED"
        ]


async def test_a_plugin_given_to_client_and_worker_fires_once(client, database_url, ledger):
    plugin = SchedulePlugin(load_schedules(FILE), database_url=database_url)
    both = Client(**{**client.config(), "plugins": [plugin]})
    with pytest.warns(UserWarning, match="present from both"):
        worker = replica(both, plugin)
    async with worker:
        await closed_fire(ledger, "quick")
        serving = await ledger._connections.fetch("SELECT replica FROM replicas")
    assert len(serving) == 1


async def test_a_client_without_a_worker_never_fires(client, database_url, ledger):
    plugin = SchedulePlugin(load_schedules(FILE), database_url=database_url)
    Client(**{**client.config(), "plugins": [plugin]})
    assert await ledger.schedules() == []


async def test_a_namespace_that_forgets_too_fast_is_refused_at_start(temporal, database_url):
    admin = await Client.connect(temporal.address)
    await register_namespace(admin, "forgetful", retention=timedelta(seconds=60))
    client = await Client.connect(temporal.address, namespace="forgetful")
    plugin = SchedulePlugin(load_schedules(FILE), database_url=database_url)
    ledger = await Ledger.connect(database_url, namespace="forgetful")
    with pytest.raises(RetentionTooShort, match="less than 4 leases"):
        async with replica(client, plugin):
            await closed_fire(ledger, "quick")
    await ledger.close()


@pytest.mark.prove
async def test_a_broken_file_keeps_the_last_good_definitions(
    client, database_url, ledger, tmp_path
):
    path = tmp_path / "schedules.yaml"
    path.write_text(FILE)
    async with replica(client, SchedulePlugin(path, database_url=database_url)):
        await closed_fire(ledger, "quick")
    path.write_text(FILE + "  - {key: Broken!, workflow: noop}\n")
    before = len(await ledger.fires(key="quick", limit=500))
    told: list[object] = []
    plugin = SchedulePlugin(path, database_url=database_url, on_event=told.append)
    async with replica(client, plugin):

        async def goes_on():
            return len(await ledger.fires(key="quick", limit=500)) >= before + 2

        await eventually(goes_on)
    (applied,) = [event for event in told if isinstance(event, Applied)]
    assert "SCHEDULE_KEY_INVALID" in applied.text
    last = "the last good definitions stay in force (3 schedules)"
    text = f"{path} is not applied to project shop: {last}"
    assert Alert(Code.FILE_INVALID, text) in told


async def test_a_start_says_what_the_file_changed_and_not_all_of_a_new_one(
    client, database_url, ledger
):
    async def said(text: str) -> list[str]:
        told: list[object] = []
        plugin = SchedulePlugin(
            load_schedules(text), database_url=database_url, on_event=told.append
        )
        async with replica(client, plugin):
            await eventually(lambda: [event for event in told if isinstance(event, Settled)])
        return [event.text for event in told if isinstance(event, (Applied, Notice))]

    assert await said(FILE) == ["project shop: 3 added"]
    edited = FILE.replace("to: you", "to: me") + "  - {key: new, workflow: noop, everyMs: 2000}\n"
    assert await said(edited) == [
        "project shop: 1 added, 1 changed, 2 unchanged",
        "+ new: noop, every 2s",
        '~ quick: input {"to": "you"} → {"to": "me"}',
    ]


async def test_a_misspelt_workflow_is_told_with_the_one_that_was_meant(
    client, database_url, ledger
):
    text = "schedules: [{key: k, workflow: nop, everyMs: 1000, grace: 1s}]"
    await apply(ledger, load_schedules(text), by="test")  # nobody serves its task queue yet
    told: list[object] = []
    plugin = SchedulePlugin(
        load_schedules(text), database_url=database_url, on_event=told.append,
        settings=Settings(heartbeat=timedelta(milliseconds=200)),
    )  # fmt: skip
    async with replica(client, plugin):
        alerts = await eventually(
            lambda: [
                event
                for event in told
                if isinstance(event, Alert) and event.code == "SCHEDULE_WORKFLOW_UNKNOWN"
            ],
            timeout=20,
        )
    assert "rejected, no worker on task queue sched knows nop; did you mean noop? New" in (
        alerts[0].text
    )
    fires = await ledger.fires(status="rejected")
    assert {fire.reason for fire in fires} == {"no worker on task queue sched knows nop"}


async def test_two_projects_share_a_ledger_and_a_namespace(client, database_url, ledger):
    one = "project: one\nschedules: [{key: a, workflow: noop, everyMs: 1000}]"
    two = "project: two\nschedules: [{key: b, workflow: noop, everyMs: 1000, taskQueue: two}]"
    first = SchedulePlugin(load_schedules(one), database_url=database_url)
    second = SchedulePlugin(load_schedules(two), database_url=database_url)
    async with (
        replica(client, first),
        replica(client, second, task_queue="two"),
    ):

        async def both_fired():
            fires = await ledger.fires(limit=500)
            return {"a", "b"} == {fire.key for fire in fires if fire.run_id} and len(fires) > 6

        await eventually(both_fired)
        replicas = await ledger._connections.fetch("SELECT replica, project FROM replicas")
    project_of = {row["replica"]: row["project"] for row in replicas}
    fires = await ledger.fires(limit=500)
    assert {(fire.key, project_of[fire.replica]) for fire in fires} == {("a", "one"), ("b", "two")}
    assert {row.key: row.state for row in await ledger.schedules()} == {
        "a": "active", "b": "active",
    }  # fmt: skip
