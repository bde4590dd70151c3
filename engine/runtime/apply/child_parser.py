"""Parser of large schedule files in a child process."""

from __future__ import annotations

import gc
import json
import os
import pickle
import re
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from signal import Signals, strsignal
from threading import Lock, Timer
from typing import IO, Any, Final

from engine.errors import Code, Problem, ScheduleFileError
from engine.schedules import Schedule, ScheduleFile
from engine.schedules.loader.entries import OpenIcs
from engine.schedules.loader.loader import NamedText, load_several


def unreadable(name: str, what: str, hint: str) -> ScheduleFileError:
    """Return the error for a file that cannot be read."""
    return ScheduleFileError(name, (Problem(Code.FILE_UNREADABLE, what, hint),))


# --- calendar files ---
# Opening of the .ics files that schedule files name.

MAX_BYTES: Final = 5_000_000
"""Size limit of a calendar file: far more than its maximum of 5000 days off needs."""


def calendars_beside(name: str) -> OpenIcs:
    """Return a function that opens a calendar by its path relative to the folder of ``name``.

    It raises OSError, or ValueError with the problem and the hint. Nothing outside of the folder is
    opened: the author of a file may not read what a worker can.
    """
    folder = Path(name).parent

    def text(calendar: str) -> str:
        path = folder / calendar
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
            raise ValueError("it is outside of the schedule file's folder", "put it into that")
        return _text(path)

    return text


def _text(path: Path) -> str:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # reading a pipe could block forever
        raise ValueError("it is no ordinary file", "name an .ics file")
    data = b""
    if found.st_size <= MAX_BYTES:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)  # it may be growing
    if max(len(data), found.st_size) > MAX_BYTES:
        what = f"it is larger than {MAX_BYTES // 1_000_000} MB"
        raise ValueError(what, "export the days off alone")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8", "export it again, as UTF-8") from None


# --- child process ---
# Large schedule files, and those that name calendars, are parsed in a child process: a crash of
# libyaml cannot kill the worker, and the GIL is not held. The child is a plain command, because
# ``multiprocessing`` would import the user's main module again.

SMALL: Final = 256_000
"""Characters up to which a text is parsed in this process: faster than starting a child."""

_CALENDAR: Final = re.compile(r"\bics\b")
"""Matches a text that names a calendar; expanding its recurring events may take long."""

PATIENCE: Final = 60.0
"""Timeout of a child in seconds, per 16 million characters begun: twice a busy machine's need."""

_BATCH: Final = 200
"""Schedules unpickled at once: a few milliseconds, during which no other thread runs."""

_LENGTH: Final = struct.Struct("!I")

# Ctrl-C reaches the child too. It ignores it, and the parent ends the child.
_CHILD: Final = """\
import json, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.path[:] = json.loads(sys.argv[1])
from engine.runtime.apply.child_parser import serve_parent
serve_parent()
"""


class ParseCancelled(Exception):
    """Error of a parse that was cancelled through its ``CancelToken``."""


class CancelToken:
    """Switch that cancels a parse immediately, from another thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.stopped = False

    def stop(self) -> None:
        """Kill the child, now or as soon as it has started."""
        with self._lock:
            self.stopped = True
            if self._process is not None:
                self._process.kill()

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Register the child; kill it if ``stop`` was already called."""
        with self._lock:
            self._process = process
            if self.stopped:
                process.kill()


def parse(
    texts: Sequence[NamedText],
    name: str,
    *,
    expectations: bool = False,
    small: int = SMALL,
    token: CancelToken | None = None,
) -> ScheduleFile:
    """Return the result of ``load_several``. Blocks for long: call it from a thread.

    Raises:
        ScheduleFileError: lists every problem of the files, or why they could not be read.
        ParseCancelled: ``token`` was stopped.
    """
    # A frozen application's executable is the application, not Python.
    alone = not sys.executable or getattr(sys, "frozen", False)
    if alone or (_size(texts) <= small and not any(_CALENDAR.search(each.text) for each in texts)):
        return load_several(texts, name, open_ics=calendars_beside, expectations=expectations)
    patience = PATIENCE * (1 + _size(texts) // 16_000_000)
    child = _Child(name, patience, token or CancelToken())
    return child.read((tuple(texts), name, expectations))


def _size(texts: Sequence[NamedText]) -> int:
    return sum(len(each.text) for each in texts)


class _Child:
    """One parsing process, seen from the parent."""

    def __init__(self, name: str, patience: float, token: CancelToken) -> None:
        self._name, self._patience, self._token = name, patience, token
        self._late = False

    def read(self, asked: tuple[Any, ...]) -> ScheduleFile:
        path = json.dumps([str(entry) for entry in sys.path])
        # -P: no file of the working directory may shadow a module of the standard library.
        command = [sys.executable, "-P", "-c", _CHILD, path]
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - this very Python, and a text of ours
        except OSError as error:
            what = f"the process that reads it could not be started: {error.strerror}"
            raise unreadable(
                self._name, what, "check which resource the system is short of"
            ) from None
        with process:
            assert process.stdin is not None  # noqa: S101 - for mypy
            assert process.stdout is not None  # noqa: S101 - for mypy
            impatience = Timer(self._patience, self._end, (process,))
            impatience.daemon = True
            impatience.start()
            self._token.watch(process)
            try:
                with suppress(BrokenPipeError), process.stdin as pipe:  # its exit code says why
                    pickle.dump(asked, pipe, protocol=pickle.HIGHEST_PROTOCOL)
                return self._joined(process.stdout)
            except EOFError:
                code = process.wait()
                if self._token.stopped:
                    raise ParseCancelled from None
                raise self._broken(code) from None
            finally:
                impatience.cancel()
                process.kill()  # after the last message the child has nothing left to do

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self._late = True
        process.kill()

    def _joined(self, pipe: IO[bytes]) -> ScheduleFile:
        schedules: list[Schedule] = []
        for kind, value in _messages(pipe):
            if kind == "problems":
                raise ScheduleFileError(*value)
            if kind == "file":
                file: ScheduleFile = value
                return replace(file, schedules=tuple(schedules))
            schedules += value
        raise EOFError

    def _broken(self, code: int) -> ScheduleFileError:
        if self._late:
            what, hint = f"reading it took longer than {self._patience:.0f} s", "split it"
        else:
            end = f"with code {code}"
            if code < 0:
                end = f"by {Signals(-code).name} ({strsignal(-code)})"
            what = f"the process that reads it was ended {end}"
            hint = "see whether memory is short, or split the file"
        return unreadable(self._name, what, hint)


def _messages(pipe: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """Yield the child's messages until its output ends."""
    while header := pipe.read(_LENGTH.size):
        if len(header) < _LENGTH.size:
            return
        (length,) = _LENGTH.unpack(header)
        data = pipe.read(length)
        if len(data) < length:
            return
        yield pickle.loads(data)  # noqa: S301 - our own child wrote it


def serve_parent() -> None:
    """Run the child: read the request from standard input, write messages to standard output."""
    gc.disable()  # saves a third of the time; the process does not live long enough to need it
    with os.fdopen(os.dup(1), "wb") as pipe:
        os.dup2(2, 1)  # prints must not mix with the messages
        asked = pickle.load(sys.stdin.buffer)  # noqa: S301 - our own parent wrote it
        for message in _answers(*asked):
            data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
            pipe.write(_LENGTH.pack(len(data)) + data)
        pipe.flush()
    os._exit(0)  # no cleanup is needed, and freeing all objects would take long


def _answers(
    texts: tuple[NamedText, ...],
    name: str,
    expectations: bool,  # noqa: FBT001 - as it came through the pipe
) -> Iterator[tuple[str, Any]]:
    try:
        file = load_several(texts, name, open_ics=calendars_beside, expectations=expectations)
    except ScheduleFileError as error:
        yield "problems", (error.name, error.problems, error.digest, error.calendars)
        return
    for at in range(0, len(file.schedules), _BATCH):
        batch = file.schedules[at : at + _BATCH]
        for schedule in batch:
            _ = schedule.digest  # computed here to spare the worker
        yield "schedules", batch
    yield "file", replace(file, schedules=())
