"""``sched history export`` and ``sched versions``, beside a worker and on the real servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from engine.ledger import Ledger
from engine.ledger.records import Serving
from engine.testing import assert_replayable
from tests.acceptance.fleet import Fleet
from tests.acceptance.test_operating import Operator, operator
from tests.operated_workflows import Echo
from tests.waiting import eventually

__all__ = ["operator"]


@pytest.mark.prove
async def test_the_histories_of_a_schedule_are_files_that_replay(
    operator: Operator, fleet: Fleet, tmp_path: Path
):
    out = tmp_path / "kept" / "histories"
    written = await operator.did("history", "export", "busy", "--limit", "2", "--out", str(out))
    assert len(written) in {1, 2}
    for run in written:
        safe = run["workflowId"].replace(":", ".")
        assert Path(run["file"]) == out / f"{safe}.{run['runId']}.json"
    assert await assert_replayable(out, workflows=[Echo]) == len(written)


@pytest.mark.prove
async def test_one_run_is_named_by_its_id_and_one_that_is_gone_is_told(
    operator: Operator, client: Client, tmp_path: Path
):
    run = (await operator.did("trigger", "echo", "--request-id", "one"))["fire"]
    await operator.closed(run["workflowId"])
    out = str(tmp_path / "histories")
    code, said, _ = await operator.sched("history", "export", run["workflowId"], "--out", out)
    assert (code, said.splitlines()[-1]) == (0, f"1 run written to {out}")
    temporals = (await client.get_workflow_handle(run["workflowId"]).describe()).run_id
    (written,) = await operator.did("history", "export", temporals, "--out", out)
    assert (written["workflowId"], written["runId"]) == (run["workflowId"], temporals)
    code, said, _ = await operator.sched("history", "export", "sched:echo:7", "--out", out)
    assert (code, said) == (1, "sched:echo:7: Temporal has forgotten it\nnothing written\n")


@pytest.mark.prove
async def test_what_is_no_schedule_ends_with_two(operator: Operator):
    code, _, told = await operator.sched("history", "export", "busi")
    assert code == 2
    assert "SCHEDULE_JOB_NOT_FOUND" in told
    code, _, told = await operator.sched("history", "import", "busy")
    assert code == 2


async def test_a_version_can_be_removed_when_no_run_of_it_is_open_and_no_schedule_has_it(
    operator: Operator, fleet: Fleet, client: Client
):
    ledger = await Ledger.connect(
        fleet.environment["SCHED_DATABASE_URL"], namespace=client.namespace
    )
    beside = Serving("beside", "default", "elsewhere", frozenset({"echo@0", "echo@1"}))
    await ledger.announce(beside, engine="0", tzdata="0", retention=None)
    await ledger.close()
    old = await client.start_workflow("echo@0", id="old", task_queue="elsewhere")

    async def earlier(open_runs: int) -> Any:
        first, newest = await operator.did("versions", "echo")
        assert (newest["version"], newest["newest"], newest["removable"]) == ("1", True, False)
        assert set(newest["schedules"]) == {"busy", "echo"}
        return first if first["openRuns"] == open_runs else None

    assert (await eventually(lambda: earlier(1)))["removable"] is False
    await old.terminate()
    assert (await eventually(lambda: earlier(0)))["removable"] is True
    _, said, _ = await operator.sched("versions", "echo@0")
    assert said.endswith("no run of it is open: its class can be removed\n")
