"""Who applies the file: a worker when it starts, or with `SCHED_APPLY=never` somebody else."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from temporalio.worker import Worker

from engine.cli.app import run
from engine.errors import Code, ExtraMissing, LedgerRequired, ScheduleFileError, SettingsInvalid
from engine.ledger import Ledger
from engine.runtime import SchedulePlugin, Settings
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from tests.sample_workflows import Noop
from tests.waiting import eventually

FILE = "schedules: [{key: %s, workflow: noop, everyMs: 1000}]"
NEVER = replace(Settings(), apply="never")


@pytest.fixture
async def ledger(client, database_url):
    opened = await Ledger.connect(database_url, namespace=client.namespace)
    yield opened
    await opened.close()


async def test_a_worker_that_never_applies_starts_what_the_ledger_has(client, database_url, ledger):
    await apply(ledger, load_schedules(FILE % "deployed"), by="deploy")
    plugin = SchedulePlugin(
        load_schedules(FILE % "beside-the-worker"), database_url=database_url, settings=NEVER
    )
    async with Worker(client, task_queue="sched", workflows=[Noop], plugins=[plugin]):

        async def has_run():
            return [fire for fire in await ledger.fires() if fire.status == "completed"]

        fires = await eventually(has_run)
    assert {fire.key for fire in fires} == {"deployed"}
    assert [row.key for row in await ledger.schedules()] == ["deployed"]


@pytest.mark.parametrize("settings", [Settings(), NEVER])
async def test_a_worker_without_a_ledger_ends_at_once(client, monkeypatch, settings):
    monkeypatch.delenv("SCHED_DATABASE_URL", raising=False)
    plugin = SchedulePlugin(load_schedules(FILE % "k"), settings=settings)
    with pytest.raises(LedgerRequired, match="SCHED_DATABASE_URL is not set"):
        Worker(client, task_queue="sched", workflows=[Noop], plugins=[plugin])


def test_only_two_words_say_who_applies():
    assert Settings.from_environment({"SCHED_APPLY": "never"}).apply == "never"
    assert Settings.from_environment({}).apply == "on-start"
    with pytest.raises(SettingsInvalid, match="write on-start or never"):
        Settings.from_environment({"SCHED_APPLY": "always"})


def test_an_unchanged_file_is_applied_again_without_being_read(
    tmp_path, monkeypatch, database_url, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHED_DATABASE_URL", database_url)
    (tmp_path / "schedules.yaml").write_text(FILE % "k")
    assert run(["apply"]) == 0
    monkeypatch.setattr("engine.runtime.apply.source.parse", None)  # whoever reads a file calls it
    assert run(["apply"]) == 0
    assert "nothing changed since the last apply" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("head", "settings", "asked"),
    [
        ("hooks: [{url: 'https://a.example', secret: '${env:S}'}]\n", Settings(), "a webhook"),
        ("", Settings(alert_url="https://alerts.example"), "SCHED_ALERT_URL"),
    ],
)
async def test_a_worker_without_the_extra_for_hooks_or_alerts_refuses_to_start(
    client, database_url, monkeypatch, head, settings, asked
):
    monkeypatch.setitem(sys.modules, "httpx", None)
    plugin = SchedulePlugin(
        load_schedules(head + FILE % "k"), database_url=database_url, settings=settings
    )
    with pytest.raises(ExtraMissing, match=rf"{asked} needs httpx.*sched-engine\[webhooks\]"):
        await Worker(client, task_queue="sched", workflows=[Noop], plugins=[plugin]).run()


async def test_a_worker_that_cannot_read_a_calendar_of_its_file_refuses_to_start(
    client, database_url, ledger, tmp_path, monkeypatch
):
    """With the last good definitions it would have other days off than workers that can."""
    await apply(ledger, load_schedules(FILE % "k"), by="deploy")
    block = "import sys; sys.modules['icalendar'] = None"
    (tmp_path / "sitecustomize.py").write_text(block)  # a child process reads calendars
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    path = tmp_path / "schedules.yaml"
    path.write_text("calendars: {team: {ics: team.ics}}\n" + FILE % "k")
    plugin = SchedulePlugin(path, database_url=database_url)
    with pytest.raises(ScheduleFileError) as raised:
        await Worker(client, task_queue="sched", workflows=[Noop], plugins=[plugin]).run()
    assert [each.code for each in raised.value.problems] == [Code.EXTRA_MISSING]
