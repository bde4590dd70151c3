"""Lifecycle of every background loop: run, wait, stop, and an error bulkhead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from engine.errors import EngineError
from engine.runtime.clock import backoff, boottime, jittered, wait_for
from engine.runtime.events import OnEvent, Recovered, ServerName, logger
from engine.runtime.temporal_client import classify_rpc_error, degraded_by, server_of

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_STUCK = 300.0
"""Seconds of a turn beyond all waits for servers, which are away for seconds in each call."""


class Loop:
    """A background loop that calls ``run_once``, which returns the wait before the next call.

    An error never ends the loop: it is emitted once and retried after a growing, jittered pause.
    ``stop`` lets the turn in progress finish; then ``end`` is called, once.

    Args:
        asks: whether each turn asks a server. Only such loops report that one is away: the turn
            of any other may succeed without an answer.

    Attributes:
        turned_at: when the last turn began (``boottime``); None before the first.
        patience: seconds after which a turn counts as stuck; None if it may take any time.
        crashed: whether the loop ended without having been asked to.
    """

    def __init__(
        self,
        name: str,
        run_once: Callable[[], Awaitable[timedelta]],
        *,
        end: Callable[[], Awaitable[None]] | None = None,
        on_event: OnEvent,
        patience: float | None = _STUCK,
        asks: bool = False,
    ) -> None:
        self.name, self.patience = name, patience
        self._turning_since: float | None = None
        self.turned_at: float | None = None
        self.crashed = False
        self._run_once, self._end, self._emit = run_once, end, on_event
        self._stopping = asyncio.Event()
        self._roused = asyncio.Event()
        self._waking: asyncio.TimerHandle | None = None
        self._failures, self._asks = 0, asks
        self._away: ServerName | None = None

    def stop(self) -> None:
        """Stop after the turn in progress."""
        self._stopping.set()
        self._roused.set()

    def wake(self) -> None:
        """Skip the wait before the next turn, also when a turn is in progress."""
        self._roused.set()

    def wake_within(self, seconds: float) -> None:
        """Skip the wait that remains after so many seconds; calls until then are one."""
        if self._waking is None or self._waking.when() <= asyncio.get_running_loop().time():
            self._waking = asyncio.get_running_loop().call_later(seconds, self.wake)

    def turn_age(self) -> float | None:
        """Return the seconds since the turn in progress began; None between turns."""
        since = self._turning_since
        return None if since is None else boottime() - since

    async def run(self) -> None:
        """Run until stopped."""
        try:
            await self._turns()
        finally:
            self.crashed = not self._stopping.is_set()
        if self._end:
            try:
                await self._end()
            except Exception as error:  # noqa: BLE001 - the others have to end as well
                self._emit(degraded_by(self.name, error))

    async def _turns(self) -> None:
        while not self._stopping.is_set():
            self._roused.clear()
            pause = await self._guarded_turn()
            if self._stopping.is_set():
                return
            await wait_for(self._roused, max(pause, 0))

    async def _guarded_turn(self) -> float:
        self.turned_at = self._turning_since = boottime()
        try:
            pause = await self._run_once()
        except Exception as error:  # noqa: BLE001 - the bulkhead: nothing may end the loop
            self._failed(error)
            self._failures += 1
            return jittered(backoff(_FIRST_PAUSE, self._failures, _LONGEST_PAUSE))
        finally:
            self._turning_since = None
        if self._failures:
            self._failures = 0
            self._recovered()
        return pause.total_seconds()

    def _failed(self, error: Exception) -> None:
        """Report the first error of a streak, and one that shows that another server is away."""
        server = server_of(error)
        if self._failures:
            if server is None or self._away in {None, server}:
                return
            self._recovered()
        self._away = server
        if server is None or self._asks:
            self._emit(degraded_by(self.name, error))
        if not isinstance(error, EngineError) and classify_rpc_error(error) is None:
            logger.exception("%s failed", self.name)

    def _recovered(self) -> None:
        if self._away is None or self._asks:
            self._emit(Recovered(self.name, self._away))


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run the work while the block lasts, and cancel it at the end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
