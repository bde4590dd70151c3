"""Server processes: start, identity, ports, lock and stop."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import errno
import fcntl
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from engine.errors import EmbeddedError

# --- identity ---
# A process is identified by more than its pid, so that a recycled pid is never signalled.

# Fields of /proc/<pid>/stat after the command's closing bracket.
_STATE, _PARENT, _THREADS, _START_TIME = 0, 1, 17, 19


@dataclass(frozen=True, slots=True)
class Identity:
    """A process: its pid and an opaque text that no later process with this pid has."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """Return the identity of a running process; None if there is none."""
        started = _started(pid)
        return None if started is None else cls(pid, started)

    @property
    def alive(self) -> bool:
        """Whether this very process is still running."""
        return _started(self.pid) == self.started

    def send(self, signum: signal.Signals) -> bool:
        """Signal this very process; return False if it has ended.

        Raises:
            PermissionError: the process belongs to another user.
        """
        handle = _handle(self.pid)
        try:
            # Checked after the handle is open, when the pid can no longer be recycled.
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
    """Return the command line of a process; empty if this user cannot see it."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except FileNotFoundError:
        return "" if _has_proc() else _ps(pid, "command")
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    if not _has_proc():  # macOS: the resolution is one second
        return _ps(pid, "lstart") or None
    fields = _stat(pid)
    if fields is None:
        return None
    # An unreaped zombie (PID 1 of many containers reaps none) counts as ended, unless other
    # threads outlive its first one: they still hold the ports.
    if fields[_STATE] in "ZX" and int(fields[_THREADS]) <= 1:
        return None
    return f"{_boot()}:{fields[_START_TIME]}"


def _stat(pid: int) -> list[str] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()  # the command may contain spaces and brackets


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


# --- server ---
# One server process: in its own session, recorded in a pid file, stopped gracefully.

_POLL = 0.05
_READY_WITHIN = 60.0
_LOG_LIMIT = 10_000_000
_TAIL_LINES = 5


class Server(abc.ABC):
    """A server process that belongs to a data folder, and its pid file.

    It is not bound to an event loop: one loop may start the server and another may stop it.

    Args:
        name: the server's name in messages.
        stem: the first part of the names of its pid file and of its log. A start renames a log
            beyond 10 MB to ``<log>.1``.
        data_dir: its folder; created at the start.
        port: 0 takes a free one.
        signals: the stop sequence: signals with their timeouts in seconds. The last two are the
            fastest one that loses no data, and SIGKILL.
    """

    def __init__(
        self,
        name: str,
        stem: str,
        data_dir: Path,
        port: int,
        signals: Sequence[tuple[signal.Signals, float]],
    ) -> None:
        self.name = name
        self.data_dir = data_dir.resolve()  # canonical, because pid files contain it
        self.log = self.data_dir / f"{stem}.log"
        self.port = port
        self._pid_file = self.data_dir / f"{stem}.pid.json"
        self._signals = signals
        self._popen: subprocess.Popen[bytes] | None = None
        self._identity: Identity | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """The pid of the server, even after it has ended."""
        if self._popen is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code (minus the signal number if killed); None while the server runs."""
        return self._popen.poll() if self._popen else None

    async def start(self) -> None:
        """Start the server and return when it answers.

        A server of this folder that a killed owner left behind is stopped first.

        Raises:
            EmbeddedError: the server cannot run here; one sentence with the cure.
        """
        try:
            await asyncio.to_thread(self.data_dir.mkdir, parents=True, exist_ok=True)
            await self._start()
            deadline = time.monotonic() + _READY_WITHIN
            while not await self._answers():
                self._check(deadline)
                await asyncio.sleep(0.02)
        except OSError as error:
            await self.stop()
            raise unwritable(self.data_dir, error) from error
        except BaseException:
            await self.stop()
            raise

    @abc.abstractmethod
    async def _start(self) -> None:
        """Stop an orphan, and spawn the process."""

    @abc.abstractmethod
    async def _answers(self) -> bool:
        """Return whether the server is ready for its clients."""

    def spawn(
        self,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str],
        **switch: Any,
    ) -> None:
        """Start the server, and return before it is ready.

        Args:
            argv: the command line; every user of the machine can read it, so no secrets.
            env: its whole environment; nothing of ours leaks into it.
            **switch: as ``Account.switch``, to run it as another user.
        """
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
                umask=0o077,
                start_new_session=True,  # Ctrl-C is for the workers; they need the servers to drain
                **switch,
            )
        self._identity = Identity.of(self._popen.pid)
        if self._identity is not None:
            self._remember(self._identity)

    async def wait(self) -> int:
        """Wait until the server ends, for any reason, and return its exit code."""
        # Polling: a thread in waitpid would outlive a cancelled wait, a child watcher its loop.
        while (code := self.exit_code) is None:  # noqa: ASYNC110
            await asyncio.sleep(_POLL * 4)
        return code

    async def stop(self) -> None:
        """Stop the server, gracefully first; a no-op if it has ended or was never started."""
        if self._identity is not None and self.exit_code is None:
            await self._end(self._identity)
        if self.exit_code is not None:
            self._pid_file.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Signal the server to end as fast as possible without losing data, and do not wait."""
        if self._identity is not None:
            *_, (fastest, _), _ = self._signals
            self._identity.send(fastest)

    async def stop_orphan(self) -> bool:
        """Stop the server that a killed owner left in this folder; return whether there was one.

        The caller must know that the folder has no living owner. The server is stopped rather than
        taken over: a fresh one is up in half a second, has this version's settings and ports, is
        our child, and there is only one path to test.
        """
        identity = self._remembered()
        if identity is None:
            return False
        await self._end(identity)
        self._pid_file.unlink(missing_ok=True)
        return True

    async def _end(self, identity: Identity) -> None:
        """Stop a process by this server's stop sequence, and return when it has ended.

        Raises:
            EmbeddedError: the process belongs to another user, or survives SIGKILL.
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

    def _check(self, deadline: float) -> None:
        """Check that the server may still become ready.

        Args:
            deadline: the end of the wait, by ``time.monotonic()``.

        Raises:
            EmbeddedError: the server has ended, or the deadline has passed.
        """
        if self.exit_code is not None:
            fault = f"ended at its start with exit code {self.exit_code}"
        elif time.monotonic() > deadline:
            fault = "does not answer"
        else:
            return
        raise EmbeddedError(
            f"{self.name} {fault} ({self._last_lines()})", cure=f"its log {self.log} may say more"
        )

    def _last_lines(self) -> str:
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
            return self._popen.poll() is None  # also reaps it
        return identity.alive

    def _remember(self, identity: Identity) -> None:
        entry = {
            "pid": identity.pid,
            "started": identity.started,
            "port": self.port,  # for people
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


class FolderLock:
    """An exclusive lock on a folder; the kernel releases it when the holder dies in any way.

    The file ``lock`` in the folder contains the pid of its last holder. It is never deleted,
    because a second process may already have it open.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._handle: int | None = None

    def acquire(self) -> Self:
        """Create the folder if it is missing, and take the lock.

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
        """Release the lock; a no-op if it is not held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def unwritable(path: Path, error: OSError) -> EmbeddedError:
    """Return the error for a data folder that cannot be written."""
    return EmbeddedError(
        f"the data folder {path} cannot be written ({error.strerror or error})",
        cure="choose another with --data-dir, or make it writable for this user",
    )


# --- ports ---
# Ports of the loopback address: selection of free ones, and the holders of taken ones.

HOST = "127.0.0.1"
_LISTEN = "0A"  # the state column of /proc/net/tcp
_SCHED_UP = re.compile(r"\b(sched|engine\.cli)( .*)? up( |$)")


def free_port() -> int:
    """Return a free port that the kernel will not assign to another process for a minute.

    The closed connection below leaves the port in TIME_WAIT: servers may bind it (they set
    SO_REUSEADDR), while the kernel does not pick it for a process that requests any port.
    """
    with socket.socket() as listener, socket.socket() as visitor:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else no server may bind it
        listener.bind((HOST, 0))
        listener.listen(1)
        port: int = listener.getsockname()[1]
        visitor.connect((HOST, port))
        listener.accept()[0].close()
    return port


def require_free(wanted: Mapping[str, int | None]) -> None:
    """Check that servers can listen on their ports.

    Args:
        wanted: the port by the option that chooses it; 0 and None mean any port.

    Raises:
        EmbeddedError: they cannot; one sentence names every taken port, and all options with free
            ports.
    """
    ports = {option: port for option, port in wanted.items() if port}
    taken = [port for option, port in ports.items() if _is_taken(port, option)]
    if not taken:
        return
    holders: dict[str, list[str]] = {}
    for port in taken:
        holders.setdefault(_holder(port), []).append(str(port))
    text = ", ".join(_sentence(numbers, holder) for holder, numbers in holders.items())
    chosen = dict(ports)
    for option, port in ports.items():
        if port in taken:
            chosen[option] = _another(port, option, chosen.values())
    options = " ".join(f"{option} {port}" for option, port in chosen.items())
    what = "it" if len(holders) == 1 else "them"
    raise EmbeddedError(text, cure=f"stop {what}, or add {options}")


def _is_taken(port: int, option: str) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OverflowError:
            raise EmbeddedError(
                f"{port} is not a port", cure=f"{option} takes 1 to 65535"
            ) from None
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise EmbeddedError(
                f"port {port} cannot be used ({error.strerror})",
                cure=f"choose another with {option}",
            ) from error
    return False


def _another(port: int, option: str, chosen: Iterable[int]) -> int:
    """Return a free port, if possible one that is easy to remember: 17233 for 7233."""
    for near in range(port + 10_000, 65_536, 10_000):
        if near not in chosen and not _is_taken(near, option):
            return near
    return free_port()


def _sentence(ports: Sequence[str], holder: str) -> str:
    named = f"port {ports[0]} is" if len(ports) == 1 else f"ports {', '.join(ports)} are"
    return f"{named} taken{holder and f' by {holder}'}"


def _holder(port: int) -> str:
    """Return a description of the process that listens on the port, if this user can see it."""
    inodes = _listening(port)
    for link in Path("/proc").glob("[0-9]*/fd/*") if inodes else ():
        try:
            target = os.readlink(link)  # noqa: PTH115 - Path.readlink builds a path of "socket:[1]"
        except OSError:
            continue  # it has ended, or belongs to another user
        if target in inodes:
            pid = int(link.parts[2])
            program = Path(command_line(pid).partition(" ")[0]).name
            return _up_above(pid) or (f"process {pid} ({program})" if program else f"process {pid}")
    return ""


def _up_above(pid: int) -> str:
    """Return a description of the `sched up` that owns this server: it is the one to stop."""
    fields = _stat(pid)
    owner = int(fields[_PARENT]) if fields else 0
    if not _SCHED_UP.search(command_line(owner)):
        return ""
    folder = ""
    with contextlib.suppress(OSError):  # another user's
        folder = f" in {Path(f'/proc/{owner}/cwd').readlink()}"
    return f"another `sched up` (process {owner}{folder})"


def _listening(port: int) -> set[str]:
    found = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        try:
            rows = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:  # not Linux, or no IPv6
            continue
        for row in rows:
            columns = row.split()
            if columns[3] == _LISTEN and int(columns[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{columns[9]}]")
    return found
