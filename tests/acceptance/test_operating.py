"""What an operator does on the command line, beside a worker and on the real servers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import asyncpg
import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from engine.cli.target import actor
from tests.acceptance.fleet import SCHED, Fleet
from tests.acceptance.forked import ended
from tests.waiting import eventually

DECLARED = """
schedules:
  - {key: echo, workflow: echo, everyMs: 86400000, firstFire: next, input: {from: file}}
  - {key: busy, workflow: echo, everyMs: 1000, firstFire: next}
  - {key: long, workflow: reserves, everyMs: 86400000, firstFire: next}
  - {key: brief, workflow: brief, everyMs: 60000, firstFire: next}
"""
CLOSED = ["completed", "failed", "cancelled", "terminated", "timed_out"]
BEGUN = "key = 'busy' AND run_id IS NOT NULL"


class Operator:
    """Types commands; each is a process of its own."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def sched(self, *arguments: str) -> tuple[int, str, str]:
        return await ended(
            *arguments, program=SCHED, folder=self._fleet.folder,
            environment=self._fleet.environment,
        )  # fmt: skip

    async def did(self, *arguments: str) -> Any:
        """Run a command that succeeds, and read its JSON."""
        code, out, told = await self.sched(*arguments, "--json")
        assert code == 0, (out, told)
        return json.loads(out)

    async def fires(self, key: str) -> list[dict[str, Any]]:
        found = await self.did("fires", key, "-n", "1000")
        return sorted(found, key=lambda fire: fire["fireTime"])

    async def until(self, fires: str, *arguments: object) -> None:
        """Wait for such fires in the ledger, because a command each time costs a lot."""
        ledger, namespace = (
            self._fleet.environment[name] for name in ("SCHED_DATABASE_URL", "TEMPORAL_NAMESPACE")
        )
        connection = await asyncpg.connect(ledger)
        query = f"SELECT count(*) FROM sched.fires WHERE namespace = $1 AND {fires}"
        try:
            await eventually(lambda: connection.fetchval(query, namespace, *arguments), timeout=90)
        finally:
            await connection.close()

    async def closed(self, workflow_id: str) -> dict[str, Any]:
        await self.until("workflow_id = $2 AND status = ANY($3)", workflow_id, CLOSED)
        fires = await self.fires(workflow_id.split(":")[1])
        return next(fire for fire in fires if fire["workflowId"] == workflow_id)


@pytest.fixture
async def operator(fleet: Fleet) -> Operator:
    fleet.environment["SCHED_IMPORTS"] = "tests.operated_workflows"
    await fleet.start(DECLARED)
    made = Operator(fleet)
    await made.until(BEGUN)
    return made


@pytest.mark.prove
async def test_a_pause_stops_the_windows_and_resume_goes_on_with_the_next(operator: Operator):
    code, out, told = await operator.sched("pause", "busy", "--reason", "stocktaking")
    assert (code, out, told) == (0, "busy is paused until it is resumed: stocktaking\n", "")
    paused = await operator.did("show", "busy")
    assert (paused["state"], paused["next"]) == ("paused", [])
    assert (paused["paused"]["reason"], paused["paused"]["by"]) == ("stocktaking", actor())
    _, page, _ = await operator.sched("show", "busy")
    assert f"by {actor()}: stocktaking" in page
    begin = datetime.fromisoformat(paused["paused"]["at"])
    beyond = begin + timedelta(seconds=3)

    async def three_windows_later() -> bool:
        return datetime.now(UTC) > beyond

    await eventually(three_windows_later)
    resumed = await operator.did("resume", "busy")
    assert resumed["before"]["reason"] == "stocktaking"
    assert resumed["caughtUp"] == 0
    goes_on = datetime.fromisoformat(resumed["nextFireAt"])
    await operator.until(f"{BEGUN} AND fire_time >= $2", goes_on)
    during = [
        fire for fire in await operator.fires("busy")
        if begin <= datetime.fromisoformat(fire["fireTime"]) < beyond
    ]  # fmt: skip
    assert {(fire["status"], fire["reason"]) for fire in during} == {("skipped", "paused")}
    verbs = [row["verb"] for row in await operator.did("log", "busy")]
    assert verbs == ["resume", "pause", "apply"]
    code, out, _ = await operator.sched("resume", "busy")
    assert (code, out) == (0, "busy was not paused\n")


@pytest.mark.prove
async def test_a_manual_run_keeps_to_overlap_and_each_run_to_its_own_argument(
    operator: Operator, client: Client
):
    ordinary = await operator.did("trigger", "echo", "--request-id", "one")
    again = await operator.did("trigger", "echo", "--request-id", "one")
    assert (ordinary["new"], again["new"]) == (True, False)
    own = await operator.did("trigger", "echo", "--input", '{"from": "operator"}')
    first = (await operator.closed(ordinary["fire"]["workflowId"]), {"from": "file"})
    second = (await operator.closed(own["fire"]["workflowId"]), {"from": "operator"})
    for fire, received in (first, second):
        handle = client.get_workflow_handle(fire["workflowId"], run_id=fire["runId"])
        assert await handle.result() == received
        assert (fire["timing"], fire["status"]) == ("manual", "completed")
    await operator.did("trigger", "long", "--request-id", "open")
    code, out, _ = await operator.sched("trigger", "long", "--overlap", "skip")
    assert code == 1
    assert "skipped: overlap: sched:long:manual:open" in out
    waiting = await operator.did("trigger", "long", "--overlap", "queue", "--request-id", "next")
    assert waiting["fire"]["status"] == "queued"
    page = await operator.did("show", "long")
    assert [fire["workflowId"] for fire in page["queued"]] == ["sched:long:manual:next"]


@pytest.mark.prove
async def test_a_skipped_window_has_no_run_and_can_be_run_after_all_with_another_argument(
    operator: Operator, client: Client
):
    at = (datetime.now(UTC) + timedelta(seconds=20)).strftime("%Y-%m-%dT%H:%M:%SZ")
    skipped = await operator.did("skip", "busy", "--at", at, "--reason", "holiday")
    assert skipped["changed"]
    bucket = skipped["workflowId"].rpartition(":")[2]
    await operator.until(f"{BEGUN} AND fire_time > $2", datetime.fromisoformat(at))
    (fire,) = [fire for fire in await operator.fires("busy") if fire["fireTime"] == at]
    assert (fire["status"], fire["reason"], fire["runId"]) == ("skipped", "user: holiday", None)
    code, _, told = await operator.sched("unskip", "busy", "--at", at)
    assert code == 2
    assert told.startswith("sched: SCHEDULE_MOMENT_IN_PAST: ")
    assert "sched backfill --include user" in told
    run = await operator.did("rerun", "busy", bucket, "--input", '{"why": "after all"}')
    assert run["fire"]["workflowId"] == f"sched:busy:{bucket}:rerun:1"
    done = await operator.closed(run["fire"]["workflowId"])
    assert (done["status"], done["timing"], done["fireTime"]) == ("completed", "rerun", at)
    handle = client.get_workflow_handle(done["workflowId"], run_id=done["runId"])
    assert await handle.result() == {"why": "after all"}


@pytest.mark.prove
async def test_a_cancelled_run_undoes_what_it_did_before_it_ends(
    operator: Operator, client: Client
):
    asked = await operator.did("trigger", "long", "--request-id", "cancelled")
    handle = client.get_workflow_handle(asked["fire"]["workflowId"])

    async def reserved() -> bool:
        return "book" in await steps(client, asked["fire"]["workflowId"])

    await eventually(reserved, every=0.1)
    done = await operator.did("cancel", asked["fire"]["workflowId"], "--reason", "wrong data")
    assert done["asked"] == [asked["fire"]["workflowId"]]
    fire = await operator.closed(asked["fire"]["workflowId"])
    assert fire["status"] == "cancelled"
    assert (await handle.describe()).status == WorkflowExecutionStatus.CANCELED
    assert await steps(client, asked["fire"]["workflowId"]) == ["book", "unbook"]
    code, _, told = await operator.sched("cancel", asked["fire"]["workflowId"])
    assert code == 2
    assert told.startswith("sched: SCHEDULE_JOB_NOT_CANCELLABLE: ")


async def steps(client: Client, workflow_id: str) -> list[str]:
    """The steps of a run that have been completed, in their order."""
    scheduled: dict[int, str] = {}
    completed: list[str] = []
    try:
        history = await client.get_workflow_handle(workflow_id).fetch_history()
    except RPCError:  # it has not been started yet
        return completed
    for event in history.events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            attributes = event.activity_task_scheduled_event_attributes
            scheduled[event.event_id] = attributes.activity_type.name
        if event.HasField("activity_task_completed_event_attributes"):
            number = event.activity_task_completed_event_attributes.scheduled_event_id
            completed.append(scheduled[number].rpartition(".")[2])
    return completed


@pytest.mark.slow
@pytest.mark.prove
async def test_eight_windows_are_backfilled_strictly_one_after_another(operator: Operator):
    now = datetime.now(UTC).replace(second=30, microsecond=0) - timedelta(minutes=2)
    begin, end = (f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in (now - timedelta(minutes=8), now))
    period = ("--from", begin, "--to", end)
    one_by_one = ("--overlap", "queue", "--yes")
    code, out, told = await operator.sched("backfill", "brief", *period, *one_by_one)
    assert (code, told) == (0, "")
    assert out.startswith("brief: 8 windows from ")
    assert out.splitlines()[0].endswith(": 8 to start, 0 left alone")
    assert out.endswith("workers lay them; `sched show brief` says how far they are\n")

    ended = "key = 'brief' AND timing = 'backfill' AND status = 'completed'"
    await operator.until(f"{ended} HAVING count(*) = 8")
    fires = [fire for fire in await operator.fires("brief") if fire["timing"] == "backfill"]
    assert len(fires) == 8
    for earlier, later in pairwise(fires):
        assert earlier["closedAt"] <= later["startedAt"]
    code, out, _ = await operator.sched("show", "brief")
    assert "done, 8 laid, 0 left alone" in out
    code, out, _ = await operator.sched("backfill", "brief", *period, "--wait")
    assert code == 0
    assert ": 0 to start, 8 left alone\nleft alone, completed: 8" in out
    assert out.endswith("brief: 0 laid, 8 left alone\n")


REFUSED = [
    (["pause", "ehco", "--reason", "x"], "there is no schedule ehco; did you mean echo?"),
    (["resume", "ehco"], "did you mean echo?"),
    (["trigger", "ehco"], "did you mean echo?"),
    (["rerun", "ehco", "1"], "did you mean echo?"),
    (["skip", "ehco", "--at", "2030-01-01"], "did you mean echo?"),
    (["cancel", "sched:ehco:1"], "did you mean echo?"),
    (["backfill", "ehco", "--from", "2026-01-01", "--to", "2026-01-02"], "did you mean echo?"),
    (["log", "ehco"], "did you mean echo?"),
    (["pause", "echo", "--reason", "x", "--until", "2026-01-01"], "SCHEDULE_MOMENT_IN_PAST"),
    (["skip", "echo", "--at", "2026-01-01"], "SCHEDULE_MOMENT_IN_PAST"),
    (["backfill", "echo", "--from", "2026-01-01", "--to", "2099-01-01"], "MOMENT_IN_FUTURE"),
    (["rerun", "echo", "7"], "SCHEDULE_WINDOW_NOT_FOUND"),
]


@pytest.mark.prove
async def test_what_cannot_be_done_is_explained_in_one_line(fleet: Fleet):
    path = fleet.folder / "declared.yaml"
    path.write_text(DECLARED)
    operator = Operator(fleet)
    await operator.did("apply", str(path))
    logged = await operator.sched("log", "echo")
    for arguments, said in REFUSED:
        code, _, told = await operator.sched(*arguments)
        assert code == 2, arguments
        assert said in told
        assert told.count("\n") == 1
    assert await operator.sched("log", "echo") == logged
