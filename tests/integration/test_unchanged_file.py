"""A replica that starts again with the same files parses nothing, and leaves nothing unsaid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.worker import Worker

from engine.errors import ScheduleFileError
from engine.ledger import Transaction
from engine.runtime import SchedulePlugin
from engine.runtime.apply import child_parser, source
from engine.runtime.events import Alert, Applied, Event, Notice
from tests.sample_workflows import Noop
from tests.waiting import eventually

GOES_ON = (
    "{} is not applied to project default: the last good definitions stay in force (1 schedules)"
)
ENTRY = "- {{key: {key}, workflow: noop, everyMs: 3600000{more}}}\n"


def entry(key: str, more: str = "") -> str:
    return ENTRY.format(key=key, more=more)


class Home:
    """A folder of schedules, and replicas that begin with it one after the other."""

    def __init__(self, client, database_url: str, folder: Path, monkeypatch) -> None:
        self.client, self.url, self.folder = client, database_url, folder
        self.parsed = 0
        monkeypatch.setattr(source, "parse", self._parse)

    def _parse(self, *args, **options):
        self.parsed += 1
        return child_parser.parse(*args, **options)

    @asynccontextmanager
    async def running(self, *schedules: Path) -> AsyncIterator[tuple[SchedulePlugin, list[Event]]]:
        """Run a worker with this file, or with none that is named."""
        told: list[Event] = []
        plugin = SchedulePlugin(*schedules, database_url=self.url, on_event=told.append)
        async with Worker(self.client, task_queue="sched", workflows=[Noop], plugins=[plugin]):
            await eventually(
                lambda: plugin.health.ready().good or "applied" in plugin.health.ready().text
            )
            yield plugin, told

    async def start(self, path: Path, *, database: bool = True) -> tuple[Applied, list[str]]:
        """Start a replica; return what came of the file, the remarks, and how often it read."""
        self.parsed = 0
        told: list[Event] = []
        url = self.url if database else None
        plugin = SchedulePlugin(path, database_url=url, on_event=told.append)
        async with Worker(self.client, task_queue="sched", workflows=[Noop], plugins=[plugin]):

            async def applied():
                return [event for event in told if isinstance(event, Applied)]

            (found,) = await eventually(applied)
        return found, [event.text for event in told if isinstance(event, Notice | Alert)]


@pytest.fixture
def home(client, database_url, tmp_path, monkeypatch) -> Home:
    monkeypatch.delenv("SCHED_DATABASE_URL", raising=False)
    return Home(client, database_url, tmp_path, monkeypatch)


async def test_an_unchanged_file_is_not_parsed_again(home):
    path = home.folder / "s.yaml"
    path.write_text("project: shop\nschedules:\n" + entry("a"))
    assert (await home.start(path))[0] == Applied("project shop: 1 added", good=True)
    assert home.parsed == 1
    found, _ = await home.start(path)
    assert found == Applied("project shop: nothing changed since the last apply", good=True)
    assert home.parsed == 0
    path.write_text("project: shop\nschedules:\n" + entry("a") + entry("b"))
    assert (await home.start(path))[0] == Applied("project shop: 1 added, 1 unchanged", good=True)


async def test_a_worker_with_a_file_that_was_replaced_says_so_and_goes_on_with_the_newer_one(home):
    path = home.folder / "s.yaml"
    path.write_text(entry("a"))
    await home.start(path)
    path.write_text(entry("a") + entry("b"))
    await home.start(path)
    path.write_text(entry("a"))
    found, remarks = await home.start(path)
    assert not found.good
    assert "s.yaml was applied before, and replaced by" in found.text
    assert "`sched apply FILE --force`" in found.text
    assert "the last good definitions stay in force (2 schedules)" in remarks


@pytest.mark.parametrize("more", ["", ", input: 010"])
async def test_the_ledger_is_asked_once_whether_a_file_has_changed(home, monkeypatch, more):
    """A file with a warning is parsed to know it, and need not ask again."""
    path = home.folder / "s.yaml"
    path.write_text(entry("a", more))
    await home.start(path)
    asked = []
    lock_project = Transaction.lock_project

    async def counted(transaction, project):
        asked.append(project)
        return await lock_project(transaction, project)

    monkeypatch.setattr(Transaction, "lock_project", counted)
    found, _ = await home.start(path)
    assert found.text == "project default: nothing changed since the last apply"
    assert asked == ["default"]


async def test_a_folder_that_changes_in_any_file_is_read_again(home):
    (home.folder / "a.yaml").write_text("project: shop\nschedules:\n" + entry("a"))
    (home.folder / "b.yaml").write_text(entry("b"))
    assert (await home.start(home.folder))[0].text == "project shop: 2 added"
    await home.start(home.folder)
    assert home.parsed == 0
    (home.folder / "b.yaml").write_text(entry("b", ", input: 1"))
    assert (await home.start(home.folder))[0].text == "project shop: 1 changed, 1 unchanged"


async def test_a_broken_file_is_reported_at_each_start(home):
    path = home.folder / "s.yaml"
    path.write_text(entry("a"))
    await home.start(path)
    path.write_text(entry("a") + "- oops\n")
    for _ in range(2):
        found, remarks = await home.start(path)
        assert not found.good
        assert "SCHEDULE_FIELD_INVALID" in found.text
        assert remarks == [GOES_ON.format(path)]


@pytest.mark.parametrize("text", [pytest.param(None, marks=pytest.mark.prove), "schedules: ["])
async def test_a_worker_without_its_file_is_not_ready_and_works_with_the_ledgers(home, text):
    path = home.folder / "s.yaml"
    path.write_text(entry("a"))
    await home.start(path)
    path.unlink()
    if text is not None:
        path.write_text(text)
    async with home.running(path) as (plugin, told):
        assert plugin.health.ready() == (False, GOES_ON.format(path))
        (alert,) = [each for each in told if isinstance(each, Alert)]
        assert alert.text == plugin.health.ready().text
        assert alert.code == "SCHEDULE_FILE_INVALID"
    path.write_text(entry("a"))
    async with home.running(path) as (plugin, _):
        assert plugin.health.ready() == (True, "ready")


async def test_a_lost_file_was_of_the_project_that_the_environment_names(home, monkeypatch):
    """Nothing else says whose the last good definitions are."""
    path = home.folder / "s.yaml"
    path.write_text("project: shop\nschedules:\n" + entry("a"))
    await home.start(path)
    path.unlink()
    monkeypatch.setenv("SCHED_PROJECT", "shop")
    async with home.running(path) as (plugin, _):
        said = GOES_ON.format(path).replace("default", "shop")
        assert (plugin.project, plugin.health.ready()) == ("shop", (False, said))
    assert SchedulePlugin(None, database_url=home.url).project == "shop"
    path.write_text(entry("a"))
    assert SchedulePlugin(path, database_url=home.url).project == "default", "as it says itself"


async def test_a_worker_without_the_file_it_names_and_without_schedules_ends(home):
    path = home.folder / "lost.yaml"
    plugin = SchedulePlugin(path, database_url=home.url)
    worker = Worker(home.client, task_queue="sched", workflows=[Noop], plugins=[plugin])
    with pytest.raises(ScheduleFileError, match=r"lost\.yaml: SCHEDULE_FILE_UNREADABLE"):
        await worker.run()
    async with home.running() as (_, told):
        pass
    assert not [each for each in told if isinstance(each, Alert)], "the lost one has withdrawn"


async def test_a_worker_that_names_no_file_is_ready_before_the_first_apply(home, monkeypatch):
    monkeypatch.chdir(home.folder)
    async with home.running() as (plugin, told):
        assert plugin.health.ready() == (True, "ready")
        assert (
            Notice(
                "no schedules.yaml here: project default has 0 schedules in the ledger", good=True
            )
            in told
        )
        assert not [each for each in told if isinstance(each, Alert)]


async def test_warnings_and_other_task_queues_are_mentioned_at_each_start(home):
    path = home.folder / "s.yaml"
    path.write_text(entry("a", ", taskQueue: other") + entry("b"))
    other = "1 of 2 schedules is for other task queues (other), this worker serves sched"
    for parses in (1, 0):
        _, remarks = await home.start(path)
        assert home.parsed == parses
        assert other in remarks
    path.write_text(entry("a", ", taskQueue: other, input: 010") + entry("b"))
    for _ in range(2):
        _, remarks = await home.start(path)
        assert any("010 is read as the number 10" in remark for remark in remarks)


async def test_a_reader_that_crashes_leaves_the_last_good_definitions(home, monkeypatch):
    path = home.folder / "s.yaml"
    path.write_text(entry("a"))
    await home.start(path)
    monkeypatch.setattr(child_parser, "_CHILD", "import os; os.abort()")
    path.write_text(entry("a") + "#" * child_parser.SMALL)
    found, remarks = await home.start(path)
    assert not found.good
    assert found.text.startswith(f"{path}: SCHEDULE_FILE_UNREADABLE: the process that reads it")
    assert remarks == [GOES_ON.format(path)]


async def test_a_worker_that_is_stopped_while_it_reads_ends_at_once_and_applies_nothing(
    home, monkeypatch
):
    path = home.folder / "s.yaml"
    path.write_text("schedules:\n" + entry("a") + "#" * child_parser.SMALL)
    monkeypatch.setattr(child_parser, "_CHILD", "import signal; signal.pause()")
    told: list[Event] = []
    plugin = SchedulePlugin(path, database_url=home.url, on_event=told.append)
    async with asyncio.timeout(10):
        async with Worker(home.client, task_queue="sched", workflows=[Noop], plugins=[plugin]):
            await eventually(lambda: home.parsed == 1)
    assert not [event for event in told if isinstance(event, Applied)]
