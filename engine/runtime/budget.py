"""A bound on the calls to Temporal that start nothing: looks, audits, stops, the tracker's.

However much there is to ask, starts have the server to themselves for the most part. What comes
beyond the bound waits its turn, in the order in which it was asked for, and is counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Final, TypeVar

from temporalio.client import WorkflowExecutionAsyncIterator
from temporalio.service import RPCError

from engine.runtime.clock import boottime
from engine.runtime.events import logger

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
        """How many calls had to wait for their turn so far."""
        return sum(each.late for each in self._every)

    @property
    def waiting(self) -> int:
        """How many calls wait at present."""
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
