"""The processes of a benchmark: real ``sched worker`` replicas, and bare Temporal workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from benchmarks.arena import Arena

ROOT = Path(__file__).resolve().parents[1]
SCHED = Path(sys.executable).with_name("sched")
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_PATIENCE = 60.0


def cpu_seconds(pid: int) -> float:
    """Return the CPU time, user and system, that a process has used since its start."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS


def server_cpu_seconds(backend: int) -> float:
    """Return the CPU time of a whole PostgreSQL server, named by one of its sessions.

    Of sessions that have ended too: the postmaster inherits their time.
    """
    server = int(_stat(backend)[1])
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    ended = sum(map(int, _stat(server)[13:15])) / _TICKS
    return cpu_seconds(server) + ended + sum(cpu_seconds(int(pid)) for pid in children)


def _stat(pid: int) -> list[str]:
    """The fields of a process from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def resident_mebibytes(pid: int) -> float:
    """Return the memory of a process that is in RAM now, shared pages included."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * _PAGE / 2**20


class BareWorker:
    """A Temporal worker that starts runs when told to; see ``benchmarks.bare_worker``."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def start_runs(
        self, prefix: str, count: int, concurrency: int, pause_ms: int = 0
    ) -> float:
        """Start runs; returns the wall-clock time of the first call.

        What the server refuses as too many is called again after ``pause_ms``; with 0 the SDK's
        own retries do that.
        """
        assert self.process.stdin
        self.process.stdin.write(f"{prefix} {count} {concurrency} {pause_ms}\n".encode())
        return float(await self.said())

    async def said(self) -> str:
        """Return the next line that the process says; the SDK's own log is between them."""
        assert self.process.stdout
        line = b""
        while not line.startswith(b"> "):
            async with asyncio.timeout(_PATIENCE):
                line = await self.process.stdout.readline()
            if not line:
                raise RuntimeError("a bare worker ended early; its errors stand above")
        return line[2:].decode().strip()


@contextlib.asynccontextmanager
async def bare_workers(
    arena: Arena, count: int, task_queue: str = "bare"
) -> AsyncIterator[list[BareWorker]]:
    """Run bare workers; they take work when the block begins."""
    command = [sys.executable, "-m", "benchmarks.bare_worker", arena.address, task_queue]
    async with _ended_at_last() as processes:
        workers = []
        for _ in range(count):
            process = await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, stdin=PIPE, stdout=PIPE
            )
            processes.append(process)
            workers.append(BareWorker(process))
        for worker in workers:
            await worker.said()
        yield workers


def replicas(
    arena: Arena, count: int, schedules: Path, **environment: str
) -> AbstractAsyncContextManager[list[Process]]:
    """Run ``sched worker`` processes with their default settings; they come up by themselves."""
    command = [str(SCHED), "worker", "--schedules", str(schedules)]
    return _in_the_arena(arena, [command] * count, environment)


def costless_replicas(
    arena: Arena, count: int, schedules: Path, *, but: str = "-", **environment: str
) -> AbstractAsyncContextManager[list[Process]]:
    """Run replicas whose starts answer at once, ``but`` those of this key; see ``costless``."""
    command = [sys.executable, "-m", "benchmarks.costless", str(schedules), but]
    return _in_the_arena(arena, [command] * count, environment)


def bare_ledgers(arena: Arena, count: int) -> AbstractAsyncContextManager[list[Process]]:
    """Run processes that share the schedules and write what a ledger must; see ``bare_ledger``."""
    command = [sys.executable, "-m", "benchmarks.bare_ledger"]
    return _in_the_arena(arena, [[*command, str(n), str(count)] for n in range(count)], {})


async def sched(arena: Arena, *arguments: str) -> Process:
    """Begin a ``sched`` command on the arena's ledger; what it says goes to a file."""
    with (arena.folder / f"sched-{arguments[0]}.log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            str(SCHED), *arguments, cwd=arena.folder, env=_environment(arena),
            stdin=DEVNULL, stdout=log, stderr=STDOUT,
        )  # fmt: skip


async def must_sched(arena: Arena, *arguments: str) -> None:
    """Run a ``sched`` command to its end."""
    process = await sched(arena, *arguments)
    if await process.wait():
        said = (arena.folder / f"sched-{arguments[0]}.log").read_text()
        raise RuntimeError(f"sched {' '.join(arguments)} failed: {said}")


@contextlib.asynccontextmanager
async def _in_the_arena(
    arena: Arena, commands: Sequence[Sequence[str]], environment: Mapping[str, str]
) -> AsyncIterator[list[Process]]:
    values = {**_environment(arena), **environment}
    async with _ended_at_last() as processes:
        for number, command in enumerate(commands):
            with (arena.folder / f"replica-{number}.log").open("ab") as log:
                processes.append(
                    await asyncio.create_subprocess_exec(
                        *command, cwd=arena.folder, env=values,
                        stdin=DEVNULL, stdout=log, stderr=STDOUT,
                    )
                )  # fmt: skip
        yield processes


def _environment(arena: Arena) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("SCHED_")},
        "TEMPORAL_ADDRESS": arena.address,
        "TEMPORAL_NAMESPACE": "default",
        "SCHED_DATABASE_URL": arena.database_url,
        "SCHED_IMPORTS": "benchmarks.workflows",
        "PYTHONPATH": str(ROOT),
    }


@contextlib.asynccontextmanager
async def _ended_at_last() -> AsyncIterator[list[Process]]:
    """Ask every process to end, and kill the one that does not."""
    processes: list[Process] = []
    try:
        yield processes
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                async with asyncio.timeout(_PATIENCE):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
