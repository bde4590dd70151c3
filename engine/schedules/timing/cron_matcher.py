"""Cron matcher: wall-clock readings that match an expression, without any time zone.

The local axis counts seconds as a clock without a zone would: reading 0 is 1970-01-01 00:00:00.
`Readings` finds the smallest match at or after a reading, the largest at or before it, and the
number of matches in a range. Days are bit masks per month, computed once per `DayFields` and
shared by all schedules with the same day, month and weekday fields.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import monthrange
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from engine.errors import CronInvalid
from engine.schedules.terms import SECONDS_PER_DAY
from engine.schedules.timing.cron_parser import depends_on_key, parse

if TYPE_CHECKING:
    from engine.schedules.timing.cron_parser import DayFields, Fields, Special

NEVER: Final = 2**62  # after every reading; -NEVER is before every reading

# 1970..2100 with a margin on both sides, for offsets and skipped days.
_YEARS: Final = range(1969, 2103)
_MONTH_STARTS: Final = tuple(
    date(year, month, 1).toordinal() - date(1970, 1, 1).toordinal()
    for year in _YEARS
    for month in range(1, 13)
)
# Weekday of the first (0 is Sunday) and length; the matching days depend on nothing else.
_MONTH_SHAPES: Final = tuple(
    ((start + 4) % 7, monthrange(1969 + index // 12, index % 12 + 1)[1])
    for index, start in enumerate(_MONTH_STARTS)
)
_SATURDAY: Final = 6


@dataclass(frozen=True, slots=True, eq=False)
class MatchingDays:
    """Matching days, one mask per month of `_YEARS`; bit 0 is the first of the month."""

    masks: tuple[int, ...]
    days_before: tuple[int, ...]  # matching days before each month

    def rank(self, day: int) -> int:
        """Return how many matching days lie before ``day`` (days since the epoch)."""
        month = bisect_right(_MONTH_STARTS, day) - 1
        earlier = self.masks[month] & ((1 << (day - _MONTH_STARTS[month])) - 1)
        return self.days_before[month] + earlier.bit_count()


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """Matching readings of one expression. Arguments and results are local seconds."""

    calendar: MatchingDays
    masks: tuple[int, ...]
    minutes: tuple[int, ...]  # matching minutes of a day, ascending
    seconds: tuple[int, ...]  # matching seconds of a minute, ascending

    def first(self, reading: int) -> int:
        """Return the smallest match >= ``reading``, or `NEVER`."""
        day, second = divmod(reading, SECONDS_PER_DAY)
        month = bisect_right(_MONTH_STARTS, day) - 1
        rest = self.masks[month] >> (day - _MONTH_STARTS[month])
        if rest & 1:
            found = self._time_from(second)
            if found >= 0:
                return day * SECONDS_PER_DAY + found
        rest >>= 1
        if rest:
            day += (rest & -rest).bit_length()
        else:
            month = _following(self.masks, month)
            if month < 0:
                return NEVER
            mask = self.masks[month]
            day = _MONTH_STARTS[month] + (mask & -mask).bit_length() - 1
        return day * SECONDS_PER_DAY + self.minutes[0] * 60 + self.seconds[0]

    def last(self, reading: int) -> int:
        """Return the largest match <= ``reading``, or ``-NEVER``."""
        day, second = divmod(reading, SECONDS_PER_DAY)
        month = bisect_right(_MONTH_STARTS, day) - 1
        bit = 1 << (day - _MONTH_STARTS[month])
        mask = self.masks[month]
        if mask & bit:
            found = self._time_until(second)
            if found >= 0:
                return day * SECONDS_PER_DAY + found
        mask &= bit - 1
        if not mask:
            month = _preceding(self.masks, month)
            if month < 0:
                return -NEVER
            mask = self.masks[month]
        day = _MONTH_STARTS[month] + mask.bit_length() - 1
        return day * SECONDS_PER_DAY + self.minutes[-1] * 60 + self.seconds[-1]

    def count(self, low: int, high: int) -> int:
        """Return the number of matches in ``low <= reading < high``."""
        return self._rank(high) - self._rank(low) if low < high else 0

    def _rank(self, reading: int) -> int:
        day, second = divmod(reading, SECONDS_PER_DAY)
        full = self.calendar.rank(day)
        per_day = len(self.minutes) * len(self.seconds)
        if self.calendar.rank(day + 1) == full:  # the day itself does not match
            return full * per_day
        minute, second = divmod(second, 60)
        at = bisect_left(self.minutes, minute)
        today = at * len(self.seconds)
        if at < len(self.minutes) and self.minutes[at] == minute:
            today += bisect_left(self.seconds, second)
        return full * per_day + today

    def _time_from(self, second: int) -> int:
        """Return the first matching time of day >= ``second``, in seconds, or -1."""
        minute, second = divmod(second, 60)
        minutes = self.minutes
        at = bisect_left(minutes, minute)
        if at == len(minutes):
            return -1
        if minutes[at] == minute:
            seconds = self.seconds
            if second <= seconds[-1]:
                return minute * 60 + seconds[bisect_left(seconds, second)]
            at += 1
            if at == len(minutes):
                return -1
        return minutes[at] * 60 + self.seconds[0]

    def _time_until(self, second: int) -> int:
        """Return the last matching time of day <= ``second``, in seconds, or -1."""
        minute, second = divmod(second, 60)
        minutes = self.minutes
        at = bisect_right(minutes, minute) - 1
        if at < 0:
            return -1
        if minutes[at] == minute:
            seconds = self.seconds
            if second >= seconds[0]:
                return minute * 60 + seconds[bisect_right(seconds, second) - 1]
            at -= 1
            if at < 0:
                return -1
        return minutes[at] * 60 + self.seconds[-1]


def _readings(fields: Fields) -> Readings:
    calendar = _calendar(fields.calendar)
    minutes = _minutes_of_day(fields.hours, fields.minutes)
    return Readings(calendar, calendar.masks, minutes, bits(fields.seconds))


def readings(expression: str, key: str) -> tuple[Readings, bool]:
    """Return the readings of ``expression``, and whether it is wildcard (docs/time.md, rule 4).

    Raises:
        CronInvalid: The expression cannot be parsed, or matches no day of 1970 to 2100.
    """
    if not isinstance(expression, str):
        raise CronInvalid(
            f"cron {expression!r} is not text", hint='write a quoted string such as "0 2 * * *"'
        )
    # Without an H the key has no effect; dropping it lets equal expressions share one plan.
    return _plan(expression, key if key and depends_on_key(expression) else "")


@lru_cache(maxsize=4096)
def _plan(expression: str, key: str) -> tuple[Readings, bool]:
    fields = parse(expression, key)
    found = _readings(fields)
    if not any(found.masks):
        raise CronInvalid(
            f'day, month and weekday fields: "{expression[:60]}" can never fire',
            hint="no month has such a day; write a day that exists, or L for the last day",
        )
    return found, fields.wildcard


@lru_cache(maxsize=1024)
def _calendar(fields: DayFields) -> MatchingDays:
    by_shape = {shape: _month_mask(fields, *shape) for shape in set(_MONTH_SHAPES)}
    masks = tuple(
        by_shape[shape] if fields.months >> (index % 12 + 1) & 1 else 0
        for index, shape in enumerate(_MONTH_SHAPES)
    )
    return MatchingDays(masks, tuple(accumulate((mask.bit_count() for mask in masks), initial=0)))


@lru_cache(maxsize=4096)
def _minutes_of_day(hours: int, minutes: int) -> tuple[int, ...]:
    return tuple(hour * 60 + minute for hour in bits(hours) for minute in bits(minutes))


def _month_mask(fields: DayFields, weekday: int, length: int) -> int:
    """Return the matching days of a month whose first is ``weekday``; bit 0 is the first."""
    whole = (1 << length) - 1
    by_day = fields.days >> 1
    for special in fields.day_specials:
        by_day |= _day_bit(special, weekday, length)
    by_weekday = 0
    for day in range(length):
        by_weekday |= (fields.weekdays >> (weekday + day) % 7 & 1) << day
    for special in fields.weekday_specials:
        by_weekday |= _weekday_bit(special, weekday, length)
    return (by_day & by_weekday if fields.both else by_day | by_weekday) & whole


def _day_bit(special: Special, weekday: int, length: int) -> int:
    """Return the bit of ``L``, ``L-n``, ``LW`` or ``nW``; 0 where this month has no such day."""
    if special.kind == "L":
        return 1 << (length - 1 - special.n) if special.n < length else 0
    day = (length if special.kind == "LW" else special.n) - 1
    if day >= length:
        return 0
    on = (weekday + day) % 7
    # The nearest workday of the same month: 1W on a Saturday is Monday the 3rd.
    if on == _SATURDAY:
        day += -1 if day else 2
    elif on == 0:
        day += 1 if day + 1 < length else -2
    return 1 << day


def _weekday_bit(special: Special, weekday: int, length: int) -> int:
    """Return the bit of ``nL`` or ``n#k``; 0 where this month has no fifth such weekday."""
    day = (special.n - weekday) % 7
    if special.kind == "nL":
        return 1 << (day + (length - 1 - day) // 7 * 7)
    day += 7 * (special.k - 1)
    return 1 << day if day < length else 0


def _following(masks: tuple[int, ...], month: int) -> int:
    for later in range(month + 1, len(masks)):
        if masks[later]:
            return later
    return -1


def _preceding(masks: tuple[int, ...], month: int) -> int:
    for earlier in range(month - 1, -1, -1):
        if masks[earlier]:
            return earlier
    return -1


@lru_cache(maxsize=4096)
def bits(mask: int) -> tuple[int, ...]:
    """Return the numbers of the bits that are set, in ascending order."""
    return tuple(value for value in range(mask.bit_length()) if mask >> value & 1)
