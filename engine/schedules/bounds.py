"""``start:`` and ``end:``, between which a schedule fires."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from engine.errors import ScheduleError
from engine.schedules.instants import FIRST_YEAR, LAST_YEAR, SECONDS_PER_DAY, TICK, from_seconds
from engine.schedules.timing import At, Spec
from engine.schedules.zones import zone

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bounded:
    """A when-part that fires in ``first <= t <= last`` only; None is no bound.

    Windows keep the numbers that they have without bounds.
    """

    spec: Spec
    first: datetime | None
    last: datetime | None

    @property
    def kind(self) -> str:
        """See `Spec`."""
        return self.spec.kind

    def fires(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """See `Spec`."""
        return self.spec.fires(self._after(after), self._until(until))

    def next(self, after: datetime) -> datetime | None:
        """See `Spec`."""
        return self._within(self.spec.next(self._after(after)))

    def previous(self, at: datetime) -> datetime | None:
        """See `Spec`."""
        return self._within(self.spec.previous(self._until(at)))

    def latest(self, before: datetime, n: int) -> list[datetime]:
        """See `Spec`."""
        return [fire for fire in self.spec.latest(self._until(before), n) if self._within(fire)]

    def count(self, after: datetime, until: datetime) -> int:
        """See `Spec`."""
        return self.spec.count(self._after(after), self._until(until))

    def bucket(self, fire_time: datetime) -> int:
        """See `Spec`."""
        return self.spec.bucket(fire_time)

    def fire_time(self, bucket: int) -> datetime:
        """See `Spec`."""
        return self.spec.fire_time(bucket)

    def _within(self, fire: datetime | None) -> datetime | None:
        if fire is None or (self.first is not None and fire < self.first):
            return None
        return None if self.last is not None and fire > self.last else fire

    def _after(self, after: datetime) -> datetime:
        return after if self.first is None else max(after, self.first - TICK)

    def _until(self, until: datetime) -> datetime:
        return until if self.last is None else min(until, self.last)


def bounded(spec: Spec, start: str | None, end: str | None, timezone: str) -> Spec:
    """Return ``spec`` between two moments, both included; a date counts as its whole day.

    Raises:
        ScheduleError: a moment cannot be read, or nothing fires between the two.
    """
    if start is None and end is None:
        return spec
    first = None if start is None else moment("start", start, timezone)
    last = None if end is None else moment("end", end, timezone)
    found = Bounded(spec, first, last)
    if found.next(from_seconds(-1)) is None:
        between = " and ".join(f"{n} {v}" for n, v in (("start", start), ("end", end)) if v)
        raise ScheduleError(f"nothing ever fires with {between}", cure="move or remove one of them")
    return found


def moment(name: str, text: str, timezone: str) -> datetime:
    """Return what ``start`` or ``end`` means on the clock of ``timezone``.

    Raises:
        ScheduleError: it cannot be read.
    """
    if not _DATE.fullmatch(text):
        local = not re.search(r"(?:Z|[+-]\d{2}:\d{2})\Z", text)
        try:
            return At(text, timezone=timezone if local else None).instant
        except ScheduleError as error:
            raise ScheduleError(
                error.message.replace("at ", f"{name} ", 1),
                cure="write it as 2027-01-01 or 2027-01-01T09:00:00",
            ) from None
    rules = zone(timezone)
    try:
        midnight = datetime.fromisoformat(f"{text}T00:00:00Z")
    except ValueError:
        raise ScheduleError(
            f"{name} {text} is no day of the calendar", cure="write a day that exists"
        ) from None
    if not FIRST_YEAR <= midnight.year <= LAST_YEAR:
        what = f"{name} {text} lies outside 1970 to 2100"
        raise ScheduleError(what, cure=f"remove {name}, or write a year of that range")
    reading = int(midnight.timestamp())
    if name == "start":
        return from_seconds(rules.first_instant(reading))
    return from_seconds(rules.first_instant(reading + SECONDS_PER_DAY)) - TICK
