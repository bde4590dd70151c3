"""Servers of a test run: one PostgreSQL and one Temporal for all of its processes.

The process that pytest was started in owns them, and starts each when the first test asks for it.
Processes of pytest-xdist ask over a socket whose path they find in the environment.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg

from engine.embedded import PostgresServer, TemporalServer
from engine.ledger import Ledger
from engine.testing.server import FOR_TESTS, register_namespace, run_apart, shared_folder
from tests.postgres import NEWEST, OtherPostgres, Postgres, programs_of

FAST_AND_FORGETFUL = {**FOR_TESTS, "system.namespaceCacheRefreshInterval": "10s"}
"""A new namespace is found at once. Hundreds that are read each second take 1 % of a core."""

_NO_AGE = "matching.TaskQueueInfoByBuildIdTTL"
"""How old the figures of a task queue may be: a test that waits for its backlog asks often."""

WITHOUT_NATIVE_SCHEDULES = {
    **FAST_AND_FORGETFUL,
    _NO_AGE: "1ms",
    "worker.perNamespaceWorkerCount": 0,
}
"""Native schedules have workers in each namespace: 200 idle namespaces take 15 % of a core."""

_QUICK_PASSWORDS = {"scram_iterations": "1"}
"""A password is hashed by each session that begins."""

SOCKET: Final = "TEST_SERVERS"
"""Environment variable: where the servers of this run can be asked for."""

__all__ = ["FAST_AND_FORGETFUL", "register_namespace", "run_apart", "shared_folder"]


class _Spacious(TemporalServer):
    """A server with memory to spare, which looks for garbage late: 6 % less of its time."""

    def spawn(self, argv: Sequence[str | Path], *, env: Mapping[str, str], **switch: Any) -> None:
        super().spawn(argv, env={**env, "GOGC": "off", "GOMEMLIMIT": "2GiB"}, **switch)


@dataclass(frozen=True)
class Temporal:
    """The Temporal server of the run."""

    address: str

    @property
    def port(self) -> int:
        """The port of its frontend, for a link to it."""
        return int(self.address.rpartition(":")[2])


async def _of_quick_passwords(url: str) -> str:
    """Let an address have its password hashed again, as the server's settings now say."""
    parts = urlsplit(url)
    connection = await asyncpg.connect(url)
    if parts.password:
        await connection.execute(f"ALTER ROLE {parts.username} PASSWORD '{parts.password}'")
    await connection.close()
    return url


def asked_for(what: str) -> str:
    """Return the address of a server of this run, or the name of the database to copy.

    Args:
        what: a key of ``Servers``.
    """
    with Client(os.environ[SOCKET]) as connection:
        connection.send(what)
        answer = connection.recv()
    if isinstance(answer, BaseException):
        raise answer
    return str(answer)


class Servers:
    """The servers of a run, which start on demand and stop together."""

    def __init__(self) -> None:
        self._ends = ExitStack()
        self._folder = self._ends.enter_context(shared_folder())
        self._made: dict[str, str] = {}
        self._makers: dict[str, Callable[[], Coroutine[object, object, str]]] = {
            "postgres": self._postgres,
            "migrated": self._migrated,
            "temporal": lambda: self._temporal("temporal", WITHOUT_NATIVE_SCHEDULES),
            "native": lambda: self._temporal("native", FAST_AND_FORGETFUL),
        }
        self._listener = Listener(str(self._folder / "asked"))
        self._thread = Thread(target=self._serve, name="servers of the tests")
        self._thread.start()
        # Thousands of sessions begin in a run, and to offer TLS took half of their time here.
        os.environ["PGSSLMODE"] = "disable"
        os.environ[SOCKET] = str(self._folder / "asked")

    def close(self) -> None:
        """Stop what has been started."""
        asked_for("")
        self._thread.join()
        self._listener.close()
        del os.environ[SOCKET], os.environ["PGSSLMODE"]
        self._ends.close()

    def _serve(self) -> None:
        """Answer one request after the other, so that no server is started twice."""
        while True:
            with self._listener.accept() as connection:
                what = connection.recv()
                self._answer(connection, what)
            if not what:
                return

    def _answer(self, connection: Connection, what: str) -> None:
        try:
            if what and what not in self._made:
                self._made[what] = asyncio.run(self._makers[what]())
            answer: object = self._made.get(what)
        except Exception as error:  # noqa: BLE001 - the test that asked tells it
            answer = error
        with suppress(BrokenPipeError):  # the process that asked was killed
            connection.send(answer)

    async def _postgres(self) -> str:
        folder = self._folder / "pg"
        major = int(os.environ.get("SCHED_TEST_POSTGRES", NEWEST))
        server: PostgresServer | OtherPostgres
        server = PostgresServer(folder, durable=False, settings=_QUICK_PASSWORDS)
        if major != NEWEST:
            programs = programs_of(major)
            assert programs, f"PostgreSQL {major} is not installed"
            server = OtherPostgres(folder, programs)
        self._ends.callback(lambda: run_apart(server.stop()))
        await server.start()
        return await _of_quick_passwords(server.url_of("postgres"))

    async def _migrated(self) -> str:
        if "postgres" not in self._made:
            self._made["postgres"] = await self._postgres()
        name = f"migrated_{uuid.uuid4().hex}"
        url = await Postgres(self._made["postgres"]).create_database(name)
        await (await Ledger.connect(url)).close()
        return name

    async def _temporal(self, name: str, settings: dict[str, str | float | bool]) -> str:
        server = _Spacious(self._folder / name, dynamic_config=settings, in_memory=True)
        self._ends.callback(lambda: run_apart(server.stop()))
        await server.start()
        return server.address
