"""Every run of these tests is replayed when it has ended, and may be kept for later versions.

``SCHED_KEEP_HISTORIES=1 make test ARGS="tests/fundamentals/test_sagas.py"`` writes the histories of
its runs into ``histories/``; see ``test_runs_of_earlier_versions.py``.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from engine.runtime import SchedulePlugin

HISTORIES: Final = Path(__file__).parent / "histories"
CACHED: Final = [
    pytest.param(1000, id="cached"),
    pytest.param(0, id="replayed each time", marks=pytest.mark.prove),
]
"""How many runs a worker of these tests keeps. With none it replays a run from its start at each
task, which ``make prove`` tries; ``make test`` replays each once, when it has ended."""

_KEEP: Final = "SCHED_KEEP_HISTORIES"
_UNSAFE: Final = re.compile(r"[^a-z0-9_]+")
_WORKER: Final = re.compile(r"\d+@.*")
_OF_ONE_MACHINE: Final = {"stackTrace": "", "buildId": ""}


async def replay(client: Client, handle: WorkflowHandle[Any, Any], samples: ModuleType) -> None:
    """Assert that the code of a run does the same again, by its history.

    Without the sandbox, which would load the module again, and which the run itself was in.

    Args:
        client: whose converter reads what the history carries.
        handle: of the run.
        samples: the module whose ``ALL`` are the workflows.
    """
    history = await handle.fetch_history()
    replayer = Replayer(
        workflows=samples.ALL, data_converter=client.data_converter, plugins=[SchedulePlugin(None)],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )  # fmt: skip
    assert (await replayer.replay_workflow(history)).replay_failure is None
    if os.environ.get(_KEEP):
        _keep(history, samples)


def _keep(history: WorkflowHistory, samples: ModuleType) -> None:
    """Write a history as a file, without what only this machine knows."""
    test = os.environ["PYTEST_CURRENT_TEST"].partition("::")[2].partition(" ")[0]
    name = _UNSAFE.sub("-", test.removeprefix("test_").replace("cached", "")).strip("-")
    folder = HISTORIES / samples.__name__.rpartition(".")[2]
    folder.mkdir(parents=True, exist_ok=True)
    started = history.events[0].workflow_execution_started_event_attributes
    file = folder / f"{name}-{started.workflow_type.name.replace('@', '-')}.json"
    file.write_text(json.dumps(_bare(history.to_json_dict())) + "\n", encoding="utf-8")


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        bare = {name: _bare(each) for name, each in value.items()}
        return {name: _OF_ONE_MACHINE.get(name, each) for name, each in bare.items()}
    if isinstance(value, list):
        return [_bare(each) for each in value]
    return "worker" if isinstance(value, str) and _WORKER.fullmatch(value) else value
