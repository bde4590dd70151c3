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
    """The ledger's clock as last seen, carried forward by ``boottime``.

    It was read at some moment between question and answer, nobody knows at which. So there are
    three readings: whoever takes the wrong one has a proof from the future, or a run forgotten.
    """

    def __init__(self) -> None:
        self._seen: tuple[datetime, float, float] | None = None

    def observe(
        self, now: datetime, *, asked: float | None = None, answered: float | None = None
    ) -> None:
        """Note what the ledger's clock said between two moments of ``boottime``; by default now."""
        answered = boottime() if answered is None else answered
        self._seen = (now, answered if asked is None else asked, answered)

    def now(self) -> datetime:
        """Return the ledger's time at the earliest: it is never ahead of the clock itself.

        For proofs ("it was open at"), and for how far back somebody looks.
        """
        said, _, answered = self._last()
        return said + timedelta(seconds=boottime() - answered)

    def latest(self) -> datetime:
        """Return the ledger's time at the latest: for an age that must not be taken for less."""
        said, asked, _ = self._last()
        return said + timedelta(seconds=boottime() - asked)

    def about(self) -> datetime:
        """Return the likeliest reading, in the middle: for waits, and for what people read."""
        said, asked, answered = self._last()
        return said + timedelta(seconds=boottime() - (asked + answered) / 2)

    def _last(self) -> tuple[datetime, float, float]:
        """``observe`` must have been called."""
        if self._seen is None:
            raise RuntimeError("the ledger's clock has not been seen yet")
        return self._seen
