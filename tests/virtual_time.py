"""Time that passes at once: an event loop and the engine's stopwatch, moved on by what waits."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import engine.runtime.clock
from tests.model.loop import Loop

T = TypeVar("T")


class VirtualTime:
    """Runs coroutines in a time of its own; ``now`` is in seconds since it began."""

    def __init__(self) -> None:
        self.loop = Loop()

    @property
    def now(self) -> float:
        return self.loop.time()

    def run(self, work: Coroutine[Any, Any, T], *, most: float = 3600.0) -> T:
        """Return what the coroutine does; an AssertionError when it takes longer than ``most``."""
        task, until = self.loop.create_task(work), self.now + most
        while not task.done() and self.now < until:
            self.loop.pump(1000, 0.05)
        assert task.done(), f"it goes on after {most} s"
        assert not self.loop.troubles, self.loop.troubles[0]
        return task.result()


@contextmanager
def virtual_time() -> Iterator[VirtualTime]:
    """Let the engine's clock be that of a loop of its own."""
    time = VirtualTime()
    stopwatch = SimpleNamespace(CLOCK_BOOTTIME=0, clock_gettime=lambda _: time.now)
    with patch.object(engine.runtime.clock, "time", stopwatch):
        yield time
    time.loop.kill(None)
    time.loop.pump(100_000, 0)
    time.loop.close()
