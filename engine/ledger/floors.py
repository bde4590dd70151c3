"""Lower bounds of what is due, beside an old snapshot.

Lower bounds of what is due, so that a look need not walk what was due before.

Beside an old snapshot PostgreSQL keeps every dead index entry, and a search for the earliest live
one visits all of them. Nothing is written with a moment in the past: ``positions.due_at``, leases
and stops lie at or after the statement that writes them. So nothing lies before what a look has
found, nor before its own moment less the longest that a transaction stays open.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from engine.ledger.records import Probe, Serving

Moments: TypeAlias = "tuple[datetime, datetime, datetime]"
EVER: Final = datetime.fromtimestamp(0, UTC)
"""Before everything."""
_OPEN = timedelta(seconds=10)
"""How long after a moment was written its commit may come: a tick's transaction lives for 4 s."""

LOOK_AGAIN: Final = 30.0
"""Seconds between two looks without bounds."""
_SHARE: Final = 50


def again_after(took: float, *, least: float) -> float:
    """Return the seconds until a look that took so long is worth its time again.

    Beside an old snapshot a look without bounds takes ever longer. It may cost a fiftieth of the
    time, and no more.
    """
    return max(least, _SHARE * took)


class Floor:
    """The lower bound of one look that goes on, with a look without bounds now and then."""

    def __init__(self) -> None:
        self._known, self._unbounded_at, self._asked = EVER, 0.0, EVER

    def begin(self) -> datetime:
        """Return from when on to look this time."""
        self._asked = EVER if time.monotonic() >= self._unbounded_at else self._known
        return self._asked

    def learn(self, edge: datetime, begun: float) -> None:
        """Take in that nothing is left before ``edge``, by a look that was begun at ``begun``."""
        self._known = edge - _OPEN
        if self._asked == EVER:
            ended = time.monotonic()
            self._unbounded_at = ended + again_after(ended - begun, least=LOOK_AGAIN)


class Floors:
    """Lower bounds found by the last probes of one replica.

    A commit that comes later than ``_OPEN`` is found by a look without bounds: the next one where
    it was an apply, which raises the epoch, otherwise that of the replica's announcements.
    """

    def __init__(self) -> None:
        self._of: tuple[Serving, int] | None = None
        self._earliest: Moments = (EVER, EVER, EVER)

    def of(self, serving: Serving) -> Moments:
        """Return from when on to look for what is due, for leases and for stops."""
        known = self._of is not None and self._of[0] == serving
        return self._earliest if known else (EVER, EVER, EVER)

    def learn(self, serving: Serving, probe: Probe, asked: Moments) -> None:
        """Take in what a look from ``asked`` on has found."""
        if asked == (EVER, EVER, EVER) or self._of == (serving, probe.epoch):
            edge = probe.now - _OPEN
            due, stale, stop = (
                # What another look has found below ours meanwhile stands.
                min(found or edge, edge) if known >= begun else known
                for found, known, begun in zip(
                    (probe.due_at, probe.stale_at, probe.stop_at),
                    self.of(serving), asked, strict=True,
                )
            )  # fmt: skip
            self._earliest, self._of = (due, stale, stop), (serving, probe.epoch)
        else:
            self._of = None

    def forget(self) -> None:
        """Look without bounds the next time."""
        self._of = None
