"""Time zones for workflow code, from the pinned ``tzdata`` package.

It is a separate module because it must pass through the sandbox, whose stand-in for
``zoneinfo.ZoneInfo`` is refused by ``astimezone``. The system's zone data is not used, because its
rules may differ from the planner's.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final
from zoneinfo import ZoneInfo

from temporalio.workflow import unsafe

from engine.errors import TimezoneInvalid

_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")  # cannot leave the folder


@cache
def zone(name: str) -> ZoneInfo:
    """Return an IANA zone by its name.

    Raises:
        TimezoneInvalid: The installed ``tzdata`` has no such zone.
    """
    unknown = TimezoneInvalid(f"unknown timezone {name!r}", hint="use an IANA name")
    if not _NAME.fullmatch(name):
        raise unknown
    try:
        # Reading a packaged file is as deterministic as importing a module, but the sandbox
        # cannot know that: it forbids open() and warns about imports while a workflow runs.
        with unsafe.sandbox_unrestricted(), unsafe.imports_passed_through():
            file = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
            with file.open("rb") as content:
                return ZoneInfo.from_file(content, key=name)
    except (OSError, ValueError):  # no such file, or a packaged file that is not a zone
        raise unknown from None
