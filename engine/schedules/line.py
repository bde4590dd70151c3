"""Runs of one schedule that wait for each other, by ``overlap``, where each takes the same time.

For `simulate`, which is told how long runs take; the planner asks the ledger instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from engine.schedules.decisions import STOPS, Overlap


@dataclass(slots=True)
class Line:
    """Instants and durations are in milliseconds; a run has ended in the instant at its end.

    A run that is cancelled ends at once. With a policy that cancels there is one place.
    """

    policy: Overlap
    places: int
    duration: int
    most_queued: int
    queued: int = 0
    skipped: int = 0
    _waiting: deque[int] = field(default_factory=deque)

    def runs(self, windows: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yield when each run begins, and when it ends, in the order of time.

        Args:
            windows: in that order too, each its fire time and when its run may start.
        """
        running: deque[tuple[int, int]] = deque()  # at most so many as there are places
        for fire_time, moment in windows:
            begin, full = moment, len(running) == self.places
            if full and running[0][1] > fire_time:
                if self.policy in STOPS:
                    begun, end = running.pop()
                    running.append((begun, max(begun, min(end, fire_time))))
                elif self._may_wait(fire_time, running[0][1]):
                    begin = running[0][1]
                else:
                    self.skipped += 1
                    continue
            if full:
                yield running.popleft()
            running.append((begin, begin + self.duration))
        yield from running

    def _may_wait(self, fire_time: int, ends: int) -> bool:
        """Let a window wait until a place is free and its turn, if there is room for it."""
        while self._waiting and self._waiting[0] <= fire_time:
            self._waiting.popleft()
        room = {"skip": 0, "queue": self.most_queued}.get(self.policy, 1)
        if len(self._waiting) >= room:
            return False
        self.queued += 1
        self._waiting.append(ends)
        return True
