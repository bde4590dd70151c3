"""The two servers of `sched up`: they keep their data, and nobody's death leaves them behind."""

# ruff: noqa: ASYNC220, ASYNC240 - nothing else runs in this loop

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest
from temporalio.client import Client

from engine.embedded import (
    EmbeddedServers,
    PostgresServer,
    TemporalServer,
    binaries,
    free_port,
    servers,
)
from engine.embedded.binaries import Account, _package
from engine.errors import EmbeddedError
from tests.servers import run_apart, shared_folder
from tests.waiting import eventually

OWNER = Path(__file__).with_name("embedded_owner.py")
ROOT = os.geteuid() == 0
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
only_root = pytest.mark.skipif(not ROOT, reason="only root meets this")


@pytest.fixture
def folder() -> Iterator[Path]:
    with shared_folder() as shared:
        yield shared / "data"


def start(data_dir: Path) -> contextlib.AbstractAsyncContextManager[EmbeddedServers]:
    return servers(data_dir, temporal_port=0, ui_port=0, postgres_port=0, durable=False)


async def execute(server: PostgresServer, query: str) -> object:
    connection = await asyncpg.connect(server.url, ssl=False)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


class Owner:
    """A process that owns the servers of a folder, like `sched up`."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.process = process
        assert process.stdout is not None
        self.facts = json.loads(process.stdout.readline())

    def runs(self, server: str) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return bool(psutil.Process(self.facts[server]).status() != psutil.STATUS_ZOMBIE)
        return False

    @property
    def pids(self) -> tuple[int, int]:
        return self.facts["temporal"], self.facts["postgres"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def owner(
    folder: Path,
    *,
    ports: tuple[int, int, int] = (0, 0, 0),
    user: pwd.struct_passwd | None = None,
    env: dict[str, str] | None = None,
) -> Iterator[Owner]:
    wish: dict[str, object] = {"folder": str(folder), "ports": ports}
    if user is not None:
        wish |= {"uid": user.pw_uid, "gid": user.pw_gid}
    with subprocess.Popen(
        [sys.executable, OWNER, json.dumps(wish)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"SECRET_OF_THE_USER": "hush"} | (env or {}),
    ) as process:
        yield Owner(folder, process)
        assert process.stdin is not None
        process.stdin.close()  # the owner stops its servers
        process.wait()


@pytest.fixture(scope="module")
def stopped() -> Iterator[Path]:
    """A data folder with a cluster whose server is not running; a test leaves it so."""
    with shared_folder() as shared:
        server = PostgresServer(shared / "data", durable=False)
        run_apart(server.start())
        run_apart(server.stop())
        yield shared / "data"


@pytest.fixture(scope="module")
def running() -> Iterator[Owner]:
    """Servers that somebody else owns, for tests that only look."""
    with shared_folder() as shared, owner(shared / "data") as running:
        yield running


def test_servers_run_in_sessions_of_their_own(running: Owner) -> None:
    # Ctrl-C goes to the terminal's session; these are not in it.
    for pid in running.pids:
        assert os.getsid(pid) == pid


@only_linux
def test_servers_get_neither_our_environment_nor_a_password_in_argv(running: Owner) -> None:
    file = running.folder / "postgres" / "password"
    assert file.stat().st_mode & 0o777 == 0o600
    for pid in running.pids:
        assert b"SECRET_OF_THE_USER" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert file.read_bytes().strip() not in Path(f"/proc/{pid}/cmdline").read_bytes()


@only_root
def test_root_runs_postgres_as_nobody(running: Owner) -> None:
    assert running.facts["postgres_user"] == pwd.getpwnam("nobody").pw_uid


async def test_a_copied_data_folder_does_not_stop_the_servers_of_the_original(
    running: Owner, folder: Path
) -> None:
    folder.mkdir()
    for name in ("temporal.pid.json", "postgres.pid.json"):
        shutil.copy(running.folder / name, folder)
    assert not await TemporalServer(folder).stop_orphan()
    assert not await PostgresServer(folder).stop_orphan()
    assert running.runs("temporal")


async def test_a_second_owner_is_told_who_the_first_one_is(running: Owner) -> None:
    with pytest.raises(EmbeddedError) as refusal:
        async with start(running.folder):
            pass
    assert str(refusal.value) == (
        f"another `sched up` (process {running.process.pid}) uses the data folder "
        f"{running.folder}; stop it or give this one another --data-dir"
    )
    assert running.runs("postgres")


async def test_servers_of_a_killed_owner_make_room_for_the_next_which_finds_their_data(
    folder: Path,
) -> None:
    ports = (free_port(), free_port(), free_port())
    with owner(folder, ports=ports) as killed:
        address = f"127.0.0.1:{ports[0]}"
        client = await Client.connect(address)
        await client.start_workflow("Anything", id="kept", task_queue="nobody")
        killed.kill()
        assert killed.runs("temporal")
        assert killed.runs("postgres"), "kill -9 leaves them behind"
        async with servers(
            folder, temporal_port=ports[0], ui_port=ports[1], postgres_port=ports[2], durable=False
        ) as next_ones:
            assert not killed.runs("temporal")
            assert not killed.runs("postgres")
            assert next_ones.postgres is not None
            assert await execute(next_ones.postgres, "SELECT answer FROM kept") == 42
            client = await Client.connect(address)
            assert (await client.get_workflow_handle("kept").describe()).id == "kept"
            pids = (next_ones.temporal.pid, next_ones.postgres.pid)
        assert not any(map(psutil.pid_exists, pids)), "they end with the block"
        assert not list(folder.glob("*.pid.json")), "and are forgotten"


async def test_an_orphan_is_found_without_our_pid_file_too(stopped: Path) -> None:
    orphan = PostgresServer(stopped, durable=False)
    await orphan.start()
    # As if its owner had died between the start and the pid file.
    orphan._held.close()
    (stopped / "postgres.pid.json").unlink()
    successor = PostgresServer(stopped, durable=False)
    await successor.start()
    assert await orphan.wait() == 0, "stopped gently"
    await successor.stop()


async def test_a_recycled_pid_is_never_signalled(folder: Path) -> None:
    folder.mkdir()
    with subprocess.Popen(["sleep", "600"]) as stranger:
        entry = {"pid": stranger.pid, "port": 1}
        for server in (PostgresServer(folder), TemporalServer(folder)):
            server._pid_file.write_text(json.dumps(entry))
            assert not await server.stop_orphan()
            with server._pid_file.open() as held:  # as by a process that has outlived its server
                fcntl.flock(held, fcntl.LOCK_EX)
                assert not await server.stop_orphan()
        assert stranger.poll() is None
        stranger.kill()


async def test_postgres_starts_although_its_own_pid_file_names_a_stranger(stopped: Path) -> None:
    server = PostgresServer(stopped, durable=False)
    await server.start()
    user = Path(f"/proc/{server.pid}").stat().st_uid
    await server.stop()
    stranger = subprocess.Popen(["sleep", "600"], user=user if ROOT else None)
    try:
        # As after a power loss, when a later process of the same user has got the pid.
        file = stopped / "postgres" / "data" / "postmaster.pid"
        file.write_text(f"{stranger.pid}\n{file.parent}\n")
        await server.start()
        await server.stop()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_a_crash_in_the_middle_of_initdb_leaves_nothing_in_the_way(folder: Path) -> None:
    unfinished = folder / "postgres" / "data.new"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    server = PostgresServer(folder, durable=False)
    await server.start()
    await server.stop()
    assert not unfinished.exists()


async def test_the_death_of_a_server_is_noticed(stopped: Path) -> None:
    server = PostgresServer(stopped, durable=False)
    await server.start()
    os.kill(server.pid, signal.SIGKILL)
    async with asyncio.timeout(20):
        assert await server.wait() == -signal.SIGKILL
    await server.stop()
    await server.start()  # and what it left does not hinder the next
    await server.stop()


async def test_a_start_that_is_cancelled_leaves_no_server(stopped: Path) -> None:
    server = PostgresServer(stopped, durable=False)
    starting = asyncio.create_task(server.start())
    await eventually((stopped / "postgres.pid.json").exists, every=0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not psutil.pid_exists(server.pid)


async def test_without_postgres_only_temporal_runs(folder: Path) -> None:
    async with servers(
        folder, temporal_port=0, ui_port=None, postgres_port=0, with_postgres=False
    ) as running:
        assert running.postgres is None
        assert running.temporal.ui_url is None
        assert not (folder / "postgres").exists()


async def test_the_role_of_sched_up_owns_its_database_and_is_no_superuser(running: Owner) -> None:
    facts = "SELECT rolsuper, rolcreaterole, rolcreatedb FROM pg_roles WHERE rolname = current_user"
    owner = "SELECT datdba = current_user::regrole FROM pg_database WHERE datname = 'sched'"
    url = running.facts["url"]
    connection = await asyncpg.connect(url)
    assert list(map(tuple, await connection.fetch(facts))) == [(False, False, False)]
    assert await connection.fetchval(owner)
    await connection.close()
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(url.replace("//sched:", "//postgres:"))


@only_root
async def test_root_below_a_closed_folder_gets_a_reachable_copy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = folder.parent / "root"  # as a container's /root: code and data below 0700
    package, site = _package(), closed / "site-packages"
    for part in (package / "pginstall18", package.with_name(f"{package.name}.libs")):
        shutil.copytree(part, site / part.relative_to(package.parent), symlinks=True)
    closed.chmod(0o700)
    data_dir = closed / "data"
    monkeypatch.setattr(binaries, "_package", lambda: site / package.name)
    pointer = data_dir / "postgres.path"
    server = PostgresServer(data_dir, durable=False)
    try:
        await server.start()
        await execute(server, "CREATE TABLE kept AS SELECT 42 AS answer")
        await server.stop()
        outside = Path(pointer.read_text().strip())
        assert list(outside.glob("pginstall18-*")), "the programs were out of reach, too"
        assert (outside / "belongs-to").read_text().strip() == str(data_dir)
        await server.start()
        assert await execute(server, "SELECT answer FROM kept") == 42
        await server.stop()
    finally:
        if pointer.exists():
            shutil.rmtree(pointer.read_text().strip())


def test_an_ordinary_user_can_own_the_servers(folder: Path) -> None:
    user = pwd.getpwnam("nobody") if ROOT else pwd.getpwuid(os.geteuid())
    if not Account(user.pw_name, user.pw_uid, user.pw_gid, other=ROOT).reaches(_package()):
        pytest.skip(f"{user.pw_name} cannot reach the installed packages here")
    folder.mkdir()
    if ROOT:
        shutil.chown(folder, user.pw_uid, user.pw_gid)
    with owner(folder, user=user if ROOT else None, env={"HOME": str(folder)}) as holder:
        assert holder.facts.get("postgres_user") == user.pw_uid, holder.facts
        assert not (folder / "postgres.path").exists()
