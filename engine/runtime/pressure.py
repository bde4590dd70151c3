"""How many starts a second a replica sends, when the Temporal server says "too many".

The scheme is the one of the AWS SDKs' adaptive retry mode: a token bucket whose rate follows
CUBIC, the congestion control of TCP (RFC 9438). A refusal lowers the rate to 0.7 of what was
accepted; from there it rises fast towards the rate that was too much, slowly around it, and fast
again beyond. Each replica learns its own share: nobody tells them how many there are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from engine.runtime.clock import boottime

_BETA = 0.7
_CUBIC = 0.4
_LOWEST = 0.5
_OFF = 1000.0
"""Starts a second beyond which a limit is none any more; no replica starts so many."""
_MEASURED = 1.0
_SETTLES = 0.5
"""Seconds until a lower rate shows: the server counts over about a second, and for all callers."""
_CREDIT = 0.1
"""Seconds of unused rate that may be made up for: a timer is never exact."""
_NAP = 0.2


class CubicRate:
    """The rate that refusals allow. Pure: time is an argument, in seconds of any clock."""

    def __init__(self) -> None:
        self._accepted: deque[float] = deque()
        self._refused_at: float | None = None
        self._top = self._recovery = 0.0

    def at(self, now: float) -> float | None:
        """Return the starts allowed per second; None while there is no limit."""
        if self._refused_at is None:
            return None
        rate = self._top + _CUBIC * (now - self._refused_at - self._recovery) ** 3
        if rate > _OFF:
            self._refused_at = None
            return None
        return max(rate, _LOWEST)

    def accepted(self, now: float) -> None:
        """Note a send that was not refused."""
        self._accepted.append(now)
        self._forget(now)

    def refused(self, *, sent_at: float, now: float) -> None:
        """Note a refusal. What was sent before the last one showed its effect says nothing new."""
        if self._refused_at is not None and sent_at < self._refused_at + _SETTLES:
            return
        self._forget(now)
        known = self.at(now)
        measured = len(self._accepted) / _MEASURED
        top = measured if known is None else min(known, measured)
        self._top = max(top, _LOWEST / _BETA)
        self._recovery = (self._top * (1 - _BETA) / _CUBIC) ** (1 / 3)
        self._refused_at = now

    def _forget(self, now: float) -> None:
        while self._accepted and self._accepted[0] <= now - _MEASURED:
            self._accepted.popleft()


class Pressure:
    """Lets sends through in the order they came, no faster than the rate allows.

    Args:
        ceiling: starts a second that are never exceeded; None sets no fixed limit.
    """

    def __init__(self, ceiling: float | None = None) -> None:
        self._ceiling = ceiling
        self._rate = CubicRate()
        self._line = asyncio.Lock()  # wakes its waiters first come, first served
        self._free_at = 0.0

    @property
    def limit(self) -> float | None:
        """The starts allowed per second at present; None when there is no limit."""
        return min(filter(None, (self._ceiling, self._rate.at(boottime()))), default=None)

    async def turn(self, given_up: Callable[[], bool]) -> bool:
        """Wait for this send's turn; False when ``given_up`` said so first."""
        if self.limit is None:
            return True
        async with self._line:
            while (limit := self.limit) is not None:
                if given_up():
                    return False
                now = boottime()
                if now >= self._free_at:
                    self._free_at = max(self._free_at, now - _CREDIT) + 1 / limit
                    break
                # The rate may rise, or the replica leave, before this wait is over.
                await asyncio.sleep(min(self._free_at - now, _NAP))
        return True

    def accepted(self) -> None:
        """Note that the server took a send."""
        self._rate.accepted(boottime())

    def refused(self, sent_at: float) -> None:
        """Note that the server refused what was sent when ``boottime`` was ``sent_at``."""
        self._rate.refused(sent_at=sent_at, now=boottime())
