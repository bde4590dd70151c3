"""Watch of a worker's event loop: an async step that blocks it is named.

While the loop is blocked, the rest of the worker stands still: heartbeats, other async steps,
leases and the scheduler. A thread asks the loop for a sign several times in the longest lag that is
allowed, and reads the stack of the loop's thread when none has come. Code in C that keeps Python's
lock for the whole time stops that thread too, and is not noticed.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import CodeType, FrameType
from typing import Any, Final
from weakref import WeakSet

from engine.errors import Code
from engine.flow.restrictions import frame_place
from engine.runtime.events import Alert, OnEvent, log

_PARTS: Final = 4
"""Questions in the longest lag."""

_watched: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


@contextmanager
def watched_loop(
    longest: timedelta | None, activities: Iterable[Callable[..., Any]], on_event: OnEvent
) -> Iterator[None]:
    """Watch the running event loop inside this block; a loop is watched once.

    Args:
        longest: the longest time for which the loop may stand still; None watches nothing.
        activities: the steps and activities that the loop runs.
        on_event: receives an alert for each time that the loop stood still, after the log and
            once the loop turns again.
    """
    loop = asyncio.get_running_loop()
    if longest is None or loop in _watched:
        yield
        return
    _watched.add(loop)
    watch = LoopWatch(loop, longest.total_seconds(), names_of(activities), on_event)
    watch.start()
    try:
        yield
    finally:
        watch.stop()
        _watched.discard(loop)


def names_of(activities: Iterable[Callable[..., Any]]) -> dict[CodeType, str]:
    """Return the names of steps and activities by their code."""
    found = {}
    for each in activities:
        mark = getattr(each, "__temporal_activity_definition", None)
        code = getattr(each, "__code__", None)
        if mark is not None and code is not None:
            found[code] = str(mark.name or each.__name__)
    return found


class LoopWatch(threading.Thread):
    """Thread that watches the event loop of the thread that makes it.

    Args:
        loop: the loop.
        longest: the longest lag, in seconds.
        names: the names of steps by their code.
        on_event: see ``watched_loop``.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        longest: float,
        names: Mapping[CodeType, str],
        on_event: OnEvent,
    ) -> None:
        super().__init__(name="sched-loop-watch", daemon=True)
        self._loop, self._longest, self._names, self._listen = loop, longest, names, on_event
        self._its_thread = threading.get_ident()
        self._turned, self._stopped = threading.Event(), threading.Event()

    def stop(self) -> None:
        """End the watch; the thread ends within a part of the longest lag."""
        self._stopped.set()

    def run(self) -> None:
        """See the base class."""
        every = self._longest / _PARTS
        reported, asked, before = False, self._ask(), time.monotonic()
        while not self._stopped.wait(every):
            now = time.monotonic()
            late = now - before > 2 * every
            before = now
            if self._turned.is_set():
                reported, asked = False, self._ask()
            elif late:
                asked = now  # the whole process stood still, or had no processor
            elif not reported and now - asked >= self._longest:
                reported = True
                self._report(now - asked)

    def _ask(self) -> float:
        """Ask the loop for a sign; return when, by the monotonic clock."""
        self._turned.clear()
        self._call(self._turned.set)
        return time.monotonic()

    def _call(self, what: Callable[..., Any], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *args)
        except RuntimeError:  # it is closed
            self.stop()

    def _report(self, lag: float) -> None:
        frame = sys._current_frames().get(self._its_thread)  # there is no other way
        if frame is None or self._turned.is_set():
            return
        alert = Alert(Code.LOOP_BLOCKED, blocked_text(frame, lag, self._names))
        log(alert)  # now: the loop may stand still for ever
        self._call(self._listen, alert)


def blocked_text(frame: FrameType, lag: float, names: Mapping[CodeType, str]) -> str:
    """Return which step blocks the loop, and where.

    Args:
        frame: the innermost frame of the loop's thread.
        lag: for how long the loop has stood still, in seconds.
        names: the names of steps by their code.
    """
    frames = [frame]
    while (outer := frames[-1].f_back) is not None:
        frames.append(outer)
    step = next((names[each.f_code] for each in frames if each.f_code in names), None)
    places = map(frame_place, frames)
    place = next((each for each in places if each.is_users), None) or frame_place(frame)
    what = f"the step {step!r}" if step else f"{place.function}()"
    return (
        f"{what} has blocked the event loop of this worker for {lag:.1f} s, at {place} in"
        f" {place.function}(): no heartbeat, other async step or schedule makes progress meanwhile;"
        " await what it waits for, or make the step a plain def, which runs in a thread"
    )
