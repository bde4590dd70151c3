"""A process on which ``sched`` finds another platform: run it with the platform's name.

It takes away what that platform lacks, after third parties have been imported, and before the
engine is. Each line of standard input is a command; each command's output and exit code follow.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import sysconfig
import time
from asyncio import unix_events
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from typing import Any

import opentelemetry.sdk.metrics
import prometheus_client
import temporalio.client
import temporalio.testing
import temporalio.worker
import typer.rich_utils

THIRD_PARTIES = (opentelemetry, prometheus_client, temporalio, typer)
UNIX_MODULES = {"fcntl", "grp", "pwd", "resource", "termios"}
UNIX_NAMES = (
    *("fork", "getegid", "geteuid", "getgid", "getuid", "killpg", "pidfd_open", "setsid"),
    *("O_CLOEXEC", "O_NONBLOCK", "chown", "pread", "pwrite", "set_blocking", "uname"),
)
WINDOWS_SIGNALS = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM"}


class Missing(MetaPathFinder):
    """Refuse the modules that only Unix has."""

    def find_spec(self, name: str, *_: object) -> None:
        if name in UNIX_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def without_proc(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what only Linux has under /proc."""
    if event in {"open", "os.listdir", "os.scandir"} and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(2, "there is no /proc", arguments[0])


def no_handlers(*_: object) -> None:
    raise NotImplementedError


def become(platform: str) -> None:
    """Take away what the platform lacks."""
    sysconfig.get_config_vars()  # it would look for the other platform's file
    sys.addaudithook(without_proc)
    del time.CLOCK_BOOTTIME
    if platform == "win32":
        sys.meta_path.insert(0, Missing())
        for name in UNIX_MODULES:
            sys.modules.pop(name, None)
        for name in UNIX_NAMES:
            delattr(os, name)
        for name in {each.name for each in signal.Signals} - WINDOWS_SIGNALS:
            delattr(signal, name)
        del time.clock_gettime
        loop = unix_events._UnixSelectorEventLoop
        loop.add_signal_handler = loop.remove_signal_handler = no_handlers  # type: ignore[assignment]
    sys.platform = platform


def main(commands: Sequence[str]) -> None:
    import engine
    from engine.cli.app import run

    for name in engine.__all__:
        getattr(engine, name)
    for line in commands:
        sys.stdout.write(f"exit code {run(shlex.split(line))}\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    become(sys.argv[1])
    main(sys.stdin.read().splitlines())
