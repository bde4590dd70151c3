"""The only statistics here: a median over samples, and three numbers of a distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, the 95th percentile and the largest of some values, in their unit."""

    p50: float
    p95: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one value; percentiles are of the nearest rank."""
        ordered = sorted(values)
        rank = math.ceil(0.95 * len(ordered))
        return cls(statistics.median(ordered), ordered[rank - 1], ordered[-1])


def median(values: Iterable[float]) -> float:
    """Return the median; samples are compared by it because one bad sample cannot move it."""
    return statistics.median(values)
