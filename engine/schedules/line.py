"""Runs of one schedule one behind the other, by ``overlap``, where each takes the same time.

For `simulate`, which knows how long runs take; the planner asks the ledger instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.schedules.decisions import Overlap


@dataclass(slots=True)
class Line:
    """Instants and durations are in milliseconds; a run ends before its last instant.

    A run that is cancelled ends at once.
    """

    policy: Overlap
    duration: int
    most_queued: int
    runs: list[tuple[int, int]] = field(default_factory=list)
    """When each began and ended."""
    queued: int = 0
    skipped: int = 0
    _waiting: deque[int] = field(default_factory=deque)

    def open(self, windows: Iterable[tuple[int, int]]) -> None:
        """Let windows open in the order of time: each its fire time, and when its run may start."""
        for fire_time, moment in windows:
            ends = self.runs[-1][1] if self.runs else fire_time
            if ends <= fire_time or self.policy == "allow":
                self._start(moment)
            elif self.policy == "skip":
                self.skipped += 1
            elif self.policy in {"queue", "queue_one"}:
                self._queue(fire_time, ends)
            else:
                self.runs[-1] = (self.runs[-1][0], fire_time)
                self._start(moment)

    def _queue(self, fire_time: int, ends: int) -> None:
        while self._waiting and self._waiting[0] <= fire_time:
            self._waiting.popleft()
        if len(self._waiting) >= (self.most_queued if self.policy == "queue" else 1):
            self.skipped += 1
            return
        self.queued += 1
        self._waiting.append(ends)
        self._start(ends)

    def _start(self, moment: int) -> None:
        self.runs.append((moment, moment + self.duration))
