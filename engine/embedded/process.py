"""One server process: in a session of its own, remembered in a pid file, stopped gently."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.embedded.identity import Identity
from engine.errors import EmbeddedError

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
        """How it ended (minus the signal's number when killed), None while it runs."""
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
