"""What a terminal shows can be read, and copied."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine.cli.app import run
from engine.cli.output import counted, print_table, why
from engine.ledger.fires import Fire

SCHED = Path(sys.executable).with_name("sched")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
RUN = "sched:heartbeat:179523678"
TIME = "2026-11-21T04:53:00Z"


def in_a_terminal(code: str) -> list[str]:
    """Run Python in a window; returns its lines as they are before any folding."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "wb") as window:
        environment = {"TERM": "xterm", "NO_COLOR": "1"}
        child = subprocess.Popen([sys.executable, "-c", code], stdout=window, env=environment)
    printed = b""
    while True:
        try:
            some = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not some:
            break
        printed += some
    os.close(ours)
    assert child.wait() == 0
    return printed.decode().splitlines()


def test_a_pipe_gets_everything_and_no_id_is_folded(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    print_table(("FIRE TIME", "RUN"), [(TIME, RUN), (None, "x")], spare=("RUN",))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"{TIME}  {RUN}"
    assert lines[2].endswith("  x")
    assert len(lines) == 3


def test_a_cell_of_a_table_cannot_act_on_the_terminal(capsys):
    print_table(("KEY", "REASON"), [("a", "x\x1b[2J\r\n\x9b1A\u202eb"), ("b", "Zoë ☃ 日本")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["a    x\\u001b[2J\\r\\n\\u009b1A\\u202eb", "b    Zoë ☃ 日本"]


def test_a_narrow_terminal_shows_whole_times_on_one_line_each_and_leaves_out_the_least():
    cells = (TIME, "failed", RUN, "card declined: Elm Electric")
    lines = in_a_terminal(
        "import fcntl, struct, termios\n"
        "from engine.cli.output import print_table\n"
        "for columns in (69, 68, 45, 25):\n"
        "    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 40, columns, 0, 0))\n"
        "    print_table(\n"
        f"        ('FIRE TIME', 'STATUS', 'RUN', 'REASON'), [{cells}], spare=('NONE', 'RUN'))"
    )
    assert lines == [
        "FIRE TIME             STATUS  RUN                        REASON",
        f"{TIME}  failed  {RUN}  card declin…",
        "FIRE TIME             STATUS  REASON",
        f"{TIME}  failed  card declined: Elm Electric",
        "FIRE TIME             STATUS  REASON",
        f"{TIME}  failed  card declined:…",
        "FIRE TIME             ST…",
        f"{TIME}  fa…",
    ]


def fire(error: str | None, reason: str | None) -> Fire:
    return Fire(
        key="k", series=1, bucket=7, fire_time=NOON, windows=1, last_fire_time=NOON,
        workflow_id="sched:k:7", run_id="r", decided_at=NOON,
        status="failed", reason=reason, timing="on_time",
        started_at=NOON, closed_at=NOON, lag_ms=12, error=error, replica=None,
        definition_version=1, project="default",
    )  # fmt: skip


def test_what_a_run_failed_of_comes_before_why_it_ran():
    assert why(fire("card declined", "first sight")) == "card declined; first sight"
    assert why(fire("card declined", None)) == "card declined"
    assert why(fire(None, "first sight")) == "first sight"
    assert why(fire(None, None)) == ""


def test_one_thing_is_not_counted_as_many():
    assert (counted(1, "schedule"), counted(2, "schedule")) == ("1 schedule", "2 schedules")


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["next", "--cron", "* * * * *", "-n", "500"], "stdout"),
        pytest.param(["next", "--cron", "* * * * *", "--json"], "stdout", marks=pytest.mark.prove),
        pytest.param(["--help"], "stdout", marks=pytest.mark.prove),
        (["check", "nothing.yaml"], "stderr"),
    ],
)
def test_a_reader_that_has_seen_enough_is_no_fault_and_no_traceback(tmp_path, arguments, where):
    # As at a user's: short output is written when the command ends, not before.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, where: gone}
        ended = subprocess.run(  # type: ignore[call-overload]
            [SCHED, *arguments], check=False, cwd=tmp_path, env=environment, **streams
        )
    assert ended.returncode == 141
    assert not ended.stderr
    assert not ended.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "nothing.yaml"], "there is no such file"),
        (["check"], "let `sched init` write a first one"),
        (["check", "."], "the folder has no schedule file"),
    ],
)
def test_a_command_returns_2_and_says_one_line_on_input_it_cannot_use(
    tmp_path, monkeypatch, capsys, arguments, said
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCHED_SCHEDULES", raising=False)
    assert run(arguments) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_its_process_ends_with_what_the_command_returned(tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SCHED_")}
    ended = subprocess.run(
        [sys.executable, "-m", "engine.cli", "list"],
        check=False, capture_output=True, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "SCHEDULE_LEDGER_REQUIRED" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_an_expectation_that_fails_is_a_fault_of_a_file_that_can_be_used(tmp_path, capsys):
    file = tmp_path / "schedules.yaml"
    declared = (
        'schedules: [{key: a, workflow: w, cron: "0 9 * * *", expect: [{on: 2027-03-14, fires: ['
    )
    file.write_text(f"{declared}]}}]}}]")
    assert run(["check", str(file)]) == 1
    assert "SCHEDULE_EXPECTATION_FAILED: on 2027-03-14 it fires at 09:00" in capsys.readouterr().err
    file.write_text(f"{declared}'09:00']}}]}}]")
    assert run(["check", str(file)]) == 0


def test_a_check_says_what_will_never_fire_again(tmp_path, capsys):
    file = tmp_path / "schedules.yaml"
    file.write_text(
        "schedules:\n"
        "- {key: past, workflow: w, at: 2020-01-01T00:00:00Z}\n"
        "- {key: ended, workflow: w, cron: '0 2 * * *', end: 2020-01-01}\n"
        "- {key: off, workflow: w, at: 2020-01-01T00:00:00Z, enabled: false}\n"
        "- {key: ahead, workflow: w, at: 2099-01-01T00:00:00Z}\n"
    )
    assert run(["check", str(file)]) == 0
    assert "over, so that nothing fires: past, ended\n" in capsys.readouterr().out
    assert run(["check", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["over"] == ["past", "ended"]


def test_a_check_says_what_is_probably_not_meant(tmp_path, capsys):
    file = tmp_path / "schedules.yaml"
    file.write_text("schedules: [{key: a, workflow: w, everyMs: 1000, input: 010}]")
    assert run(["check", str(file)]) == 0
    assert f"warning: {file}:1:57: " in capsys.readouterr().err
    assert run(["check", str(file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["problems"] == []
    (warning,) = shown["warnings"]
    assert (warning["line"], warning["column"]) == (1, 57)
    assert warning["message"] == "010 is read as the number 10"


CRONS = """
schedules:
  - {key: forgot, workflow: w, cron: "0 3 * * *"}
  - {key: said, workflow: w, cron: "0 3 * * *", timezone: UTC}
  - {key: hourly, workflow: w, cron: "15 * * * *"}
  - {key: every, workflow: w, everyMs: 1000}
"""


@pytest.mark.parametrize(
    ("defaults", "noted"), [("", ["forgot"]), ("defaults: {timezone: UTC}", [])]
)
def test_a_forgotten_timezone_is_noted_and_one_that_says_utc_is_not(
    tmp_path, capsys, defaults, noted
):
    path = tmp_path / "schedules.yaml"
    path.write_text(defaults + CRONS)
    assert run(["check", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["noTimezone"] == noted
    assert run(["check", str(path)]) == 0
    assert ("UTC is meant: forgot;" in capsys.readouterr().out) is bool(noted)
