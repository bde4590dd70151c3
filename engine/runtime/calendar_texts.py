"""Opens the .ics files that schedule files name."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

from engine.schedules.calendars import OpenIcs

MAX_BYTES: Final = 5_000_000
"""The largest calendar: far more than the 5000 days off that one may have."""


def calendars_beside(name: str) -> OpenIcs:
    """Return what opens the calendars that the file ``name`` names, by a path from its folder.

    It raises OSError or, with what is wrong and the cure, ValueError.
    """
    folder = Path(name).parent
    return lambda calendar: _text(folder / calendar)


def _text(path: Path) -> str:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # a pipe would keep its reader waiting for ever
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
