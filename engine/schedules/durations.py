"""Durations as people write them: ``90s``, ``15m``, ``24h``, ``2d``, ``500ms``, ``1h30m``."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
# Each unit at most once, the largest first, so that every text has one reading.
_SHAPE = re.compile("".join(rf"(?:(?P<{unit}>[0-9]{{1,15}}){unit})?" for unit in _UNITS))

LONGEST = timedelta(days=36_525)
"""A hundred years: beyond it a number is a slip, and instants leave the calendar."""

_HOW = "write a number and a unit (ms, s, m, h, d), for example 90s, 15m or 1h30m"


def parse_duration(text: str) -> timedelta:
    """Return the duration that ``text`` means.

    Args:
        text: numbers with the units d, h, m, s, ms, largest first; no spaces, signs or fractions.

    Raises:
        ValueError: the text is no duration, or one of more than a hundred years. The message
            is a sentence for the user that begins after "it is '…'; ".
    """
    match = _SHAPE.fullmatch(text)
    if not text or match is None:
        raise ValueError(_HOW)
    length = timedelta(0)
    for unit, number in match.groupdict().items():
        # Compared before it is multiplied: timedelta overflows where the limit would speak.
        if number is not None and int(number) > LONGEST / _UNITS[unit]:
            raise ValueError("write at most 36525d")
        length += int(number or 0) * _UNITS[unit]
    if length > LONGEST:
        raise ValueError("write at most 36525d")
    return length


def format_duration(length: timedelta) -> str:
    """Return the shortest text that ``parse_duration`` reads back as ``length``.

    Raises:
        ValueError: the duration is negative or finer than a millisecond.
    """
    rest, finer = divmod(length, _UNITS["ms"])
    if rest < 0 or finer:
        raise ValueError(f"{length!r} is not a whole number of milliseconds from 0 upwards")
    parts = []
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size // _UNITS["ms"])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
