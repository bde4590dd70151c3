"""What a simulation is told and says: outages, and what became of each window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

Outcome = Literal[
    "on_time", "late", "caught_up", "queued",
    "overlapped", "coalesced", "excluded", "expired", "disabled", "paused",
]  # fmt: skip
OUTCOMES: Final[tuple[Outcome, ...]] = (
    "on_time", "late", "caught_up", "queued",
    "overlapped", "coalesced", "excluded", "expired", "disabled", "paused",
)  # fmt: skip
"""What becomes of a window; the first four have a run."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Nothing is looked at and nothing starts in ``begin <= t < end``."""

    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one schedule's windows.

    Attributes:
        key: the schedule's key.
        windows: how many fire times lie in the simulated time.
        counts: how many of them ended how; together they are ``windows``.
        first_sight: runs of a window that was open before, owed to a new schedule.
        follows: its windows wait for other schedules, and for how long is not known here: they
            are counted as if they did not.
        overlap_unknown: its runs may be in each other's way, and how is not known here: they
            are counted as with ``overlap: allow``.
    """

    key: str
    windows: int
    counts: Mapping[Outcome, int]
    first_sight: int = 0
    overlap_unknown: bool = False
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a file would do in ``start <= t < end``.

    Attributes:
        outages: in the order of time, and apart.
        fates: one per schedule, in the file's order.
        first: the UTC minute that ``starts`` and ``most_open`` begin with.
        starts: runs that start, per minute.
        most_open: runs open at once, at most, per minute; empty where no duration is known.
    """

    start: datetime
    end: datetime
    outages: tuple[Outage, ...]
    fates: tuple[Fate, ...]
    first: datetime
    starts: Sequence[int]
    most_open: Sequence[int]

    @property
    def totals(self) -> dict[Outcome, int]:
        """How many windows of all schedules ended how; what did not happen is left out."""
        sums = {name: sum(fate.counts.get(name, 0) for fate in self.fates) for name in OUTCOMES}
        return {name: count for name, count in sums.items() if count}

    @property
    def total(self) -> Fate:
        """What became of the windows of all schedules, as if they were one called ``all``."""
        return Fate(
            "all", sum(fate.windows for fate in self.fates), self.totals,
            sum(fate.first_sight for fate in self.fates),
        )  # fmt: skip

    def minute(self, index: int) -> datetime:
        """Return the minute that ``starts[index]`` counts."""
        return self.first + index * timedelta(minutes=1)
