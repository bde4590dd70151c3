"""Server processes: start, identity, lock and stop."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import fcntl
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from engine.errors import EmbeddedError

# --- identity ---
# Which process a pid means, so that a recycled pid is never signalled.

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


# --- process ---
# One server process: in a session of its own, remembered in a pid file, stopped gently.

_POLL = 0.05
_LOG_LIMIT = 10_000_000
_TAIL_LINES = 5


class ServerProcess:
    """The process of one server and its pid file.

    Not bound to an event loop: what one loop started another may stop.

    Args:
        name: how sentences call it.
        pid_file: where it is remembered.
        log: takes its output; a start moves one beyond 10 MB to ``<log>.1``.
        signals: how to ask it to stop: each signal and the seconds it gets, the last two
            are the fastest one that loses nothing, and SIGKILL.
    """

    def __init__(
        self,
        name: str,
        *,
        pid_file: Path,
        log: Path,
        signals: Sequence[tuple[signal.Signals, float]],
    ) -> None:
        self.name = name
        self.log = log
        self._pid_file = pid_file
        self._signals = signals
        self._popen: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """The pid of the server, of the last one when it has ended."""
        if self._popen is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code (minus the signal's number when killed); None while it runs."""
        return self._popen.poll() if self._popen else None

    def spawn(
        self,
        argv: Sequence[str | Path],
        *,
        port: int,
        env: Mapping[str, str],
        user: tuple[int, int] | None = None,
    ) -> None:
        """Start it; returns before it is ready.

        Args:
            argv: the command line; anybody on the machine can read it, so no secrets.
            port: kept in the pid file, for people.
            env: its whole environment; nothing of ours leaks into it.
            user: uid and gid to run as, None for our own.
        """
        uid, gid = user or (None, None)
        self._turn_log()
        with self.log.open("ab") as output:
            self._log_start = output.tell()
            self._popen = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=env,
                user=uid,
                group=gid,
                extra_groups=None if uid is None else [],
                umask=0o077,
                start_new_session=True,  # Ctrl-C is for the workers; they need the servers to drain
            )
        identity = Identity.of(self._popen.pid)
        if identity is not None:
            self._remember(identity, port)

    async def wait(self) -> int:
        """Wait until the server ends and return its exit code."""
        # Polled: a thread in waitpid would outlive a cancelled wait, a child watcher its loop.
        while (code := self.exit_code) is None:  # noqa: ASYNC110
            await asyncio.sleep(_POLL * 4)
        return code

    async def stop(self) -> None:
        """Stop it, gently first; harmless when it has ended or was never started."""
        identity = Identity.of(self._popen.pid) if self._popen else None
        if identity is not None and self.exit_code is None:
            await self.end(identity)
        if self.exit_code is not None:
            self._pid_file.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Tell it to end as fast as it can without losing anything, and do not wait for it."""
        identity = Identity.of(self._popen.pid) if self._popen else None
        if identity is not None:
            *_, (fastest, _), _ = self._signals
            identity.send(fastest)

    async def stop_orphan(self) -> bool:
        """Stop the server that a killed owner left behind; True when there was one.

        It is stopped rather than taken over: a fresh one is up in half a second, has this
        version's settings and ports, is a child of ours, and there is one path to test.
        """
        identity = self._remembered()
        if identity is None:
            return False
        await self.end(identity)
        self._pid_file.unlink(missing_ok=True)
        return True

    async def end(self, identity: Identity) -> None:
        """Stop a process the way this server is stopped, and return when it has ended.

        Raises:
            EmbeddedError: it belongs to another user, or survives SIGKILL.
        """
        for signum, seconds in self._signals:
            try:
                identity.send(signum)
            except PermissionError:
                raise EmbeddedError(
                    f"{self.name} still runs as process {identity.pid} of another user",
                    cure="stop it as that user, or choose another --data-dir",
                ) from None
            if await self._ended(identity, seconds):
                return
        raise EmbeddedError(
            f"{self.name} (process {identity.pid}) does not end",
            cure="choose another --data-dir until this machine has been restarted",
        )

    def check(self, deadline: float) -> None:
        """Check that it still may become ready.

        Args:
            deadline: when patience ends, by ``time.monotonic()``.

        Raises:
            EmbeddedError: it has ended, or the deadline has passed.
        """
        if self.exit_code is not None:
            fault = f"ended at its start with exit code {self.exit_code}"
        elif time.monotonic() > deadline:
            fault = "does not answer"
        else:
            return
        raise EmbeddedError(
            f"{self.name} {fault} ({self._said()})", cure=f"its log {self.log} may say more"
        )

    def _said(self) -> str:
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(self._log_start)
            lines = file.read().decode(errors="replace").splitlines()
            if lines:
                return " | ".join(line.strip() for line in lines[-_TAIL_LINES:])
        return "it wrote nothing"

    async def _ended(self, identity: Identity, within: float) -> bool:
        deadline = time.monotonic() + within
        while self._runs(identity):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL)
        return True

    def _runs(self, identity: Identity) -> bool:
        if self._popen is not None and self._popen.pid == identity.pid:
            return self._popen.poll() is None  # reaps it, too
        return identity.alive

    def _remember(self, identity: Identity, port: int) -> None:
        entry = {
            "pid": identity.pid,
            "started": identity.started,
            "port": port,
            "folder": str(self._pid_file.parent),
        }
        fresh = self._pid_file.with_suffix(".new")
        fresh.write_text(json.dumps(entry) + "\n", encoding="utf-8")
        fresh.replace(self._pid_file)

    def _remembered(self) -> Identity | None:
        try:
            entry = json.loads(self._pid_file.read_text(encoding="utf-8"))
            identity = Identity(int(entry["pid"]), str(entry["started"]))
            # A copied data folder holds the pid file of the original's server.
            ours = entry["folder"] == str(self._pid_file.parent)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return None  # damaged; the next start replaces it
        return identity if ours and identity.alive else None

    def _turn_log(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self.log.stat().st_size > _LOG_LIMIT:
                os.replace(self.log, f"{self.log}.1")  # noqa: PTH105 - keeps the whole name


# --- lock of a data folder ---
# One owner per data folder.


class FolderLock:
    """An exclusive lock on a folder; the kernel releases it when the holder dies, however.

    The file ``lock`` in the folder holds the pid of its last holder and is never deleted:
    a second process may already have it open.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._handle: int | None = None

    def acquire(self) -> Self:
        """Create the folder where it is missing and take the lock.

        Raises:
            EmbeddedError: another process holds it, or the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise unwritable(self.folder, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        except OSError as error:
            holder = os.pread(handle, 20, 0).decode(errors="replace").strip()
            os.close(handle)
            if not isinstance(error, BlockingIOError):
                raise unwritable(self.folder, error) from error
            raise EmbeddedError(
                f"another `sched up` (process {holder or 'unknown'}) uses the data folder "
                f"{self.folder}",
                cure="stop it or give this one another --data-dir",
            ) from None
        self._handle = handle
        return self

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def unwritable(path: Path, error: OSError) -> EmbeddedError:
    """Return the sentence for a folder that cannot be used."""
    return EmbeddedError(
        f"the data folder {path} cannot be written ({error.strerror or error})",
        cure="choose another with --data-dir, or make it writable for this user",
    )


# --- life cycle ---
# What starting and stopping means for both servers; written once.


class Server(abc.ABC):
    """A server process that belongs to a data folder.

    Args:
        name: how sentences call it.
        stem: how the names of its log and pid file begin.
        data_dir: its folder; made at the start.
        signals: see ServerProcess.
    """

    def __init__(
        self,
        name: str,
        stem: str,
        data_dir: Path,
        signals: Sequence[tuple[signal.Signals, float]],
    ) -> None:
        self.data_dir = data_dir.resolve()  # one folder, one name: pid files hold it
        self._process = ServerProcess(
            name,
            pid_file=self.data_dir / f"{stem}.pid.json",
            log=self.data_dir / f"{stem}.log",
            signals=signals,
        )

    @property
    def pid(self) -> int:
        """The pid of the server."""
        return self._process.pid

    async def start(self) -> None:
        """Start it and return when it answers.

        A server of this folder that a killed owner left behind is stopped first.

        Raises:
            EmbeddedError: it cannot run here; one sentence with the cure.
        """
        try:
            await asyncio.to_thread(self.data_dir.mkdir, parents=True, exist_ok=True)
            await self._start()
        except OSError as error:
            await self.stop()
            raise unwritable(self.data_dir, error) from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop it and return when it has ended; harmless when it does not run."""
        await self._process.stop()

    def abandon(self) -> None:
        """Tell it to end as fast as it can without losing anything, and do not wait for it."""
        self._process.abandon()

    async def wait(self) -> int:
        """Wait until it ends, by itself or not, and return its exit code."""
        return await self._process.wait()

    async def stop_orphan(self) -> bool:
        """Stop what a killed owner left running in this folder; True when there was something.

        For callers who know that the folder has no living owner.
        """
        return await self._process.stop_orphan()

    @abc.abstractmethod
    async def _start(self) -> None:
        """Spawn the process and return when it answers."""
