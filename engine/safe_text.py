"""Texts from people, made safe for terminals and logs. Separate, because every room prints.

A reason, a description or an error may hold characters that act on a terminal (C0 and C1), turn the
order of what follows (bidirectional overrides) or cannot be seen (zero width). They are refused in
what becomes part of the account, see ``unsafe_in``, and written as escapes everywhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, TextIO

HIDDEN: Final = (
    r"\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
)
"""Besides C0, as a part of a character class of Python, Rust and JSON Schema alike."""

LINE: Final = rf"^[^\x00-\x1f{HIDDEN}]*$"
"""A text of one line that is safe to print."""

_ON_LINES: Final = re.compile(rf"[\x00-\x08\x0b-\x1f{HIDDEN}]")
_IN_LINE: Final = re.compile(rf"[\x00-\x1f{HIDDEN}]")
_COLOURED: Final = re.compile(rf"[\x00-\x08\x0b-\x1a\x1c-\x1f{HIDDEN}]")


def _escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


def escaped(text: str, *, one_line: bool = False, colours: bool = False) -> str:
    r"""Return a text whose unsafe characters are written as in JSON: ``\u009b``.

    Args:
        text: the text.
        one_line: whether line ends and tabs are unsafe too.
        colours: whether ESC passes, because the text is of a program that may use colours.
    """
    unsafe = _IN_LINE if one_line else _COLOURED if colours else _ON_LINES
    return unsafe.sub(_escape, text)


def json_text(
    value: Any, *, indent: int | None = None, default: Callable[[Any], Any] | None = None
) -> str:
    """Return a value as JSON that is readable, and safe to print: nothing is lost by it."""
    text = json.dumps(value, indent=indent, default=default, ensure_ascii=False)
    return escaped(text)


def unsafe_in(text: str) -> str | None:
    """Return the first unsafe character of a text of one line, as ``U+009B``; None without any."""
    found = _IN_LINE.search(text)
    return None if found is None else f"U+{ord(found[0]):04X}"


class SafeStream:
    """A text stream whose unsafe characters are written as escapes.

    Rich writes its own colours past it, into ``rich_proxied_file``.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write a text."""
        return self.rich_proxied_file.write(escaped(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)
