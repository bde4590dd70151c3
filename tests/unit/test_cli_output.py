"""What a terminal shows can be read, and copied."""

from __future__ import annotations

import os
import subprocess
import sys

from engine.cli.output import counted, print_table

RUN = "sched:heartbeat:179523678"


def test_a_narrow_terminal_never_folds_an_id(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    print_table(("FIRE TIME", "RUN"), [("2026-11-21T04:53:00Z", RUN), (None, "x")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"2026-11-21T04:53:00Z  {RUN}"
    assert lines[2].endswith("  x")
    assert len(lines) == 3


def test_one_thing_is_not_counted_as_many():
    assert (counted(1, "schedule"), counted(2, "schedule")) == ("1 schedule", "2 schedules")


def test_the_command_ends_with_2_and_one_line_on_input_it_cannot_use(tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SCHED_")}
    for arguments, said in (
        (["check", "nothing.yaml"], "there is no such file"),
        (["check", "."], "the folder has no schedule file"),
        (["list"], "SCHEDULE_LEDGER_REQUIRED"),
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "engine.cli", *arguments],
            check=False, capture_output=True, text=True, cwd=tmp_path, env=environment,
        )  # fmt: skip
        assert ended.returncode == 2
        assert said in ended.stderr
        assert ended.stderr.count("\n") == 1
