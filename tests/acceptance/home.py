"""A folder in which a user works with ``sched``."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
from pathlib import Path

from engine.embedded import free_port
from tests.acceptance.fleet import ROOT, SCHED
from tests.acceptance.forked import ended
from tests.waiting import eventually

_OF_THIS_PROCESS = {"SCHED_DATABASE_URL", "COLUMNS", "LINES"}
"""Under pytest-xdist the size of a terminal is said that nobody has."""


class Home:
    """A folder with the example application, or an empty one, and ports of its own."""

    def __init__(self, folder: Path, *, example: bool = True) -> None:
        self.folder = folder
        if example:
            for name in ("workflows", "activities"):
                shutil.copytree(ROOT / name, folder / name)
            shutil.copy(ROOT / "schedules.yaml", folder)
        self.schedules = folder / "schedules.yaml"
        self.port = {"temporal": free_port(), "ui": free_port(), "postgres": free_port()}
        self.ports = [f"--{name}-port={number}" for name, number in self.port.items()]
        self.ports.append("--api-port=0")
        self.environment = {
            name: value for name, value in os.environ.items() if name not in _OF_THIS_PROCESS
        }
        self.running: asyncio.subprocess.Process | None = None
        self._begun = 0

    async def up(self, *options: str) -> asyncio.subprocess.Process:
        """Start ``sched up``; its output goes to up.log."""
        self._begun = len(self.log) if (self.folder / "up.log").exists() else 0
        with (self.folder / "up.log").open("ab") as log:
            self.running = await asyncio.create_subprocess_exec(
                str(SCHED), "up", *self.ports, *options,
                cwd=self.folder, env=self.environment, stdout=log, stderr=log,
            )  # fmt: skip
        return self.running

    async def sched(self, *arguments: str) -> tuple[int, str]:
        """Run another command beside it; returns its exit code and everything it printed."""
        code, output, told = await ended(
            *arguments, program=SCHED, folder=self.folder, environment=self.environment
        )
        return code, output + told

    async def fires(self) -> list[dict[str, object]]:
        code, output = await self.sched("fires", "--json", "-n", "500")
        return json.loads(output) if code == 0 else []

    async def until_fired(self, key: str, count: int) -> list[dict[str, object]]:
        async def enough() -> list[dict[str, object]]:
            # To ask each time, by a command, would cost more than all that is tested.
            told = set(re.findall(rf" sched:{re.escape(key)}:\S+", self.log))
            if len(told) < count or f" sched:{key}:" not in self.log[self._begun :]:
                return []
            found = [fire for fire in await self.fires() if fire["key"] == key and fire["runId"]]
            return found if len(found) >= count else []

        return await eventually(enough, timeout=90, every=0.3)

    async def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        assert self.running
        self.running.send_signal(number)
        async with asyncio.timeout(60):
            return await self.running.wait()

    @property
    def log(self) -> str:
        return (self.folder / "up.log").read_text()
