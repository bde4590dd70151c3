"""Schedules against the code that is to run them: `sched check --import`, and a worker's start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.cli.app import run
from engine.flow import definition_of, forget_modules
from engine.runtime.apply.attempts import remarks
from engine.runtime.apply.code_check import mismatches
from engine.runtime.apply.edits import ApplyReport
from engine.runtime.apply.source import Source, locate, located_remarks
from engine.schedules import load_schedules
from tests.fundamentals.samples.parcels import Parcels
from tests.fundamentals.samples.together import Naive

PACKAGE = "tests.fundamentals.samples.parcels"
FILE = """\
schedules:
  - {key: good, workflow: parcels, everyMs: 1000, input: {id: A1}}
  - key: typo
    workflow: parcel
    everyMs: 1000
  - key: pinned
    workflow: parcels@7
    everyMs: 1000
    input: {id: A1}
  - key: wrong
    workflow: parcels
    everyMs: 1000
    input:
      id: A1
      cents: many
  - {key: lacks, workflow: parcels, everyMs: 1000}
  - {key: elsewhere, workflow: Anything, external: true, everyMs: 1000, input: 7}
"""
EXPECTED = [
    "4:15: SCHEDULE_WORKFLOW_UNKNOWN: typo: there is no workflow parcel; did you mean parcels?",
    (
        "7:15: SCHEDULE_WORKFLOW_UNKNOWN: pinned: there is no workflow parcels@7;"
        " did you mean parcels@1?"
    ),
    (
        "15:14: SCHEDULE_INPUT_INVALID: wrong: input.cents: Input should be a valid integer,"
        " unable to parse string as an integer; the workflow parcels@1 takes Order"
    ),
    "16:28: SCHEDULE_INPUT_INVALID: lacks: the workflow parcels@1 needs an input; add input:",
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "schedules.yaml"
    path.write_text(FILE)
    return path


def code():
    definition = definition_of(Parcels)
    assert definition
    return {definition.type: definition}


def test_each_schedule_that_does_not_fit_is_named_with_its_place(file: Path):
    found = mismatches(load_schedules(FILE).schedules, code(), types={"parcels@1"})
    assert [each.located("") for each in locate(found, Source(file))] == [
        f"{file}:{line}" for line in EXPECTED
    ]


def test_where_nobody_knows_all_workflows_only_inputs_are_judged():
    found = mismatches(load_schedules(FILE).schedules, code())
    assert [each.key for each in found] == ["wrong", "lacks"]


def test_a_field_of_an_input_that_would_be_dropped_is_named():
    one = "{key: a, workflow: parcels, everyMs: 1000, input: {id: A1, cent: 5, at: home}}"
    found = mismatches(load_schedules(f"schedules: [{one}]").schedules, code())
    assert [(each.message, each.hint, each.path) for each in found] == [
        ("a: input.cent: Order has no such field", "did you mean cents?", ("input", "cent")),
        ("a: input.at: Order has no such field", "remove it", ("input", "at")),
    ]


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        ("parcel", "1:13: SCHEDULE_WORKFLOW_UNKNOWN: a: there is no onDead workflow parcel;"),
        ("naive", "1:13: SCHEDULE_INPUT_INVALID: a: the workflow naive@1 takes no input, and on"),
    ],
)
def test_a_handler_that_could_not_be_told_is_named_once(tmp_path: Path, handler: str, said: str):
    path = tmp_path / "schedules.yaml"
    one = "workflow: parcels, everyMs: 1000, input: {id: A1}}"
    path.write_text(
        f"schedules: [{{key: a, {one}, {{key: b, {one}]\ndefaults: {{onDead: {handler}}}"
    )
    naive = definition_of(Naive)
    assert naive
    known = {**code(), naive.type: naive}
    found = mismatches(Source(path).read().schedules, known, types=set(known))
    (line,) = [each.located("") for each in locate(found, Source(path))]
    assert line.startswith(f"{path}:{said}")


def test_json_has_places_too(tmp_path: Path):
    path = tmp_path / "schedules.json"
    path.write_text('{"schedules": [\n{"key": "x", "workflow": "nope", "everyMs": 1000}]}')
    found = mismatches(Source(path).read().schedules, code(), types={"parcels@1"})
    assert locate(found, Source(path))[0].line == 2


def test_a_file_that_has_gone_leaves_the_message_without_a_place(file: Path):
    found = mismatches(load_schedules(FILE).schedules, code())
    file.unlink()
    assert (
        locate(found, Source(file))[0]
        .located("schedules.yaml")
        .startswith("schedules.yaml: SCHEDULE_INPUT_INVALID: wrong: input.cents")
    )


def test_a_worker_that_applies_a_file_says_what_does_not_fit(file: Path):
    source = Source(file)
    report = ApplyReport(added=("typo",), waiting={"typo": "no worker knows parcel"})
    said = [each.text for each in remarks(source.read(), report, source, frozenset({"parcels@1"}))]
    assert f"{file}:4:15: SCHEDULE_WORKFLOW_UNKNOWN: typo: no worker knows parcel" in said
    assert f"{file}:{EXPECTED[2]}" in said


@pytest.mark.parametrize("imports", [[], ["--import", PACKAGE]])
def test_check_compares_with_code_only_where_it_is_asked_to(
    file: Path, capsys: pytest.CaptureFixture[str], imports: list[str]
):
    ended = run(["check", str(file), *imports])
    told = capsys.readouterr().err
    assert (ended, told.splitlines()) == (
        (2, [f"{file}:{line}" for line in EXPECTED]) if imports else (0, [])
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with one workflow, which no test before has imported."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "workflows"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("SCHED_IMPORTS", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("workflows").mkdir()
    Path("workflows/__init__.py").touch()
    Path("workflows/greeting.py").write_text(GREETING)
    Path("schedules.yaml").write_text(GREETED)
    yield tmp_path
    names = [name for name in sys.modules if name.partition(".")[0] == "workflows"]
    forget_modules(names)
    for name in names:
        del sys.modules[name]


GREETING = """\
from engine import workflow


@workflow
class FolderGreeting:
    async def run(self, ctx, name: str) -> None: ...
"""
GREETED = """\
schedules:
  - {key: typo, workflow: folder-greetings, everyMs: 1000, input: you}
  - {key: lacks, workflow: folder-greeting, everyMs: 1000}
  - {key: elsewhere, workflow: mails, everyMs: 1000, taskQueue: mail}
"""


def test_check_compares_with_the_workflows_of_its_folder(folder: Path, capsys):
    assert run(["check"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        (
            "schedules.yaml:2:27: SCHEDULE_WORKFLOW_UNKNOWN: typo: there is no workflow"
            " folder-greetings; did you mean folder-greeting?"
        ),
        (
            "schedules.yaml:3:28: SCHEDULE_INPUT_INVALID: lacks: the workflow folder-greeting@1"
            " needs an input; add input:"
        ),
    ]
    assert run(["check", "--no-import"]) == 0


def test_check_names_the_place_where_the_workflows_of_its_folder_cannot_be_imported(
    folder: Path, capsys
):
    Path("workflows/greeting.py").write_text("import os\nimport nowhere_at_all\n")
    assert run(["check"]) == 2
    assert capsys.readouterr().err == (
        "sched: SCHEDULE_ENGINE_ERROR: importing workflows.greeting failed at"
        " workflows/greeting.py:2: ModuleNotFoundError: No module named 'nowhere_at_all';"
        " mend it, or check with --no-import\n"
    )


def test_check_leaves_a_file_of_another_folder_to_the_code_there(folder: Path, capsys, monkeypatch):
    Path("inner").mkdir()
    Path("schedules.yaml").rename("inner/schedules.yaml")
    assert run(["check", "inner/schedules.yaml"]) == 0


def test_check_names_a_step_whose_resource_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("pooled_steps.py").write_text(POOLED)
    Path("one.yaml").write_text("schedules: [{key: a, workflow: b, everyMs: 60000}]\n")
    assert run(["check", "one.yaml", "--import", "pooled_steps"]) == 2
    told = capsys.readouterr().err
    assert "SCHEDULE_RESOURCE_MISSING" in told
    assert "pooled_steps.py:11: the step send_pooled is a method of Post, and no object" in told
    assert "pooled_steps.py:7: the step count_pooled asks for pooled_steps.Pile (pile)" in told


POOLED = """\
from engine import given, step


class Pile: ...


@step
async def count_pooled(*, pile: Pile = given()) -> int: ...

class Post:
    @step(name="send_pooled")
    async def send(self) -> None: ...
"""


def test_a_file_that_was_read_before_has_places_as_long_as_it_is_the_same(tmp_path: Path):
    """``sched up`` reads it first, and its worker applies what was read."""
    path = tmp_path / "schedules.yaml"
    path.write_text("schedules:\n  - {key: typo, workflow: parcel, everyMs: 60000}\n")
    file = Source(path).read()
    report = ApplyReport(refused={"typo": "no worker knows parcel"})
    (said,) = located_remarks(report, file)
    assert said == f"{path}:2:27: SCHEDULE_WORKFLOW_UNKNOWN: typo: no worker knows parcel"
    path.write_text("# saved meanwhile\n" + path.read_text())
    (said,) = located_remarks(report, file)
    assert said == f"{path}: SCHEDULE_WORKFLOW_UNKNOWN: typo: no worker knows parcel"
