"""Clocks of a replica, and detection of clock skew."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

# --- clocks ---
# Two clocks: the ledger's, which decides what is due, and one that only counts.


def boottime() -> float:
    """Return seconds of a clock that never goes back and counts time spent suspended.

    A lease measured by a clock that stops during suspend would look fresh after a night.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class LedgerClock:
    """The ledger's clock as last seen, carried forward by ``boottime``.

    It was read at some moment between question and answer, nobody knows at which. So there are
    three readings: whoever takes the wrong one has a proof from the future, or a run forgotten.
    """

    def __init__(self) -> None:
        self._seen: tuple[datetime, float, float] | None = None

    def observe(
        self, now: datetime, *, asked: float | None = None, answered: float | None = None
    ) -> None:
        """Note what the ledger's clock said between two moments of ``boottime``; by default now."""
        answered = boottime() if answered is None else answered
        self._seen = (now, answered if asked is None else asked, answered)

    def now(self) -> datetime:
        """Return the ledger's time at the earliest: it is never ahead of the clock itself.

        For proofs ("it was open at"), and for how far back somebody looks.
        """
        said, _, answered = self._last()
        return said + timedelta(seconds=boottime() - answered)

    def latest(self) -> datetime:
        """Return the ledger's time at the latest: for an age that must not be taken for less."""
        said, asked, _ = self._last()
        return said + timedelta(seconds=boottime() - asked)

    def about(self) -> datetime:
        """Return the likeliest reading, in the middle: for waits, and for what people read."""
        said, asked, answered = self._last()
        return said + timedelta(seconds=boottime() - (asked + answered) / 2)

    def _last(self) -> tuple[datetime, float, float]:
        """``observe`` must have been called."""
        if self._seen is None:
            raise RuntimeError("the ledger's clock has not been seen yet")
        return self._seen


# --- clock skew ---
# Whether the database's clock still goes as time does. Pure: it is told both.
#
# Every decision rests on one clock, the database's. When it is set, or another server with another
# clock takes over, windows would be decided by a time that never was.

_MINUTE = 60.0
_APART = 0.5
"""Seconds between two looks that are remembered."""
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class _Look:
    """The clock was read at some moment of [asked, answered], so it is ahead by [least, most]."""

    asked: float
    least: float
    most: float

    def step_to(self, later: _Look) -> float:
        """Seconds that the clock surely went too far (or, negative, not far enough) since."""
        if later.least > self.most:
            return later.least - self.most
        return min(later.most - self.least, 0.0)


class ClockWatch:
    """Compares the progress of a clock with time that has passed here.

    What counts is how much more or less than that time the clock went, since any look of the last
    minute and since the last one before it. A slow answer is no skew: the clock was read somewhere
    between question and answer, and only what no such moment explains counts.

    Args:
        most: the skew that is put up with.
    """

    def __init__(self, most: timedelta) -> None:
        self._most = most.total_seconds()
        self._looks: deque[_Look] = deque()
        self._until: float | None = None
        self.skew = 0.0

    @property
    def holds(self) -> bool:
        """Whether the clock is not to be trusted now."""
        return self._until is not None

    def observe(self, now: datetime, asked: float, answered: float) -> None:
        """Note that the clock said ``now`` between two moments of a clock that only counts.

        A step sets ``skew``, in seconds, and holds until the clock has agreed for a minute.
        """
        said = (now - _EPOCH).total_seconds()
        look = _Look(asked, said - answered, said - asked)
        step = max((seen.step_to(look) for seen in self._looks), key=abs, default=0.0)
        if abs(step) > self._most:
            self.skew = step
            self._until = answered + _MINUTE
            self._looks.clear()  # from here on the clock is compared with what it says now
        elif self._until is not None and asked >= self._until:
            self._until = None
        self._remember(look)

    def _remember(self, look: _Look) -> None:
        if self._looks and look.asked - self._looks[-1].asked < _APART:
            return
        self._looks.append(look)
        # One from before the last minute stays: after a gap it is all there is to compare with.
        while len(self._looks) > 1 and self._looks[1].asked <= look.asked - _MINUTE:
            self._looks.popleft()
