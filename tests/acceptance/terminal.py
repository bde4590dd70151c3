"""A terminal of a person: a real pseudo-terminal, and an emulator that keeps its screen."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import termios
from pathlib import Path

import pyte


class Terminal:
    """Runs one command, as in a window of this size."""

    def __init__(self, columns: int = 130, rows: int = 45) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=1000)
        self._stream = pyte.ByteStream(self._screen)
        self._size = struct.pack("HHHH", rows, columns, 0, 0)
        self._ours = -1
        self.process: asyncio.subprocess.Process | None = None

    async def run(self, *command: str, cwd: Path, env: dict[str, str]) -> None:
        """Start the command; what it prints is followed until it ends."""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, self._size)
        # At Ctrl-C the kernel throws away what was printed and not read. A person's terminal has
        # read it all by then; this one shares its processor with the tests.
        modes = termios.tcgetattr(theirs)
        modes[3] |= termios.NOFLSH
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
        self.process = await asyncio.create_subprocess_exec(
            *command, cwd=cwd, env={**env, "TERM": "xterm-256color"},
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            # So that Ctrl-C reaches the command as it would a person's.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(theirs)
        asyncio.get_running_loop().add_reader(self._ours, self._read)

    def resize(self, columns: int, rows: int) -> None:
        """Drag the window's corner."""
        self._screen.resize(rows, columns)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def ended(self) -> int:
        """Wait for the command's end and return its exit code."""
        assert self.process
        async with asyncio.timeout(60):
            return await self.process.wait()

    def type(self, keys: str) -> None:
        """Type."""
        os.write(self._ours, keys.encode())

    @property
    def text(self) -> str:
        """What the screen shows, with what has scrolled away above it."""
        gone = [
            "".join(line[column].data for column in range(self._screen.columns))
            for line in self._screen.history.top
        ]
        return "\n".join(line.rstrip() for line in [*gone, *self._screen.display])

    @property
    def visible(self) -> str:
        """What the screen shows now."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    @property
    def cursor_is_hidden(self) -> bool:
        """Whether a person could not see where the cursor is."""
        return bool(self._screen.cursor.hidden)

    def _read(self) -> None:
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # the other side is closed
            data = b""
        if data:
            self._stream.feed(data)
        else:
            self.close()

    def close(self) -> None:
        """Hang up."""
        if self._ours >= 0:
            asyncio.get_running_loop().remove_reader(self._ours)
            os.close(self._ours)
            self._ours = -1
