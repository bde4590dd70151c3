"""Time zones for workflow code, from the pinned ``tzdata`` package.

It has to be passed through the sandbox: what that makes of ``zoneinfo.ZoneInfo`` is a stand-in
which ``astimezone`` refuses. The system's own zone data is not asked, since it may hold other rules
than the planner's.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final
from zoneinfo import ZoneInfo

from temporalio.workflow import unsafe

from engine.errors import TimezoneInvalid

_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")  # and no way out of the folder


@cache
def zone(name: str) -> ZoneInfo:
    """Return an IANA zone by its name.

    Raises:
        TimezoneInvalid: The installed ``tzdata`` has no such zone.
    """
    unknown = TimezoneInvalid(f"unknown timezone {name!r}", cure="use an IANA name")
    if not _NAME.fullmatch(name):
        raise unknown
    try:
        # Reading a packaged file is as deterministic as importing a module, but the sandbox
        # cannot know that: it forbids open() and warns of imports while a workflow runs.
        with unsafe.sandbox_unrestricted(), unsafe.imports_passed_through():
            file = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
            with file.open("rb") as content:
                return ZoneInfo.from_file(content, key=name)
    except (OSError, ValueError):  # no such file; a file of the package that is no zone
        raise unknown from None
