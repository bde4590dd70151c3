"""The axis of time: whole seconds or milliseconds since 1970-01-01T00:00:00Z.

Every fire lies in ``EARLIEST <= t < HORIZON``: 1970 to 2100, both inclusive. Outside of it
zone rules are guesses and a bucket could become negative, so nothing fires there.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

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
