"""What somebody is told who applies a file that names a workflow no worker has."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.fleet import Fleet
from tests.acceptance.test_operating import Operator, operator

__all__ = ["operator"]

FILE = """\
project: other
schedules:
  - {key: fine, workflow: echo, everyMs: 60000}
  - key: pinned
    workflow: echo@9
    everyMs: 60000
"""
SAID = (
    "5:15: SCHEDULE_WORKFLOW_UNKNOWN: pinned: refused:"
    " no worker on task queue sched knows echo@9; did you mean echo@1?"
)


@pytest.mark.prove
async def test_plan_and_apply_name_the_line_and_the_other_schedules_are_applied(
    operator: Operator, fleet: Fleet
):
    path = fleet.folder / "other.yaml"
    path.write_text(FILE)
    code, out, told = await operator.sched("plan", str(path))
    assert code == 3, told
    assert f"{path}:{SAID}" in out
    _, out, _ = await operator.sched("plan", str(path), "--json")
    [problem] = json.loads(out)["problems"]
    assert (problem["line"], problem["column"], problem["key"]) == (5, 15, "pinned")
    code, out, told = await operator.sched("apply", str(path))
    assert code == 1, told
    assert f"{path}:{SAID}" in out
    applied = await operator.did("list", "--project", "other")
    assert {row["key"] for row in applied} == {"fine"}
    code, out, _ = await operator.sched("plan", str(path))
    assert code == 1
    assert "1 unchanged, 1 refused; fires on apply: 0" in out
