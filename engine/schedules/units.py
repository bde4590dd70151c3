"""Units of schedule files: durations, rates and instants."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

# --- durations ---
# Durations in files: ``90s``, ``15m``, ``24h``, ``2d``, ``500ms``, ``1h30m``.

_UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
# Each unit occurs at most once, the largest first, so that a text has one meaning.
_SHAPE = re.compile("".join(rf"(?:(?P<{unit}>[0-9]{{1,15}}){unit})?" for unit in _UNITS))

LONGEST = timedelta(days=36_525)
"""A hundred years. A longer duration is a typing error and would move instants off the calendar."""

_HOW = "write a number and a unit (ms, s, m, h, d), for example 90s, 15m or 1h30m"


def parse_duration(text: str) -> timedelta:
    """Return the duration that ``text`` means.

    Args:
        text: numbers with the units d, h, m, s, ms, largest first; no spaces, signs or fractions.

    Raises:
        ValueError: the text is not a duration, or exceeds a hundred years. The message is the cure.
    """
    match = _SHAPE.fullmatch(text)
    if not text or match is None:
        raise ValueError(_HOW)
    length = timedelta(0)
    for unit, number in match.groupdict().items():
        # Compare before multiplying: timedelta would overflow before the limit is checked.
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


# --- rates ---
# Rates in files: ``5/1m`` is five per minute, ``100/1s`` a hundred per second.

_RATE_SHAPE: Final = re.compile(r"([1-9][0-9]{0,8})/([0-9a-z]+)", re.ASCII)
_HOW_RATE: Final = "write a number and a duration, for example 5/1m"
_LONGEST: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Rate:
    """Number of starts per time, evenly spaced."""

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
        ValueError: the text is not a rate, or its time exceeds a day; the message is the cure.
    """
    match = _RATE_SHAPE.fullmatch(text)
    if match is None:
        raise ValueError(_HOW_RATE)
    try:
        per = parse_duration(match[2])
    except ValueError:
        raise ValueError(_HOW_RATE) from None
    if not timedelta(0) < per <= _LONGEST:
        raise ValueError("write a time of at most a day, for example 5/1m")
    return Rate(int(match[1]), per)


# --- instants ---
# Instants are whole seconds or milliseconds since 1970-01-01T00:00:00Z. Every fire lies in
# ``EARLIEST <= t < HORIZON``: 1970 to 2100, both inclusive. Nothing fires outside of it, because
# zone rules are guesses there and a bucket could become negative.

MINUTE_MS: Final = 60_000
EARLIEST: Final = 0
HORIZON: Final = 4_133_980_800  # 2101-01-01T00:00:00Z
FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 2100
SECONDS_PER_DAY: Final = 86_400

TICK: Final = timedelta(microseconds=1)
"""The resolution of instants here and in PostgreSQL: ``t - TICK`` is the last one before ``t``."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def epoch_seconds(instant: datetime) -> int:
    """Return ``instant`` in seconds since the epoch, floored.

    Raises:
        ValueError: ``instant`` is naive; its meaning would depend on the machine.
    """
    since = _since_epoch(instant)
    return since.days * SECONDS_PER_DAY + since.seconds


def epoch_ms(instant: datetime) -> int:
    """Return ``instant`` in milliseconds since the epoch, floored.

    Raises:
        ValueError: ``instant`` is naive.
    """
    return _since_epoch(instant) // _MILLISECOND


def from_seconds(seconds: int) -> datetime:
    """Return the UTC datetime that lies ``seconds`` after the epoch."""
    return datetime.fromtimestamp(seconds, UTC)


def from_ms(milliseconds: int) -> datetime:
    """Return the UTC datetime that lies ``milliseconds`` after the epoch."""
    return _EPOCH + milliseconds * _MILLISECOND


def _since_epoch(instant: datetime) -> timedelta:
    try:
        # The subtraction of two zone-aware datetimes is exact and honours ``fold``.
        return instant - _EPOCH
    except TypeError:
        raise ValueError(
            f"{instant!r} is naive; give it a time zone, for example datetime(..., tzinfo=UTC)"
        ) from None


def utc_text(instant: datetime) -> str:
    """Return an instant as messages show it: ``2027-01-01 09:00:00Z``."""
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def iso_text(instant: datetime) -> str:
    """Return an instant as commands take it: ``2027-01-01T09:00:00Z``."""
    return f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z"


def exact_text(instant: datetime) -> str:
    """Return an instant as JSON keeps it: ``2027-01-01T09:00:00.123456Z``."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def first_of(names: Sequence[str], most: int) -> str:
    """Return names as messages list them: ``a, b and 3 more``."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
