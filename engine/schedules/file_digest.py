"""What says that a schedule file means what it meant before, without reading it.

Everything that its meaning depends on is in the digest: the text, the calendars it names, and
the versions of whatever gives them a meaning.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final

from engine.schedules.cron import EVALUATOR_VERSION
from engine.schedules.zones import TZDATA_VERSION

READING_VERSION: Final = 1
"""Raise it whenever any text is read as other schedules than before."""

_ICS = re.compile(r"""(?<![\w.-])ics["']?\s*:\s*(?:"([^"\\\n]+)"|'([^'\n]+)'|([^\s"'#,{}\[\]]+))""")


def file_digest(text: str, name: str, calendars: Mapping[str, str]) -> str:
    """Return the SHA-256, in hex, of a file and of the texts of the calendars it reads.

    Its name is no part of it, except whether the text must be JSON.
    """
    kind = ".json" if name.lower().endswith(".json") else ""
    parts = [str(READING_VERSION), str(EVALUATOR_VERSION), TZDATA_VERSION, kind, text]
    for calendar in sorted(calendars):
        parts += [calendar, calendars[calendar]]
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", errors="surrogatepass")  # a lone one is refused elsewhere
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def joint_digest(digests: Sequence[str]) -> str:
    """Return the digest of several files together; that of one is its own."""
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def calendars_named(text: str) -> set[str]:
    """Return the .ics files that a text seems to name.

    It is a guess, and may be: a digest made with other calendars than those that were read
    differs from the one that reading made, and then the file is read.
    """
    return {next(filter(None, found)) for found in _ICS.findall(text)}
