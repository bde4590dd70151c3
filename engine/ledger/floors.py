"""Lower bounds of what is due, so that a query need not walk through dead index entries.

Beside an old snapshot PostgreSQL keeps every dead index entry, and a search for the earliest live
one visits all of them. Nothing is written with a moment in the past: ``positions.due_at``, leases
and stops lie at or after the statement that writes them. So nothing lies before what a query has
found, nor before the time of the query minus the longest time that a transaction stays open.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from engine.ledger.records import Probe, Serving

Moments: TypeAlias = "tuple[datetime, datetime, datetime]"
EVER: Final = datetime.fromtimestamp(0, UTC)
"""Earlier than anything in the ledger."""
_OPEN = timedelta(seconds=10)
"""The longest time between writing a moment and its commit. A tick's transaction lives for 4 s."""

LOOK_AGAIN: Final = 30.0
"""Seconds between two queries without bounds."""
_SHARE: Final = 50


def again_after(took: float, *, least: float) -> float:
    """Return the seconds until the next query without bounds, after one that took ``took``.

    Beside an old snapshot such a query takes ever longer. It may use at most a fiftieth of the
    time.
    """
    return max(least, _SHARE * took)


class Floor:
    """The lower bound of one repeated query, with a query without bounds now and then."""

    def __init__(self) -> None:
        self._known, self._unbounded_at, self._asked = EVER, 0.0, EVER

    def begin(self) -> datetime:
        """Return the lower bound for this query."""
        self._asked = EVER if time.monotonic() >= self._unbounded_at else self._known
        return self._asked

    def learn(self, edge: datetime, begun: float) -> None:
        """Record that a query begun at ``begun`` left nothing before ``edge``."""
        self._known = edge - _OPEN
        if self._asked == EVER:
            ended = time.monotonic()
            self._unbounded_at = ended + again_after(ended - begun, least=LOOK_AGAIN)


class Floors:
    """Lower bounds found by the last probes of one replica.

    A query without bounds finds a commit that comes later than ``_OPEN``. After an apply that is
    the next probe, because an apply raises the epoch; otherwise the probe of the replica's
    announcements.
    """

    def __init__(self) -> None:
        self._of: tuple[Serving, int] | None = None
        self._earliest: Moments = (EVER, EVER, EVER)

    def of(self, serving: Serving) -> Moments:
        """Return the lower bounds for due schedules, leases and stops."""
        known = self._of is not None and self._of[0] == serving
        return self._earliest if known else (EVER, EVER, EVER)

    def learn(self, serving: Serving, probe: Probe, asked: Moments) -> None:
        """Record the result of a probe with the lower bounds ``asked``."""
        if asked == (EVER, EVER, EVER) or self._of == (serving, probe.epoch):
            edge = probe.now - _OPEN
            due, stale, stop = (
                # Keep a lower bound that another probe has set meanwhile.
                min(found or edge, edge) if known >= begun else known
                for found, known, begun in zip(
                    (probe.due_at, probe.stale_at, probe.stop_at),
                    self.of(serving),
                    asked,
                    strict=True,
                )
            )
            self._earliest, self._of = (due, stale, stop), (serving, probe.epoch)
        else:
            self._of = None

    def forget(self) -> None:
        """Make the next probe one without bounds."""
        self._of = None
