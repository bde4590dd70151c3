"""Servers and a clock for tests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client, Interceptor, Plugin

from engine.embedded import PostgresServer, TemporalServer, folder_lock
from engine.errors import EmbeddedError, LedgerRequired

# --- server ---
# Servers for tests; Temporal's supports time skipping.

T = TypeVar("T")

_PREFIX: Final = "sched-tests-"
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the folders in it have names of their own
_ROOM: Final = 8 << 30
"""Bytes that have to be free there: more than the servers of any test run need."""
# Tests send requests as fast as they can and have no other tenants, so rate limits are lifted.
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
    # A namespace may choose a retention of one second.
    "system.namespaceMinRetentionLocal": "1s",
    "history.retentionTimerJitterDuration": "1s",
    # Every part of the server sees a changed namespace soon; each look costs processor time.
    "system.namespaceCacheRefreshInterval": "1s",
    **dict.fromkeys(_WITHOUT_LIMIT, 100_000),
}
"""Settings of a server for tests."""


class DevServer:
    """Running servers, for ``run_schedule`` and ``run_workflow``.

    Args:
        address: ``host:port`` of Temporal's frontend. A server from elsewhere needs the settings
            ``FOR_TESTS``.
        namespace: the namespace of the runs; by default a new one per call, to isolate tests.
        database_url: the address of a PostgreSQL database whose role may create others, for the
            ledgers of ``run_schedule``; by default ``SCHED_TEST_DATABASE_URL``.
    """

    def __init__(
        self, address: str, *, namespace: str | None = None, database_url: str | None = None
    ) -> None:
        self.address = address
        self.namespace = namespace
        self._database_url = database_url or os.environ.get("SCHED_TEST_DATABASE_URL")

    def database_url(self) -> str:
        """Return the address of its PostgreSQL.

        Raises:
            LedgerRequired: there is none.
        """
        if self._database_url is None:
            raise LedgerRequired(
                "this test server has no PostgreSQL",
                hint="set SCHED_TEST_DATABASE_URL, or use dev_server(), which brings one",
            )
        return self._database_url

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


class _OwnServers(DevServer):
    """The servers of ``dev_server``; PostgreSQL starts when a test first needs a ledger."""

    def __init__(self, address: str, folder: Path, stack: contextlib.ExitStack) -> None:
        super().__init__(address)
        self._folder, self._stack, self._starting = folder, stack, threading.Lock()

    def database_url(self) -> str:
        with self._starting:
            if self._database_url is None:
                server = PostgresServer(self._folder / "postgres", durable=False)
                run_apart(server.start())
                self._stack.callback(lambda: run_apart(server.stop()))
                self._database_url = server.url_of("postgres")  # as a role that makes databases
        return self._database_url


class dev_server:  # noqa: N801 - called like the function that it could be
    """Context manager that runs a Temporal server for tests, and a PostgreSQL for their ledgers.

    ``with dev_server() as server: ...``, or ``async with``; it is up in half a second. As a
    fixture of the whole session::

        @pytest.fixture(scope="session")
        def server():
            with dev_server() as server:
                yield server

    Temporal is looked up in ``SCHED_TEMPORAL_CLI``, on PATH and beside this Python (the extra
    ``embedded`` installs both). PostgreSQL is that of ``SCHED_TEST_DATABASE_URL``, or one of its
    own, which starts with the first ``run_schedule``. Nothing stays on disk. A killed test run
    leaves its servers behind; the next test run finds and stops them.

    Raises:
        EmbeddedError: the program is not installed, or does not start.
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
        return _OwnServers(server.address, folder, self._stack)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def __aenter__(self) -> DevServer:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._stack.close)


def run_apart(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end in its own thread and event loop.

    An object of the whole session outlives the event loop of any single test.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def register_namespace(
    client: Client, name: str, *, retention: timedelta = timedelta(hours=24)
) -> None:
    """Register a namespace, which can be used at once."""
    request = RegisterNamespaceRequest(namespace=name)
    request.workflow_execution_retention_period.FromTimedelta(retention)
    await client.workflow_service.register_namespace(request)


@contextlib.contextmanager
def shared_folder() -> Iterator[Path]:
    """Yield a fresh folder that every user may enter (pytest's own are closed to others)."""
    _sweep()
    fresh = Path(tempfile.mkdtemp(prefix="sched-new-", dir=_base()))
    with folder_lock(fresh):
        fresh.chmod(0o755)
        # Renamed only after it is locked, or the sweep of another test run would delete it.
        folder = fresh.rename(fresh.with_name(fresh.name.replace("sched-new-", _PREFIX)))
        try:
            yield folder
        finally:
            _stop_servers_in(folder)
            shutil.rmtree(folder, ignore_errors=True)  # a sweep may be checking its lock


def _base() -> Path:
    """Return where servers have their files: in memory, if there is room and no ``TMPDIR``.

    A database is hundreds of files, and each test makes and deletes one: on a disk that took two
    thirds of the system's time.
    """
    if "TMPDIR" not in os.environ and os.access(_IN_MEMORY, os.W_OK):
        with contextlib.suppress(OSError):
            if shutil.disk_usage(_IN_MEMORY).free >= _ROOM:
                return _IN_MEMORY
    return Path(tempfile.gettempdir())


def _sweep() -> None:
    """Stop the servers of killed test runs, and delete their folders."""
    places = {Path(tempfile.gettempdir()), _base()}
    for folder in chain.from_iterable(place.glob(f"{_PREFIX}*") for place in places):
        with contextlib.suppress(EmbeddedError, OSError):  # still in use, or another user's
            if folder.stat().st_uid != os.geteuid():
                continue
            with folder_lock(folder):
                _stop_servers_in(folder)
                shutil.rmtree(folder, ignore_errors=True)  # another run may be sweeping, too


def _stop_servers_in(folder: Path) -> None:
    for pid_file in folder.rglob("*.pid.json"):
        server = PostgresServer if pid_file.name.startswith("postgres") else TemporalServer
        run_apart(server(pid_file.parent).stop_orphan())


# --- clock ---


class FrozenClock:
    """A clock that only the test moves: ``FakeContext(clock=FrozenClock(...))``.

    Args:
        at: the initial time: an aware datetime, or ISO 8601 text with an offset.

    Raises:
        ValueError: the moment has no timezone.
    """

    def __init__(self, at: datetime | str) -> None:
        self._now = instant(at)

    def now(self) -> datetime:
        """Return the current time, in UTC."""
        return self._now

    def move_to(self, moment: datetime | str) -> datetime:
        """Move the clock to a moment, and return it.

        Raises:
            ValueError: the moment has no timezone, or has passed: the engine's clocks never go
                back.
        """
        wanted = instant(moment)
        if wanted < self._now:
            raise ValueError(f"{wanted.isoformat()} has passed: it is {self._now.isoformat()}")
        self._now = wanted
        return wanted

    def advance(self, by: timedelta | float) -> datetime:
        """Advance the clock (timedelta or seconds), and return the new time.

        Raises:
            ValueError: the time is negative.
        """
        return self.move_to(
            self._now + (by if isinstance(by, timedelta) else timedelta(seconds=by))
        )


def instant(given: datetime | str) -> datetime:
    """Return a moment of a test in UTC.

    Raises:
        ValueError: it has no timezone, or is not ISO 8601 text.
    """
    moment = datetime.fromisoformat(given) if isinstance(given, str) else given
    if moment.tzinfo is None:
        raise ValueError(f"{given} has no timezone; write it with one, such as 2026-11-21T05:00Z")
    return moment.astimezone(UTC)
