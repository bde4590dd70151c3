"""Timing specs: intervals, single instants, and their bounds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar, Final, Protocol

from engine.errors import IntervalTooShort, ScheduleError
from engine.schedules.timing.zones import zone
from engine.schedules.units import (
    EARLIEST,
    FIRST_YEAR,
    HORIZON,
    LAST_YEAR,
    SECONDS_PER_DAY,
    TICK,
    epoch_ms,
    from_ms,
    from_seconds,
)

# --- intervals and instants ---
# The when-part of a schedule: `Interval`, `At`, and the protocol they share with `Cron`.
#
# The primitive is ``fires(after, until)``. The other methods describe the same set of instants, so
# catch-up, preview, audit and alerts cannot disagree. Arguments are timezone-aware (a naive one
# raises ValueError); results are in UTC.

SHORTEST_INTERVAL_MS: Final = 1000

_EARLIEST_MS: Final = EARLIEST * 1000
_HORIZON_MS: Final = HORIZON * 1000
_ISO: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?", re.ASCII
)


class Spec(Protocol):
    """When-part of a schedule: `Cron`, `Interval` or `At`.

    Nothing fires before 1970 or after 2100: with no fire left, ``next`` and ``previous`` return
    None. Otherwise ``previous(next(u)) == next(u)``.
    """

    @property
    def kind(self) -> str:
        """``cron``, ``interval`` or ``at``."""
        ...

    def fires(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Return the fires with ``after < t <= until``, strictly increasing."""
        ...

    def next(self, after: datetime) -> datetime | None:
        """Return the first fire strictly after ``after``."""
        ...

    def previous(self, at: datetime) -> datetime | None:
        """Return the last fire at or before ``at``."""
        ...

    def latest(self, before: datetime, n: int) -> list[datetime]:
        """Return the last ``n`` fires at or before ``before``, newest first, in O(n)."""
        ...

    def count(self, after: datetime, until: datetime) -> int:
        """Return how many fires ``fires(after, until)`` has, without listing them."""
        ...

    def bucket(self, fire_time: datetime) -> int:
        """Return the number of the window that opens at ``fire_time``."""
        ...

    def fire_time(self, bucket: int) -> datetime:
        """Return the fire time of window ``bucket``."""
        ...


@dataclass(frozen=True, slots=True)
class Interval:
    """Windows every ``every_ms``, aligned to the epoch and free of drift.

    Window ``b`` opens at ``b * every_ms + offset_ms`` milliseconds since the epoch. Any whole
    ``offset_ms`` is allowed: offsets that differ by a multiple of ``every_ms`` fire at the same
    instants but number the windows differently, so a changed offset starts a new series
    (docs/time.md).

    Raises:
        IntervalTooShort: ``every_ms`` is below 1000.
        ScheduleError: ``every_ms`` or ``offset_ms`` is not a whole number.
    """

    kind: ClassVar[str] = "interval"

    every_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        for name, value in (("everyMs", self.every_ms), ("offsetMs", self.offset_ms)):
            _check_whole(name, value)
        if self.every_ms < SHORTEST_INTERVAL_MS:
            raise IntervalTooShort(
                f"everyMs {self.every_ms} is below {SHORTEST_INTERVAL_MS}",
                cure=f"write {SHORTEST_INTERVAL_MS} (one second) or more",
            )

    def fires(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Return the fires with ``after < t <= until``, strictly increasing."""
        first, last = self._buckets(epoch_ms(after), epoch_ms(until))
        return (self.fire_time(bucket) for bucket in range(first, last + 1))

    def next(self, after: datetime) -> datetime | None:
        """Return the first fire strictly after ``after``."""
        first, last = self._buckets(epoch_ms(after), _HORIZON_MS)
        return self.fire_time(first) if first <= last else None

    def previous(self, at: datetime) -> datetime | None:
        """Return the last fire at or before ``at``."""
        first, last = self._buckets(_EARLIEST_MS - 1, epoch_ms(at))
        return self.fire_time(last) if first <= last else None

    def latest(self, before: datetime, n: int) -> list[datetime]:
        """Return the last ``n`` fires at or before ``before``, newest first."""
        first, last = self._buckets(_EARLIEST_MS - 1, epoch_ms(before))
        return [self.fire_time(bucket) for bucket in range(last, max(first - 1, last - n), -1)]

    def count(self, after: datetime, until: datetime) -> int:
        """Return how many fires ``fires(after, until)`` has, in O(1)."""
        first, last = self._buckets(epoch_ms(after), epoch_ms(until))
        return max(0, last - first + 1)

    def bucket(self, fire_time: datetime) -> int:
        """Return the bucket of the window that contains ``fire_time``, a fire or not."""
        return (epoch_ms(fire_time) - self.offset_ms) // self.every_ms

    def fire_time(self, bucket: int) -> datetime:
        """Return the instant at which window ``bucket`` opens."""
        return from_ms(bucket * self.every_ms + self.offset_ms)

    def _buckets(self, after: int, until: int) -> tuple[int, int]:
        """Return the buckets of the first and last window that open in ``after < t <= until``."""
        after, until = max(after, _EARLIEST_MS - 1), min(until, _HORIZON_MS - 1)
        first = (after - self.offset_ms) // self.every_ms + 1
        return first, (until - self.offset_ms) // self.every_ms


def _check_whole(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ScheduleError(
            f"{name} {value!r} is not a whole number", cure="write milliseconds, as 300000"
        )


@dataclass(frozen=True, slots=True)
class At:
    """Single moment, to the millisecond.

    Args:
        moment: An aware datetime or an ISO string with offset (``2027-01-01T09:00:00Z``), or a
            local one together with ``timezone``. A local time that does not exist means the
            first instant after the gap, an ambiguous one the first of the two.
        timezone: The IANA zone of a local moment; an error for a moment with an offset.

    Raises:
        ScheduleError: The moment cannot be parsed, lies outside 1970 to 2100, has no zone or
            has two.
        TimezoneInvalid: ``timezone`` is not an IANA name.
        ValueError: A naive datetime without ``timezone``.
    """

    kind: ClassVar[str] = "at"

    moment: str | datetime
    timezone: str | None = None
    instant: datetime = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        milliseconds = _moment_ms(self.moment, self.timezone)
        if not _EARLIEST_MS <= milliseconds < _HORIZON_MS:
            raise ScheduleError(
                f'at "{self.moment}" lies outside 1970 to 2100', cure="write a year of that range"
            )
        object.__setattr__(self, "instant", from_ms(milliseconds))

    def fires(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Return the moment if ``after < moment <= until``, else nothing."""
        return iter([self.instant] if self.count(after, until) else [])

    def next(self, after: datetime) -> datetime | None:
        """Return the moment if it is after ``after``."""
        return self.instant if epoch_ms(after) < self.bucket(self.instant) else None

    def previous(self, at: datetime) -> datetime | None:
        """Return the moment if it is at or before ``at``."""
        return self.instant if self.bucket(self.instant) <= epoch_ms(at) else None

    def latest(self, before: datetime, n: int) -> list[datetime]:
        """Return the moment if it is at or before ``before`` and ``n`` is positive."""
        fire = self.previous(before)
        return [fire] if fire is not None and n > 0 else []

    def count(self, after: datetime, until: datetime) -> int:
        """Return 1 if ``after < moment <= until``, else 0."""
        return int(epoch_ms(after) < self.bucket(self.instant) <= epoch_ms(until))

    def bucket(self, fire_time: datetime) -> int:
        """Return the bucket of a window: its fire time in milliseconds since the epoch."""
        return epoch_ms(fire_time)

    def fire_time(self, bucket: int) -> datetime:
        """Return the fire time of window ``bucket``; the inverse of `bucket`."""
        return from_ms(bucket)


def _moment_ms(moment: str | datetime, timezone: str | None) -> int:
    """Return the instant of an `At` in milliseconds since the epoch."""
    read = moment if isinstance(moment, datetime) else _read(moment)
    if read.tzinfo is not None:
        if timezone is not None:
            raise ScheduleError(
                f'at "{moment}" has an offset and timezone "{timezone}" beside it',
                cure="remove one of the two",
            )
        return epoch_ms(read)
    if timezone is None:
        if isinstance(moment, datetime):
            return epoch_ms(moment)  # raises the ValueError for naive instants
        raise ScheduleError(
            f'at "{moment}" has no offset and no timezone', cure="append Z, or write timezone:"
        )
    rules = zone(timezone)
    local_ms = (read - datetime(1970, 1, 1)) // timedelta(milliseconds=1)  # noqa: DTZ001 - local axis
    reading, milliseconds = divmod(local_ms, 1000)
    instant = rules.first_instant(reading)
    # A time in a gap becomes the first instant after it, without the milliseconds.
    exists = instant + rules.offset(instant) == reading
    return instant * 1000 + (milliseconds if exists else 0)


def _read(moment: object) -> datetime:
    try:
        if isinstance(moment, str) and _ISO.fullmatch(moment):
            return datetime.fromisoformat(moment)
    except ValueError:
        pass  # right form, but no such day or time
    raise ScheduleError(
        f'at "{moment}" is not a date and time', cure='write it as "2027-01-01T09:00:00"'
    )


# --- start and end ---
# Limits of a spec: ``start:`` and ``end:``.

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bounded:
    """Spec that fires in ``first <= t <= last`` only; None is no bound.

    Windows have the same buckets as without bounds.
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
    """Return ``spec`` limited to ``start`` and ``end``, both included; a date is its whole day.

    Raises:
        ScheduleError: a moment is invalid, or nothing fires between the two.
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
    """Return the instant that ``text`` means as ``name`` (``start`` or ``end``) in ``timezone``.

    Raises:
        ScheduleError: ``text`` is not a moment, or lies outside 1970 to 2100.
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
