"""How much one transaction of the janitor takes on: as much as lasts about a tenth of a second."""

from __future__ import annotations

from dataclasses import dataclass, field

AIM = 0.1
"""Seconds that a transaction of the janitor is to last."""
_GROWTH = 1.25
_LEAST = 20


@dataclass(slots=True)
class Pace:
    """So much at once, by how long it took before: less at once, more little by little.

    Attributes:
        amount: of whatever is counted: rows, windows.
        most: beyond it nothing is gained.
    """

    amount: int
    most: int

    def took(self, amount: int, seconds: float) -> None:
        """Learn from a transaction; one that had little to do says nothing of larger ones."""
        if seconds < AIM and amount * 2 < self.amount:
            return
        fair = min(amount * AIM / max(seconds, 0.001), self.amount * _GROWTH)
        self.amount = min(self.most, max(_LEAST, int(fair)))


@dataclass(frozen=True, slots=True)
class Paces:
    """What a janitor has learnt of the ledger it tidies."""

    reading: Pace = field(default_factory=lambda: Pace(500, most=2000))
    changing: Pace = field(default_factory=lambda: Pace(500, most=2000))
    counting: Pace = field(default_factory=lambda: Pace(5000, most=50_000))
    filling: Pace = field(default_factory=lambda: Pace(500, most=20_000))

    @property
    def rows(self) -> int:
        """So many rows are read at once, so that what is read can be changed at once too."""
        return min(self.reading.amount, self.changing.amount)
