"""``sched up``: one command from nothing to runs, and again where it stopped."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from engine.embedded import free_port
from tests.acceptance.fleet import ROOT, SCHED
from tests.servers import shared_folder
from tests.waiting import eventually


class Home:
    """A folder with the example application, in which a user works."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("workflows", "activities"):
            shutil.copytree(ROOT / name, folder / name)
        shutil.copy(ROOT / "schedules.yaml", folder)
        self.schedules = folder / "schedules.yaml"
        ports = {"temporal": free_port(), "ui": free_port(), "postgres": free_port()}
        self.ports = [f"--{name}-port={number}" for name, number in ports.items()]
        self.environment = {
            name: value for name, value in os.environ.items() if name != "SCHED_DATABASE_URL"
        }
        self.running: asyncio.subprocess.Process | None = None

    async def up(self, *options: str) -> asyncio.subprocess.Process:
        """Start ``sched up``; its output goes to up.log."""
        with (self.folder / "up.log").open("ab") as log:
            self.running = await asyncio.create_subprocess_exec(
                str(SCHED), "up", *self.ports, *options,
                cwd=self.folder, env=self.environment, stdout=log, stderr=log,
            )  # fmt: skip
        return self.running

    async def sched(self, *arguments: str) -> tuple[int, str]:
        """Run another command beside it; returns its exit code and everything it printed."""
        process = await asyncio.create_subprocess_exec(
            str(SCHED), *arguments, cwd=self.folder, env=self.environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
        return process.returncode or 0, output.decode()

    async def fires(self) -> list[dict[str, object]]:
        code, output = await self.sched("fires", "--json", "-n", "500")
        return json.loads(output) if code == 0 else []

    async def until_fired(self, key: str, count: int) -> list[dict[str, object]]:
        async def enough() -> list[dict[str, object]]:
            found = [fire for fire in await self.fires() if fire["key"] == key and fire["run_id"]]
            return found if len(found) >= count else []

        return await eventually(enough, timeout=90, every=0.3)

    async def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        assert self.running
        self.running.send_signal(number)
        async with asyncio.timeout(60):
            return await self.running.wait()

    @property
    def log(self) -> str:
        return (self.folder / "up.log").read_text()


@pytest.fixture
async def home():
    with shared_folder() as folder:
        made = Home(folder)
        yield made
        if made.running and made.running.returncode is None:
            await made.stop()


async def test_a_newcomer_sees_runs_and_a_second_start_goes_on(home: Home):
    await home.up()
    await home.until_fired("heartbeat", 2)
    await home.until_fired("cache-sync", 1)
    assert await home.stop() == 0
    for expected in ("Temporal ", "Web UI ", "PostgreSQL ", "sched:heartbeat:", "stopped"):
        assert expected in home.log
    assert "postgresql://" not in home.log, "the address has the password in it"

    await home.up()
    fires = await home.until_fired("heartbeat", 5)
    code, listed = await home.sched("list", "--json")
    assert code == 0
    assert {row["key"]: row["state"] for row in json.loads(listed)} == {
        "cache-sync": "active", "heartbeat": "active",
    }  # fmt: skip
    assert await home.stop() == 0
    # Every window from the first to the last, each with one row and one run of its own.
    buckets = sorted(int(str(fire["bucket"])) for fire in fires)
    assert buckets == list(range(buckets[0], buckets[-1] + 1))
    assert set(Counter(fire["run_id"] for fire in fires).values()) == {1}
    assert "Traceback" not in home.log


async def test_servers_orphaned_by_kill_9_do_not_stand_in_the_way(home: Home):
    await home.up()
    before = await home.until_fired("heartbeat", 1)
    assert await home.stop(signal.SIGKILL) == -signal.SIGKILL
    await home.up()
    after = await home.until_fired("heartbeat", 2)
    assert {fire["run_id"] for fire in before} <= {fire["run_id"] for fire in after}
    assert await home.stop() == 0


async def test_a_second_up_on_the_same_data_is_refused_in_one_sentence(home: Home):
    running = await home.up()
    await home.until_fired("heartbeat", 1)
    code, output = await home.sched("up", *home.ports)
    assert code == 2
    assert output.count("\n") == 1
    assert f"another `sched up` (process {running.pid})" in output
    await home.stop()


MISTAKES = """
schedules:
  - {key: Nightly, workflow: w, everyMs: 1000}
  - {key: b, workflow: w, everyMs: soon}
  - {key: c, workflow: w, everyMs: 10}
  - {key: d, workflow: w, every_ms: 1000}
  - {key: e, everyMs: 1000}
  - {key: f, workflow: w, everyMs: 1000, cron: "* * * * *"}
  - {key: g, workflow: w, cron: "61 * * * *"}
  - {key: h, workflow: w, cron: "0 2 * * *", timezone: America/Sao_Paolo}
  - {key: b, workflow: w, everyMs: 1000}
  - key: j
    workflow: w
    cron: */5 * * * *
"""


async def test_check_prints_every_mistake_with_its_place(home: Home):
    home.schedules.write_text(MISTAKES)
    code, output = await home.sched("check", "schedules.yaml")
    assert code == 2
    lines = output.splitlines()
    assert len(lines) == 10
    for line in lines:
        place, number, column, problem = line.split(":", 3)
        assert place == "schedules.yaml"
        assert int(number) > 2
        assert int(column) > 0
        assert problem.startswith(" SCHEDULE_")
        assert ";" in problem, "no cure"
    assert len({line.split(":")[1] for line in lines}) == 10


async def test_a_broken_file_goes_on_with_the_last_good_one_or_is_refused_at_first(home: Home):
    good = home.schedules.read_text()
    home.schedules.write_text(MISTAKES)
    code, output = await home.sched("up", *home.ports)
    assert code == 2
    assert output.count("SCHEDULE_") == 10
    home.schedules.write_text(good)
    await home.up()
    fired = len(await home.until_fired("heartbeat", 1))
    await home.stop()
    home.schedules.write_text(MISTAKES)
    await home.up()
    await home.until_fired("heartbeat", fired + 2)
    assert "the last good definitions go on (2 schedules)" in home.log
    assert await home.stop() == 0


async def test_a_server_that_dies_ends_everything_with_a_sentence(home: Home):
    await home.up()
    await home.until_fired("heartbeat", 1)
    pid = json.loads((home.folder / ".sched" / "temporal.pid.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    assert home.running
    async with asyncio.timeout(60):
        assert await home.running.wait() == 1
    assert "temporal ended with code -9; see .sched/temporal.log" in home.log
