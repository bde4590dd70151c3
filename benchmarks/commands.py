"""Commands: how long a person waits for one, from the start of the process to its end.

**What is measured.** Each command as a process of its own, by the clock of the caller: two that
need no server (``--help``; ``check`` of a file, without the code of its workflows), and those that
look at a ledger of 100 schedules. Bytecode is written before, as an installation does; an editable
installation costs about 20 ms more than a wheel.

**Fairness.** One command after the other, in rounds. Medians. Targets: 0.35 s without a server,
0.5 s with one.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections import defaultdict
from pathlib import Path

from benchmarks.arena import postgres
from benchmarks.report import Measured, Row
from benchmarks.spread import kept, median

ROUNDS, ROUNDS_QUICK = 15, 5
_SCHEDULES = 100
_KEY = "k-1"
_SCHED = Path(sys.executable).with_name("sched")
COMMANDS = {
    "sched --help": 0.35,
    "sched check --no-import": 0.35,
    "sched list": 0.5,
    f"sched show {_KEY}": 0.5,
    "sched fires": 0.5,
    "sched status": 1.0,  # it asks Temporal too, whose SDK it loads
    f"sched pause {_KEY} --reason deploy": 0.5,
}
"""What is measured, each with its target in seconds."""


async def run(*, quick: bool = False) -> Measured:
    """Measure; takes about two minutes, or half a minute when quick."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    async with postgres() as server:
        with tempfile.TemporaryDirectory(prefix="sched-commands-") as folder:
            place = Path(folder)
            keys = (f"k-{number}" for number in range(_SCHEDULES))
            lines = [f"  - {{key: {key}, workflow: noop, everyMs: 60000}}" for key in keys]
            (place / "schedules.yaml").write_text("\n".join(["schedules:", *lines]))
            environment = _environment(place, server.url)
            for command in ("sched apply", *COMMANDS):  # writes the bytecode
                await _timed(command, place, environment)
            for _ in range(ROUNDS_QUICK if quick else ROUNDS):
                for command in COMMANDS:
                    found[command].append(await _timed(command, place, environment))
    return Measured("commands", [_row(each, found[each]) for each in COMMANDS], kept({"s": found}))


def _row(command: str, seconds: list[float]) -> Row:
    return {
        "command": f"`{command}`",
        "median s": round(median(seconds), 3),
        "least s": round(min(seconds), 3),
        "target s": COMMANDS[command],
    }


def _environment(place: Path, url: str) -> dict[str, str]:
    ours = ("SCHED_", "TEMPORAL_", "PYTHONDONTWRITEBYTECODE")
    kept_ones = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {
        **kept_ones,
        "SCHED_DATABASE_URL": url,
        "PYTHONPYCACHEPREFIX": str(place / "bytecode"),
    }


async def _timed(command: str, place: Path, environment: dict[str, str]) -> float:
    begin = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        _SCHED, *command.split()[1:], cwd=place, env=environment, stdout=PIPE, stderr=PIPE
    )
    _, errors = await process.communicate()
    taken = time.monotonic() - begin
    if process.returncode not in {0, 1}:  # `status` ends with 1, as no worker lives
        raise RuntimeError(f"{command} ended with {process.returncode}: {errors.decode()}")
    return taken
