"""Time that passes at once: an event loop and the engine's stopwatch, moved on by what waits."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from engine.ledger import Ledger
from engine.testing.virtual_ledger import SCHEMA
from tests.bridge import Bridge, Course, Direct
from tests.model.loop import Loop, elapsing

T = TypeVar("T")


class VirtualTime:
    """Runs coroutines in a time of its own; ``now`` is in seconds since it began."""

    def __init__(self) -> None:
        self.loop = Loop()
        self._courses: list[Course] = []

    @property
    def now(self) -> float:
        return self.loop.time()

    def ledger(self, bridge: Bridge, begin: datetime) -> Ledger:
        """Return an empty ledger in whose time it was ``begin`` when this one began."""
        course = bridge.course(self.loop, lambda: begin + timedelta(seconds=self.now))
        self._courses.append(course)
        return Ledger(course.pool(Direct()), course.namespace, schema=SCHEMA)

    def run(self, work: Coroutine[Any, Any, T], *, most: float = 3600.0) -> T:
        """Return what the coroutine does; an AssertionError when it takes longer than ``most``."""
        task, until = self.loop.create_task(work), self.now + most
        while not task.done() and self.now < until:
            self.loop.pump(1000, 0.05)
        assert task.done(), f"it goes on after {most} s"
        assert not self.loop.troubles, self.loop.troubles[0]
        return task.result()

    def end(self) -> None:
        """Let nothing go on."""
        for course in self._courses:
            course.drop(None)
        self.loop.kill(None)
        self.loop.pump(100_000, 0)
        for course in self._courses:
            course.end()
        self.loop.close()


@contextmanager
def virtual_time() -> Iterator[VirtualTime]:
    """Let the engine's clock be that of a loop of its own."""
    time = VirtualTime()
    with elapsing(time.loop):
        yield time
        time.end()
