"""Two clocks: the ledger's, which decides what is due, and one that only counts."""

from __future__ import annotations

import time
from datetime import datetime, timedelta


def boottime() -> float:
    """Return seconds of a clock that never goes back and counts time spent suspended.

    A lease measured by a clock that stops during suspend would look fresh after a night.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class LedgerClock:
    """The ledger's clock as last seen, carried forward by ``boottime``."""

    def __init__(self) -> None:
        self._seen: tuple[datetime, float] | None = None

    def observe(self, now: datetime, *, at: float | None = None) -> None:
        """Note what the ledger's clock said at this moment, or when ``boottime`` was ``at``."""
        self._seen = (now, boottime() if at is None else at)

    def now(self) -> datetime:
        """Return the ledger's time; ``observe`` must have been called."""
        if self._seen is None:
            raise RuntimeError("the ledger's clock has not been seen yet")
        moment, at = self._seen
        return moment + timedelta(seconds=boottime() - at)
