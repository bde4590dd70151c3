"""``sched init``: a project that is right, and never at the cost of what was there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.cli.app import run
from engine.cli.init import FILES, SCHEMA, as_called
from engine.schedules.loader.json_schema import json_schema_text
from engine.service import ScheduleService

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "engine" / "cli" / "templates"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_template_is_written_and_a_file_of_schedules_that_is_good(tmp_path, capsys):
    folder = tmp_path / "made" / "here"
    assert run(["init", str(folder)]) == 0
    assert contents(folder) == {
        **{name: (TEMPLATES / name).read_bytes() for name in FILES},
        ".gitignore": b".sched/\n.venv/\n__pycache__/\n",
        SCHEMA: json_schema_text().encode(),
    }  # fmt: skip
    assert set(FILES) == {
        str(path.relative_to(TEMPLATES))
        for path in TEMPLATES.rglob("*")
        if path.suffix in {".py", ".yaml"}
    }
    assert ScheduleService.check(folder / "schedules.yaml").warnings == ()
    told = capsys.readouterr().out
    for line in (f"cd {folder}", "sched check", "sched up", "sched show hello"):
        assert f"\n  {line}" in told


def test_the_next_commands_can_be_typed_by_who_has_no_path_to_sched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "my env" / "bin" / "sched"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin")
    assert as_called("my env/bin/sched", Path()) == "'my env/bin/sched'"
    assert as_called("my env/bin/sched", Path("demo")) == "'../my env/bin/sched'"
    assert as_called(str(program), Path("demo")) == f"'{program}'"
    assert as_called("engine/cli/__main__.py", Path()) == "sched"
    monkeypatch.setenv("PATH", f"/usr/bin:{program.parent}")
    assert as_called(str(program), Path("demo")) == "sched"


def test_an_editor_is_told_of_the_schema_by_a_path_that_exists(tmp_path):
    assert run(["init", str(tmp_path)]) == 0
    first = (tmp_path / "schedules.yaml").read_text().partition("\n")[0]
    told, _, path = first.partition("=")
    assert told == "# yaml-language-server: $schema"
    assert (tmp_path / path).is_file()


@pytest.mark.parametrize(
    "name", ["schedules.yaml", "schedules.schema.json", "workflows", "activities"]
)
def test_what_exists_is_named_and_nothing_is_written(tmp_path, capsys, name):
    if "." in name:
        (tmp_path / name).write_text("mine")
    else:
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text("mine")
    before = contents(tmp_path)
    assert run(["init", str(tmp_path)]) == 2
    assert contents(tmp_path) == before
    assert f"already has {name}; nothing was written" in capsys.readouterr().err


def test_a_gitignore_is_added_to_and_only_once(tmp_path):
    (tmp_path / ".gitignore").write_text("*.log")
    assert run(["init", str(tmp_path)]) == 0
    assert (tmp_path / ".gitignore").read_text() == "*.log\n.sched/\n.venv/\n__pycache__/\n"
    other = tmp_path / "other"
    other.mkdir()
    (other / ".gitignore").write_text(".sched/\n.venv\n__pycache__/\n")
    assert run(["init", str(other)]) == 0
    assert (other / ".gitignore").read_text() == ".sched/\n.venv\n__pycache__/\n"


def test_a_folder_that_is_a_file_is_refused_in_one_sentence(tmp_path, capsys):
    (tmp_path / "taken").write_text("")
    assert run(["init", str(tmp_path / "taken")]) == 2
    assert "cannot be written to" in capsys.readouterr().err


@pytest.mark.prove
def test_the_generated_code_passes_strict_type_checks(tmp_path):
    assert run(["init", str(tmp_path)]) == 0
    cache = tmp_path / "cache"
    if (ROOT / ".mypy_cache").is_dir():  # `make check` has read the engine with these options
        shutil.copytree(ROOT / ".mypy_cache", cache)
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"),
         "--cache-dir", str(cache), "workflows", "activities", "test_hello.py"],
        check=False, capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout


def test_the_test_of_the_project_passes_and_fails_with_another_greeting(tmp_path):
    assert run(["init", str(tmp_path)]) == 0
    step = tmp_path / "activities" / "greetings.py"
    for code, changed in ((0, step.read_text()), (1, step.read_text().replace("Hello", "Bye"))):
        step.write_text(changed)
        ended = subprocess.run(
            [sys.executable, "-B", "-m", "unittest"],
            check=False, capture_output=True, text=True, cwd=tmp_path,
        )  # fmt: skip
        assert (ended.returncode, "Ran 1 test" in ended.stderr) == (code, True), ended.stderr
