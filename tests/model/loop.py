"""An event loop whose time is a number, and in which chance says who goes on next.

Every await is a place where another replica may come first, where a replica can die, and where one
can stand still. Nothing here waits for anything real.
"""

from __future__ import annotations

import asyncio
import heapq
import time
import traceback
from asyncio import events
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from engine.runtime.clock import STOPWATCH


@dataclass
class Mortal:
    """What can die or stand still: whatever it began belongs to it."""

    name: str
    dead: bool = False
    still_until: float = 0.0


WHOSE: ContextVar[Mortal | None] = ContextVar("whose", default=None)


class Loop(asyncio.BaseEventLoop):
    """Runs handles one by one when it is told to; ``now`` counts seconds."""

    # Of BaseEventLoop; its stubs do not tell.
    _ready: deque[asyncio.Handle]
    _scheduled: list[Any]

    def __init__(self) -> None:
        super().__init__()
        self.micros = 0
        self.chance = Random(0)
        self.ran = 0
        self.still_until = 0.0
        self.troubles: list[str] = []
        self.owners: WeakKeyDictionary[asyncio.Task[Any], Mortal | None] = WeakKeyDictionary()
        self.set_exception_handler(self._trouble)
        self.set_task_factory(self._task)

    def time(self) -> float:
        return self.micros / 1_000_000

    def pump(self, handles: int, seconds: float) -> int:
        """Run up to so many handles, and let up to so much time pass in between."""
        until = self.micros + round(seconds * 1_000_000)
        before = self.ran
        events._set_running_loop(self)
        try:
            while self.ran < before + handles:
                self._wake()
                ready: Sequence[int] = range(len(self._ready))
                if self.time() < self.still_until:
                    ready = [n for n in ready if not self._is_still(self._ready[n])]
                if ready:
                    self._run(self.chance.choice(ready))
                elif not self._pass_time(until):
                    break
            else:
                return self.ran - before
        finally:
            events._set_running_loop(None)
        self.micros = max(self.micros, until)
        return self.ran - before

    def kill(self, owner: Mortal | None) -> None:
        """Let whatever the owner began never go on; None is everybody."""
        for task, whose in [*self.owners.items()]:
            if owner is None or whose is owner:
                task.cancel()

    def _task(self, _: Any, coroutine: Any, context: Any = None) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=self, context=context)
        self.owners[task] = WHOSE.get() if context is None else context.get(WHOSE)
        return task

    def _run(self, place: int) -> None:
        handle = self._ready[place]
        del self._ready[place]
        if not handle._cancelled:
            self.ran += 1
            handle._run()

    def _wake(self) -> None:
        while self._scheduled and self._scheduled[0]._when <= self.time():
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False
            if not timer._cancelled:
                self._ready.append(timer)

    def _pass_time(self, until: int) -> bool:
        """Go to the next timer; False when there is none before ``until``."""
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)._scheduled = False
        still = [owner.still_until for handle in self._ready if (owner := _owner(handle))]
        moments = [*still, *([self._scheduled[0]._when] if self._scheduled else [])]
        following = int(min(moments, default=1e12) * 1_000_000) + 1  # never before it
        if following > until:
            return False
        self.micros = max(self.micros, following)
        return True

    def _is_still(self, handle: Any) -> bool:
        owner = _owner(handle)
        return owner is not None and not owner.dead and owner.still_until > self.time()

    def _trouble(self, _: Any, context: dict[str, Any]) -> None:
        owner = _owner(context["handle"]) if "handle" in context else WHOSE.get()
        if owner is None or not owner.dead:
            error = context.get("exception")
            where = "".join(traceback.format_tb(error.__traceback__)[-6:]) if error else ""
            self.troubles.append(f"{context.get('message')}: {error!r}\n{where}")

    # What BaseEventLoop wants to have.
    def run_in_executor(  # type: ignore[override] # its callers are typed by what they call
        self, _: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Do at once what elsewhere a thread does."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whoever awaits it gets it
            future.set_exception(error)
        return future

    def _process_events(self, event_list: Any) -> None:
        return

    def _write_to_self(self) -> None:
        return


@contextmanager
def elapsing(loop: Loop) -> Iterator[None]:
    """Let the engine measure elapsed time by this loop."""
    stopwatch = STOPWATCH.set(loop.time)
    try:
        with patch.object(time, "monotonic", loop.time):
            yield
    finally:
        STOPWATCH.reset(stopwatch)


def _owner(handle: Any) -> Mortal | None:
    found: Mortal | None = handle._context.get(WHOSE)
    return found
