"""Dead letters on the command line, beside a worker and on the real servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.acceptance.fleet import SCHED, Fleet
from tests.acceptance.forked import ended
from tests.waiting import eventually

DECLARED = """
defaults: {onDead: hears}
schedules: [{key: unlucky, workflow: fails, everyMs: 86400000}]
"""


async def sched(fleet: Fleet, *arguments: str) -> tuple[int, str]:
    code, out, told = await ended(
        *arguments, program=SCHED, folder=fleet.folder, environment=fleet.environment
    )
    return code, out or told


@pytest.mark.prove
async def test_what_failed_is_listed_shown_run_again_and_dropped(fleet: Fleet):
    fleet.environment["SCHED_IMPORTS"] = "tests.sample_noop,tests.sample_workflows"
    await fleet.start(DECLARED)

    async def letters() -> list[dict[str, Any]]:
        code, out = await sched(fleet, "dead", "list", "--json")
        return json.loads(out) if code == 0 else []

    (letter,) = await eventually(letters, timeout=60, every=1)
    first, bucket = letter["workflowId"], str(letter["bucket"])
    assert (letter["status"], letter["error"]) == ("failed", "ValueError: no luck for unlucky")
    code, page = await sched(fleet, "dead", "show", "unlucky", bucket)
    assert code == 0
    assert "why        ValueError: no luck for unlucky" in page
    code, out = await sched(fleet, "dead", "rerun", "unlucky", bucket, "--reason", "once more")
    assert (code, out.startswith(f"{first}:rerun:1 claimed")) == (0, True), out

    async def again() -> bool:
        return [each["workflowId"] for each in await letters()] == [f"{first}:rerun:1"]

    await eventually(again, timeout=60, every=1)

    async def told() -> bool:
        _, out = await sched(fleet, "fires", "unlucky", "--json")
        rows = {fire["workflowId"]: fire["status"] for fire in json.loads(out)}
        return rows.get(f"{first}:dead") == rows.get(f"{first}:rerun:1:dead") == "completed"

    await eventually(told, timeout=60, every=1)
    assert await sched(fleet, "dead", "drop", "--all") == (0, "1 letter dropped\n")
    assert await sched(fleet, "dead", "list") == (0, "no dead letters\n")
    code, out = await sched(fleet, "dead", "drop", "unlucky", bucket)
    assert code == 2
    assert "SCHEDULE_LETTER_NOT_FOUND" in out
