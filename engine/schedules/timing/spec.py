"""Timing specs: intervals, single instants and cron, and their bounds."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, get_args

from engine.errors import IntervalTooShort, ScheduleError
from engine.schedules.terms import (
    EARLIEST,
    FIRST_YEAR,
    HORIZON,
    LAST_YEAR,
    SECONDS_PER_DAY,
    TICK,
    epoch_ms,
    epoch_seconds,
    from_ms,
    from_seconds,
)
from engine.schedules.timing.cron_matcher import NEVER, Readings, readings
from engine.schedules.timing.zones import zone

if TYPE_CHECKING:
    from engine.schedules.timing.zones import Zone

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

    def fires(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Return the fires with ``after < t <= until``, strictly increasing."""

    def next(self, after: datetime) -> datetime | None:
        """Return the first fire strictly after ``after``."""

    def previous(self, at: datetime) -> datetime | None:
        """Return the last fire at or before ``at``."""

    def count(self, after: datetime, until: datetime) -> int:
        """Return how many fires ``fires(after, until)`` has, without listing them."""

    def bucket(self, fire_time: datetime) -> int:
        """Return the number of the window that opens at ``fire_time``.

        For `Cron` and `At` it is the fire time in milliseconds since the epoch.
        """

    def fire_time(self, bucket: int) -> datetime:
        """Return the fire time of window ``bucket``; the inverse of ``bucket``."""


def latest(spec: Spec, before: datetime, n: int) -> list[datetime]:
    """Return the last ``n`` fires at or before ``before``, newest first."""
    found: list[datetime] = []
    fire = spec.previous(before)
    while fire is not None and len(found) < n:
        found.append(fire)
        fire = spec.previous(fire - TICK)
    return found


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
                hint=f"write {SHORTEST_INTERVAL_MS} (one second) or more",
            )

    def fires(self, after: datetime, until: datetime) -> Iterator[datetime]:
        first, last = self._buckets(epoch_ms(after), epoch_ms(until))
        return (self.fire_time(bucket) for bucket in range(first, last + 1))

    def next(self, after: datetime) -> datetime | None:
        first, last = self._buckets(epoch_ms(after), _HORIZON_MS)
        return self.fire_time(first) if first <= last else None

    def previous(self, at: datetime) -> datetime | None:
        first, last = self._buckets(_EARLIEST_MS - 1, epoch_ms(at))
        return self.fire_time(last) if first <= last else None

    def count(self, after: datetime, until: datetime) -> int:
        first, last = self._buckets(epoch_ms(after), epoch_ms(until))
        return max(0, last - first + 1)

    def bucket(self, fire_time: datetime) -> int:
        """Return the bucket of the window that contains ``fire_time``, a fire or not."""
        return (epoch_ms(fire_time) - self.offset_ms) // self.every_ms

    def fire_time(self, bucket: int) -> datetime:
        return from_ms(bucket * self.every_ms + self.offset_ms)

    def _buckets(self, after: int, until: int) -> tuple[int, int]:
        """Return the buckets of the first and last window that open in ``after < t <= until``."""
        after, until = max(after, _EARLIEST_MS - 1), min(until, _HORIZON_MS - 1)
        first = (after - self.offset_ms) // self.every_ms + 1
        return first, (until - self.offset_ms) // self.every_ms


def _check_whole(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ScheduleError(
            f"{name} {value!r} is not a whole number", hint="write milliseconds, as 300000"
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
                f'at "{self.moment}" lies outside 1970 to 2100', hint="write a year of that range"
            )
        object.__setattr__(self, "instant", from_ms(milliseconds))

    def fires(self, after: datetime, until: datetime) -> Iterator[datetime]:
        return iter([self.instant] if self.count(after, until) else [])

    def next(self, after: datetime) -> datetime | None:
        return self.instant if epoch_ms(after) < self.bucket(self.instant) else None

    def previous(self, at: datetime) -> datetime | None:
        return self.instant if self.bucket(self.instant) <= epoch_ms(at) else None

    def count(self, after: datetime, until: datetime) -> int:
        return int(epoch_ms(after) < self.bucket(self.instant) <= epoch_ms(until))

    def bucket(self, fire_time: datetime) -> int:
        return epoch_ms(fire_time)

    def fire_time(self, bucket: int) -> datetime:
        return from_ms(bucket)


def _moment_ms(moment: str | datetime, timezone: str | None) -> int:
    """Return the instant of an `At` in milliseconds since the epoch."""
    read = moment if isinstance(moment, datetime) else _read(moment)
    if read.tzinfo is not None:
        if timezone is not None:
            raise ScheduleError(
                f'at "{moment}" has an offset and timezone "{timezone}" beside it',
                hint="remove one of the two",
            )
        return epoch_ms(read)
    if timezone is None:
        if isinstance(moment, datetime):
            return epoch_ms(moment)  # raises the ValueError for naive instants
        raise ScheduleError(
            f'at "{moment}" has no offset and no timezone', hint="append Z, or write timezone:"
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
        f'at "{moment}" is not a date and time', hint='write it as "2027-01-01T09:00:00"'
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
        return self.spec.kind

    def fires(self, after: datetime, until: datetime) -> Iterator[datetime]:
        return self.spec.fires(self._after(after), self._until(until))

    def next(self, after: datetime) -> datetime | None:
        return self._within(self.spec.next(self._after(after)))

    def previous(self, at: datetime) -> datetime | None:
        return self._within(self.spec.previous(self._until(at)))

    def count(self, after: datetime, until: datetime) -> int:
        return self.spec.count(self._after(after), self._until(until))

    def bucket(self, fire_time: datetime) -> int:
        return self.spec.bucket(fire_time)

    def fire_time(self, bucket: int) -> datetime:
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
        raise ScheduleError(f"nothing ever fires with {between}", hint="move or remove one of them")
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
                hint="write it as 2027-01-01 or 2027-01-01T09:00:00",
            ) from None
    rules = zone(timezone)
    try:
        midnight = datetime.fromisoformat(f"{text}T00:00:00Z")
    except ValueError:
        raise ScheduleError(
            f"{name} {text} is no day of the calendar", hint="write a day that exists"
        ) from None
    if not FIRST_YEAR <= midnight.year <= LAST_YEAR:
        what = f"{name} {text} lies outside 1970 to 2100"
        raise ScheduleError(what, hint=f"remove {name}, or write a year of that range")
    reading = int(midnight.timestamp())
    if name == "start":
        return from_seconds(rules.first_instant(reading))
    return from_seconds(rules.first_instant(reading + SECONDS_PER_DAY)) - TICK


# --- local clock ---
# Conversion of local clock readings to instants, across all changes of offset.
#
# A `Clock` divides time into pieces of constant offset, each with the readings that fire in it.
# Between two changes all policies agree: ``instant = reading - offset``. They differ only in
# readings that a clock skips (gap) or shows twice (fold); see docs/time.md, rules 5 to 7:
#
# * *wildcard* schedules fire at every real reading: gap ``skip``, fold ``both``;
# * *fixed-time* schedules follow a clock that never goes back, M(u) = max over v <= u of the local
#   reading at v, and fire when M first reaches a matching reading: gap ``shift``, fold ``first``.
#
# Pieces are disjoint in UTC and ascending. Both directions traverse the same set, so ``next`` and
# ``previous`` cannot disagree.

Gap = Literal["shift", "skip"]
Fold = Literal["first", "last", "both"]


@dataclass(frozen=True, slots=True)
class Dst:
    """Treatment of skipped and repeated local times by a fixed-time schedule.

    Attributes:
        gap: ``shift`` fires at the first instant after the gap, ``skip`` not at all.
        fold: ``first``, ``last`` or ``both`` of the two instants.
    """

    gap: Gap = "shift"
    fold: Fold = "first"


STANDARD: Final = Dst()
EVERY_READING: Final = Dst(gap="skip", fold="both")


def dst_policy(dst: str | Mapping[str, Any] | Dst) -> Dst:
    """Return the policy for ``dst``; a missing key of a mapping takes the standard value.

    Raises:
        ScheduleError: ``dst`` is neither ``standard`` nor a mapping of ``gap`` and ``fold``.
    """
    if dst == "standard":
        return STANDARD
    if not isinstance(dst, (Mapping, Dst)):
        raise _wrong(repr(dst))
    given = asdict(dst) if isinstance(dst, Dst) else dict(dst)
    complete = {"gap": "shift", "fold": "first"} | given
    if (
        complete.keys() != {"gap", "fold"}
        or complete["gap"] not in get_args(Gap)
        or complete["fold"] not in get_args(Fold)
    ):
        shown = ", ".join(f"{name}: {value}" for name, value in given.items())
        raise _wrong(f"{{{shown[:_SHOWN]}}}")
    return Dst(**complete)


_SHOWN: Final = 60
"""Maximum characters of a policy in a message."""


def _wrong(shown: str) -> ScheduleError:
    return ScheduleError(
        f"dst {shown} is not a policy",
        hint="write standard, or {gap: shift | skip, fold: first | last | both}",
    )


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """Parallel tables of one zone under one policy; piece ``i`` starts at ``starts[i]``.

    In piece ``i`` the readings ``lows[i] <= r < highs[i]`` fire at ``r - offsets[i]``, and
    the skipped readings ``gaps[i] <= r < lows[i]`` (often none) fire together at ``starts[i]``.
    All values are seconds; ``gaps``, ``lows`` and ``highs`` are on the local axis.
    """

    starts: tuple[int, ...]
    offsets: tuple[int, ...]
    gaps: tuple[int, ...]
    lows: tuple[int, ...]
    highs: tuple[int, ...]


@cache
def clock(rules: Zone, policy: Dst) -> Clock:
    """Return the clock of the zone ``rules`` under ``policy``."""
    # before[i] is the reading at which piece i - 1 ends; after[i] the one at which piece i begins.
    after = [start + offset for start, offset in zip(rules.starts, rules.offsets, strict=True)]
    ends = [start + old for start, old in zip(rules.starts[1:], rules.offsets, strict=False)]
    before = [after[0], *ends]
    if policy.fold == "last":
        # A reading belongs to the last piece that shows it.
        turns = [min(pair) for pair in zip(before, after, strict=True)]
        bounds = list(accumulate(reversed(turns), min))[::-1]
        highs = [*bounds[1:], NEVER]
        lows = [min(pair) for pair in zip(after, highs, strict=True)]
    else:
        bounds = list(rules.reached)
        highs = [*ends, NEVER]
        lows = [max(pair) for pair in zip(after, bounds, strict=True)]
        if policy.fold == "both":
            lows = after
    gaps = [min(pair) for pair in zip(bounds, lows, strict=True)]
    if policy.gap == "skip":
        gaps = lows
    return Clock(rules.starts, rules.offsets, tuple(gaps), tuple(lows), tuple(highs))


# --- cron spec ---
# `Cron`, a set of UTC instants (docs/time.md).
#
# `cron_matcher` finds the wall-clock readings that match the expression; `Clock` converts them to
# instants. All arithmetic is on whole seconds since the epoch: adding a timedelta to a zone-aware
# datetime would lose ``fold``.

EVALUATOR_VERSION: Final = 1  # increment it when any expression changes its fire times


@dataclass(frozen=True, slots=True, repr=False)
class Cron:
    """Instants at which a cron expression fires in a time zone.

    Arguments are timezone-aware (a naive one raises ValueError) and lose fractions of a second;
    results are whole seconds in UTC. Nothing fires before 1970 or after 2100: with no fire left,
    ``next`` and ``previous`` return None. Equal arguments make equal objects.

    Args:
        expression: Five or six fields, or a macro; see `cron_parser`.
        timezone: An IANA name, resolved in the pinned tzdata.
        dst: ``standard``, or a mapping or `Dst` of ``gap`` and ``fold`` for a fixed-time
            schedule; a wildcard one always fires at every real reading.
        key: The schedule's key, which determines the value of ``H``.

    Raises:
        CronInvalid: The expression is not in the grammar, or can never fire.
        TimezoneInvalid: The timezone is not an IANA name.
        ScheduleError: ``dst`` is not a policy.
    """

    kind: ClassVar[str] = "cron"

    expression: str
    timezone: str = "UTC"
    dst: str | Dst | Mapping[str, Any] = "standard"
    key: str = ""
    _readings: Readings = field(init=False, compare=False)
    _clock: Clock = field(init=False, compare=False)

    def __post_init__(self) -> None:
        policy = dst_policy(self.dst)
        named, wildcard = readings(self.expression, self.key)
        if self.dst != "standard":
            object.__setattr__(self, "dst", "standard" if policy == STANDARD else policy)
        # The class is frozen, so the derived fields are set here.
        object.__setattr__(self, "_readings", named)
        rule = EVERY_READING if wildcard else policy
        object.__setattr__(self, "_clock", clock(zone(self.timezone), rule))

    def __repr__(self) -> str:
        more = "" if self.dst == "standard" else f", dst={self.dst!r}"
        more += f", key={self.key!r}" if self.key else ""
        return f"Cron({self.expression!r}, {self.timezone!r}{more})"

    def __reduce__(self) -> tuple[type[Cron], tuple[object, ...]]:
        return Cron, (self.expression, self.timezone, self.dst, self.key)

    def fires(self, after: datetime, until: datetime) -> Iterator[datetime]:
        return self._walk(epoch_seconds(after), epoch_seconds(until))

    def next(self, after: datetime) -> datetime | None:
        fire = self._next(epoch_seconds(after))
        return None if fire is None else from_seconds(fire)

    def previous(self, at: datetime) -> datetime | None:
        fire = self._previous(epoch_seconds(at))
        return None if fire is None else from_seconds(fire)

    def count(self, after: datetime, until: datetime) -> int:
        """Return how many fires ``fires(after, until)`` has.

        The cost grows with the number of offset changes in the range, not of fires.
        """
        start = max(epoch_seconds(after), EARLIEST - 1) + 1
        end = min(epoch_seconds(until) + 1, HORIZON)
        if start >= end:
            return 0
        starts = self._clock.starts
        first = bisect_right(starts, start) - 1
        last = bisect_right(starts, end - 1)
        return sum(self._count_in_piece(piece, start, end) for piece in range(first, last))

    def bucket(self, fire_time: datetime) -> int:
        return epoch_ms(fire_time)

    def fire_time(self, bucket: int) -> datetime:
        return from_ms(bucket)

    def _walk(self, after: int, until: int) -> Iterator[datetime]:
        fire = self._next(after)
        while fire is not None and fire <= until:
            yield from_seconds(fire)
            fire = self._next(fire)

    def _next(self, after: int) -> int | None:
        """Return the smallest fire > ``after``, in seconds since the epoch."""
        clock, first = self._clock, self._readings.first
        start = max(after + 1, EARLIEST)
        if start >= HORIZON:
            return None
        piece = bisect_right(clock.starts, start) - 1
        known = max(start + clock.offsets[piece], clock.lows[piece])
        if start == clock.starts[piece] and self._shifted(piece):
            return start
        reading = first(known)
        # `reading` is the first match at or after `known`. It is computed again only if the
        # next piece begins outside `known` to `reading`.
        while reading >= clock.highs[piece]:
            piece += 1
            if piece == len(clock.starts) or clock.starts[piece] >= HORIZON:
                return None
            if self._shifted(piece):
                return clock.starts[piece]
            low = clock.lows[piece]
            if not known <= low <= reading:
                known, reading = low, first(low)
        fire = reading - clock.offsets[piece]
        return fire if fire < HORIZON else None

    def _previous(self, at: int) -> int | None:
        """Return the largest fire <= ``at``, in seconds since the epoch."""
        clock, last = self._clock, self._readings.last
        at = min(at, HORIZON - 1)
        if at < EARLIEST:
            return None
        piece = bisect_right(clock.starts, at) - 1
        known, reading = -NEVER, NEVER
        while True:
            offset, low = clock.offsets[piece], clock.lows[piece]
            top = min(at + offset, clock.highs[piece] - 1)
            if not reading <= top <= known:
                known, reading = top, last(top)
            if reading >= low:
                fire = reading - offset
                return fire if fire >= EARLIEST else None
            if clock.starts[piece] < EARLIEST:
                return None
            if self._shifted(piece):
                return clock.starts[piece]
            at = clock.starts[piece] - 1
            piece -= 1

    def _shifted(self, piece: int) -> bool:
        """Return whether skipped readings fire at the first instant of ``piece``."""
        gap, low = self._clock.gaps[piece], self._clock.lows[piece]
        return gap < low and self._readings.first(gap) < low

    def _count_in_piece(self, piece: int, start: int, end: int) -> int:
        """Return how many fires of ``piece`` lie in ``start <= t < end``."""
        clock = self._clock
        begin, offset = clock.starts[piece], clock.offsets[piece]
        low = max(clock.lows[piece], start + offset)
        total = self._readings.count(low, min(clock.highs[piece], end + offset))
        # Skipped readings and a real one at the same instant are one fire (docs/time.md, rule 7).
        real = begin + offset
        doubled = low <= real < clock.highs[piece] and self._readings.first(real) == real
        return total + (start <= begin and self._shifted(piece) and not doubled)
