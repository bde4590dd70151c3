"""Servers, workers and the links between them, and the faults that they suffer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from engine.embedded import PostgresServer, TemporalServer
from tests.acceptance.fleet import ROOT, SCHED
from tests.links import Link, link_to
from tests.nemesis.account import Ending, Fault, Stillness
from tests.nemesis.notes import NOTES
from tests.nemesis.plan import WORKERS, Act
from tests.servers import FAST_AND_FORGETFUL

Server = PostgresServer | TemporalServer

LEASE = 6.0
SETTINGS = {
    "SCHED_IMPORTS": "tests.nemesis.application",
    "SCHED_APPLY": "never",
    "SCHED_LEASE": f"{LEASE:.0f}s",
    "SCHED_HEARTBEAT": "2s",
    "SCHED_TRACK": "1s",
    "SCHED_DRAIN": "8s",
}
_LEAVES_WITHIN = 25.0


def machine_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Worker:
    """One place in the fleet, and the process that holds it at present."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str]) -> None:
        self.name, self._folder, self._environment = name, folder, environment
        self.process: asyncio.subprocess.Process | None = None
        self.stillnesses: list[Stillness] = []
        self._ended = False
        self.endings: list[Ending] = []

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        if self.runs:
            return
        self._note_the_end()
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                str(SCHED), "--verbose", "worker", "--schedules", str(self._folder / "now.yaml"),
                cwd=self._folder, env=self._environment, stdout=log, stderr=log,
            )  # fmt: skip

    def _note_the_end(self) -> None:
        """Of a process that nobody has ended."""
        if self.process and self.process.returncode is not None and not self._ended:
            code = self.process.returncode
            self.endings.append(Ending(self.name, self.process.pid, code, asked=False))
        self._ended = False

    async def kill(self) -> None:
        if self.process and self.runs:
            still = Stillness(self.process.pid, machine_time())
            self._ended = True
            self.process.kill()
            await self.process.wait()
            self.stillnesses.append(still)

    async def leave(self) -> None:
        """Ask it to go; what does not go in time is killed."""
        process = self.process
        if process is None or not self.runs:
            return
        self._ended = True
        process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVES_WITHIN):
                await process.wait()
        self.endings.append(Ending(self.name, process.pid, process.returncode, asked=True))
        if process.returncode is None:
            await self.kill()
        else:
            self.stillnesses.append(Stillness(process.pid, machine_time()))

    async def stand_still(self, seconds: float) -> None:
        process = self.process
        if process is None or not self.runs:
            return
        process.send_signal(signal.SIGSTOP)
        began = machine_time()
        try:
            await asyncio.sleep(seconds)
        finally:
            self.stillnesses.append(Stillness(process.pid, began, machine_time()))
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)


class Fleet:
    """Two servers, three workers with links of their own, and an operator's link."""

    def __init__(self, servers: Path, runs: Path, folder: Path) -> None:
        self.folder = folder
        # Processes end here, and no machine: what was written is there without waiting for disks.
        self.postgres = PostgresServer(servers / "pg", durable=False)
        self.temporal = TemporalServer(runs / "temporal", dynamic_config=FAST_AND_FORGETFUL)
        self.elsewhere = TemporalServer(runs / "elsewhere", in_memory=True)
        self.strangers: list[int | None] = []
        self.links: dict[str, Link] = {}
        self.workers: dict[str, Worker] = {}
        self.faults: list[Fault] = []
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for server in (self.postgres, self.temporal, self.elsewhere):
                await server.start()
                stack.push_async_callback(server.stop)
            await self._open_links(stack)
            stack.push_async_callback(self._kill_all)
            for number in range(WORKERS):
                name = f"worker-{number}"
                self.workers[name] = Worker(name, self.folder, self._environment(name))
            yield

    async def _open_links(self, stack: AsyncExitStack) -> None:
        ends = {"postgres": self.postgres.port, "temporal": self.temporal.port}
        names = [f"worker-{n}-{end}" for n in range(WORKERS) for end in ends]
        for name in [*names, "operator-postgres"]:
            link = link_to(ends[name.rpartition("-")[2]])
            self.links[name] = await stack.enter_async_context(link)

    def database_url(self, who: str) -> str:
        """The address of the ledger by the link of a worker or of the operator."""
        return self.links[f"{who}-postgres"].way(self.postgres.url)

    def _environment(self, name: str) -> dict[str, str]:
        notes = self.folder / "notes"
        notes.mkdir(exist_ok=True)
        return {
            **os.environ,
            **SETTINGS,
            "TEMPORAL_ADDRESS": self.links[f"{name}-temporal"].way(self.temporal.address),
            "TEMPORAL_NAMESPACE": "default",
            "SCHED_DATABASE_URL": self.database_url(name),
            NOTES: str(notes),
            "PYTHONPATH": str(ROOT),
        }

    async def _kill_all(self) -> None:
        for worker in self.workers.values():
            await worker.kill()

    async def all_up(self) -> None:
        for worker in self.workers.values():
            await worker.start()

    async def suffer(self, act: Act) -> None:
        """Let one fault happen, from its begin to its end."""
        fault = Fault(act.kind, act.target, datetime.now(UTC))
        self.faults.append(fault)
        if act.target in self.links:
            with self.links[act.target].harmed(act.kind, act.given.get("delay", 0.0)):  # type: ignore[arg-type] # the plan draws from the same words
                await asyncio.sleep(act.seconds)
        else:
            # One thing after another for each: a server that is down cannot be shut down.
            async with self._locks.setdefault(act.target, asyncio.Lock()):
                await self._of_a_process(act)
        fault.ended = datetime.now(UTC)

    async def _of_a_process(self, act: Act) -> None:
        if act.target == "postgres":
            await _restart(self.postgres, act, now=signal.SIGQUIT)
        elif act.target == "temporal":
            await _restart(self.temporal, act, now=signal.SIGKILL)
        elif act.target == "stranger":
            await self._let_in(act)
        else:
            await self._of_a_worker(act, self.workers[act.target])

    def past_the_links(self, **instead: str) -> dict[str, str]:
        """Return the environment of a worker that reaches both servers as they are."""
        return {
            **self._environment("worker-0"),
            "SCHED_DATABASE_URL": self.postgres.url,
            "TEMPORAL_ADDRESS": self.temporal.address,
            **instead,
        }

    @asynccontextmanager
    async def postgres_stays(self) -> AsyncIterator[None]:
        """Let PostgreSQL be up while the block lasts."""
        async with self._locks.setdefault("postgres", asyncio.Lock()):
            yield

    async def _let_in(self, act: Act) -> None:
        """Start a worker with the address of another cluster; it waits while the ledger is away."""
        environment = self.past_the_links(TEMPORAL_ADDRESS=self.elsewhere.address)
        stranger = Worker("stranger", self.folder, environment)
        await stranger.start()
        process = stranger.process
        assert process is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(act.seconds):
                await process.wait()
        self.strangers.append(process.returncode)
        await stranger.kill()

    async def _of_a_worker(self, act: Act, worker: Worker) -> None:
        if act.kind == "stop":
            await worker.stand_still(act.seconds)
            return
        end: dict[str, Callable[[], Awaitable[None]]] = {"kill": worker.kill, "leave": worker.leave}
        await end[act.kind]()
        await asyncio.sleep(act.seconds)
        await worker.start()


async def _restart(server: Server, act: Act, *, now: signal.Signals) -> None:
    """Take a server down and up again; ``now`` is the signal that lets it finish nothing."""
    if act.kind == "restart_now":
        os.kill(server.pid, now)
    await server.stop()  # also lets go of its folder
    await asyncio.sleep(act.seconds)
    await server.start()
