"""``sched fires --follow``: what becomes of windows, and how far their runs are."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import pytest
from temporalio.client import Client

from tests.acceptance.fleet import SCHED, Books, Fleet

FILE = "schedules: [{key: slow, workflow: calendar, everyMs: 86400000}]"


@pytest.mark.prove
async def test_a_run_is_followed_from_its_start_over_its_progress_to_its_end(
    fleet: Fleet, books: Books, client: Client
):
    await fleet.start(FILE, SCHED_IMPORTS="tests.fundamentals.samples.together")
    await books.until_fired(["slow"], 1, timeout=60)
    (fire,) = await books.fires()
    process = await asyncio.create_subprocess_exec(
        str(SCHED), "fires", "slow", "--follow", "--json",
        cwd=fleet.folder, env=fleet.environment, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout

    async def told() -> dict[str, Any]:
        assert process.stdout
        async with asyncio.timeout(60):
            line: dict[str, Any] = json.loads(await process.stdout.readline())
        return line

    lines = [await told()]
    while lines[-1]["progress"] is None:
        lines.append(await told())
    assert lines[-1]["progress"] == "1 of 3 (33 %): one of three"
    assert {line["status"] for line in lines} == {"started"}
    await client.get_workflow_handle(fire["workflow_id"]).signal("go on")
    while lines[-1]["status"] == "started":
        lines.append(await told())
    assert (lines[-1]["status"], lines[-1]["progress"]) == ("completed", None)
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(60):
        assert await process.wait() == 130


@pytest.mark.prove
async def test_what_was_there_before_is_not_shown_again_after_the_newest(
    fleet: Fleet, books: Books
):
    await fleet.start("schedules: [{key: often, workflow: noop, everyMs: 1000}]")
    await books.until_fired(["often"], 8, timeout=60)
    process = await asyncio.create_subprocess_exec(
        str(SCHED), "fires", "often", "--follow", "--json", "--limit", "2",
        cwd=fleet.folder, env=fleet.environment, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout
    told: list[str] = []
    async with asyncio.timeout(60):
        while len(set(told)) < 5:
            told.append(json.loads(await process.stdout.readline())["fireTime"])
    first = sorted(set(told))
    assert [*dict.fromkeys(told)] == first, "a window older than the first ones was shown"
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(60):
        assert await process.wait() == 130
