"""What the ledger knows of queues of steps, and what a replica asks about their slots."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from engine.schedules.queues import Queue
from engine.schedules.rates import parse_rate


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue, as it was declared last.

    Attributes:
        queue: its name, one in the whole namespace.
        project: whose it is.
        limits: what its steps keep to.
        dropped_at: since when no file declares it; its limits go on holding.
    """

    queue: str
    project: str
    limits: Queue
    declared_at: datetime
    dropped_at: datetime | None = None

    @classmethod
    def of(cls, *, concurrency: int | None, rate: str | None, **rest: Any) -> QueueRow:
        """Return what a row of ``queues`` says."""
        return cls(limits=Queue(concurrency, parse_rate(rate) if rate else None), **rest)


UNPOLLED: Final = timedelta(minutes=2)
"""For so long nobody polls a task queue until that is told. A poll lasts a minute at most."""


@dataclass(frozen=True, slots=True)
class PolledQueue:
    """What Temporal said last of the task queue of external schedules.

    Attributes:
        polled_at: when a worker polled it last; None: none that Temporal remembers.
        waiting: how many runs wait there for a worker, about.
        since: when it was looked at first.
        looked_at: when it was looked at last.
    """

    task_queue: str
    polled_at: datetime | None
    waiting: int
    since: datetime
    looked_at: datetime

    @property
    def is_left_alone(self) -> bool:
        """Whether nobody has polled it for a while; one that was just seen gets its time."""
        return self.looked_at - (self.polled_at or self.since) >= UNPOLLED


@dataclass(frozen=True, slots=True)
class SlotAsk:
    """What a replica says of one lane.

    Attributes:
        lane: the Temporal task queue of the steps.
        queue: whose limits hold.
        running: on how many slots steps run, or may begin to run until the answer is there; they
            are kept whatever the limit is now.
        wanted: how many slots would be used at once.
    """

    lane: str
    queue: str
    running: int
    wanted: int


@dataclass(frozen=True, slots=True)
class SlotsHeld:
    """How many slots of a lane one replica holds."""

    lane: str
    queue: str
    holder: str
    slots: int
