"""How many runs are open at once, minute by minute, while their starts pass by in order."""

from __future__ import annotations

import heapq

from engine.schedules.instants import MINUTE_MS


class OpenRuns:
    """The most runs open at one instant of each minute; remembers those open, and no others.

    Args:
        first: the first minute, in minutes since the epoch.
        minutes: how many are counted.
    """

    def __init__(self, first: int, minutes: int) -> None:
        self._first, self._most = first, [0] * minutes
        self._level = self._reached = 0
        self._ends: list[tuple[int, int]] = []

    def start(self, at: int, length: int, count: int = 1) -> None:
        """Open ``count`` runs at ``at`` for ``length``, both in ms; never before an earlier call's.

        A run has ended in the instant at its end, so that one of no length is never open.
        """
        if not length:
            return
        self._end_all(at)
        self._pass(at)
        self._level += count
        heapq.heappush(self._ends, (at + length, count))

    def finish(self) -> list[int]:
        """Return the most of each minute."""
        self._end_all((self._first + len(self._most)) * MINUTE_MS)
        for minute in range(self._reached, len(self._most)):
            self._most[minute] = max(self._most[minute], self._level)
        return self._most

    def _end_all(self, until: int) -> None:
        while self._ends and self._ends[0][0] <= until:
            end, count = heapq.heappop(self._ends)
            self._pass(end)
            self._level -= count

    def _pass(self, at: int) -> None:
        """Until just before this instant the level was as it is."""
        last = min((at - 1) // MINUTE_MS - self._first, len(self._most) - 1)
        for minute in range(self._reached, last + 1):
            self._most[minute] = max(self._most[minute], self._level)
        self._reached = max(self._reached, at // MINUTE_MS - self._first)
