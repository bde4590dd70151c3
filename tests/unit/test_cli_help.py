"""What ``--help`` and a shell's completion tell, of every command."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from engine.cli.app import EXAMPLES, GROUPS, MODULES, load, run
from engine.cli.target import Target, note_running
from tests.cli_page import PAGE, written

SCHED = Path(sys.executable).with_name("sched")
COMMANDS = sorted(MODULES)


def helped(capsys, monkeypatch, columns: int, *command: str) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run([*command, "--help"]) == 0
    return str(capsys.readouterr().out)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_a_purpose_examples_and_no_line_a_terminal_would_fold(capsys, monkeypatch, name):
    told = helped(capsys, monkeypatch, 80, name)
    usage, _, purpose, *rest = told.splitlines()
    assert usage.startswith(f"Usage: sched {name}")
    assert purpose.strip()
    assert max(map(len, told.splitlines())) <= 80
    examples = [line.strip() for line in rest[rest.index("Examples:") + 1 :]]
    assert examples == list(EXAMPLES[name])
    for vague in ("<str>", "<int>", "<text>", "<path>"):
        options = told.partition("Options:")[2]
        assert vague not in options or name == "up", "an option's value has no name"


@pytest.mark.parametrize(
    ("name", "purpose"), [each for group in GROUPS.values() for each in group.items()]
)
def test_the_list_of_commands_says_what_each_command_says_itself(name, purpose):
    assert (load(name).help or "").partition("\n")[0] == purpose


def test_the_page_of_the_commands_is_what_their_code_writes():
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "`make cli` writes it"


HEAVY = {"temporalio", "asyncpg", "croniter", "icalendar", "recurring_ical_events"}
"""What takes longer to load than the rest of a command."""


@pytest.mark.parametrize(
    ("lines", "needed"),
    [
        (["--help", "--version", "lst"], ""),
        (["next --cron @hourly", "check schedules.yaml", "schema"], "croniter"),
        pytest.param(["list"], "croniter asyncpg", marks=pytest.mark.prove),
        (["fires"], "croniter asyncpg"),
    ],
)
def test_a_command_loads_no_library_that_it_has_no_use_for(tmp_path, lines, needed):
    (tmp_path / "schedules.yaml").write_text("schedules: [{key: k, workflow: w, everyMs: 1000}]")
    url = "postgresql://nobody@127.0.0.1:1/none"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    if lines == ["fires"]:  # a ledger of the environment, whose namespace is Temporal's variable
        environment |= {"SCHED_DATABASE_URL": url, "SCHED_SCHEMA": "sched"}
    else:
        (tmp_path / ".sched").mkdir()
        note_running(tmp_path / ".sched", Target(url, "default", None))
    code = (
        "import sys; from engine.cli.app import run; [run(each.split()) for each in sys.argv[1:]];"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, *lines],
        check=True, capture_output=True, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    loaded = set(ended.stderr.splitlines()[-1].split())
    assert "typer" in loaded
    assert HEAVY & loaded <= set(needed.split())


def test_what_must_be_given_is_written_like_what_may_be_without_its_brackets(capsys, monkeypatch):
    shown = helped(capsys, monkeypatch, 80, "show")
    assert shown.startswith("Usage: sched show [OPTIONS] KEY|RUN-ID\n")
    assert helped(capsys, monkeypatch, 80, "next").startswith("Usage: sched next [OPTIONS] [KEY]\n")


@pytest.mark.parametrize("command", ["up", "worker"])
def test_the_variable_of_an_option_is_named_beside_it(capsys, monkeypatch, command):
    assert "SCHED_IMPORTS" in helped(capsys, monkeypatch, 80, command)


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_every_example_is_a_command_line_that_is_understood(line):
    _, name, *arguments = shlex.split(line)
    load(name).make_context(name, arguments)


@pytest.mark.parametrize("columns", [80, 120])
def test_the_list_of_commands_is_grouped_and_cuts_no_purpose_short(capsys, monkeypatch, columns):
    told = helped(capsys, monkeypatch, columns)
    listed = re.findall(r"^  ([a-z]+)  ", told, re.MULTILINE)
    assert sorted(listed) == COMMANDS
    assert [line for line in told.splitlines() if line.endswith(":")] == [
        "Options:", *(f"{heading}:" for heading in GROUPS),
    ]  # fmt: skip
    assert "..." not in told.partition("Run:")[2]
    assert max(map(len, told.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lst"], "Did you mean 'list'?"),
        (["next", "--schedule", "x"], "--schedules"),
        (["check", "a.yaml", "--schedules", "b.yaml"], "name one file"),
        (["fires", "--status", "faild"], "'faild' is no status; did you mean failed?"),
        (["fires", "--reason-code", "pausd"], "'pausd' is no reason code; did you mean paused?"),
        (["fires", "--status", "xyz"], "write one of claimed, queued, starting,"),
        (["fires", "-n", "many"], "'many' is no whole number from 1 to 1000000"),
        (["up", "--temporal-port", "70000"], "'--temporal-port': '70000' is no port; write a"),
        (["up", "--ui-port", "web"], "'web' is no port; write a whole number up to 65535, or 0"),
        (["up", "--postgres-port", "-1"], "'-1' is no port"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(capsys, arguments, said):
    assert run(arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["check", "apply"])
def test_the_file_may_be_named_like_everywhere_else(capsys, monkeypatch, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCHED_DATABASE_URL", raising=False)
    (tmp_path / "other.yaml").write_text("schedules: 7")
    for arguments in (["other.yaml"], ["--schedules", "other.yaml"]):
        assert run([command, *arguments]) == 2
        assert "other.yaml:1:12: SCHEDULE_" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("sched fi", {"fires"}),
        ("sched next --sch", {"--schedules"}),
        ("sched show he", {"heartbeat"}),
        ("sched next ", {"heartbeat", "nightly"}),
        ("sched fires ", {"heartbeat", "nightly"}),
        ("sched next --schedules other.yaml ", {"other-one"}),
        ("sched next --schedules missing.yaml ", set()),
        ("sched fires --status tim", {"timed_out"}),
        ("sched fires --reason-code ex", {"excluded", "expired"}),
    ],
)
def test_a_shell_completes_commands_options_and_keys_of_the_file(
    tmp_path, monkeypatch, capsys, words, offered
):
    # The second entry is broken, as a file is while somebody edits it.
    (tmp_path / "schedules.yaml").write_text(
        "schedules:\n  - key: heartbeat\n    everyMs: 1\n  - {key: nightly, cron:\n# key: gone\n"
    )
    (tmp_path / "other.yaml").write_text("schedules: [{workflow: w, key: 'other-one'}]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("_SCHED_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    assert run([]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert set(printed.out.split()) == offered


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        pytest.param({}, False, marks=pytest.mark.prove),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colours_are_for_terminals_and_no_color_has_the_last_word(environment, coloured):
    ended = subprocess.run(
        [SCHED, "next", "--cron", "* * * * *"],
        check=True, capture_output=True, text=True, env={"TERM": "xterm", **environment},
    )  # fmt: skip
    assert ("\x1b[" in ended.stdout) == coloured
