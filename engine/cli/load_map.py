"""How many runs start when: a map of minutes, as rows of cells. Pure, and for any output."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from engine.cli.output import counted
from engine.schedules.instants import MINUTE_MS, epoch_ms
from engine.schedules.simulated import Simulation
from engine.schedules.simulation import LONGEST

HOUR, DAY, WEEK = 60, 24 * 60, 7 * 24 * 60
_SHAPES = ((2 * DAY, HOUR, 1), (62 * DAY, DAY, 30))
"""Up to this many minutes: the minutes of a row, and of a cell."""
_LONG_SHAPE = (WEEK, 180)
_WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONDAY = 4 * DAY
"""The first Monday after the epoch, in minutes."""


@dataclass(frozen=True, slots=True)
class Row:
    """One hour, day or week (UTC). A cell is the busiest minute of its stretch; None is outside."""

    begin: datetime
    cells: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class LoadMap:
    """All rows, and the minutes that one of them and one cell of it stand for."""

    rows: tuple[Row, ...]
    per_row: int
    per_cell: int

    def name(self, row: Row) -> str:
        """Return how a row is called."""
        if self.per_row == HOUR:
            return f"{row.begin:%Y-%m-%d %H}h"
        return f"{row.begin:%a %Y-%m-%d}"

    @property
    def ruler(self) -> dict[int, str]:
        """What stands above which column: minutes, hours or weekdays."""
        if self.per_row == HOUR:
            return {minute: f"{minute:02}" for minute in range(0, 60, 10)}
        if self.per_row == DAY:
            return {2 * hour: f"{hour:02}" for hour in range(0, 24, 3)}
        return {8 * day: name for day, name in enumerate(_WEEK)}


def load_map(simulation: Simulation, values: Sequence[int]) -> LoadMap:
    """Return the map of one value per minute; the longer the time, the coarser."""
    minutes = len(values)
    fitting = [shape[1:] for shape in _SHAPES if minutes <= shape[0]]
    per_row, per_cell = fitting[0] if fitting else _LONG_SHAPE
    first = epoch_ms(simulation.first) // MINUTE_MS
    before = (first - (_MONDAY if per_row == WEEK else 0)) % per_row
    rows = []
    for begin in range(-before, minutes, per_row):
        cells = tuple(
            max(values[max(at, 0) : max(at + per_cell, 0)], default=None)  # None is outside
            for at in range(begin, begin + per_row, per_cell)
        )
        rows.append(Row(simulation.minute(begin), cells))
    return LoadMap(tuple(rows), per_row, per_cell)


@dataclass(frozen=True, slots=True)
class Peak:
    """A value that a minute, or each of a stretch of them, has on one or more days (UTC).

    ``clock`` is the minute, or the first and the last of the stretch.
    """

    value: int
    clock: str
    days: tuple[datetime, ...]

    @property
    def when(self) -> str:
        """The days in words."""
        more = len(self.days) - 1
        first = f"on {self.days[0]:%Y-%m-%d}"
        return f"{first} and {counted(more, 'more day')}" if more else first


def busiest(simulation: Simulation, values: Sequence[int], most: int = 5) -> list[Peak]:
    """Return the highest values, each with its clock time; equal days are one peak."""
    stretches = ((-value, n, last) for value, n, last in _stretches(simulation, values) if value)
    grouped: dict[tuple[int, str], list[datetime]] = {}
    for value, n, last in heapq.nsmallest(LONGEST.days * most, stretches):
        begin, end = simulation.minute(n), simulation.minute(last)
        clock = f"{begin:%H:%M}" if n == last else f"{begin:%H:%M} to {end:%H:%M}"
        grouped.setdefault((-value, clock), []).append(begin)
    return [Peak(value, at, tuple(days)) for (value, at), days in [*grouped.items()][:most]]


def _stretches(simulation: Simulation, values: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield each value with the first and the last minute that have it, a day (UTC) at most."""
    first = epoch_ms(simulation.first) // MINUTE_MS
    minutes = groupby(enumerate(values), lambda each: (each[1], (first + each[0]) // DAY))
    for (value, _), stretch in minutes:
        numbers = [n for n, _ in stretch]
        yield value, numbers[0], numbers[-1]


def length(minutes: int) -> str:
    """Return how a cell's length is said."""
    return f"{minutes} min" if minutes < HOUR else f"{minutes // HOUR} h"


def utc(moment: datetime) -> str:
    """Return a moment for a headline."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
