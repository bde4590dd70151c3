"""The core install: it works without the extras, and what needs one says which."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from engine.cli.app import run
from engine.errors import _EXTRAS, Code, ExtraMissing, ScheduleFileError, extra_missing
from engine.runtime import Settings
from engine.runtime.watch.watch import WatchProcess
from engine.schedules import load_schedules

ROOT = Path(__file__).parents[2]
DAYS_OFF = """calendars: {team: {ics: team.ics}}
schedules: [{key: k, workflow: w, cron: "0 2 * * *", exclude: [team]}]
"""


def test_each_module_of_an_extra_comes_with_that_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    where = packages_distributions()
    for extra, modules in _EXTRAS.items():
        brought = "\n".join(project["optional-dependencies"][extra]).lower()
        for module in modules:
            (distribution,) = set(where[module])
            assert distribution.lower() in brought, f"{module} is not in {extra}"
            assert distribution.lower() not in "\n".join(project["dependencies"]).lower()


def test_the_core_runs_without_any_extra(tmp_path):
    """A process in which no module of an extra can be imported loads all that a worker needs."""
    (tmp_path / "schedules.yaml").write_text(
        "hooks: [{url: 'https://a.example/x', secret: '${env:S}'}]\n"
        'schedules: [{key: k, workflow: w, cron: "0 2 * * *", exclude: ["2027-01-01"]}]'
    )
    modules = [*(each for extra in _EXTRAS.values() for each in extra), "psutil", "sniffio"]
    code = f"""
import sys
for name in {modules}: sys.modules[name] = None
import engine.audit, engine.cli.up.up, engine.events.delivery, engine.imports.entries
import engine.runtime.plugin, engine.runtime.watch.watch, engine.service.service
from engine.cli.app import run
sys.exit(run(["check", "schedules.yaml"]))
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_calendar_file_without_the_extra_is_a_problem_with_its_place_and_the_command(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(sys.modules, "icalendar", None)
    with pytest.raises(ScheduleFileError) as raised:
        load_schedules(DAYS_OFF, open_ics=lambda _: "BEGIN:VCALENDAR")
    (problem,) = raised.value.problems
    assert (problem.code, problem.line) == (Code.EXTRA_MISSING, 1)
    assert problem.message == "calendar team needs icalendar, which is not installed"
    assert problem.hint == "pip install 'sched-engine[calendars]'"


@pytest.mark.parametrize("setting", ["SCHED_ALERT_URL", "SCHED_HEARTBEAT_URL"])
def test_a_watch_that_could_send_nothing_does_not_start(setting: str, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    asked = f"{setting} needs httpx, which is not installed; pip install"
    with pytest.raises(ExtraMissing, match=asked):
        WatchProcess(
            "postgresql://nowhere", Settings.from_environment({setting: "https://a.example"}),
            namespace="n", schema="s", connect=None, on_event=lambda _: None,  # type: ignore[arg-type]
        )  # fmt: skip


@pytest.mark.parametrize(
    "argv",
    [["api"], ["simulate", "--from", "2027-01-01", "--to", "2027-01-02", "--html", "page.html"]],
)
def test_a_command_that_needs_the_extra_of_the_api_names_it(argv, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setenv("SCHED_DATABASE_URL", "postgresql://127.0.0.1:1/none")
    (tmp_path / "schedules.yaml").write_text("schedules: [{key: k, workflow: w, everyMs: 60000}]")
    assert run(argv) == 2
    needs = "jinja2, which is not installed; pip install 'sched-engine[api]'"
    assert needs in capsys.readouterr().err


def test_what_is_installed_is_not_refused():
    assert [extra_missing(each, "x") for each in _EXTRAS] == [None] * len(_EXTRAS)
