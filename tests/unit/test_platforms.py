"""What needs no server of its own runs without anything that only Linux has."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from engine.cli.target import on_signal

COMMANDS = """\
check
next --schedules schedules.yaml
simulate schedules.yaml --from 2026-11-21 --to 2026-11-22
worker --help
"""
FILE = "schedules: [{key: a, workflow: w, cron: '0 2 * * *', timezone: America/Sao_Paulo}]"


@pytest.mark.parametrize("platform", [pytest.param("darwin", marks=pytest.mark.prove), "win32"])
def test_commands_without_a_server_run_on_other_platforms(platform, tmp_path):
    (tmp_path / "schedules.yaml").write_text(FILE)
    up = "up --data-dir servers\n" if platform == "win32" else ""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.faked_platform", platform],
        input=COMMANDS + up, cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, timeout=60,
    )  # fmt: skip
    codes = [line for line in ran.stdout.splitlines() if line.startswith("exit code")]
    assert codes[:4] == ["exit code 0"] * 4, ran.stdout + ran.stderr
    if up:
        assert codes[4:] == ["exit code 2"]
        assert "do not run on Windows; use WSL" in ran.stderr


async def test_a_signal_is_heeded_by_a_loop_that_knows_none(monkeypatch):
    def refuse(*_: object) -> None:
        raise NotImplementedError

    before = signal.getsignal(signal.SIGTERM)
    asked = asyncio.Event()
    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", refuse)
    try:
        on_signal(signal.SIGTERM, asked.set)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(asked.wait(), 5)
    finally:
        signal.signal(signal.SIGTERM, before)
