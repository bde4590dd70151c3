"""What says that a schedule file means what it meant before, without reading it.

Everything that its meaning depends on is in the digest: the text, the calendars it names, and
the versions of whatever gives them a meaning. Which calendars it names only reading tells: it
leaves them beside the digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from engine.schedules.cron import EVALUATOR_VERSION
from engine.schedules.zones import TZDATA_VERSION

READING_VERSION: Final = 1
"""Raise it whenever any text is read as other schedules than before."""


def file_digest(text: str, name: str, calendars: Mapping[str, str | None]) -> str:
    """Return the SHA-256, in hex, of a file and of the texts of the calendars it reads.

    Its name is no part of it, except whether the text must be JSON. A calendar that could not
    be read is None.
    """
    kind = ".json" if name.lower().endswith(".json") else ""
    parts = [str(READING_VERSION), str(EVALUATOR_VERSION), TZDATA_VERSION, kind, text]
    for calendar in sorted(calendars):
        found = calendars[calendar]
        parts += [calendar] if found is None else [calendar, "", found]
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", errors="surrogatepass")  # a lone one is refused elsewhere
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def joint_digest(digests: Sequence[str], *, warned: bool) -> str:
    """Return the digest of several files together; that of one is its own.

    ``warned``, whether reading warns of anything, is part of it. So what is warned of never has
    the digest that its texts alone give, is read each time, and its warnings are said each time.
    """
    if len(digests) == 1 and not warned:
        return digests[0]
    parts = [*digests, "warned"] if warned else digests
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()
