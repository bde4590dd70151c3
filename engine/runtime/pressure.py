"""How many starts a replica sends: a second, and at once of what would hold up others.

When the Temporal server says "too many", the scheme is the one of the AWS SDKs' adaptive retry
mode: a token bucket whose rate follows CUBIC, the congestion control of TCP (RFC 9438). A refusal
lowers the rate to 0.7 of what was accepted; from there it rises fast towards the rate that was too
much, slowly around it, and fast again beyond. Each replica learns its own share: nobody tells them
how many there are.

Long before it says so, a busy server answers later. Others would wait behind a backfill, or behind
large inputs, so these take only what the server has to spare. That scheme is the one of TCP Vegas.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

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
_QUEUED = (0.5, 1.0)
"""So many starts may wait inside the server: with fewer one more is sent, with more one less."""
_REMEMBERED = 10.0
"""Seconds after which the shortest answer is measured anew, with one start on its way."""

Answered: TypeAlias = Callable[[float], None]
"""Is told of an answer, with the ``boottime`` when the call was sent."""


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


class Vegas:
    """How many calls may be on their way for few to wait in the server. Pure, as `CubicRate` is.

    A call that takes twice the shortest one has waited for half of its time, and so, on average,
    has half of all that is on its way.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit, self._shortest = 1.0, 0.0
        self._measured_at: float | None = None

    @property
    def limit(self) -> int:
        """How many."""
        return int(self._limit)

    def answered(self, took: float, *, among: int, now: float) -> None:
        """Note that a call took so long that was sent when, with it, so many were on their way."""
        if self._measured_at is None or now - self._measured_at > _REMEMBERED:
            self._limit = 1.0
            if among > 1:
                return  # what is sent from now on is alone
            self._measured_at, self._shortest = now, took
        self._shortest = min(self._shortest, took)
        waiting = among * (1 - self._shortest / took) if took > 0 else 0.0
        fewest, most = _QUEUED
        if waiting < fewest:
            self._limit = min(self._limit + 1 / self._limit, float(self._most))
        elif waiting > most:
            self._limit = max(self._limit - 1 / self._limit, 1.0)


class Spare:
    """Lets calls through in the order they came, as many at once as the server has to spare.

    Attributes:
        waiting: how many wait for a place.
    """

    def __init__(self, most: int) -> None:
        self._vegas = Vegas(most)
        self._line = asyncio.Lock()
        self._freed = asyncio.Event()
        self._among = self.waiting = 0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[Answered]:
        """Wait for a place among those on their way.

        What is given is to be told of the answer.
        """
        self.waiting += 1
        try:
            async with self._line:
                while self._among >= self._vegas.limit:
                    self._freed.clear()
                    await self._freed.wait()
                self._among += 1
        finally:
            self.waiting -= 1
        among = self._among

        def answered(sent_at: float) -> None:
            now = boottime()
            self._vegas.answered(now - sent_at, among=among, now=now)

        try:
            yield answered
        finally:
            self._among -= 1
            self._freed.set()
