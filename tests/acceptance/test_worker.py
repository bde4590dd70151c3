"""``sched worker`` where something is missing: it says so, and does what it can."""

from __future__ import annotations

import signal
import uuid

import pytest
from temporalio.client import Client

from tests.acceptance.fleet import SCHED, Books, Fleet
from tests.acceptance.forked import ended
from tests.servers import Temporal, register_namespace
from tests.waiting import eventually

EXTERNAL = """
schedules: [{key: go, workflow: GoThing, external: true, taskQueue: golang, everyMs: 1000}]
"""
MIXED = """
schedules:
  - {key: here, workflow: warns, everyMs: 1000}
  - {key: there, workflow: noop, everyMs: 1000, taskQueue: mail}
  - {key: typo, workflow: nope, everyMs: 1000}
"""


async def test_a_worker_without_code_of_its_own_starts_external_workflows(
    fleet: Fleet, books: Books
):
    worker = await fleet.start(EXTERNAL, SCHED_IMPORTS="json.decoder")
    await books.until_fired(["go"], 2, timeout=60)
    assert fleet.logged("no workflows found here") == 1
    worker.send(signal.SIGTERM)
    assert await worker.gone() == 0


async def test_a_worker_tells_what_it_will_not_fire_and_what_its_runs_warn_of(
    fleet: Fleet, books: Books
):
    fleet.options.remove("--verbose")
    await fleet.start(MIXED)
    await books.until_fired(["here"], 2, timeout=60)
    await eventually(
        lambda: fleet.logged(
            "1 of 2 schedules is for other task queues (mail), this worker serves sched"
        )
    )
    assert fleet.logged(
        "typo: refused: no worker on task queue sched knows nope; did you mean noop? New code"
    )
    first, *_ = await books.fires()
    assert first["key"] == "here"
    await eventually(lambda: fleet.logged(f"{first['workflow_id']}: stock is low\n"))
    assert {row["key"] for row in await books.fires()} == {"here"}


@pytest.mark.prove
async def test_the_trial_of_an_imported_crontab_records_its_windows_without_a_workflow(
    fleet: Fleet,
):
    """As docs/coming-from.md has it, in a folder without any code."""
    (fleet.folder / "tab").write_text("@every_second /usr/bin/backup\n0 4 * * * /usr/bin/poll\n")
    text = ""
    for arguments in (
        ["import", "crontab", "--shadow", "--project", "crontab", "--timezone", "UTC", "tab"],
        ["check", str(fleet.folder / "schedules-0.yaml")],
    ):
        code, out, told = await ended(
            *arguments, program=SCHED, folder=fleet.folder, environment=fleet.environment
        )
        assert code == 0, told
        text = text or out
        (fleet.folder / "schedules-0.yaml").write_text(text)
    await fleet.start(text, SCHED_IMPORTS="json.decoder")

    async def recorded() -> bool:
        code, out = await fleet.sched("fires", "backup", "--json")
        return code == 0 and '"shadow"' in out

    await eventually(recorded, timeout=60)
    assert not fleet.logged("SCHEDULE_WORKFLOW_UNKNOWN")
    code, out = await fleet.sched("compare", "backup", "--since", "1h")
    assert code == 1
    assert "nothing to compare: there is no such Temporal schedule" in " ".join(out.split())
    (fleet.folder / "log").write_text("2026-11-18T10:01:01+01:00 CRON: /usr/bin/backup\n")
    code, out = await fleet.sched("compare", "backup", "--against", "log:log")
    assert code == 0, out


async def test_a_worker_waits_for_its_namespace(
    fleet: Fleet, books: Books, temporal: Temporal, client: Client
):
    later = f"later-{uuid.uuid4().hex}"
    worker = await fleet.start(EXTERNAL, TEMPORAL_NAMESPACE=later, SCHED_IMPORTS="json.decoder")
    await eventually(lambda: fleet.logged(f"has no namespace '{later}'"))
    await register_namespace(client, later)
    await books.until_fired(["go"], 1, timeout=60)
    worker.send(signal.SIGTERM)
    assert await worker.gone() == 0
