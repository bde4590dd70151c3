"""Which process a pid means, so that a recycled pid is never signalled."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# Fields of /proc/<pid>/stat behind the command's closing bracket.
_STATE, _PARENT, _THREADS, _START_TIME = 0, 1, 17, 19


@dataclass(frozen=True, slots=True)
class Identity:
    """A process: its pid and an opaque text that no later process with this pid has."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """Return the identity of a running process, None when there is none."""
        started = _started(pid)
        return None if started is None else cls(pid, started)

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return _started(self.pid) == self.started

    def send(self, signum: signal.Signals) -> bool:
        """Signal this very process; False when it has ended.

        Raises:
            PermissionError: it belongs to another user.
        """
        handle = _handle(self.pid)
        try:
            # Looked at behind the open handle: the pid cannot change hands any more.
            if not self.alive:
                return False
            if handle is None:
                os.kill(self.pid, signum)
            else:
                signal.pidfd_send_signal(handle, signum)
        except ProcessLookupError:
            return False
        finally:
            if handle is not None:
                os.close(handle)
        return True


def _handle(pid: int) -> int | None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # it has ended, or an old kernel, or a sandbox
            return os.pidfd_open(pid)
    return None


def command_line(pid: int) -> str:
    """Return the command line of a process, as far as this user may see it."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except FileNotFoundError:
        return "" if _has_proc() else _ps(pid, "command")
    except OSError:
        return ""


def parent(pid: int) -> int | None:
    """Return the pid of the process that started this one, as far as that can be known."""
    fields = _stat(pid)
    return int(fields[_PARENT]) if fields else None


def folder_of(pid: int) -> Path | None:
    """Return the folder a process works in, as far as this user may see it."""
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return None


def _started(pid: int) -> str | None:
    if not _has_proc():  # macOS: one second is the best there is
        return _ps(pid, "lstart") or None
    fields = _stat(pid)
    if fields is None:
        return None
    # A zombie that nobody reaps (PID 1 of many containers does not) has ended for us, unless
    # other threads outlive its first one: they still hold the ports.
    if fields[_STATE] in "ZX" and int(fields[_THREADS]) <= 1:
        return None
    return f"{_boot()}:{fields[_START_TIME]}"


def _stat(pid: int) -> list[str] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()  # the command may hold spaces and brackets


@functools.cache
def _has_proc() -> bool:
    return Path("/proc/self/stat").exists()


@functools.cache
def _boot() -> str:
    # Start times count from boot, so two boots may repeat a (pid, start time).
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _ps(pid: int, column: str) -> str:
    answer = subprocess.run(
        ["/bin/ps", "-o", f"{column}=", "-p", str(pid)],
        check=False,
        capture_output=True,
        text=True,
        env={"LC_ALL": "C", "TZ": "UTC"},
    )
    return answer.stdout.strip()
