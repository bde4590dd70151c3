"""The public door: what ``from engine import …`` offers, and how little it costs."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType

import pytest
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

import engine
from tests.sample_workflows import Noop


def test_the_door_offers_exactly_these_names():
    assert sorted(engine.__all__) == [
        "CompensationFailed",
        "Context",
        "EngineError",
        "FOREVER",
        "FatalError",
        "FireInfo",
        "Retry",
        "StepInfo",
        "Undo",
        "__version__",
        "as_step",
        "at",
        "caused_by",
        "cron",
        "every",
        "given",
        "resource",
        "step",
        "step_info",
        "undo",
        "workflow",
    ]
    assert all(hasattr(engine, name) for name in engine.__all__)


def test_the_door_of_schedules_offers_users_what_they_declare_and_no_term_of_the_engine():
    assert importlib.import_module("engine.schedules").__all__ == [
        "At", "Cron", "Interval", "Schedule", "ScheduleFile", "Window", "load_schedules",
    ]  # fmt: skip


def test_the_version_is_that_of_the_installed_distribution():
    assert engine.__version__ == importlib.metadata.version("sched-engine")


@pytest.mark.parametrize(
    "package", ["engine", "engine.runtime", "engine.schedules", "engine.testing"]
)
def test_a_notebook_completes_each_name_before_it_is_used(package):
    code = f"import json, {package} as door; print(json.dumps([dir(door), door.__all__]))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
    listed, offered = json.loads(output)
    assert [name for name in offered if name not in listed] == []


def loaded_by(code: str) -> set[str]:
    code += "; import json, sys; print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
    return set(json.loads(output))


def test_who_takes_no_name_of_it_does_not_wait_for_temporal():
    assert "temporalio" not in loaded_by("import engine; assert engine.__version__")


def test_a_worker_that_alerts_nobody_loads_no_http_client():
    assert "httpx" not in loaded_by("import engine.cli.up.up")


@pytest.mark.parametrize("package", ["engine", "engine.ledger", "engine.runtime", "engine.testing"])
def test_a_name_that_is_not_there_is_a_plain_error(package):
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'wrokflow'"):
        _ = importlib.import_module(package).wrokflow


@pytest.mark.parametrize("package", ["engine", "engine.runtime", "engine.testing"])
def test_a_door_opens_to_each_name_that_it_offers(package):
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_importing_it_loads_neither_drivers_nor_parsers_nor_the_rest_of_the_engine():
    """Workflows import it inside the sandbox, where a second asyncpg crashes the worker."""
    loaded = loaded_by("from engine import Context, EngineError, step, workflow")
    assert not loaded & {"asyncpg", "croniter", "yaml", "rich", "typer", "tzdata"}
    own = {name for name in loaded if name.split(".")[0] == "engine"}
    assert {name for name in own if not name.startswith("engine.flow")} == {
        "engine",
        "engine.errors",
    }


async def test_a_run_loads_none_of_it_anew_on_a_worker_without_the_plugin(monkeypatch):
    loaded: list[str] = []
    execute = SourceFileLoader.exec_module

    def noted(loader: SourceFileLoader, module: ModuleType) -> None:
        loaded.append(module.__name__)
        execute(loader, module)

    monkeypatch.setattr(SourceFileLoader, "exec_module", noted)
    SandboxedWorkflowRunner().prepare_workflow(vars(Noop)["__temporal_workflow_definition"])
    assert [name for name in loaded if name.split(".")[0] == "engine"] == ["engine"]
