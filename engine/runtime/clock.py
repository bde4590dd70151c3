"""Clocks of a replica, waits, and detection of clock skew."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

# --- clocks ---
# The ledger's clock decides what is due; ``boottime`` only measures elapsed time.


def _elapsed() -> float:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":  # where time.monotonic() stops in sleep, and this does not
        return time.clock_gettime(time.CLOCK_MONOTONIC)
    return time.monotonic()


STOPWATCH: ContextVar[Callable[[], float]] = ContextVar("stopwatch", default=_elapsed)
"""The source of ``boottime``; another one in tests that let time pass at once."""


def boottime() -> float:
    """Return the seconds of a clock that never goes back and counts time spent suspended.

    A lease measured by a clock that stops during suspend would look fresh after a night.
    """
    return STOPWATCH.get()()


def age_of(moment: float | None) -> float | None:
    """Return the seconds since a moment of ``boottime``; None if it never was."""
    return None if moment is None else boottime() - moment


class LedgerClock:
    """The ledger's clock as last read, carried forward by ``boottime``.

    The server read it at an unknown moment between request and response, hence three readings.
    The wrong one dates evidence in the future, or understates the age of a forgotten run.
    """

    def __init__(self) -> None:
        self._seen: tuple[datetime, float, float] | None = None

    def observe(
        self, now: datetime, *, asked: float | None = None, answered: float | None = None
    ) -> None:
        """Record the ledger's time, read between two moments of ``boottime``, by default now."""
        answered = boottime() if answered is None else answered
        self._seen = (now, answered if asked is None else asked, answered)

    def now(self) -> datetime:
        """Return the earliest possible ledger time, never ahead of the clock itself.

        Use it for evidence ("it was open at") and for how far back to search.
        """
        reading, _, answered = self._last()
        return reading + timedelta(seconds=boottime() - answered)

    def latest(self) -> datetime:
        """Return the latest possible ledger time, for ages that must not be underestimated."""
        reading, asked, _ = self._last()
        return reading + timedelta(seconds=boottime() - asked)

    def about(self) -> datetime:
        """Return the likeliest ledger time, in the middle, for waits and for display."""
        reading, asked, answered = self._last()
        return reading + timedelta(seconds=boottime() - (asked + answered) / 2)

    def _last(self) -> tuple[datetime, float, float]:
        """Return the last reading; ``observe`` must have been called."""
        if self._seen is None:
            raise RuntimeError("the ledger's clock has not been seen yet")
        return self._seen


# --- waits ---


async def wait_for(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until the event is set, or this many seconds; return whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def backoff(first: float, doubled: int, longest: float) -> float:
    """Return the pause, in seconds, that ``first`` becomes when it is doubled this many times."""
    return min(first * 2.0 ** min(doubled, 10), longest)


def jittered(seconds: float) -> float:
    """Return between half and all of a pause, so that replicas do not try in step."""
    return seconds * random.uniform(0.5, 1)


# --- clock skew ---
# Every decision rests on one clock, the database's. If it is set, or a server with another clock
# takes over, windows would be decided at a wrong time. Pure: both times are arguments.

_MINUTE = 60.0
_APART = 0.5
"""Minimum seconds between two readings that are kept."""
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class _Look:
    """A reading within [asked, answered]; the clock is ahead by [least, most]."""

    asked: float
    least: float
    most: float

    def step_to(self, later: _Look) -> float:
        """Return the seconds that the clock certainly gained (negative: lost) until ``later``."""
        if later.least > self.most:
            return later.least - self.most
        return min(later.most - self.least, 0.0)


class ClockWatch:
    """Comparison of a clock's progress with the time elapsed here.

    The skew is how much the clock gained or lost against that time, since any reading of the last
    minute and since the last one before it. A slow response is no skew: the clock was read between
    request and response, and only a difference that no such moment explains counts.

    Args:
        most: the tolerated skew.
    """

    def __init__(self, most: timedelta) -> None:
        self._most = most.total_seconds()
        self._looks: deque[_Look] = deque()
        self._until: float | None = None
        self.skew = 0.0

    @property
    def holds(self) -> bool:
        """Whether the clock is not trusted now."""
        return self._until is not None

    def observe(self, now: datetime, asked: float, answered: float) -> None:
        """Record that the clock read ``now`` between two moments of a monotonic clock.

        A step sets ``skew``, in seconds, and holds until the clock has agreed for a minute.
        """
        reading = (now - _EPOCH).total_seconds()
        look = _Look(asked, reading - answered, reading - asked)
        step = max((seen.step_to(look) for seen in self._looks), key=abs, default=0.0)
        if abs(step) > self._most:
            self.skew = step
            self._until = answered + _MINUTE
            self._looks.clear()  # from here on, compare with the new time
        elif self._until is not None and asked >= self._until:
            self._until = None
        self._remember(look)

    def _remember(self, look: _Look) -> None:
        if self._looks and look.asked - self._looks[-1].asked < _APART:
            return
        self._looks.append(look)
        # Keep one reading older than a minute: after a gap there is no other to compare with.
        while len(self._looks) > 1 and self._looks[1].asked <= look.asked - _MINUTE:
            self._looks.popleft()
