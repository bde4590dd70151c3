"""PostgreSQL for tests: its databases, and servers of other versions than ``sched up`` brings."""

from __future__ import annotations

import shutil
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from engine.embedded.binaries import ENVIRONMENT, Account
from engine.embedded.process import HOST, free_port
from tests.waiting import eventually

NEWEST = 18
_SETTINGS = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "timezone=UTC",
             "max_connections=200", "unix_socket_directories=")  # fmt: skip


def programs_of(major: int) -> Path | None:
    """Return the folder of a version's programs: Debian's, or a package's; None where it is not."""
    debian = Path(f"/usr/lib/postgresql/{major}/bin")
    if (debian / "postgres").exists():
        return debian
    found = find_spec("pgserver") if major == 16 else None
    return Path(found.origin).parent / "pginstall/bin" if found and found.origin else None


class OtherPostgres:
    """A server of another version.

    Args:
        folder: gets the cluster.
        programs: see ``programs_of``.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self.port = free_port()
        self._folder, self._programs = folder, programs
        self._server: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Make the cluster, and wait until the server answers."""
        self._folder.mkdir()
        account = Account.of_postgres(self._folder / "data")
        data = self._folder / "data"
        data.mkdir(mode=0o700)
        account.own(data)
        made = account.run([
            self._programs / "initdb", f"--pgdata={data}", "--username=postgres", "--auth=trust",
            "--encoding=UTF8", "--locale=C", "--no-sync",
        ])  # fmt: skip
        assert made.returncode == 0, made.stderr
        self._server = self._spawned(account, data)
        await eventually(self._answers, timeout=60, every=0.05)

    def _spawned(self, account: Account, data: Path) -> subprocess.Popen[bytes]:
        program = [str(self._programs / "postgres"), "-D", str(data), "-p", str(self.port)]
        settings = ["-h", HOST, *(word for setting in _SETTINGS for word in ("-c", setting))]
        with (self._folder / "log").open("wb") as log:
            return subprocess.Popen(
                [*program, *settings], stdout=log, stderr=log, env=ENVIRONMENT,
                **account.switch,
            )  # fmt: skip

    async def _answers(self) -> bool:
        assert self._server
        assert self._server.poll() is None, (self._folder / "log").read_text()
        try:
            connection = await asyncpg.connect(self.url_of("postgres"))
        except (OSError, asyncpg.PostgresError):
            return False
        await connection.close()
        return True

    async def stop(self) -> None:
        """Stop it at once, whatever its sessions do."""
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def url_of(self, database: str) -> str:
        """Return the address of a database."""
        return f"postgresql://postgres@{HOST}:{self.port}/{database}"


class Postgres:
    """The databases of a running server, which another process may have started.

    Args:
        url: address of any database that nobody drops, as a superuser.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def port(self) -> int:
        """The server's port."""
        port = urlsplit(self.url).port
        assert port
        return port

    def url_of(self, database: str) -> str:
        """Return the address of another database."""
        return urlsplit(self.url)._replace(path=f"/{database}").geturl()

    async def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database, empty or the copy of another one, and return its address."""
        await self._execute(
            f'CREATE DATABASE "{name}" TEMPLATE "{template or "template0"}" STRATEGY FILE_COPY'
        )
        return self.url_of(name)

    async def drop_database(self, name: str) -> None:
        """Drop a database and end the sessions in it."""
        await self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    async def _execute(self, sql: str) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()
