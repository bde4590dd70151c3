"""Rates as people write them: ``5/1m`` is five in a minute, ``100/1s`` a hundred in a second."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from engine.schedules.durations import format_duration, parse_duration

_SHAPE: Final = re.compile(r"([1-9][0-9]{0,8})/([0-9a-z]+)", re.ASCII)
_HOW: Final = "write a number and a duration, for example 5/1m"
_LONGEST: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Rate:
    """So many starts in so long a time, at even distances."""

    count: int
    per: timedelta

    def __str__(self) -> str:
        return f"{self.count}/{format_duration(self.per)}"

    @property
    def distance(self) -> timedelta:
        """The time from one start to the next."""
        return self.per / self.count


def parse_rate(text: str) -> Rate:
    """Return the rate that ``text`` means.

    Raises:
        ValueError: it is none, or one of a time beyond a day; the message is the cure.
    """
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise ValueError(_HOW)
    try:
        per = parse_duration(match[2])
    except ValueError:
        raise ValueError(_HOW) from None
    if not timedelta(0) < per <= _LONGEST:
        raise ValueError("write a time of at most a day, for example 5/1m")
    return Rate(int(match[1]), per)
