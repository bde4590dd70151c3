"""``sched history export``, beside a worker and on the real servers."""

from __future__ import annotations

from pathlib import Path

from temporalio.client import Client

from engine.testing import assert_replayable
from tests.acceptance.fleet import Fleet
from tests.acceptance.test_operating import Operator, operator
from tests.operated_workflows import Echo

__all__ = ["operator"]


async def test_the_histories_of_a_schedule_are_files_that_replay(
    operator: Operator, fleet: Fleet, tmp_path: Path
):
    out = tmp_path / "kept" / "histories"
    written = await operator.did("history", "export", "busy", "--limit", "2", "--out", str(out))
    assert len(written) in {1, 2}
    for run in written:
        safe = run["workflow_id"].replace(":", ".")
        assert Path(run["file"]) == out / f"{safe}.{run['run_id']}.json"
    assert await assert_replayable(out, workflows=[Echo]) == len(written)


async def test_one_run_is_named_by_its_id_and_one_that_is_gone_is_told(
    operator: Operator, client: Client, tmp_path: Path
):
    run = await operator.did("trigger", "echo", "--request-id", "one")
    await operator.closed(run["workflow_id"])
    out = str(tmp_path / "histories")
    code, said, _ = await operator.sched("history", "export", run["workflow_id"], "--out", out)
    assert (code, said.splitlines()[-1]) == (0, f"1 run written to {out}")
    code, said, _ = await operator.sched("history", "export", "sched:echo:7", "--out", out)
    assert (code, said) == (1, "sched:echo:7: Temporal has forgotten it\nnothing written\n")


async def test_what_is_no_schedule_ends_with_two(operator: Operator):
    code, _, told = await operator.sched("history", "export", "busi")
    assert code == 2
    assert "SCHEDULE_JOB_NOT_FOUND" in told
    code, _, told = await operator.sched("history", "import", "busy")
    assert code == 2
