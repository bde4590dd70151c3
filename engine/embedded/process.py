"""One server process: started in its own session, remembered in a pid file, stopped gently."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import time
from typing import TYPE_CHECKING

from engine.embedded.identity import Identity
from engine.errors import EmbeddedError

if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_POLL = 0.05
_LOG_LIMIT = 10_000_000
_TAIL_LINES = 5


class ServerProcess:
    """The process of one server and its pid file.

    Not bound to an event loop: what one loop started another may stop.

    Args:
        name: how sentences call it.
        pid_file: where it is remembered; None for a server nobody needs to find again.
        log: file that takes its output; beyond 10 MB a start moves it to ``<log>.1``.
        signals: how to ask it to stop: each signal and the seconds it gets, the last is SIGKILL.
    """

    def __init__(
        self,
        name: str,
        *,
        pid_file: Path | None,
        log: Path,
        signals: Sequence[tuple[signal.Signals, float]],
    ) -> None:
        self.name = name
        self.log = log
        self._pid_file = pid_file
        self._signals = signals
        self._popen: subprocess.Popen[bytes] | None = None
        self._identity: Identity | None = None
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
            port: kept in the pid file.
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
                env=dict(env),
                user=uid,
                group=gid,
                extra_groups=None if uid is None else [],
                umask=0o077,
                start_new_session=True,  # Ctrl-C is for the workers; they need the servers to drain
            )
        self._identity = Identity.of(self._popen.pid)
        if self._identity is not None:
            self._remember(self._identity, port)

    async def wait(self) -> int:
        """Wait until the server ends and return its exit code."""
        while (code := self.exit_code) is None:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(_POLL * 4)
        return code

    async def stop(self) -> None:
        """Stop it, gently first; harmless when it has ended or was never started."""
        if self._popen is None or self._identity is None:
            return
        try:
            await self._end(self._identity)
        finally:
            if self.exit_code is not None:
                self._forget()

    async def stop_orphan(self) -> bool:
        """Stop the server that a killed owner left behind; True when there was one.

        It is stopped rather than taken over: a fresh one is up in half a second, has this
        version's settings and ports, is our own child, and there is one path to test.
        """
        identity = self._remembered()
        if identity is None:
            return False
        await self._end(identity)
        self._forget()
        return True

    def death(self) -> EmbeddedError:
        """Return the sentence for a server that ended by itself."""
        return EmbeddedError(
            f"{self.name} ended at its start (exit code {self.exit_code}): {self.said()}",
            cure=f"see its log {self.log}",
        )

    def said(self) -> str:
        """Return the last lines it wrote since its start, in one line."""
        try:
            with self.log.open("rb") as file:
                file.seek(self._log_start)
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            lines = []
        return " | ".join(line.strip() for line in lines[-_TAIL_LINES:]) or "it wrote nothing"

    async def end(self, identity: Identity) -> None:
        """Stop any process, known by its identity, the way this server is stopped."""
        await self._end(identity)

    async def _end(self, identity: Identity) -> None:
        for signum, seconds in self._signals:
            try:
                if not identity.send(signum):
                    break
            except PermissionError:
                raise EmbeddedError(
                    f"{self.name} still runs as another user's process {identity.pid}",
                    cure="stop it as that user, or choose another --data-dir",
                ) from None
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and self._runs(identity):
                await asyncio.sleep(_POLL)
            if not self._runs(identity):
                break

    def _runs(self, identity: Identity) -> bool:
        if self._popen is not None and self._popen.pid == identity.pid:
            return self._popen.poll() is None  # reaps it, too
        return identity.alive

    def _remember(self, identity: Identity, port: int) -> None:
        if self._pid_file is None:
            return
        text = json.dumps({"pid": identity.pid, "started": identity.started, "port": port})
        fresh = self._pid_file.with_suffix(".new")
        fresh.write_text(text + "\n", encoding="utf-8")
        fresh.replace(self._pid_file)

    def _remembered(self) -> Identity | None:
        if self._pid_file is None:
            return None
        try:
            entry = json.loads(self._pid_file.read_text(encoding="utf-8"))
            identity = Identity(int(entry["pid"]), str(entry["started"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return None  # not ours; the next start replaces it
        return identity if identity.alive else None

    def _forget(self) -> None:
        if self._pid_file is not None:
            self._pid_file.unlink(missing_ok=True)

    def _turn_log(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self.log.stat().st_size > _LOG_LIMIT:
                os.replace(self.log, f"{self.log}.1")  # noqa: PTH105 - keeps the name's own suffix
