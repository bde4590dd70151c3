"""Health of a worker: whether its loops turn, and whether its servers have answered lately.

The two questions have different answers on purpose. A worker whose database is away is live and
not ready: it waits, and continues by itself. A restart of the fleet would only add to the outage.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

_BEAT: Final = 1.0
_STUCK_AFTER: Final = 30.0
"""Seconds after which an event loop without a beat counts as stuck."""

Age = Callable[[], float | None]
"""Returns the seconds since something happened; None if it never did."""


class MonitoredLoop(Protocol):
    """A background loop, as its health is judged."""

    @property
    def name(self) -> str:
        """Name of the loop."""

    @property
    def crashed(self) -> bool:
        """Whether it ended without having been asked to."""

    @property
    def patience(self) -> float | None:
        """Seconds after which a turn counts as stuck; None if it may take any time."""

    def turn_age(self) -> float | None:
        """Return the seconds since the turn in progress began; None between turns."""


@dataclass(frozen=True, slots=True)
class ReplicaHealth:
    """The signs of life of one replica.

    Attributes:
        loops: its background loops.
        ledger: age of the ledger's last answer.
        temporal: age of the last answer of Temporal that the replica asked for regularly.
        answers_within: seconds for which such an answer is recent.
        stopping: whether it was asked to stop.
        not_applied: which file it should have applied and could not; None if there is none.
    """

    loops: Sequence[MonitoredLoop]
    ledger: Age
    temporal: Age
    answers_within: float
    stopping: Callable[[], bool]
    not_applied: str | None = None


class HealthVerdict(NamedTuple):
    """An answer, with the reason in a sentence."""

    good: bool
    text: str


class Health:
    """Health of the replicas of one plugin; any thread may ask for it."""

    def __init__(self) -> None:
        self._replicas: list[ReplicaHealth] = []
        self._beat_at: float | None = None

    @contextmanager
    def watching(self, replica: ReplicaHealth) -> Iterator[None]:
        """Judge this replica too, while the block lasts."""
        self._replicas.append(replica)
        try:
            yield
        finally:
            self._replicas.remove(replica)

    async def beat(self) -> None:
        """Show that the event loop turns, until cancelled."""
        while True:
            self._beat_at = time.monotonic()
            await asyncio.sleep(_BEAT)

    def live(self) -> HealthVerdict:
        """Return whether the process works, whatever its servers do; a restart is the hint if not.

        Before the first ``beat`` the event loop is not judged.
        """
        if self._beat_at is not None and (age := time.monotonic() - self._beat_at) > _STUCK_AFTER:
            return HealthVerdict(False, f"the event loop has stood still for {age:.0f} s")
        for loop in [each for replica in [*self._replicas] for each in replica.loops]:
            if loop.crashed:
                return HealthVerdict(False, f"the loop {loop.name} has ended")
            age = loop.turn_age() or 0.0
            if loop.patience is not None and age > loop.patience:
                return HealthVerdict(
                    False, f"the loop {loop.name} has been in one turn for {age:.0f} s"
                )
        return HealthVerdict(True, "the loops turn")

    def ready(self) -> HealthVerdict:
        """Return whether the replicas can claim and start windows now, of the files they name.

        One whose file was lost or broken works with the ledger's definitions. It is not ready, so
        that a rollout stops before every replica has lost it.
        """
        replicas = [*self._replicas]
        if not replicas:
            return HealthVerdict(False, "starting: the ledger or Temporal has not answered yet")
        for replica in replicas:
            if replica.stopping():
                return HealthVerdict(False, "draining: nothing new is claimed")
            for server, age_of in (("the ledger", replica.ledger), ("Temporal", replica.temporal)):
                age = age_of()
                if age is None or age > replica.answers_within:
                    since = "" if age is None else f" for {age:.0f} s"
                    return HealthVerdict(False, f"{server} has not answered{since}")
            if replica.not_applied is not None:
                return HealthVerdict(False, replica.not_applied)
        live = self.live()
        return HealthVerdict(True, "ready") if live.good else live
