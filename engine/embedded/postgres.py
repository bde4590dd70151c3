"""Embedded PostgreSQL server."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

import asyncpg

from engine.embedded.binaries import ENVIRONMENT, POSTGRES_MAJOR, Account, postgres_bin
from engine.embedded.process import HOST, Server, folder_lock, free_port, require_free
from engine.errors import EmbeddedError

# --- data folder ---
# The folder of one PostgreSQL cluster: its location, owner and creation.

SUPERUSER = "postgres"
ROLE = "sched"
"""Role that owns the database of ``sched up``; the engine works as this role."""
_OUTSIDE = (Path("/var/lib/sched-engine"), Path("/var/tmp/sched-engine"), Path("/tmp"))  # noqa: S108 - fresh names from mkdtemp only


def open_cluster(home: Path, *, durable: bool) -> tuple[Path, Account, str]:
    """Return the programs, the account and the password of a home's cluster.

    The first call creates it.

    ``<home>/data`` is the cluster, ``<home>/password`` its superuser's password. A crash leaves no
    incomplete cluster, because it is created under another name.

    Raises:
        EmbeddedError: the cluster cannot be used; the error has the hint.
        OSError: a folder cannot be written.
    """
    data = home / "data"
    account = Account.of_postgres(data)
    programs = postgres_bin(account, home)
    if not data.exists():
        _initialise(home, programs, account, durable=durable)
    major = (data / "PG_VERSION").read_text(encoding="ascii").strip()
    if major != POSTGRES_MAJOR:
        raise EmbeddedError(
            f"the database in {data} was made by PostgreSQL {major}, "
            f"this sched-engine brings {POSTGRES_MAJOR}",
            hint="use the sched-engine that made it, or choose another --data-dir",
        )
    try:
        password = (home / "password").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise EmbeddedError(
            f"the database in {home} has lost its file `password`",
            hint="restore the file, or move the folder away to begin with an empty database",
        ) from None
    return programs, account, password


def home_of(folder: Path) -> Path:
    """Return the location of a data folder's cluster, without creating anything.

    This is ``<folder>/postgres`` or, for root below a closed folder, the folder elsewhere that the
    file ``<folder>/postgres.path`` names.
    """
    try:
        return Path((folder / "postgres.path").read_text(encoding="utf-8").strip())
    except FileNotFoundError:
        return folder / "postgres"


def make_home(folder: Path) -> Path:
    """Return the home of a data folder's cluster; the first call creates it.

    Raises:
        EmbeddedError: the home cannot be used; the error has the hint.
        OSError: a folder cannot be written.
    """
    home = home_of(folder)
    if home != folder / "postgres":
        if not home.is_dir():
            # An empty ledger beside Temporal's full history must be the user's decision.
            raise EmbeddedError(
                f"the database folder {home} named in {folder / 'postgres.path'} has gone",
                hint="restore it, or delete that file to begin with an empty database",
            )
        return home
    home.mkdir(exist_ok=True)
    account = Account.of_postgres(home / "data")
    if not account.other:
        return home
    home.chmod(0o755)
    if account.reaches(home):
        return home
    if (home / "data").exists():
        raise EmbeddedError(
            f"the user {account.name}, who owns the database, cannot enter {home}",
            hint="open the folders above it with chmod o+x, or choose another --data-dir",
        )
    outside = _outside(folder, account)
    pointer = folder / "postgres.path"
    pointer.with_suffix(".new").write_text(f"{outside}\n", encoding="utf-8")
    pointer.with_suffix(".new").replace(pointer)
    home.rmdir()
    return outside


def _outside(folder: Path, account: Account) -> Path:
    """Create a folder that the account can reach; never reuse an existing one."""
    name = hashlib.sha256(bytes(folder)).hexdigest()[:12]
    for base in _OUTSIDE:
        with contextlib.suppress(OSError):
            if not base.exists():
                base.mkdir(mode=0o755)
                base.chmod(0o755)
            if base.stat().st_uid != os.geteuid():
                continue
            home = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
            home.chmod(0o755)
            if account.reaches(home):
                (home / "belongs-to").write_text(f"{folder}\n", encoding="utf-8")
                return home
            home.rmdir()
    raise EmbeddedError(
        f"the user {account.name}, who must run PostgreSQL, can reach no folder for it",
        hint="choose a --data-dir whose parent folders everybody may enter",
    )


def _initialise(home: Path, programs: Path, account: Account, *, durable: bool) -> None:
    password = home / "password"
    if not password.exists():
        _write_secret(password, account)
    unfinished = home / "data.new"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    account.own(unfinished)
    answer = account.run(
        [
            programs / "initdb",
            f"--pgdata={unfinished}",
            f"--username={SUPERUSER}",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--no-instructions",
            *([] if durable else ["--no-sync"]),
        ]
    )
    if answer.returncode != 0:
        raise EmbeddedError(
            f"PostgreSQL could not make its folder {unfinished} "
            f"({' | '.join(answer.stderr.strip().splitlines()[-3:])})",
            hint="choose another --data-dir, or set SCHED_DATABASE_URL",
        )
    unfinished.replace(home / "data")


def _write_secret(path: Path, account: Account) -> None:
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    fresh.touch(0o600, exist_ok=False)
    fresh.write_text(secrets.token_urlsafe(24) + "\n", encoding="ascii")
    account.own(fresh)  # initdb reads it as that user
    fresh.replace(path)


# --- server ---

DATABASE = "sched"
_DATABASE_EXISTS = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)"
_ROLE_EXISTS = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)"
# A fast shutdown ends sessions but keeps every commit; an immediate one only costs a recovery.
_SIGNALS = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # For a development machine: little memory, little disk, no replicas.
    "shared_buffers": "64MB",
    "jit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "min_wal_size": "32MB",
    "max_wal_size": "256MB",
}
_HASTY = {"fsync": "off", "full_page_writes": "off"}


class PostgresServer(Server):
    """PostgreSQL 18 on 127.0.0.1, one cluster per data folder.

    Args:
        data_dir: folder of the cluster (or a pointer to it), ``postgres.log`` and the pid file.
        port: 0 takes a free one.
        durable: False trades survival of a power loss for speed (tests).
        settings: server settings that override those for a development machine.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        *,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("PostgreSQL", "postgres", data_dir, port, _SIGNALS)
        self._durable, self._more = durable, settings or {}
        self._password = ""
        self._held = contextlib.ExitStack()

    @property
    def url(self) -> str:
        """URL of the database ``sched`` for its owner, including the password."""
        return f"postgresql://{ROLE}:{self._role_password}@{HOST}:{self.port}/{DATABASE}"

    def url_of(self, database: str) -> str:
        """Return the URL of a database of this server for its superuser."""
        return f"postgresql://{SUPERUSER}:{self._password}@{HOST}:{self.port}/{database}"

    @property
    def _role_password(self) -> str:
        """Password of the owner; the superuser's does not follow from it."""
        return hashlib.sha256(f"{ROLE} {self._password}".encode()).hexdigest()

    async def stop(self) -> None:
        """Stop the server with every commit kept; a no-op if it is not running."""
        try:
            await super().stop()
        finally:
            self._held.close()

    async def stop_orphan(self) -> bool:
        """See ``Server``. A copied data folder may point to a home that has a living owner."""
        home = home_of(self.data_dir)
        if not home.is_dir():
            return False
        with folder_lock(home):
            return await super().stop_orphan()

    def _left_behind(self) -> int | None:
        # The owner may have died before it wrote the pid file, or the pid file was lost.
        return super()._left_behind() or _postmaster(home_of(self.data_dir) / "data")

    async def _start(self) -> None:
        home = await asyncio.to_thread(make_home, self.data_dir)
        self._held.enter_context(folder_lock(home))
        await super().stop_orphan()
        require_free({"--postgres-port": self.port})
        self.port = self.port or free_port()
        programs, account, self._password = await asyncio.to_thread(
            open_cluster, home, durable=self._durable
        )
        hasty = {} if self._durable else _HASTY
        settings = {**_SETTINGS, "port": str(self.port), **hasty, **self._more}
        self.spawn(
            [
                programs / "postgres",
                "-D",
                home / "data",
                *(f"--{name}={value}" for name, value in settings.items()),
            ],
            env=ENVIRONMENT,
            **account.switch,
        )

    async def _answers(self) -> bool:
        """Return whether the server accepts sessions; the first one creates role and database."""
        try:
            connection = await asyncpg.connect(self.url_of("postgres"), ssl=False, timeout=10)
            try:
                if not await connection.fetchval(_ROLE_EXISTS, ROLE):
                    await connection.execute(
                        f"CREATE ROLE {ROLE} LOGIN PASSWORD '{self._role_password}'"
                    )
                if not await connection.fetchval(_DATABASE_EXISTS, DATABASE):
                    await connection.execute(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")
            finally:
                await connection.close()
        except (OSError, asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError):
            return False
        except asyncpg.PostgresError as error:
            raise EmbeddedError(
                f"the database in {self.data_dir} refuses the connection ({error})",
                hint="choose another --data-dir, or move this one away to begin afresh",
            ) from error
        return True


def _postmaster(data: Path) -> int | None:
    """Return the pid in PostgreSQL's own pid file, if it is that of a server of this cluster.

    If the pid now belongs to another process, delete the file: PostgreSQL would take that process
    for itself and never start again.
    """
    # From the extra `embedded`, which the testing kit does not need.
    import psutil  # noqa: PLC0415

    file = data / "postmaster.pid"
    try:
        pid = int(file.read_text(encoding="utf-8", errors="replace").partition("\n")[0])
    except (OSError, ValueError):
        return None
    with contextlib.suppress(psutil.Error):
        if str(data) in psutil.Process(pid).cmdline():
            return pid
    file.unlink(missing_ok=True)
    return None
