"""Several files, a folder of them, and what can be told of files without parsing them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from textwrap import dedent
from threading import Thread

import pytest

from engine.errors import Problem, ScheduleFileError
from engine.runtime.apply import child_parser
from engine.runtime.apply.source import Source, read_file
from engine.schedules import load_schedules
from engine.schedules.loader import loader

ICS = (
    "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20270101T000000Z\r\n"
    "DTSTART;VALUE=DATE:20270108\r\nSUMMARY:day off\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read calendars here: the child that does it otherwise has tests of its own."""
    monkeypatch.setattr(child_parser, "_CALENDAR", re.compile(r"(?!)"))


def entry(key: str, more: str = "everyMs: 1000") -> str:
    return f"- {{key: {key}, workflow: w, {more}}}\n"


def problems(source: Source) -> tuple[Problem, ...]:
    with pytest.raises(ScheduleFileError) as caught:
        source.read()
    return caught.value.problems


def test_a_folder_is_all_its_schedule_files_by_name(tmp_path):
    (tmp_path / "b.yaml").write_text("project: billing\nschedules:\n" + entry("b"))
    (tmp_path / "a.yml").write_text("revision: 3\nschedules:\n" + entry("a"))
    (tmp_path / "c.json").write_text('[{"key": "c", "workflow": "w", "everyMs": 1000}]')
    (tmp_path / "notes.txt").write_text("no schedules")
    (tmp_path / ".a.yml").write_text("half a file of an edit")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "d.yaml").write_text(entry("d"))
    file = read_file(tmp_path)
    assert [schedule.key for schedule in file.schedules] == ["a", "b", "c"]
    assert (file.project, file.revision, file.name) == ("billing", 3, str(tmp_path))


def test_defaults_hold_for_their_own_file(tmp_path):
    for name, zone in (("a", "Asia/Tokyo"), ("b", "Europe/Berlin")):
        text = f"defaults: {{timezone: {zone}}}\nschedules:\n" + entry(name, 'cron: "0 2 * * *"')
        (tmp_path / f"{name}.yaml").write_text(text)
    zones = [schedule.timezone for schedule in read_file(tmp_path).schedules]
    assert zones == ["Asia/Tokyo", "Europe/Berlin"]


def test_every_problem_names_its_file_and_all_files_are_judged(tmp_path):
    (tmp_path / "a.yaml").write_text(entry("a", "everyMs: 1"))
    (tmp_path / "b.yaml").write_text("\n\n" + entry("b", "cron: 61 * * * *"))
    with pytest.raises(ScheduleFileError) as caught:
        read_file(tmp_path)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{tmp_path / 'a.yaml'}:1:34: SCHEDULE_INTERVAL_TOO_SHORT: ")
    assert second.startswith(f"{tmp_path / 'b.yaml'}:3:31: SCHEDULE_CRON_INVALID: ")


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_a_key_in_two_files_names_both_places(tmp_path, ending):
    one, two = tmp_path / "one.yaml", tmp_path / f"two.{ending}"
    one.write_text("schedules:\n" + entry("a") + entry("b"))
    two.write_text('[\n{"key": "b", "workflow": "w", "everyMs": 1000}]')
    (found,) = problems(Source([one, two]))
    assert (found.file, found.line, found.column, found.key) == (str(two), 2, 9, "b")
    assert f"{one}:3" in found.message
    assert found.code == "SCHEDULE_KEY_DUPLICATE"


@pytest.mark.parametrize(("field", "a", "b"), [("project", "one", "two"), ("revision", 1, 2)])
def test_files_that_disagree_are_refused(tmp_path, field, a, b):
    for name, value in (("a", a), ("b", b)):
        (tmp_path / f"{name}.yaml").write_text(f"{field}: {value}\nschedules:\n{entry(name)}")
    (found,) = problems(Source(tmp_path))
    assert (found.file, found.line) == (str(tmp_path / "b.yaml"), 1)
    assert found.message == f"{field} is {b} here and {a} in {tmp_path / 'a.yaml'}"


def test_what_is_too_much_to_list_is_counted_over_all_files(tmp_path):
    for name, count in (("a", 1050), ("b", 20)):
        (tmp_path / f"{name}.yaml").write_text("- oops\n" * count)
    found = problems(Source(tmp_path))
    assert len(found) == 1002
    assert [(each.file, each.message) for each in found[-2:]] == [
        (str(tmp_path / "a.yaml"), "50 more problems are not listed"),
        (None, "20 more problems are not listed"),
    ]


def test_a_folder_without_schedule_files_is_one_clear_problem(tmp_path):
    (found,) = problems(Source(tmp_path))
    assert (found.code, found.hint) == (
        "SCHEDULE_FILE_UNREADABLE",
        "put a .yaml, .yml or .json file into it",
    )


def test_a_file_that_is_not_utf_8_has_a_place(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_bytes(b"schedules:\n- {key: \xff}\n")
    (found,) = problems(Source(path))
    assert (found.line, found.column) == (2, 9)


def test_fifty_megabytes_are_refused_unread(tmp_path):
    path = tmp_path / "s.yaml"
    with path.open("wb") as file:
        file.truncate(50_000_000)
    (found,) = problems(Source(path))
    assert found.code == "SCHEDULE_FILE_TOO_LARGE"


TEXTS = [
    entry("a"),
    "\ufeff" + entry("a"),
    entry("a").replace("\n", "\r\n"),
    '{"schedules": [{"key": "a", "workflow": "w", "everyMs": 1000}]}',
    "schedules:\n" + entry("a", "everyMs: 1000, input: {ics: nothing.ics}"),
]

TEAM = "calendars: {team: {ics: my team.ics}}\n"
MANY_WAYS = """calendars:
  one: {ics: my one.ics}
  two: {'ics': 'my two.ics'}
  three: {"i\\x63s": "my three.ics"}
  four:
    ics: >-
      my
      four.ics
  five:
    ? ics
    : my five.ics
schedules:
"""


@pytest.mark.parametrize("text", TEXTS)
def test_the_digest_of_an_unchanged_file_is_known_without_reading_it(tmp_path, text):
    (tmp_path / "s.yaml").write_bytes(text.encode())
    assert Source(tmp_path / "s.yaml").look().digest() == read_file(tmp_path / "s.yaml").digest


def test_a_changed_calendar_changes_the_digest_however_its_name_is_written(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(MANY_WAYS + entry("a"))
    calendars = [tmp_path / f"my {name}.ics" for name in ("one", "two", "three", "four", "five")]
    for calendar in calendars:
        calendar.write_text(ICS)
    last = read_file(path)
    assert Source(path).look().digest(last) == last.digest
    assert Source(path).look().digest() != last.digest, "unchanged to whoever has not read it"
    for calendar in calendars:
        calendar.write_text(ICS.replace("20270108", "20270109"))
        assert Source(path).look().digest(last) != last.digest, calendar
        calendar.write_text(ICS)
    calendars[0].write_text(ICS.replace("20270108", "20270109"))
    assert read_file(path).digest == Source(path).look().digest(last)


@pytest.mark.parametrize("wrong", [None, b"\xff", b"no calendar"])
def test_a_file_whose_calendar_cannot_be_read_changes_when_that_is_mended(tmp_path, wrong):
    calendar = tmp_path / "my team.ics"
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(TEAM + "schedules:\n" + entry(name))
    if wrong is not None:
        calendar.write_bytes(wrong)
    with pytest.raises(ScheduleFileError) as caught:
        read_file(tmp_path)
    assert Source(tmp_path).look().digest(caught.value) == caught.value.digest
    calendar.write_text(ICS)
    assert Source(tmp_path).look().digest(caught.value) != caught.value.digest


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "folder", "huge"])
def test_a_calendar_that_is_no_ordinary_file_is_refused_unread(tmp_path, kind):
    path, calendar = tmp_path / "s.yaml", tmp_path / "my team.ics"
    match kind:
        case "pipe":
            os.mkfifo(calendar)
        case "folder":
            calendar.mkdir()
        case "huge":
            with calendar.open("wb") as file:
                file.truncate(6_000_000)
    path.write_text(TEAM + "schedules:\n" + entry("a"))
    (found,) = problems(Source(path))
    wrong = "is larger than 5 MB" if kind == "huge" else "is no ordinary file"
    assert (found.code, found.line) == ("SCHEDULE_FIELD_INVALID", 1)
    assert found.message == f"my team.ics: it {wrong}"
    assert found.hint


@pytest.mark.parametrize("named", ["../team.ics", "{outside}/team.ics", "link.ics", "loop.ics"])
def test_a_calendar_outside_of_the_folder_of_the_file_is_refused_unread(tmp_path, named):
    inside = tmp_path / "project"
    inside.mkdir()
    (tmp_path / "team.ics").write_text(ICS)
    (inside / "link.ics").symlink_to(tmp_path / "team.ics")
    (inside / "loop.ics").symlink_to(inside / "loop.ics")
    named = named.format(outside=tmp_path)
    file = inside / "s.yaml"
    file.write_text(f"calendars: {{team: {{ics: {named}}}}}\nschedules:\n" + entry("a"))
    (found,) = problems(Source(file))
    assert found.message.startswith(named[:50])
    assert "outside of the schedule file's folder" in found.message or named == "loop.ics"
    (tmp_path / "..data").mkdir()
    (inside / "..data").mkdir()
    (inside / "..data" / "team.ics").write_text(ICS)
    (inside / "team.ics").symlink_to("..data/team.ics")  # as Kubernetes mounts them
    file.write_text("calendars: {team: {ics: team.ics}}\nschedules:\n" + entry("a"))
    assert read_file(file).schedules


def test_the_digest_covers_every_file_and_their_number(tmp_path):
    (tmp_path / "a.yaml").write_text(entry("a"))
    alone = Source(tmp_path).look().digest()
    (tmp_path / "b.yaml").write_text(entry("b"))
    both = Source(tmp_path).look().digest()
    assert both == read_file(tmp_path).digest
    (tmp_path / "b.yaml").write_text(entry("c"))
    assert len({alone, both, Source(tmp_path).look().digest()}) == 3


def test_the_schema_beside_the_files_is_no_schedule_file(tmp_path):
    (tmp_path / "a.yaml").write_text(entry("a"))
    (tmp_path / "schedules.schema.json").write_text("{}")
    assert [schedule.key for schedule in read_file(tmp_path).schedules] == ["a"]


@pytest.mark.parametrize("version", ["READING_VERSION", "EVALUATOR_VERSION", "TZDATA_VERSION"])
def test_whatever_changes_the_meaning_changes_the_digest(monkeypatch, version):
    before = load_schedules(entry("a")).digest
    monkeypatch.setattr(loader, version, "another")
    assert load_schedules(entry("a")).digest != before


PROJECTS = [
    ("schedules:\n", "default"),
    ("project: billing\nschedules:\n", "billing"),
    ("version: 1\n# for us\nproject: 'billing' # really\nschedules:\n", "billing"),
    ("# first\n\n---\nproject: billing\nschedules:\n", "billing"),
    ("", "default"),
    ('"project": billing\nschedules:\n', "billing"),
    ('"\\x70roject": billing\nschedules:\n', "billing"),
    ('project: "bil\\x6cing"\nschedules:\n', "billing"),
    ("? project\n: billing\nschedules:\n", "billing"),
    ("project : billing\nschedules:\n", "billing"),
    ("project:\n  billing\nschedules:\n", "billing"),
    ("project: >-\n  billing\nschedules:\n", "billing"),
    ("  project: billing\n  schedules:\n  ", "billing"),
    ('defaults: {metadata: {text: "of\nproject: apollo"}}\nschedules:\n', "default"),
    ("defaults: {metadata: {\nproject: apollo,\nn: 1\n  }}\nschedules:\n", "default"),
]


@pytest.mark.parametrize(("head", "project"), PROJECTS)
def test_a_project_is_certain_only_where_reading_finds_the_same(tmp_path, head, project):
    path = tmp_path / "s.yaml"
    path.write_text(head + entry("a"))
    assert read_file(path).project == project
    look = Source(path).look()
    assert look.project() == project or not look.is_certain()


def test_ordinary_files_leave_no_doubt_about_their_project(tmp_path):
    path = tmp_path / "s.yaml"
    for head, project in PROJECTS[:5]:
        named = ", input: {project: other}" if "project" in head else ""
        path.write_text(head + entry("a", f"everyMs: 1000{named}"))
        look = Source(path).look()
        assert (look.project(), look.is_certain()) == (project, True)
    for head in (
        '{"project": "billing", ',
        '{\n "version": 1,\n "project": "billing"\n,',
        '{"$schema": "./s.json", "project": "billing", ',
    ):
        path.write_text(head + '"schedules": []}')
        look = Source(path).look()
        assert (look.project(), look.is_certain()) == ("billing", True)
    path.write_text('{"schedules": [], "project": "billing"}')
    assert not Source(path).look().is_certain()


@pytest.mark.parametrize(
    "field",
    ["offsetMs: 010", "input: 007", "input: [1, 02]", "input: {a: [-01]}", "input: {a: 01 }"],
)
def test_what_is_warned_of_never_looks_unchanged(tmp_path, field):
    path = tmp_path / "s.yaml"
    path.write_text("schedules:\n" + entry("a", f"everyMs: 1000, {field}"))
    assert read_file(path).warnings
    assert read_file(path).digest != Source(path).look().digest()
    path.write_text(f"schedules:\n- key: a\n  workflow: w\n  everyMs: 1000\n  {field}\n")
    assert read_file(path).warnings
    assert read_file(path).digest != Source(path).look().digest()


def test_zeros_in_dates_times_and_expressions_are_not_warned_of(tmp_path):
    path = tmp_path / "s.yaml"
    fields = """
    schedules:
    - {key: a, workflow: w, cron: "05 02 * * *", start: 2027-01-02}
    - {key: b, workflow: w, cron: 05 02 * * *, input: 0, description: "at 02"}
    - {key: c, workflow: w, at: "2027-01-01T02:03:04Z", input: [0, 0.5, 0x01]}
    """
    path.write_text(dedent(fields))
    assert read_file(path).warnings == ()
    assert Source(path).look().digest() == read_file(path).digest


def test_a_pipe_that_nobody_writes_to_is_no_file_and_keeps_nobody_waiting(tmp_path):
    pipe = tmp_path / "schedules.yaml"
    os.mkfifo(pipe)
    (found,) = problems(Source([pipe]))
    assert found.code == "SCHEDULE_FILE_UNREADABLE"
    assert "a pipe without a writer" in found.message


def test_a_pipe_is_read_to_its_end_however_late_it_is_written():
    reader, writer = os.pipe()

    def write() -> None:
        os.write(writer, b"schedules: [{key: k, workflow: w, everyMs: 1000}]")
        os.close(writer)

    late = Thread(target=write)
    late.start()
    try:
        assert [each.key for each in read_file(Path(f"/dev/fd/{reader}")).schedules] == ["k"]
    finally:
        late.join()
        os.close(reader)


def test_a_device_without_an_end_is_read_no_further_than_a_file_may_be_large():
    (found,) = problems(Source(["/dev/zero"]))
    assert found.code == "SCHEDULE_FILE_TOO_LARGE"
