"""The only statistics here: a median over samples, and three numbers of a distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


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


def in_turn(number: int, contestants: Sequence[T]) -> Sequence[T]:
    """Return them in the order of this round: whoever goes first has the machine to itself more."""
    return contestants[::-1] if number % 2 else contestants


def kept(found: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """Return the samples of each measurement and contestant, as they are kept."""
    return {
        f"{what}, {who}": [round(value, 3) for value in values]
        for what, both in found.items()
        for who, values in both.items()
    }


def median(values: Iterable[float]) -> float:
    """Return the median; samples are compared by it because one bad sample cannot move it."""
    return statistics.median(values)
