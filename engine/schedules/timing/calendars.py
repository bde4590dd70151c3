"""Exclusion calendars: days and stretches of time whose windows are skipped (``exclude:``).

An item is a weekday (``SAT``), a date (``2026-12-25``), a range of dates, both ends included
(``2026-12-24..2027-01-01``), or a stretch between two instants, the second one excluded
(``2026-12-24T12:00:00Z..2026-12-25T00:00:00Z``). A calendar is a named list of items. Days are
local dates at the fire time. Where items overlap, the reason is the name of the date, else of
the weekday, else of the stretch; of two dates, the one listed first.

An excluded window still exists: it is recorded as ``skipped`` with that name.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from engine.schedules.terms import SECONDS_PER_DAY, TICK, epoch_seconds, from_seconds
from engine.schedules.timing.zones import Zone, zone

WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MAX_ITEMS: Final = 5000
"""Maximum items of one calendar: almost a century of weekly days off."""

MAX_DAYS: Final = 50_000
"""Maximum days covered by the dates and ranges of one schedule; 1970 to 2100 has 47,847."""

LONGEST_DAYS: Final = 366
"""Maximum days of one range or stretch."""

EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_WITH_TIME: Final = re.compile(r"\dT\d")
_LONG_WEEKDAY: Final = re.compile("(SUN|MON|TUES|WEDNES|THURS|FRI|SATUR)DAYS?")
_INSTANT: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)


class Calendar(NamedTuple):
    """Named list of items."""

    name: str
    dates: tuple[str, ...]


Item = str | Calendar


class _Span(NamedTuple):
    """Range ``first <= n < end`` of days on the local axis or of seconds in UTC."""

    first: int
    end: int


class Stretch(NamedTuple):
    """Period ``first <= t < end`` in epoch seconds, excluded for ``reason`` unless it is None."""

    first: int
    end: int
    reason: str | None


def check_item(text: str) -> None:
    """Check one item that is not the name of a calendar.

    Raises:
        ValueError: ``args`` are the message and the hint.
    """
    if text.upper() not in WEEKDAYS:
        _span(text)


@lru_cache(maxsize=1024)
def days_covered(item: Item) -> int:
    """Return how many days the dates and ranges of a checked item cover; overlaps count twice."""
    texts = (item,) if isinstance(item, str) else item.dates
    dated = (_span(text) for text in texts if _DATE.match(text) and not _INSTANT.match(text))
    return sum(span.end - span.first for span in dated)


def is_item(text: str) -> bool:
    """Return whether ``text`` has the form of an item and so cannot name a calendar."""
    return text.upper() in WEEKDAYS or bool(re.match(r"\d", text))


@dataclass(frozen=True, slots=True, eq=False)
class Exclusions:
    """Exclusions of one schedule on its local clock, created by `exclusions`."""

    _zone: Zone
    _weekdays: dict[int, str]
    _days: dict[int, str]
    _spans: tuple[Stretch, ...]  # ascending and disjoint

    def reason(self, fire_time: datetime) -> str | None:
        """Return why the window that opens at ``fire_time`` is excluded, or None."""
        return self._look(epoch_seconds(fire_time)).reason

    def day_of(self, fire_time: datetime) -> Stretch:
        """Return the stretch from ``fire_time`` on with one reason, within its local day."""
        return self._look(epoch_seconds(fire_time))

    def stretches(self, first: int, end: int) -> Iterator[Stretch]:
        """Divide ``first <= t < end`` into stretches; adjacent ones have different reasons."""
        begun, at = first, first
        while at < end:
            reason, at = self._look(at).reason, min(self._look(at).end, end)
            while at < end and (following := self._look(at)).reason == reason:
                at = min(following.end, end)
            yield Stretch(begun, at, reason)
            begun = at

    def divide(
        self, after: datetime, until: datetime
    ) -> Iterator[tuple[datetime, datetime, str | None]]:
        """Divide ``after < t <= until`` as `stretches` does, into ranges of the same form."""
        for stretch in self.stretches(epoch_seconds(after + TICK), epoch_seconds(until) + 1):
            begin = max(after, from_seconds(stretch.first) - TICK)
            yield begin, min(until, from_seconds(stretch.end) - TICK), stretch.reason

    def _look(self, at: int) -> Stretch:
        """Return the stretch from ``at`` on; it ends with the local day at the latest."""
        rules = self._zone
        piece = bisect_right(rules.starts, at) - 1
        offset = rules.offsets[piece]
        day = (at + offset) // SECONDS_PER_DAY
        end = (day + 1) * SECONDS_PER_DAY - offset
        if piece + 1 < len(rules.starts):
            end = min(end, rules.starts[piece + 1])
        reason = self._days.get(day) or self._weekdays.get((day + 4) % 7)
        following = bisect_right(self._spans, at, key=lambda span: span.end)
        if reason is None and following < len(self._spans):
            span = self._spans[following]
            if at < span.first:
                end = min(end, span.first)
            else:
                reason, end = span.reason, min(end, span.end)
        return Stretch(at, end, reason)


@lru_cache(maxsize=1024)
def exclusions(items: tuple[Item, ...], timezone: str) -> Exclusions:
    """Return the (cached) exclusions of checked ``items`` on the clock of ``timezone``."""
    weekdays: dict[int, str] = {}
    days: dict[int, str] = {}
    spans: list[Stretch] = []
    for item in items:
        label, texts = (item, (item,)) if isinstance(item, str) else item
        for text in texts:
            if text.upper() in WEEKDAYS:
                weekdays.setdefault(WEEKDAYS.index(text.upper()), label)
                continue
            span = _span(text)
            if _INSTANT.match(text):
                spans.append(Stretch(*span, label))
                continue
            for day in range(*span):
                days.setdefault(day, label)
    return Exclusions(zone(timezone), weekdays, days, _apart(spans))


def _apart(spans: list[Stretch]) -> tuple[Stretch, ...]:
    """Return the stretches in ascending order, each without the part an earlier one covers."""
    found: list[Stretch] = []
    for span in sorted(spans):
        first = max(span.first, found[-1].end) if found else span.first
        if first < span.end:
            found.append(span._replace(first=first))
    return tuple(found)


def _span(text: str) -> _Span:
    """Return the days or seconds that a date, a range or a stretch covers."""
    first, dots, last = text.partition("..")
    last = last if dots else first
    if dots and _INSTANT.fullmatch(first) and _INSTANT.fullmatch(last):
        span = _Span(_second(first), _second(last))
        longest = LONGEST_DAYS * SECONDS_PER_DAY
    elif _DATE.fullmatch(first) and _DATE.fullmatch(last):
        span = _Span(_day(first), _day(last) + 1)
        longest = LONGEST_DAYS
    else:
        raise ValueError(
            f"{text[:60]!r} is no date, weekday or calendar of this file", _how_to_write(text)
        )
    if span.end <= span.first:
        raise ValueError(f"{text} ends before it begins", "write the earlier one first")
    if span.end - span.first > longest:
        raise ValueError(f"{text} is longer than a year", "end the schedule with end: instead")
    return span


def _how_to_write(text: str) -> str:
    if text.isalpha() and _LONG_WEEKDAY.fullmatch(text.upper()):
        return f"write {text[:3].upper()}"
    first, _, last = text.partition("/")
    if _DATE.fullmatch(first) and _DATE.fullmatch(last):
        return f"write {first}..{last}"
    first, _, last = text.upper().partition("-")
    if {first, last} <= set(WEEKDAYS):
        return f"name each day: {', '.join(_weekdays(first, last))}"
    if ".." in text and _WITH_TIME.search(text):
        return "write both ends in UTC, as 2026-12-24T12:00:00Z..2026-12-25T00:00:00Z"
    return "write 2026-12-25, 2026-12-24..2027-01-01, SAT, or a name from calendars:"


def _weekdays(first: str, last: str) -> list[str]:
    """Return the weekdays from ``first`` to ``last``, both included, wrapping after Saturday."""
    begin = WEEKDAYS.index(first)
    count = (WEEKDAYS.index(last) - begin) % len(WEEKDAYS) + 1
    return [WEEKDAYS[(begin + n) % len(WEEKDAYS)] for n in range(count)]


def _day(text: str) -> int:
    try:
        return date.fromisoformat(text).toordinal() - EPOCH_DAY
    except ValueError:
        raise ValueError(f"{text} is no day of the calendar", "write a day that exists") from None


def _second(text: str) -> int:
    try:
        return epoch_seconds(datetime.fromisoformat(text))
    except ValueError:
        raise ValueError(f"{text} is no moment", "write one that exists") from None
