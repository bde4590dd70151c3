"""A ``sched`` command that starts sooner: forked from a process that has loaded its modules.

It is a process with an environment, a folder and a log of its own, and dies as any other. To load
the modules takes two thirds of the processor time that such a test needs. What Python and loaded
modules have read from the environment is that of the first process, and texts are hashed alike in
all of them; a test that these matter to starts a worker by its command.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module, reload
from pathlib import Path
from tempfile import NamedTemporaryFile

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["engine.cli.up.up"])


class Forked:
    """A process that runs ``sched``; it has what the tests use of asyncio's processes."""

    def __init__(self, arguments: Sequence[str], **options: object) -> None:
        self._process = _PROCESSES.Process(
            target=_run, args=(arguments,), kwargs=options, daemon=True
        )
        self._process.start()
        assert self._process.pid
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, the negative signal that ended it, or None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it ends in this moment
                os.kill(self.pid, number)

    async def wait(self) -> int:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._process.sentinel)
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode


async def ended(
    *arguments: str, program: Path, folder: Path, environment: Mapping[str, str]
) -> tuple[int, str, str]:
    """Run a command to its end; return its exit code, its output and its errors."""
    with NamedTemporaryFile() as out, NamedTemporaryFile() as errors:
        process = Forked(
            arguments, program=program, folder=folder, log=Path(out.name),
            errors=Path(errors.name), environment=environment,
        )  # fmt: skip
        code = await process.wait()
        return code, out.read().decode(), errors.read().decode()


def _run(
    arguments: Sequence[str], *, program: Path, folder: Path, log: Path,
    environment: Mapping[str, str], errors: Path | None = None,
) -> None:  # fmt: skip
    """Become the program; its files exist."""
    os.dup2(os.open(log, os.O_WRONLY), 1)
    os.dup2(os.open(errors, os.O_WRONLY) if errors else 1, 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    others = (each for each in sys.path if each not in {"", *paths})
    sys.path[:] = [str(program.parent), *paths, *others]
    sys.argv = [str(program), *arguments]
    # It reads the environment when it is loaded.
    reload(import_module("engine.faults"))
    import_module("engine.cli.app").main()
