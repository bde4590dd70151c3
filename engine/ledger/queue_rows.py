"""What the ledger knows of queues of steps, and what a replica asks about their slots."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

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
