"""Cron specs: the instants at which a cron expression fires."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, get_args

from engine.errors import ScheduleError
from engine.schedules.timing.cron_matcher import NEVER, Readings, readings
from engine.schedules.timing.zones import zone
from engine.schedules.units import EARLIEST, HORIZON, epoch_ms, epoch_seconds, from_ms, from_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from engine.schedules.timing.zones import Zone

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
        cure="write standard, or {gap: shift | skip, fold: first | last | both}",
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
        """Return the fires with ``after < t <= until``, strictly increasing."""
        return self._walk(epoch_seconds(after), epoch_seconds(until))

    def next(self, after: datetime) -> datetime | None:
        """Return the first fire strictly after ``after``."""
        fire = self._next(epoch_seconds(after))
        return None if fire is None else from_seconds(fire)

    def previous(self, at: datetime) -> datetime | None:
        """Return the last fire at or before ``at``."""
        fire = self._previous(epoch_seconds(at))
        return None if fire is None else from_seconds(fire)

    def latest(self, before: datetime, n: int) -> list[datetime]:
        """Return the last ``n`` fires at or before ``before``, newest first, in O(n)."""
        found: list[datetime] = []
        fire = self._previous(epoch_seconds(before)) if n > 0 else None
        while fire is not None:
            found.append(from_seconds(fire))
            fire = self._previous(fire - 1) if len(found) < n else None
        return found

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
        """Return the bucket of a window: its fire time in milliseconds since the epoch."""
        return epoch_ms(fire_time)

    def fire_time(self, bucket: int) -> datetime:
        """Return the fire time of window ``bucket``; the inverse of `bucket`."""
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
