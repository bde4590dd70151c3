"""The changes of one zone's clock: which local readings they skip, and which they repeat.

Readings are seconds on the local axis, as in `cron_readings`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from engine.schedules.instants import SECONDS_PER_DAY
from engine.schedules.zones import Zone

_REACH: Final = 2 * SECONDS_PER_DAY  # no offset is that long


class Change(NamedTuple):
    """One change of offset, at ``at`` seconds since the epoch.

    Just before it the clock comes to ``before``, and then it shows ``after``. The readings
    ``skipped[0] <= r < skipped[1]`` are never shown; ``repeated[0] <= r < repeated[1]`` are
    shown again. Either is empty where its ends are equal.
    """

    at: int
    before: int
    after: int
    skipped: tuple[int, int]
    repeated: tuple[int, int]


def changes(rules: Zone, after: int, until: int) -> Iterator[Change]:
    """Return the changes with ``after < at <= until``, in the order of time."""
    first = max(bisect_right(rules.starts, after), 1)
    for piece in range(first, bisect_right(rules.starts, until)):
        at = rules.starts[piece]
        old, new = at + rules.offsets[piece - 1], at + rules.offsets[piece]
        # What a nested change had shown before is not skipped.
        low = min(rules.reached[piece], new)
        yield Change(at, old, new, (low, new), (new, max(old, new)))


def instants_of(rules: Zone, reading: int) -> list[int]:
    """Return the instants at which the clock shows ``reading``: none in a gap, two in a fold."""
    first = bisect_right(rules.starts, reading - _REACH) - 1
    found = []
    for piece in range(first, bisect_right(rules.starts, reading + _REACH)):
        at = reading - rules.offsets[piece]
        if bisect_right(rules.starts, at) - 1 == piece:
            found.append(at)
    return found
