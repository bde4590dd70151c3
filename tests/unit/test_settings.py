"""Settings: what can never work is refused at once, what is misspelt is told."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from engine.cli.app import run
from engine.errors import SettingsInvalid
from engine.runtime import SchedulePlugin, Settings
from engine.runtime.settings import BOUNDS, NAMES, unknown_names
from engine.runtime.temporal_client import connect_temporal
from engine.schedules import load_schedules
from engine.schedules.terms import format_duration, parse_duration

ROOT = Path(__file__).parents[2]
MILLISECOND = timedelta(milliseconds=1)
READ_ELSEWHERE = {"SCHED_PROVE_EXAMPLES", "SCHED_LINE_WINDOWS", "SCHED_KEEP_HISTORIES"}
FILE = "schedules: [{key: k, workflow: w, everyMs: 60000%s}]"


def written(name: str, value: timedelta | int) -> str:
    text = format_duration(value) if isinstance(value, timedelta) else str(value)
    return f"1/{text}" if name.endswith("_rate") and isinstance(value, timedelta) else text


def variable(name: str) -> str:
    return f"SCHED_{name.upper()}"


@pytest.mark.parametrize("name", BOUNDS)
def test_a_value_is_accepted_up_to_its_bounds_and_refused_beyond_them(name):
    least, most = BOUNDS[name]
    step = MILLISECOND if isinstance(least, timedelta) else 1
    for value in (least, most):
        read = Settings.from_environment({variable(name): written(name, value)})
        read.check()
    for value in (least - step, most + step):
        if value < 0 * step:
            continue  # nobody can write it
        with pytest.raises(SettingsInvalid) as found:
            Settings.from_environment({variable(name): written(name, value)})
        assert found.value.problems[0].startswith(f"{variable(name)} is '{written(name, value)}'; ")


def test_every_default_is_within_its_bounds():
    Settings().check()


def test_all_wrong_values_are_told_at_once():
    with pytest.raises(SettingsInvalid) as found:
        Settings.from_environment({"SCHED_LEASE": "1ms", "SCHED_TICK": "0s", "SCHED_BATCH": "many"})
    assert sorted(found.value.problems) == [
        "SCHED_BATCH is 'many'; write a whole number from 1",
        "SCHED_LEASE is '1ms'; write 500ms to 1h",
        "SCHED_TICK is '0s'; write 10ms to 10m",
    ]


def test_an_application_that_makes_its_own_settings_is_told_too():
    settings = replace(Settings(), lease=MILLISECOND, batch=0)
    with pytest.raises(SettingsInvalid) as found:
        SchedulePlugin(load_schedules(FILE % ""), settings=settings)
    assert sorted(found.value.problems) == [
        "Settings.batch is 0; write 1 to 10000",
        "Settings.lease is 1ms; write 500ms to 1h",
    ]


def test_a_misspelt_name_is_answered_with_the_one_it_resembles():
    given = dict.fromkeys(
        ["SCHED_TASK_QEUE", "SCHED_COLOUR", "SCHED_LEASE", "SCHEDULER", "SCHED_API_SERVICE_HOST",
         "SCHED_API_PORT_8080_TCP_ADDR", "SCHED_API_PORT"], "x",
    )  # fmt: skip
    assert unknown_names(given) == [
        "warning: SCHED_COLOUR is not a setting; `sched docs settings` has all of them",
        "warning: SCHED_TASK_QEUE is not a setting; did you mean SCHED_TASK_QUEUE?",
    ]


def test_the_names_and_bounds_of_the_documentation_are_those_of_the_code():
    page = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line[:9] == "| `SCHED_"]
    assert {row[0].strip("`") for row in rows} == NAMES
    told = {row[0].strip("`"): row[1:4] for row in rows if len(row) == len(("name", *"dlmt"))}
    assert set(told) == {variable(name) for name in BOUNDS}
    for name, bounds in BOUNDS.items():
        default, *limits = (text.strip("`") for text in told[variable(name)])
        if not name.endswith("_rate"):
            assert limits == [written(name, bound) for bound in bounds], name
        value = getattr(Settings(), name)
        if value is not None:
            assert default == written(name, value), name


def test_every_name_that_the_code_reads_is_known():
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "engine").rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"[\"']SCHED_[A-Z_]+[\"']", text)}
    assert named
    assert {name.strip("\"'") for name in named} <= NAMES | READ_ELSEWHERE


@pytest.mark.parametrize("command", ["up", "worker"])
def test_a_command_ends_before_anything_is_started(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schedules.yaml").write_text(FILE % "")
    for name, value in {"LEASE": "1ms", "TICK": "0s", "TASK_QEUE": "mail"}.items():
        monkeypatch.setenv(f"SCHED_{name}", value)
    assert run([command]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "sched: warning: SCHED_TASK_QEUE is not a setting; did you mean SCHED_TASK_QUEUE?",
        "sched: SCHEDULE_SETTING_INVALID: SCHED_TICK is '0s'; write 10ms to 10m",
        "sched: SCHEDULE_SETTING_INVALID: SCHED_LEASE is '1ms'; write 500ms to 1h",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["schedules.yaml"]


def test_a_duration_of_the_documentation_can_be_read():
    page = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    for text in re.findall(r"`(\d+(?:ms|[smhd]))`", page):
        parse_duration(text)


@pytest.mark.parametrize("address", ["foo", "", "foo:", "foo:http", "a b:7233"])
async def test_an_address_of_temporal_that_is_none_is_refused(address):
    """A worker waits for a server that does not answer, and this one never will."""
    with pytest.raises(SettingsInvalid, match="write host:port"):
        await connect_temporal(target_host=address)
