"""``sched up`` follows its schedule file: every way of saving it, and of getting it wrong."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Lock

import pytest

from engine.cli.app import run
from engine.cli.target import LazyService
from engine.cli.up import file_watch
from engine.cli.up.file_watch import FileState, FileWatch
from engine.runtime.apply.source import Source, digest_of, read_file
from engine.runtime.code.discovery import import_user_code
from engine.runtime.events import Applied, Degraded, Event, Notice
from engine.schedules import Declaration, ScheduleFile, load_schedules
from tests.waiting import eventually

GOOD = (
    "schedules:\n- {key: a, workflow: w, everyMs: 60000}\n- {key: b, workflow: w, everyMs: 9000}\n"
)


PARCELS = "tests.fundamentals.samples.parcels"


class Followed:
    """A file under watch, and what was said of it."""

    def __init__(self, path: Path, desk: LazyService) -> None:
        self.path, self.desk = path, desk
        self.said: list[str] = []
        self.states: list[FileState] = []

    def watch(self, begin, answer: Applied | None = None, **options) -> FileWatch:
        watch = FileWatch(
            self.path, begin, self.desk, project="default", living=7,
            show=self.states.append, on_event=self.listen, absent_for=timedelta(seconds=2),
            **options,
        )  # fmt: skip
        watch.on_event(answer or Applied("project default: 2 added", good=True))
        return watch

    def listen(self, event: Event) -> None:
        match event:
            case Notice(text) | Degraded(_, str(text)):
                self.said.append(text)

    def heard(self, text: str) -> bool:
        return any(text in line for line in self.said)

    async def told(self, *texts: str) -> None:
        for text in texts:
            await eventually(partial(self.heard, text))

    async def every_ms(self) -> dict[str, int | None]:
        async with self.desk.service() as service:
            rows = await service.schedules()
        return {
            row.key: row.schedule.every_ms
            for row in rows
            if row.schedule and row.state != "retired"
        }


@pytest.fixture
async def followed(tmp_path: Path, database_url: str) -> AsyncIterator[Followed]:
    path = tmp_path / "schedules.yaml"
    path.write_text(GOOD)
    async with LazyService(database_url, "test") as desk:
        made = Followed(path, desk)
        file = read_file(path)
        async with desk.service() as service:
            await service.apply(file)
        following = asyncio.create_task(made.watch(file).run())
        yield made
        following.cancel()
        await asyncio.wait([following])


async def test_a_save_is_applied_and_says_what_changed(followed: Followed):
    followed.path.write_text(
        GOOD.replace("60000", "30000") + "- {key: c, workflow: w, everyMs: 5000}\n"
    )
    await followed.told(
        "applied: project default: 1 added, 1 changed, 1 unchanged",
        "~ a: every 1m → 30s",
        "+ c: w, every 5s",
    )
    assert await followed.every_ms() == {"a": 30000, "b": 9000, "c": 5000}
    assert followed.states[-1].schedules == 3


async def test_newer_code_brings_its_own_schedules(tmp_path: Path, database_url: str):
    """Or a save of the file would put the older code's back, and retire what the newer has."""
    path = tmp_path / "schedules.yaml"
    path.write_text(GOOD)

    def declared(**every_ms: int) -> tuple[Declaration, ...]:
        return tuple(
            Declaration({"key": key, "workflow": "w", "everyMs": each}, "code.py", 1)
            for key, each in every_ms.items()
        )

    async with LazyService(database_url, "test") as desk:
        followed, older, newer = Followed(path, desk), declared(x=5000), declared(x=6000, y=7000)
        file = Source(path, older).read()
        async with desk.service() as service:
            await service.apply(file)
        watch = followed.watch(file, declared=older)
        watch.expect(frozenset({"w"}), newer)
        async with desk.service() as service:
            await service.apply(Source(path, newer).read())  # as the new replica does
        watch.on_event(Applied("project default: 1 added, 1 changed", good=True))
        following = asyncio.create_task(watch.run())
        path.write_text(GOOD.replace("60000", "30000"))
        await followed.told("~ a: every 1m → 30s")
        assert await followed.every_ms() == {"a": 30000, "b": 9000, "x": 6000, "y": 7000}
        assert not followed.heard("is not in the file")
        following.cancel()
        await asyncio.wait([following])


async def test_an_atomic_save_is_seen_as_well(followed: Followed):
    for number in (2, 3):  # the second file is another inode than the one first watched
        fresh = followed.path.with_name("new")
        fresh.write_text(GOOD.replace("9000", f"{number}000"))
        fresh.replace(followed.path)
        await followed.told(f"→ {number}s")


async def test_a_file_behind_a_swapped_link_is_seen_as_well(tmp_path: Path, database_url: str):
    """As in a mounted configuration volume."""
    for name, text in (("one", GOOD), ("two", GOOD.replace("9000", "8000"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "schedules.yaml").write_text(text)
    (tmp_path / "data").symlink_to("one")
    path = tmp_path / "schedules.yaml"
    path.symlink_to(Path("data", "schedules.yaml"))
    async with LazyService(database_url, "test") as desk:
        followed = Followed(path, desk)
        following = asyncio.create_task(followed.watch(read_file(path)).run())
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").replace(tmp_path / "data")
        await followed.told("applied: project default: 2 added")
        assert (await followed.every_ms())["b"] == 8000
        following.cancel()
        await asyncio.wait([following])


async def test_a_folder_is_followed_in_each_of_its_files(tmp_path: Path, database_url: str):
    folder = tmp_path / "schedules"
    folder.mkdir()
    (folder / "one.yaml").write_text(GOOD)
    async with LazyService(database_url, "test") as desk:
        followed = Followed(folder, desk)
        file = read_file(folder)
        async with desk.service() as service:
            await service.apply(file)
        following = asyncio.create_task(followed.watch(file).run())
        (folder / "two.yaml").write_text("- {key: c, workflow: w, everyMs: 5000}\n")
        await followed.told("+ c: w, every 5s")
        (folder / "one.yaml").write_text(GOOD.replace("9000", "8000"))
        await followed.told("~ b: every 9s → 8s")
        (folder / "two.yaml").write_text("- {key: b, workflow: w, everyMs: 5000}\n")
        await eventually(lambda: followed.states[-1].problems)
        assert "two.yaml:1:9: SCHEDULE_KEY_DUPLICATE" in followed.states[-1].problems[0]
        (folder / "two.yaml").unlink()
        await followed.told("retired, no longer in", ": c")
        following.cancel()
        await asyncio.wait([following])


async def test_a_file_is_not_read_while_it_is_being_written(followed: Followed):
    """What is there in between may be valid, and mean something else."""
    followed.path.write_text(GOOD.replace("9000", "90000"))
    await asyncio.sleep(0.2)  # the slow writer, who takes less than the watch waits for
    followed.path.write_text(GOOD.replace("9000", "7000"))
    await followed.told("~ b: every 9s → 7s")
    assert len([line for line in followed.said if "applied:" in line]) == 1


async def test_a_broken_file_changes_nothing_and_names_its_problems_until_mended(
    followed: Followed,
):
    followed.path.write_text(GOOD.replace("60000", "soon"))
    await eventually(lambda: followed.states[-1].problems)
    (problem,) = followed.states[-1].problems
    assert "SCHEDULE_FIELD_INVALID" in problem
    assert followed.states[-1].schedules == 2, "so many go on"
    assert await followed.every_ms() == {"a": 60000, "b": 9000}
    followed.path.write_text(GOOD.replace("60000", "50000"))
    await followed.told("is good again", "→ 50s")
    assert not followed.states[-1].problems


@pytest.mark.parametrize("text", ["", "schedules: []\n", None])
async def test_an_empty_or_missing_file_retires_nothing(followed: Followed, text: str | None):
    if text is None:
        followed.path.unlink()
    else:
        followed.path.write_text(text)
    await eventually(lambda: followed.states[-1].problems)
    followed.path.write_text(GOOD)
    await followed.told("is good again: project default: nothing changed since the last apply")
    assert not any("applied:" in line for line in followed.said), "one line, not two"
    assert await followed.every_ms() == {"a": 60000, "b": 9000}
    assert not any("retired" in line for line in followed.said)


async def test_a_key_that_the_file_lacks_is_retired_when_it_has_stayed_away(followed: Followed):
    followed.path.write_text(GOOD.replace("key: b", "key: c"))
    await followed.told("- b is not in the file: retired in 2 s")
    assert set(await followed.every_ms()) == {"a", "b", "c"}
    await followed.told("retired, no longer in")
    assert set(await followed.every_ms()) == {"a", "c"}


async def test_a_key_that_comes_back_in_time_stays(followed: Followed):
    followed.path.write_text(GOOD.replace("key: b", "key: c"))
    await followed.told("- b is not in the file")
    followed.path.write_text(GOOD)
    await followed.told("- c is not in the file")
    await followed.told("retired, no longer in")
    assert set(await followed.every_ms()) == {"a", "b"}


async def test_more_than_half_of_a_project_is_not_retired_by_a_save(followed: Followed):
    followed.path.write_text("schedules: [{key: only, workflow: w, everyMs: 5000}]\n")
    await followed.told("2 of the 3 schedules of project default are not in")
    (refusal,) = [line for line in followed.said if "2 of the 3" in line]
    assert "a, b; that is more than half, so none of them is retired, and they continue" in refusal
    assert f"`sched apply {followed.path} --prune --force`" in refusal
    assert not any("retired in" in line for line in followed.said), "no promise is taken back"
    # The hint, while the file is being followed.
    async with followed.desk.service() as service:
        file = read_file(followed.path)
        await service.apply(file, prune=True, force=True)
        await service.prune(file, absent_for=timedelta(0), force=True)
    assert set(await followed.every_ms()) == {"only"}
    followed.path.write_text("schedules: [{key: only, workflow: w, everyMs: 6000}]\n")
    await followed.told("applied: project default: 1 changed")
    assert sum("2 of the 3" in line for line in followed.said) == 1


async def test_the_hint_names_the_data_folder_where_it_is_not_the_usual_one(followed: Followed):
    again = Followed(followed.path, followed.desk)
    watch = again.watch(read_file(followed.path), data_dir=Path("my data"))
    followed.path.write_text("schedules: [{key: only, workflow: w, everyMs: 5000}]\n")
    await watch.run_once()
    await again.told(f"`sched apply {followed.path} --data-dir 'my data' --prune --force`")


async def test_an_edit_by_somebody_else_is_part_of_what_a_save_changes(followed: Followed):
    """`sched apply` beside it; the file that was followed says the same before and after."""
    async with followed.desk.service() as service:
        await service.apply(load_schedules(GOOD.replace("60000", "30000")))
    followed.path.write_text(GOOD + "# a remark\n")
    await followed.told("~ a: every 30s → 1m")


async def test_a_start_with_an_unchanged_file_still_retires_what_was_absent_before(
    followed: Followed,
):
    """Whoever stopped `sched up` within the 30 seconds."""
    followed.path.write_text(GOOD.replace("key: b", "key: c"))
    await followed.told("- b is not in the file")
    again = Followed(followed.path, followed.desk)
    following = asyncio.create_task(again.watch(read_file(followed.path)).run())
    await eventually(
        lambda: any("retired" in line for line in [*again.said, *followed.said]), timeout=20
    )
    following.cancel()
    await asyncio.wait([following])


async def test_what_the_replica_was_refused_is_not_called_applied(followed: Followed):
    """A lower revision, or a key of another project."""
    again = Followed(followed.path, followed.desk)
    refused = Applied("schedules.yaml has revision 1, revision 2 was applied before", good=False)
    again.watch(read_file(followed.path), refused)
    assert again.states[0].since is None, "nobody has said yet that it was applied"
    assert again.states[-1].problems == (refused.text,)


async def test_a_file_of_another_project_is_not_applied(followed: Followed):
    followed.path.write_text("project: billing\n" + GOOD)
    await eventually(lambda: followed.states[-1].problems)
    (problem,) = followed.states[-1].problems
    assert "is of project billing, this worker serves default" in problem
    assert "start `sched up` or the worker again" in problem
    async with followed.desk.service() as service:
        assert {row.project for row in await service.schedules()} == {"default"}


async def test_line_ends_and_a_mark_at_the_front_are_no_edit(followed: Followed):
    followed.path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    again = Followed(followed.path, followed.desk)
    await again.watch(read_file(followed.path)).run_once()
    assert not again.said


ICS = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:x
BEGIN:VEVENT
UID:1
DTSTAMP:20270101T000000Z
DTSTART;VALUE=DATE:20270108
END:VEVENT
END:VCALENDAR
"""
NAMING = "calendars: {team: {ics: my team.ics}}\ndefaults: {exclude: [team]}\n" + GOOD


async def test_a_changed_calendar_is_applied_and_a_broken_one_until_it_is_mended(
    followed: Followed,
):
    calendar = followed.path.with_name("my team.ics")
    calendar.write_text(ICS)
    followed.path.write_text(NAMING)
    await followed.told("applied: project default: 2 changed")
    calendar.write_text(ICS.replace("20270108", "20270109"))
    await followed.told("~ b: exclude")
    calendar.unlink()
    await eventually(lambda: followed.states[-1].problems)
    assert "my team.ics cannot be read" in followed.states[-1].problems[0]
    calendar.write_text(ICS.replace("20270108", "20270110"))
    await followed.told("is good again: project default: 2 changed")


async def test_a_calendar_that_never_rests_is_reported_and_holds_nothing_up(
    followed: Followed, monkeypatch
):
    calendar = followed.path.with_name("my team.ics")
    calendar.write_text(ICS)
    followed.path.write_text(NAMING)
    await followed.told("applied: project default: 2 changed")
    file = read_file(followed.path)
    monkeypatch.setattr(file_watch, "_SETTLED_BY", 0.3)
    monkeypatch.setattr(file_watch, "_SETTLE", 0.05)
    again = Followed(followed.path, followed.desk)
    watch = again.watch(file)
    changes = itertools.count()
    one = Lock()  # the watch of ``followed`` looks as well, and may not see a file half written

    def changed_before(source: Source, read: ScheduleFile) -> str:
        with one:
            calendar.write_text(ICS.replace("PRODID:x", f"PRODID:{next(changes)}"))
            return digest_of(source, read)

    with monkeypatch.context() as patched:
        patched.setattr(file_watch, "digest_of", changed_before)
        async with asyncio.timeout(20):
            await watch.run_once()
    assert "keeps changing" in again.states[-1].problems[0]
    calendar.write_text(ICS.replace("20270108", "20270111"))
    await watch.run_once()
    await again.told("is good again")
    assert not again.states[-1].problems


WRONG_INPUT = "schedules:\n- {key: p, workflow: parcels, everyMs: 60000, input: {id: 7}}\n"
SAID = "schedules.yaml:2:59: SCHEDULE_INPUT_INVALID: p: input.id: Input should be a valid string"


async def test_a_save_names_inputs_that_do_not_fit_the_code_of_the_worker(tmp_path, database_url):
    path = tmp_path / "schedules.yaml"
    path.write_text(GOOD)
    async with LazyService(database_url, "test") as desk:
        made = Followed(path, desk)
        watch = made.watch(read_file(path), types=import_user_code([PARCELS]).types)
        path.write_text(WRONG_INPUT)
        await watch.run_once()
    assert made.heard(SAID)


@pytest.mark.parametrize(("command", "code"), [("plan", 3), ("apply", 0)])
def test_plan_and_apply_name_them_where_the_code_is_named(
    command, code, tmp_path, database_url, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHED_DATABASE_URL", database_url)
    Path("schedules.yaml").write_text(WRONG_INPUT)
    assert run([command]) == code
    assert "INPUT_INVALID" not in capsys.readouterr().out
    assert run([command, "--import", PARCELS]) == code
    assert SAID in capsys.readouterr().out.replace("\n", " ")
    assert run([command, "--import", PARCELS, "--json"]) == code
    found = json.loads(capsys.readouterr().out)["problems"]
    assert ("SCHEDULE_INPUT_INVALID", 2) in {(each["code"], each["line"]) for each in found}


def test_an_apply_whose_code_cannot_be_imported_changes_nothing(
    tmp_path, database_url, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHED_DATABASE_URL", database_url)
    Path("schedules.yaml").write_text(WRONG_INPUT)
    assert run(["apply", "--import", "nowhere"]) == 2
    assert "there is no package nowhere here" in capsys.readouterr().err
    assert run(["list"]) == 0
    assert "p " not in capsys.readouterr().out
