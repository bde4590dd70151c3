"""Back-pressure on starts: circuit breaker and adaptive rate."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias, TypeVar

from temporalio.client import WorkflowExecutionAsyncIterator
from temporalio.service import RPCError

from engine.runtime.clock import boottime
from engine.runtime.events import Degraded, OnEvent, Recovered, logger

# --- circuit breaker ---
# Stops claims while Temporal is away: what nobody has claimed, everybody can claim later.

_SUSPICIOUS = 3
"""Sends in a row that nobody answered, before the server itself is asked."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
_LOOK = 1.0
"""Seconds until a loop with nothing to do comes back, so that it can be stopped."""
_NOTHING = timedelta(0)


class Breaker:
    """Closed while the server answers, open while it does not.

        closed ──3 sends in a row without an answer──▶ suspect
        suspect ──the trial call is answered──▶ closed; it was the sends' own fault
        suspect ──it is not──▶ open ──a later trial call is answered──▶ closed

    A schedule whose own start never gets an answer raises suspicion only, and the trial call
    clears it: one bad schedule never holds the others.

    Args:
        ask: makes the trial call; returns why there was no answer, or None when there was one.
        on_event: called once when starts are held, and once when they go on.
    """

    def __init__(self, ask: Callable[[], Awaitable[str | None]], *, on_event: OnEvent) -> None:
        self._ask, self._emit = ask, on_event
        self._state: Literal["closed", "suspect", "open"] = "closed"
        self._unanswered = self._trials = 0
        self._given_up = False
        self._suspected, self._decided = asyncio.Event(), asyncio.Event()
        self._decided.set()

    @property
    def holds(self) -> bool:
        """Whether nothing may be claimed: the server is away, or it is being found out."""
        return self._state != "closed"

    @property
    def is_open(self) -> bool:
        """Whether the server is known to be away, by a trial call that it did not answer."""
        return self._state == "open"

    async def ask(self) -> str | None:
        """Make the trial call for somebody else; returns why there was no answer, if so."""
        return await self._ask()

    def answered(self) -> None:
        """Note that the server answered a send, whatever it said."""
        self._unanswered = 0

    def unanswered(self) -> None:
        """Note that nobody answered a send."""
        self._unanswered += 1
        if self._unanswered >= _SUSPICIOUS and self._state == "closed":
            self._state = "suspect"
            self._suspected.set()
            if self._given_up:
                self.give_up()
            else:
                self._decided.clear()

    async def closed(self) -> bool:
        """Return whether sends may go on; waits while it is being found out."""
        await self._decided.wait()
        return self._state == "closed"

    async def run_once(self) -> timedelta:
        """Wait for a suspicion, then make trial calls; returns the pause before the next."""
        if self._state == "closed":
            try:
                async with asyncio.timeout(_LOOK):
                    await self._suspected.wait()
            except TimeoutError:
                return _NOTHING
        reason = await self._ask()
        if reason is None:
            self._close()
            return _NOTHING
        if self._state != "open":
            self._state = "open"
            self._decided.set()
            self._emit(Degraded("starts", f"Temporal does not answer: {reason}"))
        longest = min(_FIRST_PAUSE * 2.0 ** min(self._trials, 10), _LONGEST_PAUSE)
        self._trials += 1
        return timedelta(seconds=longest * random.uniform(0.5, 1))

    def give_up(self) -> None:
        """Decide without trial calls from here on: the replica is leaving."""
        self._given_up = True
        if self._state == "suspect":
            self._state = "open"
            self._decided.set()

    def _close(self) -> None:
        if self._state == "open":
            self._emit(Recovered("starts"))
        self._state = "closed"
        self._unanswered = self._trials = 0
        self._suspected.clear()
        self._decided.set()


# --- adaptive rate ---
# How many starts a replica sends: a second, and at once of what would hold up others.
#
# When the Temporal server says "too many", the scheme is the one of the AWS SDKs' adaptive retry
# mode: a token bucket whose rate follows CUBIC, the congestion control of TCP (RFC 9438). A refusal
# lowers the rate to 0.7 of what was accepted; from there it rises fast towards the rate that was
# too much, slowly around it, and fast again beyond. Each replica learns its own share: nobody tells
# them how many there are.
#
# Long before it says so, a busy server answers later. Others would wait behind a backfill, or
# behind large inputs, so these take only what the server has to spare. That scheme is the one of
# TCP Vegas.

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


class AdaptiveRateLimiter:
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

    async def acquire(self, given_up: Callable[[], bool]) -> bool:
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
    """Limit of calls in flight that keeps the server's queue short. Pure, like `CubicRate`.

    A call that takes twice the shortest one has waited for half of its time, and so, on average,
    has half of all that is on its way.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit, self._shortest = 1.0, 0.0
        self._measured_at: float | None = None

    @property
    def limit(self) -> int:
        """The limit, in calls."""
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


# --- budget of calls that start nothing ---
# A bound on the calls to Temporal that start nothing: looks, audits, stops, the tracker's.
#
# However much there is to ask, starts have the server to themselves for the most part. What comes
# beyond the bound waits its turn, in the order in which it was asked for, and is counted.

T = TypeVar("T")

CALLS: Final = 16
"""Calls a second of one replica that describe, cancel or terminate a run."""
TRACKER_CALLS: Final = 4
"""Calls a second of whoever has the tracker's duty besides: closes are learned however many looks
wait for their turn."""
PAGE: Final = 500
"""Runs that one list call returns."""
AUDITED: Final = 200
"""The same of an audit. The server may be slow then, and a page has one timeout to arrive."""
_TRIES: Final = 5


class Allowance:
    """So many calls in any stretch of ``per`` seconds, first come, first served.

    Attributes:
        late: how many calls had to wait so far.
        waiting: how many wait at present.
    """

    def __init__(self, count: int, per: float = 1.0) -> None:
        self._given: deque[float] = deque(maxlen=count)
        self.per = per
        self.late = self.waiting = 0

    async def take(self) -> None:
        """Return when the next call may be made."""
        now = at = boottime()
        if len(self._given) == self._given.maxlen:
            at = max(now, self._given[0] + self.per)
        if self._given:
            at = max(at, self._given[-1])
        self._given.append(at)
        if at <= now:
            return
        self.late += 1
        self.waiting += 1
        try:
            await asyncio.sleep(at - now)
        finally:
            self.waiting -= 1


class Budget:
    """The calls of one replica that start nothing.

    Of two list calls a second in a namespace one is the tracker's, which is one replica at a time.
    The other is for audits, and the living replicas share it.
    """

    def __init__(self) -> None:
        self._calls, self._tracker_calls = Allowance(CALLS), Allowance(TRACKER_CALLS)
        self._tracking, self._auditing = Allowance(1), Allowance(1)
        self._told = 0

    async def call(self, *, tracking: bool = False) -> None:
        """Return when one run may be described, cancelled or terminated.

        ``tracking``: for whoever has the tracker's duty.
        """
        await (self._tracker_calls if tracking else self._calls).take()

    def tracked(self, runs: AsyncIterable[T]) -> AsyncIterator[T]:
        """Return the runs of a list call, for whoever has the tracker's duty."""
        return _paged(runs, self._tracking, PAGE)

    def audited(self, runs: AsyncIterable[T]) -> AsyncIterator[T]:
        """Return the runs of a list call, for an audit."""
        return _paged(runs, self._auditing, AUDITED)

    def share(self, replicas: int) -> None:
        """Share what is the namespace's among so many replicas."""
        self._auditing.per = float(max(replicas, 1))

    @property
    def late(self) -> int:
        """Number of calls that had to wait so far."""
        return sum(each.late for each in self._every)

    @property
    def waiting(self) -> int:
        """Number of calls that wait at present."""
        return sum(each.waiting for each in self._every)

    @property
    def _every(self) -> tuple[Allowance, ...]:
        return self._calls, self._tracker_calls, self._tracking, self._auditing

    def report(self) -> None:
        """Log how many calls had to wait since this was asked last, if any."""
        if (late := self.late) > self._told:
            more = late - self._told
            logger.info("%d calls to Temporal waited for their turn, %d wait", more, self.waiting)
            self._told = late


async def _paged(runs: AsyncIterable[T], allowance: Allowance, page: int) -> AsyncIterator[T]:
    """Yield the runs, and wait before each page of them.

    A page that did not arrive is asked for again: the pages before it are not to be lost with it.
    """
    found: Any = aiter(runs)
    count = failures = 0
    await allowance.take()
    while True:
        try:
            run = await anext(found)
        except StopAsyncIteration:
            return
        except RPCError:
            failures += 1
            # Any other iterator has ended with its error, and would seem to have no more runs.
            if failures == _TRIES or not isinstance(found, WorkflowExecutionAsyncIterator):
                raise
            await allowance.take()
            continue
        yield run
        count, failures = count + 1, 0
        if count % page == 0:
            await allowance.take()
