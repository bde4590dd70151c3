"""Real servers for tests: one PostgreSQL and one Temporal per session, on free ports.

Whoever kills a test run leaves servers behind; the next run finds and stops them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client

from engine.embedded import FolderLock, PostgresServer, TemporalServer
from engine.errors import EmbeddedError

T = TypeVar("T")

_PREFIX = "sched-tests-"
# Tests ask as fast as they can; the server's politeness towards other tenants is not their topic.
_WITHOUT_LIMIT = (
    "frontend.rps",
    "frontend.rps.namespaceReplicationInducingAPIs",  # RegisterNamespace
    "frontend.namespaceRPS",
    "frontend.namespaceRPS.visibility",
    "frontend.namespaceRPS.namespaceReplicationInducingAPIs",
    "frontend.persistenceMaxQPS",
    "history.rps",
    "history.persistenceMaxQPS",
    "matching.rps",
    "matching.persistenceMaxQPS",
)
FAST_AND_FORGETFUL: dict[str, str | float | bool] = {
    # A namespace may forget its runs after a second (its own retention still says when).
    "system.namespaceMinRetentionLocal": "1s",
    "history.retentionTimerJitterDuration": "1s",
    # A changed namespace is seen by every part of the server at once.
    "system.namespaceCacheRefreshInterval": "100ms",
    **dict.fromkeys(_WITHOUT_LIMIT, 100_000),
}


def run_apart(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end in a loop and thread of its own.

    Session fixtures outlive the loop of any single test.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def register_namespace(
    client: Client, name: str, *, retention: timedelta = timedelta(hours=24)
) -> None:
    """Register a namespace; it can be used at once."""
    request = RegisterNamespaceRequest(namespace=name)
    request.workflow_execution_retention_period.FromTimedelta(retention)
    await client.workflow_service.register_namespace(request)


@contextlib.contextmanager
def shared_folder() -> Iterator[Path]:
    """Yield a fresh folder that every user may enter (pytest's own are closed to others)."""
    _sweep()
    fresh = Path(tempfile.mkdtemp(prefix="sched-new-"))
    with FolderLock(fresh):
        fresh.chmod(0o755)
        # Under its final name only once it is locked, or another run would sweep it away.
        folder = fresh.rename(fresh.with_name(fresh.name.replace("sched-new-", _PREFIX)))
        yield folder
        _stop_servers_in(folder)
        shutil.rmtree(folder, ignore_errors=True)  # a sweeper may just look at its lock


def _sweep() -> None:
    """Stop the servers of test runs that were killed, and delete their folders."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(EmbeddedError, OSError):  # still in use, or somebody else's
            if folder.stat().st_uid != os.geteuid():
                continue
            with FolderLock(folder):
                _stop_servers_in(folder)
                shutil.rmtree(folder, ignore_errors=True)  # another run may be sweeping, too


def _stop_servers_in(folder: Path) -> None:
    for pid_file in folder.rglob("*.pid.json"):
        server = PostgresServer if pid_file.name.startswith("postgres") else TemporalServer
        run_apart(server(pid_file.parent).stop_orphan())
