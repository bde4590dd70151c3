"""Back-pressure on calls to Temporal: circuit breaker, adaptive rate and call budget."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, Literal, TypeVar

from temporalio.client import WorkflowExecutionAsyncIterator
from temporalio.service import RPCError

from engine.runtime.clock import backoff, boottime, jittered
from engine.runtime.dispatch.shares import FairSlots
from engine.runtime.events import Degraded, OnEvent, Recovered, logger

# --- circuit breaker ---
# A stop of claims while Temporal is away: any replica can claim later what is still unclaimed.

_SUSPICIOUS = 3
"""Unanswered sends in a row that trigger a trial call."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
_LOOK = timedelta(seconds=1)
"""Pause of an idle loop; a suspicion rouses it."""
_NOTHING = timedelta(0)


class Breaker:
    """Circuit breaker: closed while the server answers, open while it does not.

        closed ──3 unanswered sends in a row──▶ suspect
        suspect ──trial call answered──▶ closed; the sends themselves were at fault
        suspect ──trial call unanswered──▶ open ──later trial call answered──▶ closed

    A schedule whose own start never gets an answer only raises suspicion, and the trial call
    clears it: one bad schedule never holds up the others.

    Args:
        ask: makes the trial call; returns why there was no answer, or None if there was one.
        on_event: called once when starts are held, and once when they continue.

    Attributes:
        rouse: called when a suspicion arises, to end the pause of the loop.
    """

    def __init__(self, ask: Callable[[], Awaitable[str | None]], *, on_event: OnEvent) -> None:
        self.ask, self._emit = ask, on_event
        self._state: Literal["closed", "suspect", "open"] = "closed"
        self._unanswered = self._trials = 0
        self._given_up = False
        self.rouse: Callable[[], None] = lambda: None
        self._decided = asyncio.Event()
        self._decided.set()

    @property
    def holds(self) -> bool:
        """Whether nothing may be claimed: the server is away, or a trial call is pending."""
        return self._state != "closed"

    @property
    def is_open(self) -> bool:
        """Whether the server is known to be away: a trial call got no answer."""
        return self._state == "open"

    def answered(self) -> None:
        """Record that the server answered a send, with success or an error."""
        self._unanswered = 0

    def unanswered(self) -> None:
        """Record that a send got no answer."""
        self._unanswered += 1
        if self._unanswered >= _SUSPICIOUS and self._state == "closed":
            self._state = "suspect"
            self.rouse()
            if self._given_up:
                self.give_up()
            else:
                self._decided.clear()

    async def closed(self) -> bool:
        """Wait while a trial call is pending; return whether sends may continue."""
        await self._decided.wait()
        return self._state == "closed"

    async def run_once(self) -> timedelta:
        """Make a trial call if there is a suspicion; return the pause before the next."""
        if self._state == "closed":
            return _LOOK
        reason = await self.ask()
        if reason is None:
            self._close()
            return _NOTHING
        if self._state != "open":
            self._state = "open"
            self._decided.set()
            said = f"Temporal does not answer: {reason}"
            self._emit(Degraded("starts", said, "temporal", reason))
        pause = backoff(_FIRST_PAUSE, self._trials, _LONGEST_PAUSE)
        self._trials += 1
        return timedelta(seconds=jittered(pause))

    def shut(self) -> None:
        """Let nothing start, until a trial call is answered."""
        self._state = "open"
        self._decided.set()

    def give_up(self) -> None:
        """Decide without trial calls from now on: the replica is leaving."""
        self._given_up = True
        if self._state == "suspect":
            self._state = "open"
            self._decided.set()

    def _close(self) -> None:
        if self._state == "open":
            self._emit(Recovered("starts", "temporal"))
        self._state = "closed"
        self._unanswered = self._trials = 0
        self._decided.set()


# --- adaptive rate ---
# Limits on a replica's starts: per second, and in flight for those that would hold up others.
#
# When the Temporal server throttles, the scheme is that of the AWS SDKs' adaptive retry mode: a
# token bucket whose rate follows CUBIC, the congestion control of TCP (RFC 9438). A refusal lowers
# the rate to 0.7 of what was accepted; from there it rises fast towards the rate that was too high,
# slowly around it, and fast again beyond. Each replica finds its share without knowing the others.
#
# Long before it throttles, a busy server answers later. Other starts would wait behind a backfill
# or large inputs, so these use only the server's spare capacity. That scheme is TCP Vegas.

_BETA = 0.7
_CUBIC = 0.4
_LOWEST = 0.5
_OFF = 1000.0
"""Starts a second above which a limit is lifted; no replica starts so many."""
_MEASURED = 1.0
_SETTLES = 0.5
"""Seconds until a lower rate shows: the server counts over about a second, for all callers."""
_CREDIT = 0.1
"""Seconds of unused rate that may be made up for: timers are never exact."""
_NAP = 0.2
_QUEUED = (0.5, 1.0)
"""Fewest and most starts to wait in the server: below, one more is sent; above, one less."""
_REMEMBERED = 10.0
"""Seconds after which the shortest latency is measured anew, with one start in flight."""


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
        """Record a send that was not refused."""
        self._accepted.append(now)
        self._forget(now)

    def refused(self, *, sent_at: float, now: float) -> None:
        """Record a refusal; sends from before the last one took effect carry no information."""
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
    """Rate limiter that lets sends through in turns, no faster than the rate allows.

    Args:
        ceiling: the most starts a second; None sets no fixed limit.
    """

    def __init__(self, ceiling: float | None = None) -> None:
        self._ceiling = ceiling
        self._rate = CubicRate()
        self._line = FairSlots(1)
        self._free_at = 0.0

    @property
    def limit(self) -> float | None:
        """Starts allowed per second at present; None when there is no limit."""
        return min(filter(None, (self._ceiling, self._rate.at(boottime()))), default=None)

    async def acquire(
        self, given_up: Callable[[], bool], share: str = "", *, late: bool = False
    ) -> bool:
        """Wait for this send's turn; return False if ``given_up`` is true first."""
        if self.limit is None:
            return True
        async with self._line.place(share, late=late):
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
        """Record that the server accepted a send."""
        self._rate.accepted(boottime())

    def refused(self, sent_at: float) -> None:
        """Record that the server refused what was sent at ``sent_at`` (``boottime``)."""
        self._rate.refused(sent_at=sent_at, now=boottime())


class Vegas:
    """Limit of calls in flight that keeps the server's queue short. Pure, like `CubicRate`.

    A call that takes twice the shortest time has waited for half of its duration; so on average
    half of the calls in flight are waiting.
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
        """Record how long a call took, sent as one of ``among`` calls in flight."""
        if self._measured_at is None or now - self._measured_at > _REMEMBERED:
            self._limit = 1.0
            if among > 1:
                return  # calls from now on are sent alone
            self._measured_at, self._shortest = now, took
        self._shortest = min(self._shortest, took)
        waiting = among * (1 - self._shortest / took) if took > 0 else 0.0
        fewest, most = _QUEUED
        if waiting < fewest:
            self._limit = min(self._limit + 1 / self._limit, float(self._most))
        elif waiting > most:
            self._limit = max(self._limit - 1 / self._limit, 1.0)


# --- budget of calls that start nothing ---
# A bound on the calls to Temporal that start nothing (looks, audits, stops, the tracker's), so that
# starts keep most of the server. Calls beyond the bound wait in FIFO order, and are counted.

T = TypeVar("T")

CALLS: Final = 48
"""Calls a second of one replica that describe, cancel or terminate a run."""
TRACKER_CALLS: Final = 12
"""Further calls a second of the replica on tracker duty, so that looks do not delay closes."""
COUNTING_CALLS: Final = 4
"""Calls a second of that replica that read what closed runs took, so that they delay no look."""
FAILURES_AT_ONCE: Final = 8
"""Most histories of bad ends that it reads at once. It takes only the server's spare capacity."""
PAGE: Final = 500
"""Runs that one list call returns."""
AUDITED: Final = 200
"""The same for an audit. The server may be slow then, and a page must arrive in one timeout."""
_TRIES: Final = 5


class Allowance:
    """Limit of ``count`` calls in any ``per`` seconds, first come, first served.

    Attributes:
        late: number of calls that had to wait so far.
        waiting: number of calls that wait at present.
    """

    def __init__(self, count: int, per: float = 1.0) -> None:
        self._given: deque[float] = deque(maxlen=count)
        self.per = per
        self.late = self.waiting = 0

    async def take(self) -> None:
        """Wait until the next call may be made."""
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
    """Budget for the calls of one replica that start nothing.

    Of two list calls a second in a namespace one is for the tracker, which runs on one replica at
    a time. The other is for audits; the living replicas share it.
    """

    def __init__(self) -> None:
        self._calls, self._tracker_calls = Allowance(CALLS), Allowance(TRACKER_CALLS)
        self._tracking, self._auditing = Allowance(1), Allowance(1)
        self._counting = Allowance(COUNTING_CALLS)
        self._failures = FairSlots(FAILURES_AT_ONCE, Vegas(FAILURES_AT_ONCE))
        self._told = 0

    async def call(self, *, tracking: bool = False) -> None:
        """Wait until one run may be described, cancelled or terminated.

        ``tracking``: whether the call is made on tracker duty.
        """
        await (self._tracker_calls if tracking else self._calls).take()

    async def count(self) -> None:
        """Wait until a part of a history may be read to count tries."""
        await self._counting.take()

    @asynccontextmanager
    async def failure(self) -> AsyncIterator[None]:
        """Hold one of the places of those that read why a run ended badly."""
        async with self._failures.place(late=True) as answered:
            asked = boottime()
            yield
            answered(asked)

    def tracked(self, runs: AsyncIterable[T], page: int = PAGE) -> AsyncIterator[T]:
        """Return the runs of a list call for the tracker, in pages of so many."""
        return _paged(runs, self._tracking, page)

    def audited(self, runs: AsyncIterable[T]) -> AsyncIterator[T]:
        """Return the runs of a list call for an audit."""
        return _paged(runs, self._auditing, AUDITED)

    def share(self, replicas: int) -> None:
        """Divide the namespace's allowance for audits among this many replicas."""
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
        """Log how many calls had to wait since the last report, if any."""
        if (late := self.late) > self._told:
            more = late - self._told
            logger.info("%d calls to Temporal waited for their turn, %d wait", more, self.waiting)
            self._told = late


async def _paged(runs: AsyncIterable[T], allowance: Allowance, page: int) -> AsyncIterator[T]:
    """Yield the runs; wait before each page of them.

    A page that did not arrive is requested again, so that the pages before it are not lost.
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
            # Any other iterator ends with its error, and would then seem to have no more runs.
            if failures == _TRIES or not isinstance(found, WorkflowExecutionAsyncIterator):
                raise
            await allowance.take()
            continue
        yield run
        count, failures = count + 1, 0
        if count % page == 0:
            await allowance.take()
