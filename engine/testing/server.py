"""A Temporal server and a clock for tests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client, Interceptor, Plugin

from engine.embedded import FolderLock, PostgresServer, TemporalServer
from engine.errors import EmbeddedError

# --- server ---
# A Temporal server for tests, which can let a run's waits pass at once.

T = TypeVar("T")

_PREFIX: Final = "sched-tests-"
# Tests ask as fast as they can; the server's politeness towards other tenants is not their topic.
_WITHOUT_LIMIT: Final = (
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
FOR_TESTS: Final[dict[str, str | float | bool]] = {
    "frontend.WorkflowTimeSkippingEnabled": True,
    # A namespace may forget its runs after a second (its own retention still says when).
    "system.namespaceMinRetentionLocal": "1s",
    "history.retentionTimerJitterDuration": "1s",
    # A changed namespace is seen by every part of the server at once.
    "system.namespaceCacheRefreshInterval": "100ms",
    **dict.fromkeys(_WITHOUT_LIMIT, 100_000),
}
"""The settings of a server for tests."""


class DevServer:
    """A server that runs, for ``run_schedule`` and ``run_workflow``.

    Args:
        address: ``host:port`` of its frontend. A server that somebody else started needs the
            settings ``FOR_TESTS``.
        namespace: where runs are; by default each call has a new one, so that no two tests meet.
    """

    def __init__(self, address: str, *, namespace: str | None = None) -> None:
        self.address = address
        self.namespace = namespace

    async def connect(
        self, *, plugins: tuple[Plugin, ...] = (), interceptors: tuple[Interceptor, ...] = ()
    ) -> Client:
        """Return a client for one call."""
        name = self.namespace
        if name is None:
            name = f"test-{uuid.uuid4().hex}"
            await register_namespace(await Client.connect(self.address), name)
        return await Client.connect(
            self.address, namespace=name, plugins=plugins, interceptors=interceptors
        )


class dev_server:  # noqa: N801 - called like the function that it could be
    """Start a Temporal server for tests, and stop it in the end.

    ``with dev_server() as server: ...``, or ``async with``; it is up in half a second. As a
    fixture of the whole session::

        @pytest.fixture(scope="session")
        def server():
            with dev_server() as server:
                yield server

    The program is looked for in ``SCHED_TEMPORAL_CLI``, on PATH and beside this Python (the extra
    ``embedded`` brings it). It keeps nothing on disk but a log while it runs. A test run that is
    killed leaves it behind; the next one finds and stops it.

    Raises:
        EmbeddedError: there is no such program, or it does not start.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> DevServer:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(shared_folder())
            server = TemporalServer(folder, dynamic_config=FOR_TESTS, in_memory=True)
            stack.callback(lambda: run_apart(server.stop()))
            run_apart(server.start())
            self._stack = stack.pop_all()
        return DevServer(server.address)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    async def __aenter__(self) -> DevServer:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._stack.close)


def run_apart(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end in a loop and thread of its own.

    What lives as long as the session outlives the loop of any single test.
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
        try:
            yield folder
        finally:
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


# --- clock ---
# A clock that stands still until the test moves it.


class FrozenClock:
    """A time that only the test moves: ``MemoryLedger(clock=FrozenClock(...))``.

    Args:
        at: where it stands: an aware datetime, or ISO 8601 text with an offset.

    Raises:
        ValueError: the moment has no timezone.
    """

    def __init__(self, at: datetime | str) -> None:
        self._now = instant(at)

    def __call__(self) -> datetime:
        """Return where it stands, as a ledger asks its clock."""
        return self._now

    def now(self) -> datetime:
        """Return where it stands, in UTC."""
        return self._now

    def move_to(self, moment: datetime | str) -> datetime:
        """Let it stand there from now on, and return that.

        Raises:
            ValueError: the moment has no timezone, or has passed: the clocks that the engine
                goes by never go back.
        """
        wanted = instant(moment)
        if wanted < self._now:
            raise ValueError(f"{wanted.isoformat()} has passed: it is {self._now.isoformat()}")
        self._now = wanted
        return wanted

    def advance(self, by: timedelta | float) -> datetime:
        """Let so much time pass (timedelta or seconds), and return what it is then.

        Raises:
            ValueError: the time is negative.
        """
        return self.move_to(
            self._now + (by if isinstance(by, timedelta) else timedelta(seconds=by))
        )


def instant(given: datetime | str) -> datetime:
    """Return a moment of a test in UTC.

    Raises:
        ValueError: it has no timezone, or is no ISO 8601 text.
    """
    moment = datetime.fromisoformat(given) if isinstance(given, str) else given
    if moment.tzinfo is None:
        raise ValueError(f"{given} has no timezone; write it with one, such as 2026-11-21T05:00Z")
    return moment.astimezone(UTC)
