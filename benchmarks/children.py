"""The processes of a benchmark: real ``sched worker`` replicas, and bare Temporal workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.arena import Arena

ROOT = Path(__file__).resolve().parents[1]
SCHED = Path(sys.executable).with_name("sched")
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_PATIENCE = 60.0


def cpu_seconds(pid: int) -> float:
    """Return the CPU time, user and system, that a process has used since its start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


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


@contextlib.asynccontextmanager
async def replicas(
    arena: Arena, count: int, schedules: Path, **environment: str
) -> AsyncIterator[list[Process]]:
    """Run ``sched worker`` processes with their default settings; they come up by themselves."""
    values = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SCHED_")},
        "TEMPORAL_ADDRESS": arena.address,
        "TEMPORAL_NAMESPACE": "default",
        "SCHED_DATABASE_URL": arena.database_url,
        "SCHED_IMPORTS": "benchmarks.workflows",
        "PYTHONPATH": str(ROOT),
        **environment,
    }
    command = [str(SCHED), "worker", "--schedules", str(schedules)]
    async with _ended_at_last() as processes:
        for number in range(count):
            with (arena.folder / f"replica-{number}.log").open("wb") as log:
                processes.append(
                    await asyncio.create_subprocess_exec(
                        *command, cwd=arena.folder, env=values,
                        stdin=DEVNULL, stdout=log, stderr=STDOUT,
                    )
                )  # fmt: skip
        yield processes


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
