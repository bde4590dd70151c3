"""What starting and stopping means for both servers; written once."""

from __future__ import annotations

import abc
import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

from engine.embedded.lock import unwritable
from engine.embedded.process import ServerProcess


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
