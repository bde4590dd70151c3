"""Schedules that code declares: their keys, their places, their mistakes, and their digest."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.cli.app import run
from engine.errors import ScheduleError, ScheduleFileError
from engine.flow import cron, every, workflow
from engine.runtime import SchedulePlugin
from engine.runtime.apply.code_check import declarations_of
from engine.runtime.apply.source import Source
from engine.runtime.code.discovery import packages_with_schedules
from engine.schedules import Declaration, Schedule, load_schedules
from engine.schedules.model import FIELDS
from tests.fundamentals.samples.declared import HERE, DeclaredReport

FILE = """
project: shop
schedules:
  - {key: other, workflow: noop, every: 1h}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "schedules.yaml"
    path.write_text(FILE)
    return path


def problems(path: Path, *declared: Declaration) -> list[str]:
    with pytest.raises(ScheduleFileError) as caught:
        Source(path, declared).read()
    return str(caught.value).replace(str(path), "schedules.yaml").splitlines()


def declaration(line: int = 7, **fields: object) -> Declaration:
    return Declaration({"key": "a", "workflow": "noop", **fields}, "workflows/a.py", line)


def test_they_join_those_of_the_file_and_have_their_places(path):
    file = Source(path, declarations_of([DeclaredReport])).read()
    keys = ["declared-report", "declared-nightly", "declared-report-3"]
    assert [each.key for each in file.schedules] == ["other", *keys]
    assert list(file.places) == keys
    assert file.places["declared-report"].startswith(f"{HERE}:")
    day, night, _ = file.schedules[1:]
    assert (day.workflow, day.every_ms, day.input) == ("declared-report", 86_400_000, {"rows": 3})
    assert (night.cron, night.timezone, file.project) == (
        "0 2 * * *", "America/Sao_Paulo", "shop",
    )  # fmt: skip


def test_an_equal_schedule_has_an_equal_definition_in_code_and_file():
    made = Schedule.model_validate({**declaration(every="90s").fields, "task_queue": "q"})
    text = "schedules: [{key: a, workflow: noop, everyMs: 90000, taskQueue: q}]"
    assert load_schedules(text).schedules == (made,)


def test_a_file_without_them_is_what_it_was_and_a_moved_line_is_no_change(path):
    plain = Source(path)
    assert plain.read().digest == Source(path, ()).look().digest()
    one, moved = declaration(every="1h"), declaration(9, every="1h")
    with_one = Source(path, [one])
    assert with_one.read().digest == with_one.look().digest() != plain.read().digest
    assert Source(path, [moved]).read().digest == with_one.read().digest
    edited = Source(path, [declaration(every="2h")])
    assert edited.look().digest() != with_one.look().digest()


def test_a_mistake_is_no_change_for_who_watches_until_it_is_mended(path):
    path.write_text("schedules: [{key: a, workflow: w, cron: '0 0 012 * *'}]")  # with a warning
    for source in (Source(path, [declaration(every="soon")]), Source(path, [declaration()])):
        with pytest.raises(ScheduleFileError) as caught:
            source.read()
        assert source.look().digest(caught.value) == caught.value.digest
    path.write_text("schedules: [{key: a}]")
    with pytest.raises(ScheduleFileError) as caught:
        source.read()
    assert source.look().digest(caught.value) == caught.value.digest


def test_a_key_of_the_file_or_of_another_class_is_refused_with_both_places(path):
    assert problems(path, declaration(key="other", every="1h")) == [
        (
            "workflows/a.py:7:1: SCHEDULE_KEY_DUPLICATE: other: schedules.yaml:4 has this key too; "
            "write key="
        )
    ]
    (line,) = problems(path, declaration(every="1h"), declaration(12, every="2h"))
    assert line.startswith("workflows/a.py:12:1: SCHEDULE_KEY_DUPLICATE: a: workflows/a.py:7 has")


def test_every_mistake_is_told_at_its_place_and_all_at_once(path):
    found = problems(
        path,
        declaration(every="1h", tag=["x"], overlap="sometimes"),
        declaration(9, key="b", every="1h", cron="@daily"),
        declaration(11, key="c", every="1h", needs=["nobody"]),
    )
    assert [line.split("; ")[-1] for line in found[:2]] == [
        "write allow, skip, queue, queue_one, cancel_previous or terminate_previous",
        "did you mean tags?",
    ]
    assert found[2].startswith("workflows/a.py:9:1: SCHEDULE_KIND_INVALID: b: every and cron")
    assert problems(path, declaration(every="1h", needs=["nobody"])) == [
        (
            "workflows/a.py:7:1: SCHEDULE_PARENT_UNKNOWN: a: no schedule has the key nobody; "
            "name a schedule of this project"
        )
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("interval", "every"), ("max_instances", "maxConcurrentRuns"), ("ondeath", "onDead")],
)
def test_code_and_requests_propose_the_field_that_a_file_would(path, written, meant):
    fields = {"key": "a", "workflow": "noop", "every": "1h", written: "1h"}
    with pytest.raises(ScheduleFileError, match=rf"did you mean {meant}\?"):
        load_schedules(json.dumps({"schedules": [fields]}))
    with pytest.raises(ScheduleError, match=rf"did you mean {meant}\?"):
        Schedule.from_json(fields)
    (line,) = problems(path, Declaration(fields, "workflows/a.py", 7))
    assert line.endswith(f"did you mean {FIELDS[meant]}?")


def test_what_is_no_schedule_is_refused_where_the_class_is_decorated():
    wrong: list[Any] = ["15s", [5], [every("15s"), {"every": "15s"}]]
    for given in wrong:
        with pytest.raises(TypeError, match=r"write every\('15s'\)"):
            workflow(name="x", schedule=given)
    one = cron("@daily")
    assert (one.file, one.fields) == (__file__, {"cron": "@daily"})


def test_objects_make_a_file_of_the_plugin_s_project():
    a = Schedule(key="a", workflow="noop", every="15s")
    plugin = SchedulePlugin([a], project="shop")
    assert plugin.project == "shop"
    assert SchedulePlugin([]).project == "default"
    with pytest.raises(ScheduleFileError, match="a is given 2 times"):
        SchedulePlugin([a, Schedule(key="a", workflow="noop", every="1m")])
    with pytest.raises(ScheduleFileError, match="no schedule has the key b"):
        SchedulePlugin([a.model_copy(update={"needs": ["b"]})])
    with pytest.raises(TypeError, match="a list of one of them"):
        SchedulePlugin([a, "schedules.yaml"])  # type: ignore[arg-type] # that is the mistake


@pytest.fixture
def project(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose workflow has a schedule; its package has a name that is used once."""
    package = tmp_path / "declaring_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "report.py").write_text(
        "from engine import every, workflow\n\n"
        '@workflow(name="declared-in-a-project", schedule=every("15s", tags=["x"]))\n'
        "class Report:\n    async def run(self, ctx): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("SCHED_IMPORTS", "declaring_package")
    return package


def test_check_shows_them_and_imports_only_code_that_declares_some(project, capsys):
    assert packages_with_schedules() == ["declaring_package"]
    assert run(["check", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["keys"] == ["other", "declared-in-a-project"]
    assert shown["declared"] == {"declared-in-a-project": "declaring_package/report.py:3"}
    assert run(["check"]) == 0
    assert "  declared-in-a-project: at declaring_package/report.py:3\n" in capsys.readouterr().out
    (project / "report.py").write_text("raise RuntimeError\n")
    assert packages_with_schedules() == []
    assert run(["check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["keys"] == ["other"]
