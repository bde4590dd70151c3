"""Runs of one schedule one behind the other, by ``overlap``, where each takes the same time.

For `simulate`, which is told how long runs take; the planner asks the ledger instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from engine.schedules.decisions import Overlap


@dataclass(slots=True)
class Line:
    """Instants and durations are in milliseconds; a run has ended in the instant at its end.

    A run that is cancelled ends at once.
    """

    policy: Overlap
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
        last: tuple[int, int] | None = None
        for fire_time, moment in windows:
            begin = moment
            if last is not None and last[1] > fire_time and self.policy != "allow":
                if self.policy in {"cancel_previous", "terminate_previous"}:
                    last = last[0], max(last[0], fire_time)
                elif self._may_wait(fire_time, last[1]):
                    begin = last[1]
                else:
                    self.skipped += 1
                    continue
            if last is not None:
                yield last
            last = begin, begin + self.duration
        if last is not None:
            yield last

    def _may_wait(self, fire_time: int, ends: int) -> bool:
        """Let a window wait until everything before it has ended, if there is room for it."""
        while self._waiting and self._waiting[0] <= fire_time:
            self._waiting.popleft()
        room = {"skip": 0, "queue": self.most_queued}.get(self.policy, 1)
        if len(self._waiting) >= room:
            return False
        self.queued += 1
        self._waiting.append(ends)
        return True
