"""Server processes: start, ports, locks and stop."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from engine.errors import EmbeddedError

# --- server ---
# One server process: in its own session, recorded in a pid file, stopped gracefully.

_POLL = 0.05
_READY_WITHIN = 60.0
_LOG_LIMIT = 10_000_000
_TAIL_LINES = 5


class Server(abc.ABC):
    """A server process that belongs to a data folder, and its pid file.

    A server inherits a lock on its pid file, which the kernel releases when the server has ended,
    children included. So no recycled pid, and no copy of a folder, is taken for a server.

    It is not bound to an event loop: one loop may start the server and another may stop it.

    Args:
        name: the server's name in messages.
        stem: the first part of the names of its pid file and of its log. A start renames a log
            beyond 10 MB to ``<log>.1``.
        data_dir: its folder; created at the start.
        port: 0 takes a free one.
        signals: the stop sequence: signals with their timeouts in seconds. The last two are the
            fastest one that loses no data, and SIGKILL.

    Attributes:
        pid: the pid of the server, even after it has ended; 0 before its start.
    """

    pid = 0

    def __init__(
        self,
        name: str,
        stem: str,
        data_dir: Path,
        port: int,
        signals: Sequence[tuple[signal.Signals, float]],
    ) -> None:
        self.name = name
        self.data_dir = data_dir.resolve()
        self.log = self.data_dir / f"{stem}.log"
        self.port = port
        self._pid_file = self.data_dir / f"{stem}.pid.json"
        self._signals = signals
        self._popen: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def exit_code(self) -> int | None:
        """Exit code (minus the signal number if killed); None while the server runs."""
        return self._popen.poll() if self._popen else None

    async def start(self) -> None:
        """Start the server and return when it answers.

        A server of this folder that a killed owner left behind is stopped first.

        Raises:
            EmbeddedError: the server cannot run here; one sentence with the hint.
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
        with self.log.open("ab") as output, self._pid_file.open("w", encoding="ascii") as note:
            fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
                pass_fds=[note.fileno()],
                **switch,
            )
            self.pid = self._popen.pid
            json.dump({"pid": self.pid, "port": self.port}, note)  # the port is for people

    async def wait(self) -> int:
        """Wait until the server ends, for any reason, and return its exit code."""
        # Polling: a thread in waitpid would outlive a cancelled wait, a child watcher its loop.
        while (code := self.exit_code) is None:  # noqa: ASYNC110
            await asyncio.sleep(_POLL * 4)
        return code

    async def stop(self) -> None:
        """Stop the server, gracefully first; a no-op if it has ended or was never started."""
        if self._popen is not None:
            await self._end(self.pid)
            self._pid_file.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Signal the server to end as fast as possible without losing data, and do not wait."""
        if self._popen is not None:
            *_, (fastest, _), _ = self._signals
            self._popen.send_signal(fastest)

    async def stop_orphan(self) -> bool:
        """Stop the server that a killed owner left in this folder; return whether there was one.

        The caller must know that the folder has no living owner. The server is stopped rather than
        taken over: a fresh one is up in half a second, has this version's settings and ports, is
        our child, and there is only one path to test.
        """
        pid = self._left_behind()
        if pid is None:
            return False
        await self._end(pid)
        self._pid_file.unlink(missing_ok=True)
        return True

    def _left_behind(self) -> int | None:
        """Return the pid of the server that runs in this folder; None if there is none."""
        with contextlib.suppress(FileNotFoundError), self._pid_file.open("rb") as note:
            try:
                fcntl.flock(note, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                with contextlib.suppress(ValueError):  # the owner died before it wrote the pid
                    pid = int(json.load(note)["pid"])
                    return pid if _has_open(pid, self._pid_file) else None
        return None

    async def _end(self, pid: int) -> None:
        """Stop a process by this server's stop sequence, and return when it has ended.

        Raises:
            EmbeddedError: the process belongs to another user, or survives SIGKILL.
        """
        for signum, seconds in self._signals:
            deadline = time.monotonic() + seconds
            try:
                if self._runs(pid):
                    os.kill(pid, signum)
            except ProcessLookupError:
                pass
            except PermissionError:
                raise EmbeddedError(
                    f"{self.name} still runs as process {pid} of another user",
                    hint="stop it as that user, or choose another --data-dir",
                ) from None
            while self._runs(pid):
                if time.monotonic() > deadline:
                    break
                await asyncio.sleep(_POLL)
            else:
                return
        raise EmbeddedError(
            f"{self.name} (process {pid}) does not end",
            hint="choose another --data-dir until this machine has been restarted",
        )

    def _runs(self, pid: int) -> bool:
        if self.pid == pid:
            return self.exit_code is None  # which also reaps it
        return self._left_behind() == pid

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
            f"{self.name} {fault} ({self._last_lines()})", hint=f"its log {self.log} may say more"
        )

    def _last_lines(self) -> str:
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(self._log_start)
            lines = file.read().decode(errors="replace").splitlines()
            if lines:
                return " | ".join(line.strip() for line in lines[-_TAIL_LINES:])
        return "it wrote nothing"

    def _turn_log(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self.log.stat().st_size > _LOG_LIMIT:
                os.replace(self.log, f"{self.log}.1")  # noqa: PTH105 - keeps the whole name


def _has_open(pid: int, path: Path) -> bool:
    """Return whether a process has this file open; if that is another user's secret, it has.

    A process of a server may outlive it, with the lock, while the server's own pid is given to
    another.
    """
    import psutil  # noqa: PLC0415 - from the extra `embedded`, which the testing kit does not need

    try:
        return str(path) in {each.path for each in psutil.Process(pid).open_files()}
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


# --- lock of a data folder ---


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, which is created; the kernel releases it when the holder dies.

    The file ``lock`` in the folder contains the pid of its last holder. It is never deleted,
    because a second process may already have it open.

    Raises:
        EmbeddedError: another process holds it, or the folder cannot be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context((folder / "lock").open("a+", encoding="ascii"))
            if holder := _holder_of(file):
                raise EmbeddedError(
                    f"another `sched up` (process {holder}) uses the data folder {folder}",
                    hint="stop it or give this one another --data-dir",
                )
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        except OSError as error:
            raise unwritable(folder, error) from error
        yield


def _holder_of(file: TextIO) -> str:
    """Take the lock on a file; return what its holder wrote if another process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        return file.read(20) or "unknown"
    return ""


def unwritable(path: Path, error: OSError) -> EmbeddedError:
    """Return the error for a data folder that cannot be written."""
    return EmbeddedError(
        f"the data folder {path} cannot be written ({error.strerror or error})",
        hint="choose another with --data-dir, or make it writable for this user",
    )


# --- ports ---
# Ports of the loopback address: selection of free ones, and the holders of taken ones.

HOST = "127.0.0.1"
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
    raise EmbeddedError(text, hint=f"stop {what}, or add {options}")


def _is_taken(port: int, option: str) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise EmbeddedError(
                f"port {port} cannot be used ({error.strerror})",
                hint=f"choose another with {option}",
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
    import psutil  # noqa: PLC0415 - as above

    with contextlib.suppress(psutil.Error):
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr.port == port and each.pid:
                process = psutil.Process(each.pid)
                owner = process.parent()
                if owner and _SCHED_UP.search(" ".join(owner.cmdline())):  # it is the one to stop
                    return f"another `sched up` (process {owner.pid} in {owner.cwd()})"
                return f"process {process.pid} ({process.name()})"
    return ""
