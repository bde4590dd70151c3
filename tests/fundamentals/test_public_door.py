"""The public door: what ``from engine import …`` offers, and how little it costs."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys

import engine


def test_the_door_offers_exactly_these_names():
    assert sorted(engine.__all__) == [
        "Context",
        "EngineError",
        "FireInfo",
        "Retry",
        "__version__",
        "step",
        "workflow",
    ]
    assert all(hasattr(engine, name) for name in engine.__all__)


def test_the_version_is_that_of_the_installed_distribution():
    assert engine.__version__ == importlib.metadata.version("sched-engine")


def test_importing_it_loads_neither_drivers_nor_parsers_nor_the_rest_of_the_engine():
    """Workflows import it inside the sandbox, where a second asyncpg crashes the worker."""
    code = "import engine, json, sys; print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
    loaded = set(json.loads(output))
    assert not loaded & {"asyncpg", "croniter", "yaml", "rich", "typer", "tzdata"}
    own = {name for name in loaded if name.split(".")[0] == "engine"}
    assert {name for name in own if not name.startswith("engine.flow")} == {
        "engine",
        "engine.errors",
    }
