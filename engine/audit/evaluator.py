"""Evaluator of the audit: the windows of a stored definition, by brute force.

It is the second opinion on `engine.schedules.timing` and shares no code with it: it reads the
stored JSON, parses cron expressions by itself, and asks ``zoneinfo`` for the offset of each hour
in place of a table of changes. It is written for being checked by eye against docs/time.md, and
imports nothing of the engine; a rule of imports holds that.

Instants are whole microseconds since 1970-01-01T00:00:00Z, and local readings whole seconds, as
a clock without a zone counts them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib import resources
from typing import Any, Final
from zoneinfo import ZoneInfo

SECOND: Final = 1_000_000
"""Instants in a second."""
_MILLISECOND: Final = 1000
_HOUR: Final = 3600
_DAY: Final = 86_400
_END: Final = 4_133_980_800
"""2101-01-01T00:00:00Z in seconds. Nothing fires before 1970 or from then on."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY: Final = date(1970, 1, 1).toordinal()
_WEEK: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


def instant(moment: datetime) -> int:
    """Return an aware datetime in microseconds since the epoch."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def moment(at: int) -> datetime:
    """Return the UTC datetime of an instant."""
    return _EPOCH + timedelta(microseconds=at)


# --- the clock of a zone ---
# Pieces of constant offset, found by asking for the offset of every hour. Two changes within one
# hour that cancel each other would be missed; no zone has that.

_Piece = tuple[int, int, int]
"""``first <= t < end`` in seconds UTC, and local minus UTC in seconds."""

_CHUNK: Final = 30 * _DAY
_AROUND: Final = 3 * _DAY
"""Readings of one local day are shown within these seconds of it: no clock was moved further."""
_WIDEST: Final = 15 * _HOUR
"""No zone is further from UTC."""


@lru_cache(maxsize=64)
def _rules(name: str) -> ZoneInfo:
    """Return a zone of the installed ``tzdata``; the system's data may have other rules."""
    path = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with path.open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _offset(name: str, at: int) -> int:
    away = datetime.fromtimestamp(at, _rules(name)).utcoffset()
    if away is None:
        raise ValueError(f"zone {name} has no offset")
    return away.days * _DAY + away.seconds


@lru_cache(maxsize=4096)
def _chunk(name: str, number: int) -> tuple[_Piece, ...]:
    """Return the pieces of the chunk of this number."""
    first, end = number * _CHUNK, (number + 1) * _CHUNK
    found: list[_Piece] = []
    begun, offset = first, _offset(name, first)
    for at in range(first + _HOUR, end + 1, _HOUR):
        now = _offset(name, min(at, end - 1))
        if now == offset:
            continue
        low, high = at - _HOUR, min(at, end - 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _offset(name, middle) == offset else (low, middle)
        found.append((begun, high, offset))
        begun, offset = high, now
    return (*found, (begun, end, offset))


def _pieces(name: str, first: int, end: int) -> list[_Piece]:
    """Return the pieces of ``first <= t < end``; neighbours have different offsets."""
    found: list[_Piece] = []
    for number in range(first // _CHUNK, (end - 1) // _CHUNK + 1):
        for begun, ended, offset in _chunk(name, number):
            begin, stop = max(begun, first), min(ended, end)
            if begin >= stop:
                continue
            if found and found[-1][2] == offset:
                begin = found.pop()[0]
            found.append((begin, stop, offset))
    return found


@lru_cache(maxsize=4096)
def _around(name: str, day: int) -> tuple[_Piece, ...]:
    """Return the pieces around a local day."""
    return tuple(_pieces(name, day * _DAY - _AROUND, (day + 1) * _DAY + _AROUND))


def _first_shown(pieces: Sequence[_Piece], reading: int) -> int:
    """Return the first instant, in seconds, at which the clock reads this or later."""
    return next(at for first, end, offset in pieces if (at := max(first, reading - offset)) < end)


def _shown(pieces: Sequence[_Piece], reading: int) -> list[int]:
    """Return the instants, in seconds, at which the clock reads exactly this."""
    return [reading - offset for first, end, offset in pieces if first <= reading - offset < end]


def _local_second(text: str) -> int:
    """Return a local date and time as a reading."""
    return instant(datetime.fromisoformat(text).replace(tzinfo=UTC)) // SECOND


def _first_instant(name: str, reading: int) -> int:
    return _first_shown(_around(name, reading // _DAY), reading)


# --- the fields of a cron expression ---

_MONTHS: Final = (
    "JAN",
    "FEB",
    "MAR",
    "APR",
    "MAY",
    "JUN",
    "JUL",
    "AUG",
    "SEP",
    "OCT",
    "NOV",
    "DEC",
)
_RANGES: Final = {
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 23),
    "day": (1, 31),
    "month": (1, 12),
    "weekday": (0, 6),
}
_LONG: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_SIX: Final = 6
_DAYS_OF_H: Final = 28
"""The last day that a plain H takes, so that a month without it does not exist."""


def _number(name: str, text: str) -> int:
    if text.isdigit():
        return int(text)
    return _MONTHS.index(text) + 1 if name == "month" else _WEEK.index(text)


def _values(name: str, item: str, key: str) -> set[int]:
    """Return the values that one item of a field's list means."""
    low, high = _RANGES[name]
    size = high - low + 1
    body, _, stepped = item.partition("/")
    step = int(stepped) if stepped else 1
    if body == "*":
        return set(range(low, high + 1, step))
    if body[0] == "H" and (len(body) == 1 or body[1] == "("):
        return _hashed(name, body, int(stepped) if stepped else None, key)
    begin, dash, end = body.partition("-")
    first = _number(name, begin)
    last = _number(name, end) if dash else high if stepped else first
    if name == "weekday" and first == len(_WEEK):  # the second number of Sunday
        first, last = 0, last % size
    if last < first:
        last += size
    return {low + (value - low) % size for value in range(first, last + 1, step)}


def _hashed(name: str, body: str, step: int | None, key: str) -> set[int]:
    """Return the values of H, which a key keeps for ever."""
    low, high = _RANGES[name]
    high = _DAYS_OF_H if name == "day" else high
    if given := re.fullmatch(r"H\((\d+)-(\d+)\)", body):
        low, high = int(given[1]), int(given[2])
    number = int.from_bytes(sha256(f"{name}\0{key}".encode()).digest()[:8], "big")
    if step is None:
        return {low + number % (high - low + 1)}
    return set(range(low + number % min(step, high - low + 1), high + 1, step))


_DayRule = Callable[[date], bool]


def _last_of(day: date) -> int:
    return monthrange(day.year, day.month)[1]


def _workday_nearest(day: date, wanted: int) -> int:
    """Return the day of the month that is the workday nearest to ``wanted``; 0 without any."""
    if wanted > _last_of(day):
        return 0
    workdays = [n for n in range(1, _last_of(day) + 1) if day.replace(day=n).weekday() < 5]  # noqa: PLR2004
    return min(workdays, key=lambda n: abs(n - wanted))


def _day_item(item: str, key: str) -> _DayRule:
    """Return the rule of one item of the day field."""
    if item == "L":
        return lambda day: day.day == _last_of(day)
    if item == "LW":
        return lambda day: day.day == _workday_nearest(day, _last_of(day))
    if item.startswith("L-"):
        back = int(item[2:])
        return lambda day: day.day == _last_of(day) - back
    if re.fullmatch(r"\d+W", item):
        wanted = int(item[:-1])
        return lambda day: day.day == _workday_nearest(day, wanted)
    days = _values("day", item, key)
    return lambda day: day.day in days


def _weekday_item(item: str, key: str) -> _DayRule:
    """Return the rule of one item of the weekday field; Sunday is 0."""
    special = re.fullmatch(r"(\w+)#(\w+)", item) or re.fullmatch(r"(\d|[A-Z]{3})(L)", item)
    if special is None:
        weekdays = _values("weekday", item, key)
        return lambda day: day.isoweekday() % 7 in weekdays
    weekday, which = _number("weekday", special[1]) % 7, special[2]
    if which == "L":
        return lambda day: day.isoweekday() % 7 == weekday and day.day + 7 > _last_of(day)
    nth = int(which)
    return lambda day: day.isoweekday() % 7 == weekday and (day.day - 1) // 7 + 1 == nth


class CronMeaning:
    """Days and times that a cron expression names on a local clock.

    Args:
        expression: five or six fields, or a macro.
        key: the key of its schedule, which H depends on.

    Attributes:
        times: the seconds of a day, in order.
        wildcard: whether it fires at every real reading of the clock (docs/time.md, rule 4).

    Raises:
        ValueError: the expression has another number of fields, or an unknown name.
    """

    def __init__(self, expression: str, key: str) -> None:
        texts = expression.upper().split()
        texts = _LONG.get(texts[0], expression.upper()).split()
        texts = texts if len(texts) == _SIX else ["0", *texts]
        if len(texts) != _SIX:
            raise ValueError(f"cron {expression!r} has not five or six fields")
        second, minute, hour, day, month, weekday = texts
        seconds, minutes, hours = (
            set[int]().union(*(_values(name, item, key) for item in text.split(",")))
            for name, text in (("second", second), ("minute", minute), ("hour", hour))
        )
        self.times = sorted(h * _HOUR + m * 60 + s for h in hours for m in minutes for s in seconds)
        self.wildcard = minute[0] == "*" or hour[0] == "*"
        self._both = day[0] in "*?" or weekday[0] in "*?"
        self._months = set[int]().union(*(_values("month", n, key) for n in month.split(",")))
        plain = {"?": "*"}
        self._by_day = [_day_item(item, key) for item in plain.get(day, day).split(",")]
        week = plain.get(weekday, weekday).split(",")
        self._by_weekday = [_weekday_item(item, key) for item in week]
        self._matched: dict[int, bool] = {}

    def matches(self, number: int) -> bool:
        """Return whether a local day, counted from 1970-01-01, is one of its days."""
        if number not in self._matched:
            if len(self._matched) > _MOST_DAYS:
                self._matched.clear()
            self._matched[number] = self._is_day(date.fromordinal(_FIRST_DAY + number))
        return self._matched[number]

    def _is_day(self, day: date) -> bool:
        if day.month not in self._months:
            return False
        by_day = any(rule(day) for rule in self._by_day)
        by_weekday = any(rule(day) for rule in self._by_weekday)
        return (by_day and by_weekday) if self._both else (by_day or by_weekday)

    def readings(self, first: int, end: int) -> Iterator[int]:
        """Yield the readings with ``first <= reading < end`` that it names, in order."""
        for day in range(first // _DAY, (end - 1) // _DAY + 1):
            if not self.matches(day):
                continue
            begin = bisect_left(self.times, first - day * _DAY)
            stop = bisect_left(self.times, end - day * _DAY)
            for time in self.times[begin:stop]:
                yield day * _DAY + time


_MOST_DAYS: Final = 5000


# --- days off ---

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}(\.\.\d{4}-\d{2}-\d{2})?")


class DaysOff:
    """Days and stretches whose windows are skipped: the field ``exclude`` as it is stored."""

    def __init__(self, items: Sequence[Any], zone: str) -> None:
        self._zone = zone
        self._days: dict[int, str] = {}
        self._weekdays: dict[int, str] = {}
        spans: list[tuple[int, int, str]] = []
        for item in items:
            name = item if isinstance(item, str) else item["name"]
            for text in [item] if isinstance(item, str) else item["dates"]:
                first, _, last = text.partition("..")
                if text.upper() in _WEEK:
                    self._weekdays.setdefault(_WEEK.index(text.upper()), name)
                elif _DATE.fullmatch(text):
                    begin, end = (date.fromisoformat(n).toordinal() for n in (first, last or first))
                    for day in range(begin - _FIRST_DAY, end - _FIRST_DAY + 1):
                        self._days.setdefault(day, name)
                else:
                    begin, end = (instant(datetime.fromisoformat(n)) for n in (first, last))
                    spans.append((begin, end, name))
        self._spans: list[tuple[int, int, str]] = []
        for begin, end, name in sorted(spans):
            if self._spans and begin <= self._spans[-1][1]:
                before, until, named = self._spans.pop()
                begin, end, name = before, max(until, end), named  # noqa: PLW2901 - one stretch now
            self._spans.append((begin, end, name))

    def reason(self, at: int) -> str | None:
        """Return the name of the day or stretch that excludes a window; None without any."""
        seconds = at // SECOND
        day = (seconds + _offset(self._zone, seconds)) // _DAY
        found = self._days.get(day) or self._weekdays.get((day + 4) % 7)
        place = bisect_right(self._spans, at, key=lambda span: span[0]) - 1
        if found is None and place >= 0 and at < self._spans[place][1]:
            found = self._spans[place][2]
        return found


# --- the windows of a definition ---

_ISO_OFFSET: Final = re.compile(r"(?:Z|[+-]\d{2}:\d{2})\Z")
_LOOKS_AHEAD: Final = tuple(days * _DAY * SECOND for days in (1, 32, 400, 4000, 48_000))


class OwedWindows:
    """Windows of one stored definition.

    Args:
        definition: the definition as the ledger keeps it, by the names of a file.

    Raises:
        ValueError, KeyError, TypeError: it is not a definition that this version knows.
    """

    def __init__(self, definition: Mapping[str, Any]) -> None:
        self._definition, self._zone = definition, str(definition.get("timezone", "UTC"))
        self._seed = definition.get("was", definition["key"])
        self._cron: CronMeaning | None = None
        if "cron" in definition:
            self._cron = CronMeaning(definition["cron"], self._seed)
        dst = definition.get("dst", {})
        self._dst = {"gap": "shift", "fold": "first", **(dst if isinstance(dst, Mapping) else {})}
        self._first, self._last = 0, _END * SECOND - 1
        if "start" in definition:
            self._first = max(0, self._bound(definition["start"]))
        if "end" in definition:
            self._last = min(self._last, self._bound(definition["end"], whole_day=True))
        self._off = DaysOff(definition.get("exclude", ()), self._zone)
        self._is_single = "at" in definition
        if self._is_single:
            self._first = self._last = self._moment(definition["at"], definition.get("timezone"))
        elif not self._cron:
            self._every = int(definition["everyMs"]) * _MILLISECOND

    def fires(self, after: int, until: int) -> Iterator[int]:
        """Yield the fire times with ``after < t <= until``, in order, one at a time."""
        after, until = max(after, self._first - 1), min(until, self._last)
        if after >= until:
            return
        if self._is_single:
            yield self._first
        elif self._cron is None:
            yield from self._by_interval(after, until)
        else:
            # Fractions of a second play no part for a cron.
            clock = self._by_readings if self._cron.wildcard else self._by_named_times
            yield from clock(self._cron, after // SECOND + 1, until // SECOND + 1)

    def next(self, after: int) -> int | None:
        """Return the first fire time after an instant; None if there is none."""
        for reach in _LOOKS_AHEAD:
            for at in self.fires(after, after + reach):
                return at
        return None

    def is_window(self, at: int) -> bool:
        """Return whether a window opens exactly then."""
        return next(self.fires(at - 1, at), None) is not None

    def off(self, at: int) -> str | None:
        """Return why the window at ``at`` is excluded; None if it is not."""
        return self._off.reason(at) if self._definition.get("exclude") else None

    def delay(self, at: int, spread: int) -> int:
        """Return how long after its window a run starts, for a ``spread`` in microseconds."""
        if not spread:
            return 0
        following = self.next(at)
        room = spread if following is None else min(spread, following - at)
        digest = sha256(f"spread\0{self._seed}".encode()).digest()[:4]
        part = int.from_bytes(digest, "big")
        return room // _MILLISECOND * part // 2**32 * _MILLISECOND

    @cached_property
    def offset(self) -> int:
        """The shift of an interval in microseconds."""
        return int(self._definition.get("offsetMs", 0)) * _MILLISECOND

    def _by_interval(self, after: int, until: int) -> Iterator[int]:
        at = (after - self.offset) // self._every * self._every + self.offset
        while (at := at + self._every) <= until:
            yield at

    def _by_readings(self, cron: CronMeaning, first: int, end: int) -> Iterator[int]:
        """Fire at every real reading (docs/time.md, rule 5)."""
        for number in range(first // _CHUNK, (end - 1) // _CHUNK + 1):
            begin, stop = max(first, number * _CHUNK), min(end, (number + 1) * _CHUNK)
            for begun, ended, offset in _pieces(self._zone, begin, stop):
                for reading in cron.readings(begun + offset, ended + offset):
                    yield (reading - offset) * SECOND

    def _by_named_times(self, cron: CronMeaning, first: int, end: int) -> Iterator[int]:
        """Fire once for each named time, whether or not it exists (docs/time.md, rules 6, 7)."""
        waiting: set[int] = set()
        begin, stop = (first - _AROUND) // _DAY, (end + _AROUND) // _DAY
        for day in range(max(begin, -3), stop + 1):
            if cron.matches(day):
                waiting.update(self._of_day(cron, day, first, end))
            # No later day fires before this.
            ready = sorted(at for at in waiting if at < (day + 1) * _DAY - _WIDEST or day == stop)
            for at in ready:
                yield at * SECOND
            waiting.difference_update(ready)

    def _of_day(self, cron: CronMeaning, day: int, first: int, end: int) -> Iterator[int]:
        pieces = _around(self._zone, day)
        for time in cron.times:
            reading = day * _DAY + time
            if len(pieces) == 1:
                found = [reading - pieces[0][2]]
            else:
                found = self._by_policy(pieces, reading)
            yield from (at for at in found if first <= at < end)

    def _by_policy(self, pieces: Sequence[_Piece], reading: int) -> list[int]:
        gap, fold = self._dst["gap"], self._dst["fold"]
        shown = _shown(pieces, reading)
        if not shown:
            return [_first_shown(pieces, reading)] if gap == "shift" else []
        if fold == "first":
            return [_first_shown(pieces, reading)]
        return shown[-1:] if fold == "last" else shown

    def _bound(self, text: str, *, whole_day: bool = False) -> int:
        """Return the instant of ``start`` or ``end``, both included."""
        if "T" in text or " " in text:
            return self._moment(text, None if _ISO_OFFSET.search(text) else self._zone)
        reading = _local_second(text)
        if whole_day:
            return _first_instant(self._zone, reading + _DAY) * SECOND - 1
        return _first_instant(self._zone, reading) * SECOND

    @staticmethod
    def _moment(text: str, zone: str | None) -> int:
        """Return a moment to the millisecond; a local time in a gap is the end of the gap."""
        read = datetime.fromisoformat(text)
        if zone is None or read.tzinfo is not None:
            return instant(read) // _MILLISECOND * _MILLISECOND
        local = instant(read.replace(tzinfo=UTC)) // _MILLISECOND * _MILLISECOND
        reading, rest = divmod(local, SECOND)
        at = _first_instant(zone, reading)
        exists = at + _offset(zone, at) == reading
        return at * SECOND + (rest if exists else 0)
