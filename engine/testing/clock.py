"""A clock that stands still until the test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class FrozenClock:
    """A time that only the test moves: ``MemoryLedger(clock=FrozenClock(...))``.

    Args:
        at: where it stands: an aware datetime, or ISO 8601 text with an offset.

    Raises:
        ValueError: the moment has no timezone.
    """

    def __init__(self, at: datetime | str) -> None:
        self._now = instant(at)

    def __call__(self) -> datetime:
        """Return where it stands, as a ledger asks its clock."""
        return self._now

    def now(self) -> datetime:
        """Return where it stands, in UTC."""
        return self._now

    def move_to(self, moment: datetime | str) -> datetime:
        """Let it stand there from now on, and return that.

        Raises:
            ValueError: the moment has no timezone, or has passed: the clocks that the engine
                goes by never go back.
        """
        wanted = instant(moment)
        if wanted < self._now:
            raise ValueError(f"{wanted.isoformat()} has passed: it is {self._now.isoformat()}")
        self._now = wanted
        return wanted

    def advance(self, by: timedelta | float) -> datetime:
        """Let so much time pass (timedelta or seconds), and return what it is then.

        Raises:
            ValueError: the time is negative.
        """
        return self.move_to(
            self._now + (by if isinstance(by, timedelta) else timedelta(seconds=by))
        )


def instant(given: datetime | str) -> datetime:
    """Return a moment of a test in UTC.

    Raises:
        ValueError: it has no timezone, or is no ISO 8601 text.
    """
    moment = datetime.fromisoformat(given) if isinstance(given, str) else given
    if moment.tzinfo is None:
        raise ValueError(f"{given} has no timezone; write it with one, such as 2026-11-21T05:00Z")
    return moment.astimezone(UTC)
