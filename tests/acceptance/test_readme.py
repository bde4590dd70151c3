"""The README is followed to the letter: its commands run, its code is the code that runs."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from engine.schedules import load_schedules
from tests.acceptance.fleet import ROOT, Books
from tests.acceptance.home import Home
from tests.from_the_wheel import build_wheel, make_environment
from tests.servers import shared_folder
from tests.waiting import eventually

README = (ROOT / "README.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL))


def blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", SECTIONS[section], re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.prove
async def test_a_project_of_ones_own_in_an_empty_folder():
    """With other ports, and the built wheel and the locked packages instead of a download."""
    begin, meanwhile = blocks("A project of your own", "sh")
    assert begin.splitlines()[0] == "python3 -m venv .venv"
    assert begin.splitlines()[1] == ".venv/bin/pip install '../sched-engine[embedded]'"
    assert begin.splitlines()[-1] == ".venv/bin/sched up"
    with shared_folder() as folder:
        wheel = await asyncio.to_thread(build_wheel, folder / "dist")
        await asyncio.to_thread(make_environment, folder / ".venv", wheel)
        home = Home(folder, example=False)
        home.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

        async def run(line: str) -> str:
            process = await asyncio.create_subprocess_shell(
                line, cwd=folder, env=home.environment, stdout=asyncio.subprocess.PIPE
            )
            output, _ = await process.communicate()
            assert process.returncode == 0, line
            return output.decode()

        for line in begin.splitlines()[2:-1]:
            await run(line)
        up = await asyncio.create_subprocess_exec(
            str(folder / ".venv" / "bin" / "sched"), "up", *home.ports,
            cwd=folder, env=home.environment, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip

        async def fired() -> bool:
            return "completed" in await run(".venv/bin/sched fires || true")

        try:
            await eventually(fired, timeout=60, every=0.5)
            shown = [await run(line) for line in meanwhile.splitlines()]
            assert all("hello" in output for output in shown[:2])
            assert len(re.findall(r"^20\d\d-", shown[2], re.MULTILINE)) == 3
            assert "sched:hello:" in shown[3]
        finally:
            up.send_signal(signal.SIGINT)
            printed, _ = await up.communicate()
        assert up.returncode == 0
        assert "sched:hello:" in printed.decode()


def test_the_schedules_are_valid():
    (text,) = blocks("A schedule", "yaml")
    assert [each.key for each in load_schedules(text).schedules] == [
        "heartbeat", "cache-sync", "nightly-report",
    ]  # fmt: skip


def test_the_workflow_and_its_step_are_those_that_init_writes():
    workflow, step, _ = blocks("A workflow", "python")
    templates = ROOT / "engine" / "cli" / "templates"
    assert workflow in (templates / "workflows" / "hello.py").read_text()
    assert step in (templates / "activities" / "greetings.py").read_text()


def test_the_undo_steps_are_those_of_the_shipped_saga():
    *_, code = blocks("A workflow", "python")
    shipped = (ROOT / "workflows" / "invoice_run.py").read_text()
    assert textwrap.indent(code, " " * 8) in shipped


async def test_the_plugin_in_a_worker_of_ones_own_fires(home, fleet, books: Books, temporal):
    page = (ROOT / "docs/deploy.md").read_text()
    (code,) = re.findall(r"(?ms)^```python\n(.*?)^```", page)
    assert '"localhost:7233"' in code
    address = f'"{temporal.address}", namespace="{books.namespace}"'
    script = home.folder / "own.py"
    script.write_text(code.replace('"localhost:7233"', address))
    worker = await asyncio.create_subprocess_exec(
        sys.executable, str(script), cwd=home.folder, env={**fleet.environment, "SCHED_IMPORTS": ""}
    )
    try:
        await books.until_fired(["heartbeat", "invoice-run", "cache-sync"], 1, timeout=60)
    finally:
        worker.kill()
        await worker.wait()
