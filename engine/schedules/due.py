"""The due windows of one schedule, and the ways to decide a span of them.

Every way answers lazily and in the order of time, so that a plan takes no more than it can hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from engine.schedules.decisions import Decision, Known, StartTiming, Verdict
from engine.schedules.instants import TICK
from engine.schedules.model import Schedule
from engine.schedules.windows import Window

FIRST_SIGHT: Final = "first sight"
"""The reason of a window that was open when its schedule was first seen."""

Stretch = tuple[datetime, datetime, str | None]
"""``after < t <= until``, and what excludes the windows in it; None is nothing."""

_NONE: Final[Known] = {}


@dataclass(frozen=True, slots=True)
class Due:
    """What one schedule owes at ``now``.

    Excluded windows are settled on the way, whatever becomes of those around them, and windows
    that have a row already are passed over.
    """

    schedule: Schedule
    series: int
    effective_from: datetime
    now: datetime
    known: Known = field(default_factory=lambda: _NONE)

    def oldest(self, after: datetime) -> datetime | None:
        """Return the oldest due window after ``after`` that may start."""
        oldest = self.schedule.first_start(after + TICK)
        while oldest is not None and oldest in self.known:
            oldest = self.schedule.first_start(oldest + TICK)
        return oldest if oldest is not None and oldest <= self.now else None

    def newest(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """Return the ``most`` newest windows in ``(after, until]`` that may start, newest first.

        Walks backwards: the cost is that of what is returned, not of what was missed.
        """
        found: list[datetime] = []
        reach = timedelta(days=1)
        while until > after and len(found) < most:
            begin = max(after, until - reach)
            for first, last, excluded in reversed([*self.stretches(begin, until)]):
                at = self.schedule.spec.previous(last) if excluded is None else None
                while at is not None and at > first and len(found) < most:
                    found.append(at)
                    at = self.schedule.spec.previous(at - TICK)
            until, reach = begin, 2 * reach
        return found

    def start_all(
        self, after: datetime, until: datetime, timing: StartTiming = "on_time"
    ) -> Iterator[Decision]:
        """Start every window in ``(after, until]``."""
        for begin, end, excluded in self.stretches(after, until):
            if excluded is not None:
                yield from self.settle_whole(begin, end, "skipped", excluded)
                continue
            for at in self.schedule.spec.fires(begin, end):
                # No window before the definition is owed, so only first sight has one at its start.
                yield self.start(at, timing, FIRST_SIGHT if at == self.effective_from else None)

    def settle(
        self, after: datetime, until: datetime, verdict: Verdict, reason: str
    ) -> Iterator[Decision]:
        """Decide all windows in ``(after, until]``, one row for each stretch of one reason."""
        for begin, end, excluded in self.stretches(after, until):
            if excluded is None:
                yield from self.settle_whole(begin, end, verdict, reason)
            else:
                yield from self.settle_whole(begin, end, "skipped", excluded)

    def settle_held(self, after: datetime, until: datetime, hold: str) -> Iterator[Decision]:
        """Skip all windows in ``(after, until]`` for a hold; it speaks before any exclusion."""
        for begin, end in self._unknown(after, until):
            yield from self.settle_whole(begin, end, "skipped", hold)

    def settle_whole(
        self, after: datetime, until: datetime, verdict: Verdict, reason: str
    ) -> Iterator[Decision]:
        """One decision for all windows in ``(after, until]``: however many, it is one row."""
        spec = self.schedule.spec
        first = spec.next(after)
        last = spec.previous(until)
        if first is not None and last is not None and first <= until:
            windows = spec.count(after, until)
            yield Decision(self._window(first), verdict, reason, windows=windows, last=last)

    def start(
        self,
        at: datetime,
        timing: StartTiming,
        reason: str | None = None,
        *,
        missed: int = 0,
        missed_from: datetime | None = None,
    ) -> Decision:
        """Start the window that opened at ``at``, by its part of ``spread`` later."""
        moment = at + self.schedule.delay(at)
        return Decision(
            self._window(at), "claimed", reason, timing, missed=missed, missed_from=missed_from,
            not_before=moment if moment > self.now else None,
        )  # fmt: skip

    def stretches(self, after: datetime, until: datetime) -> Iterator[Stretch]:
        """Divide ``(after, until]`` by what excludes the windows in it."""
        excluded = self.schedule.exclusions
        for first, last in self._unknown(after, until):
            if excluded is None:
                yield first, last, None
                continue
            for begin, end, reason in excluded.divide(first, last):
                yield begin, end, f"excluded: {reason}" if reason else None

    def _unknown(self, after: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
        """``(after, until]`` without the windows that have a row."""
        for at in sorted(self.known):
            if after < at <= until:
                if at - TICK > after:
                    yield after, at - TICK
                after = at
        if after < until:
            yield after, until

    def _window(self, fire_time: datetime) -> Window:
        return Window(
            self.schedule.key, self.series, self.schedule.spec.bucket(fire_time), fire_time
        )
