"""``sched up``: one command from nothing to runs, and again where it stopped."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections import Counter
from pathlib import Path

import httpx
import pytest

from engine.embedded import free_port
from tests.acceptance.fleet import SCHED
from tests.acceptance.home import Home
from tests.pages import ask
from tests.waiting import eventually

ENDLESS = """
import asyncio
from pathlib import Path

from engine.flow import Context, step, workflow


@step
async def wait_for_ever() -> None:
    Path("begun").touch()
    await asyncio.sleep(3600)


@workflow
class Endless:
    async def run(self, ctx: Context) -> None:
        await ctx.step(wait_for_ever)
"""


async def the_page_opens_once(log: str) -> str:
    entered = re.search(r"Page +(http://\S+/enter/\S+) \(opens once;", log)
    assert entered, log
    async with httpx.AsyncClient(follow_redirects=True) as browser:
        page = await browser.get(entered[1])
        assert (page.url.path, "heartbeat" in page.text) == ("/", True)
        again = await browser.get(entered[1])
        assert (again.url.path, "this address opens once" in again.text) == ("/signin", True)
    return entered[1].rpartition("/")[2]


async def a_second_up_is_refused(home: Home, elsewhere: Path, running: int) -> None:
    """In one sentence, which names the first and what works."""
    code, output = await home.sched("up", *home.ports)
    assert code == 2
    assert output.count("\n") == 1
    assert f"another `sched up` (process {running})" in output

    code, output = await home.sched("up", *home.ports, "--data-dir", str(elsewhere))
    assert code == 2
    assert output.count("\n") == 1
    ports = ", ".join(str(port) for port in home.port.values())
    assert f"ports {ports} are taken by another `sched up` (process {running}" in output
    if sys.platform == "linux":
        assert f"(process {running} in {home.folder.resolve()})" in output
    options = re.search(r"add (--temporal-port \d+ --ui-port \d+ --postgres-port \d+)\n", output)
    assert options, output


def is_alive(note: dict[str, object]) -> bool:
    return Path(f"/proc/{note['pid']}").exists()


async def a_second_ctrl_c_leaves_no_server_behind(home: Home) -> None:
    """While a step that never ends keeps the worker from leaving at the first."""
    code, printed = await home.sched("start", "endless", "once")
    assert code == 0, printed
    await eventually((home.folder / "begun").exists, timeout=90)
    names = ("temporal", "postgres")
    notes = [json.loads((home.folder / f".sched/{name}.pid.json").read_text()) for name in names]
    assert all(map(is_alive, notes))
    assert home.running
    seen = len(home.log)
    home.running.send_signal(signal.SIGINT)
    await eventually(lambda: "draining" in home.log[seen:], timeout=60)
    assert await home.stop() == 128 + signal.SIGINT
    await eventually(lambda: not any(map(is_alive, notes)), timeout=30)
    assert not (home.folder / ".sched/up.json").exists()


async def test_a_newcomer_sees_runs_and_a_second_start_goes_on(home: Home, tmp_path: Path):
    port = free_port()
    running = await home.up("--http-port", str(port))
    await home.until_fired("heartbeat", 1)
    await a_second_up_is_refused(home, tmp_path, running.pid)
    await home.until_fired("cache-sync", 1)
    assert await ask(port, "/readyz") == (200, "ready\n")
    _, metrics = await ask(port, "/metrics")
    assert 'sched_starts_total{outcome="started"}' in metrics
    assert "temporal_request_total" in metrics
    shown = re.search(r"API +(http://127\.0\.0\.1:\d+/api/v1) \(token: (\S+)\)", home.log)
    used = await the_page_opens_once(home.log)
    async with httpx.AsyncClient() as client:
        assert shown, home.log
        schedules = f"{shown[1]}/schedules"
        assert (await client.get(schedules)).status_code == 401
        headers = {"Authorization": f"Bearer {shown[2]}"}
        listed = (await client.get(schedules, headers=headers)).json()["schedules"]
        assert "heartbeat" in {row["key"] for row in listed}
        run = await client.post(f"{schedules}/cache-sync/trigger", json={}, headers=headers)
        assert run.status_code == 202
        workflow_id = run.json()["fire"]["workflowId"]
        assert workflow_id.startswith("sched:cache-sync:manual:")
    assert await home.stop() == 0
    for expected in ("Temporal ", "Web UI ", "PostgreSQL ", "sched:heartbeat:", "stopped"):
        assert expected in home.log
    assert "postgresql://" not in home.log, "the address has the password in it"

    (home.folder / "activities" / "endless.py").write_text(ENDLESS)
    home.environment["SCHED_DRAIN"] = "1h"
    await home.up("--reload")
    await home.until_fired("heartbeat", 2)
    assert [home.log.count(text) for text in (f"(token: {shown[2]})", f"/enter/{used} ")] == [2, 1]
    module = home.folder / "workflows" / "heartbeat.py"
    module.write_text(f"{module.read_text()}\nCHANGED = True\n")
    again = "heartbeat.py changed: the worker drains, and starts again with it"
    await eventually(lambda: again in home.log, timeout=60)
    seen = len(await home.until_fired("heartbeat", 2))
    fires = await home.until_fired("heartbeat", seen + 1)  # by the worker with the new code
    code, printed = await home.sched("trigger", "cache-sync", "--wait", "--timeout=60s", "--json")
    ended, _ = json.JSONDecoder().raw_decode(printed[printed.index("{") :])
    run, is_lost = ended["fire"], ended["result"] is None
    assert (code, run["status"], ended["failure"], is_lost) == (0, "completed", [], False)
    code, printed = await home.sched("show", str(run["runId"]), "--json")
    assert json.loads(printed)["workflowId"] == run["workflowId"], "by Temporal's id of the run"
    code, listed = await home.sched("list", "--json")
    assert code == 0
    assert {row["key"]: row["state"] for row in json.loads(listed)} == {
        "cache-sync": "active", "heartbeat": "active",
        "invoice-run": "active", "nightly-report": "active",
    }  # fmt: skip
    await a_second_ctrl_c_leaves_no_server_behind(home)
    # Every window from the first to the last, each with one row and one run of its own.
    buckets = sorted(int(str(fire["bucket"])) for fire in fires)
    assert buckets == list(range(buckets[0], buckets[-1] + 1))
    assert set(Counter(fire["runId"] for fire in fires).values()) == {1}
    assert "Traceback" not in home.log


@pytest.mark.prove
async def test_servers_orphaned_by_kill_9_do_not_stand_in_the_way(home: Home):
    await home.up()
    before = await home.until_fired("heartbeat", 1)
    ended = "ended the servers of a `sched up` that was killed"
    assert ended not in home.log
    assert await home.stop(signal.SIGKILL) == -signal.SIGKILL
    await home.up()
    # Fires of the first one may be all that is asked for: wait for the second to say something.
    await eventually(lambda: ended in home.log, timeout=60)
    after = await home.until_fired("heartbeat", 2)
    assert {fire["runId"] for fire in before} <= {fire["runId"] for fire in after}
    assert await home.stop() == 0


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
        assert ";" in problem, "no hint"
    assert len({line.split(":")[1] for line in lines}) == 10


@pytest.mark.prove
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
    assert "the last good definitions stay in force (4 schedules)" in home.log
    assert await home.stop() == 0


@pytest.mark.prove
async def test_a_server_that_dies_ends_everything_with_a_sentence(home: Home):
    await home.up()
    await home.until_fired("heartbeat", 1)
    pid = json.loads((home.folder / ".sched" / "temporal.pid.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    assert home.running
    async with asyncio.timeout(60):
        assert await home.running.wait() == 1
    assert "temporal ended with code -9; see .sched/temporal.log" in home.log


@pytest.mark.prove
async def test_whoever_reads_the_lines_may_leave_and_everything_ends(home: Home):
    home.schedules.write_text("schedules: [{key: beat, workflow: heartbeat, everyMs: 1000}]")
    ours, theirs = os.pipe()
    home.running = await asyncio.create_subprocess_exec(
        str(SCHED), "up", "--lines", *home.ports,
        cwd=home.folder, env=home.environment, stdout=theirs, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    os.close(theirs)
    with os.fdopen(ours) as lines:  # and closed then, as `head -4` does
        for _ in range(4):
            assert await asyncio.to_thread(lines.readline)
    async with asyncio.timeout(60):
        _, told = await home.running.communicate()
    assert told == b""
    assert home.running.returncode == 128 + signal.SIGPIPE
    for name, port in home.port.items():
        with socket.socket() as visitor:
            assert visitor.connect_ex(("127.0.0.1", port)), f"{name} still runs"
