"""Large files are read by a process of their own: the same answer, and one error if it dies."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from engine.errors import ScheduleFileError
from engine.runtime.apply import child_parser
from engine.runtime.apply.child_parser import parse
from engine.runtime.apply.source import Source, read_unless
from engine.schedules.loader.loader import NamedText
from tests.waiting import eventually

LARGE = "schedules:\n" + "".join(
    f"- {{key: k{n}, workflow: w, cron: '{n % 60} 2 * * *', timezone: Asia/Tokyo, "
    f"catchUp: {{window: 2h}}, exclude: [SUN, off], input: {{n: [{n}, null]}}}}\n"
    for n in range(2300)
)
FEW = "".join(LARGE.splitlines(keepends=True)[:3])
"""Is read by a child where it names a calendar."""

CALENDARS = "calendars: {off: [2027-01-01]}\n"


def children() -> set[int]:
    """The reading processes that this one has begun."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_text(errors="replace")
            # Those of multiprocessing serve other tests.
            if parent == os.getpid() and "\0-c\0" in command and "multiproc" not in command:
                found.add(int(folder.name))
    return found


def test_a_child_reads_what_this_process_would_read():
    texts = [
        NamedText("a.yaml", CALENDARS + LARGE + "# 010\n- {key: z, workflow: w, everyMs: 01000}")
    ]
    assert len(texts[0].text) > child_parser.SMALL
    here, there = parse(texts, "a.yaml", small=len(LARGE) * 2), parse(texts, "a.yaml")
    assert there == here
    assert len(there.warnings) == 1
    assert there.schedules[7].spec.next == there.schedules[7].spec.next
    for one, other in zip(here.schedules, there.schedules, strict=True):
        assert one.to_json() == other.to_json()
        assert one.has_input == other.has_input
    assert here.schedules[5].exclusions is not None
    assert there.schedules[5].exclusions is not None


def test_a_file_that_names_a_calendar_is_read_by_a_child_however_small(tmp_path, monkeypatch):
    """A calendar of a few lines may repeat for ever, and cost an event loop many seconds."""
    (tmp_path / "off.ics").write_text(
        "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//test//EN\nBEGIN:VEVENT\nUID:1\n"
        "DTSTAMP:20260101T000000Z\nDTSTART;VALUE=DATE:20261225\nEND:VEVENT\nEND:VCALENDAR\n"
    )
    file = tmp_path / "s.yaml"
    file.write_text(
        "calendars: {off: {ics: off.ics}}\n"
        "schedules: [{key: a, workflow: w, cron: '0 2 * * *', exclude: [off]}]"
    )
    monkeypatch.delattr(child_parser, "load_several")  # what this process would use
    (schedule,) = Source(file).read().schedules
    assert schedule.exclusions is not None


def test_a_child_reports_every_problem():
    texts = [NamedText("a.yaml", CALENDARS + LARGE + "- {key: z, workflow: w, everyMs: 1}")]
    with pytest.raises(ScheduleFileError) as caught:
        parse(texts, "a.yaml")
    (found,) = caught.value.problems
    assert (found.code, found.line, found.key) == ("SCHEDULE_INTERVAL_TOO_SHORT", 2303, "z")
    assert str(caught.value).startswith("a.yaml:2303:")


def test_a_calendar_beside_a_file_is_found(tmp_path):
    (tmp_path / "off.ics").write_text(
        "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\nBEGIN:VEVENT\nUID:1\nDTSTAMP:20270101T000000Z\n"
        "DTSTART;VALUE=DATE:20270108\nEND:VEVENT\nEND:VCALENDAR\n"
    )
    path = tmp_path / "s.yaml"
    path.write_text("calendars: {off: {ics: off.ics}}\n" + FEW)
    file = Source(path).read()
    assert file.schedules[0].exclude[1][1] == ("2027-01-08",)
    assert file.digest == Source(path).look().digest(file)


def test_a_killed_child_is_one_clear_error():
    killed = threading.Event()

    def kill() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not killed.is_set():
            for pid in children():
                os.kill(pid, signal.SIGKILL)
                killed.set()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(ScheduleFileError) as caught:
        parse([NamedText("a.yaml", CALENDARS + LARGE)], "a.yaml")
    killer.join()
    assert killed.is_set()
    (found,) = caught.value.problems
    assert found.code == "SCHEDULE_FILE_UNREADABLE"
    assert found.message == "the process that reads it was ended by SIGKILL (Killed)"
    assert found.hint


def test_a_child_that_is_killed_half_way_gives_nothing_away(monkeypatch):
    monkeypatch.setattr(
        child_parser,
        "_CHILD",
        "import os, sys; sys.stdin.buffer.read(); os.write(1, b'\\0\\0\\1\\0half'); os.abort()",
    )
    with pytest.raises(ScheduleFileError, match="ended by SIGABRT"):
        parse([NamedText("a.yaml", LARGE)], "a.yaml")


def test_a_child_that_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr(child_parser, "PATIENCE", 0.5)
    monkeypatch.setattr(child_parser, "_CHILD", "import signal; signal.pause()")
    with pytest.raises(ScheduleFileError, match="took longer than"):
        parse([NamedText("a.yaml", LARGE)], "a.yaml")
    assert not children()


def test_a_child_tells_which_calendars_a_broken_file_names(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text("calendars: {off: {ics: off.ics}}\n" + FEW)
    with pytest.raises(ScheduleFileError) as caught:
        Source(path).read()
    assert caught.value.digest == Source(path).look().digest(caught.value)
    (tmp_path / "off.ics").write_text("mended")
    assert caught.value.digest != Source(path).look().digest(caught.value)


async def test_a_child_that_nobody_waits_for_any_more_is_ended_at_once(monkeypatch, tmp_path):
    monkeypatch.setattr(child_parser, "_CHILD", "import signal; signal.pause()")
    path = tmp_path / "s.yaml"
    path.write_text(CALENDARS + LARGE)
    stopping = asyncio.Event()
    reading = asyncio.create_task(read_unless(stopping, Source(path)))
    await eventually(children)
    stopping.set()
    async with asyncio.timeout(20):
        assert await reading is None
    assert not children()


def test_a_child_loads_neither_temporal_s_client_nor_the_database_s():
    listed = "import sys, engine.runtime.apply.child_parser; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", listed], capture_output=True, text=True, check=True
    )
    assert not {"temporalio.worker", "temporalio.client", "asyncpg"} & set(ended.stdout.split())


def test_the_main_module_of_the_user_is_not_imported_again(tmp_path):
    script = tmp_path / "main.py"
    script.write_text(
        "import sys\n"
        "print('main')\n"
        "from engine.runtime.apply.source import read_file\n"
        "print(len(read_file(sys.argv[1]).schedules))\n"
    )
    path = tmp_path / "s.yaml"
    path.write_text(CALENDARS + LARGE)
    ended = subprocess.run(
        [sys.executable, script, path], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == ["main", "2300"]
