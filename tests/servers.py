"""Real servers for tests: one PostgreSQL and one Temporal per session, on free ports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.embedded import TemporalServer
from engine.testing.server import FOR_TESTS, register_namespace, run_apart, shared_folder

FAST_AND_FORGETFUL = {**FOR_TESTS, "system.namespaceCacheRefreshInterval": "10s"}
"""A new namespace is found at once. Hundreds that are read each second take 1 % of a core."""

WITHOUT_NATIVE_SCHEDULES = {**FAST_AND_FORGETFUL, "worker.perNamespaceWorkerCount": 0}
"""Native schedules have workers in each namespace: 200 idle namespaces take 15 % of a core."""

__all__ = ["FAST_AND_FORGETFUL", "register_namespace", "run_apart", "shared_folder"]


@contextmanager
def running_temporal(
    folder: Path, settings: dict[str, str | float | bool]
) -> Iterator[TemporalServer]:
    """Run a Temporal server in memory, without rate limits, while the block lasts."""
    server = TemporalServer(folder, dynamic_config=settings, in_memory=True)
    run_apart(server.start())
    try:
        yield server
    finally:
        run_apart(server.stop())
