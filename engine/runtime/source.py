"""Reads the schedule file from the disk."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from engine.errors import Problem, ScheduleFileError
from engine.schedules import ScheduleFile, load_schedules

DEFAULT_PROJECT: Final = "default"


def read_file(path: Path) -> ScheduleFile:
    """Read and check a schedule file.

    Raises:
        ScheduleFileError: with every problem of the file, also when it cannot be read.
    """

    def open_ics(name: str) -> str:
        return (path.parent / name).read_text(encoding="utf-8-sig")

    return load_schedules(read_text(path), str(path), open_ics=open_ics)


def read_text(path: Path) -> str:
    """Return the file's text.

    Raises:
        ScheduleFileError: when it cannot be read as UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        what = "there is no such file"
        cure = "name the file, run in the folder that has it, or let `sched init` write a first one"
    except IsADirectoryError:
        what, cure = "it is a folder", "name a file"
    except UnicodeDecodeError as error:
        what, cure = f"byte {error.start} is not UTF-8", "save the file as UTF-8 text"
    except OSError as error:
        what, cure = f"it cannot be read: {error.strerror}", "mend its permissions"
    raise ScheduleFileError(str(path), (Problem("SCHEDULE_FILE_UNREADABLE", what, cure),))


def declared_project(path: Path) -> str:
    """Return the project that a file, even a broken one, seems to declare."""
    try:
        text = read_text(path)
    except ScheduleFileError:
        return DEFAULT_PROJECT
    line = re.search(r"""^project:\s*["']?([a-z0-9._-]+)""", text, re.MULTILINE)
    return line[1] if line else DEFAULT_PROJECT


def digest_of(path: Path) -> str:
    """Return the ``ScheduleFile.digest`` that the file would have; of an unreadable one, why."""
    try:
        return hashlib.sha256(read_text(path).encode("utf-8")).hexdigest()
    except ScheduleFileError as error:
        return str(error)
