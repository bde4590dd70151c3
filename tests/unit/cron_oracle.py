"""What cron schedules mean, by brute force: expressions made together with their meaning.

The oracle knows no parser and no table of ours. It walks UTC minute by minute (or second by
second) through zoneinfo and reads off what docs/time.md says.
"""

from __future__ import annotations

import calendar
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from hashlib import sha256
from importlib import resources
from itertools import pairwise
from zoneinfo import ZoneInfo

MINUTE = 60
DAY = 86_400
YEARS = (datetime(1975, 1, 1, tzinfo=UTC), datetime(2037, 12, 31, tzinfo=UTC))
APIA_SKIPS_A_DAY = ("Pacific/Apia", 1_325_239_200)  # 2011-12-30T10:00:00Z

Clock = list[tuple[int, int]]


# --- the clocks -----------------------------------------------------------------------------


@cache
def load(name: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def offset_at(zone: ZoneInfo, instant: int) -> int:
    offset = datetime.fromtimestamp(instant, zone).utcoffset()
    assert offset is not None
    return offset.days * DAY + offset.seconds


@cache
def transitions(name: str) -> tuple[int, ...]:
    """Probe every five days and bisect: slow, simple and unrelated to our TZif reader."""
    zone = load(name)
    start, end = (int(year.timestamp()) for year in YEARS)
    probes = [(at, offset_at(zone, at)) for at in range(start, end, 5 * DAY)]
    return tuple(
        bisected(zone, low, high) for (low, old), (high, new) in pairwise(probes) if old != new
    )


def bisected(zone: ZoneInfo, low: int, high: int) -> int:
    old = offset_at(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if offset_at(zone, middle) == old else (low, middle)
    return high


def scan(name: str, start: int, end: int, step: int) -> Clock:
    """Return (instant, local reading) for every step."""
    zone = load(name)
    return [(at, at + offset_at(zone, at)) for at in range(start, end, step)]


# --- the expressions ------------------------------------------------------------------------


@dataclass
class Meaning:
    """An expression that was made together with what it means."""

    text: str
    seconds: set[int]
    minutes: set[int]
    hours: set[int]
    matches_day: Callable[[date], bool]
    wildcard: bool
    key: str = ""

    def named(self, clock: Clock) -> set[int]:
        """Return every matching reading of the days that the clock shows or skips."""
        readings = [reading for _, reading in clock]
        times = [
            hour * 3600 + minute * 60 + second
            for hour in self.hours
            for minute in self.minutes
            for second in self.seconds
        ]
        return {
            day * DAY + time
            for day in range(min(readings) // DAY, max(readings) // DAY + 1)
            if self.matches_day(date(1970, 1, 1) + timedelta(day))
            for time in times
        }


def number_field(
    rng: random.Random, name: str, size: int, high: int, stars: float, key: str
) -> tuple[str, set[int]]:
    if rng.random() < stars:
        return starred(rng, size)
    form = rng.randrange(9)
    first, last = rng.randrange(high), rng.randrange(high)
    step = rng.randrange(1, 20)
    if form == 1:
        cycle = [first]
        while cycle[-1] != last:
            cycle.append((cycle[-1] + 1) % size)
        return f"{first}-{last}/{step}", set(cycle[::step])
    if form == 2:
        return f"{first:02}/{step}", set(range(first, size, step))
    if form == 3:
        return f"0-{size - 1}/{step}", set(range(0, size, step))
    if form == 4:
        return hashed(rng, name, size, key)
    several = {rng.randrange(high) for _ in range(3 if form == 0 else 1)}
    return ",".join(map(str, several)), several


def starred(rng: random.Random, size: int) -> tuple[str, set[int]]:
    form = rng.randrange(5)
    if form < 2:
        return "*", set(range(size))
    step = rng.choice([2, 3, 5, 7, 10, 15, 20, 23])
    if form == 2:
        value = rng.randrange(size)
        return f"*/{step},{value}", {*range(0, size, step), value}
    return f"*/{step}", set(range(0, size, step))


def hashed(rng: random.Random, name: str, size: int, key: str) -> tuple[str, set[int]]:
    """H never changes for a key: its formula is written here a second time on purpose."""
    number = int.from_bytes(sha256(f"{name}\0{key}".encode()).digest()[:8], "big")
    form = rng.randrange(3)
    if form == 0:
        return "H", {number % size}
    if form == 1:
        return "H(1-12)", {1 + number % 12}
    return "H/9", set(range(number % 9, size, 9))


def last_day(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def nearest_workday(day: date, wanted: int) -> int:
    if wanted > last_day(day):
        return 0
    workdays = (d for d in range(1, last_day(day) + 1) if day.replace(day=d).weekday() < 5)
    return min(workdays, key=lambda d: abs(d - wanted))


def last_friday(day: date) -> bool:
    return day.isoweekday() == 5 and day.day + 7 > last_day(day)


DAY_FIELDS: list[tuple[str, Callable[[date], bool]]] = [
    ("1-15", lambda d: d.day <= 15),
    ("25-5", lambda d: d.day >= 25 or d.day <= 5),
    ("20/5", lambda d: d.day in (20, 25, 30)),
    ("*/2", lambda d: d.day % 2 == 1),
    ("*,5", lambda _: True),
    ("5,*", lambda _: True),
    ("L", lambda d: d.day == last_day(d)),
    ("L-3", lambda d: d.day == last_day(d) - 3),
    ("L-30,1", lambda d: d.day == 1),
    ("LW", lambda d: d.day == nearest_workday(d, last_day(d))),
    ("29W", lambda d: d.day == nearest_workday(d, 29)),
    ("1W,8", lambda d: d.day in (nearest_workday(d, 1), 8)),
]
WEEKDAY_FIELDS: list[tuple[str, Callable[[date], bool]]] = [
    ("SUN", lambda d: d.isoweekday() == 7),
    ("7,3", lambda d: d.isoweekday() in (3, 7)),
    ("5-7", lambda d: d.isoweekday() >= 5),
    ("7-2", lambda d: d.isoweekday() in (7, 1, 2)),
    ("Sat-sun", lambda d: d.isoweekday() >= 6),
    ("fri-mon", lambda d: d.isoweekday() in (5, 6, 7, 1)),
    ("fri-mon/2", lambda d: d.isoweekday() in (5, 7)),
    ("*/3", lambda d: d.isoweekday() % 7 in (0, 3, 6)),
    ("0L", lambda d: d.isoweekday() == 7 and d.day + 7 > last_day(d)),
    ("fril", last_friday),
    ("SUN#2", lambda d: d.isoweekday() == 7 and 7 < d.day <= 14),
    ("MON#5,0", lambda d: (d.isoweekday() == 1 and d.day > 28) or d.isoweekday() == 7),
    ("SAT#1,5L", lambda d: (d.isoweekday() == 6 and d.day <= 7) or last_friday(d)),
]
MONTH_FIELDS: list[tuple[str, Callable[[date], bool]]] = [
    ("mar-APR,10/1", lambda d: d.month in (3, 4, 10, 11, 12)),
    ("sep-apr", lambda d: d.month not in (5, 6, 7, 8)),
]


def day_rule(rng: random.Random) -> tuple[str, str, Callable[[date], bool]]:
    """Return the day and weekday texts and their joint meaning (the star rule)."""
    any_day = (rng.choice("*?"), lambda _: True)
    day, by_day = any_day if rng.random() < 0.7 else rng.choice(DAY_FIELDS)
    weekday, by_weekday = any_day if rng.random() < 0.7 else rng.choice(WEEKDAY_FIELDS)
    if day[0] in "*?" or weekday[0] in "*?":
        return day, weekday, lambda d: by_day(d) and by_weekday(d)
    return day, weekday, lambda d: by_day(d) or by_weekday(d)


def make(rng: random.Random, *, with_seconds: bool = False, stars: float = 0.3) -> Meaning:
    key = f"key-{rng.randrange(1000)}"
    minute, minutes = number_field(rng, "minute", 60, 60, stars, key)
    hour, hours = number_field(rng, "hour", 24, rng.choice([4, 24]), stars, key)
    day, weekday, matches_day = day_rule(rng)
    month, in_month = rng.choice(MONTH_FIELDS) if rng.random() < 0.1 else ("*", lambda _: True)
    blank = rng.choice([" ", " ", " ", "  ", "\t"])
    texts, seconds = [minute, hour, day, month, weekday], {0}
    if with_seconds:
        second, seconds = number_field(rng, "second", 60, 60, 0.5, key)
        texts.insert(0, second)
    return Meaning(
        blank.join(texts),
        seconds,
        minutes,
        hours,
        lambda d: in_month(d) and matches_day(d),
        minute[0] == "*" or hour[0] == "*",
        key,
    )


# --- the oracle -----------------------------------------------------------------------------


def wildcard_fires(meaning: Meaning, clock: Clock) -> list[int]:
    named = meaning.named(clock)
    return [at for at, reading in clock if reading in named]


def standard_fires(meaning: Meaning, clock: Clock, step: int) -> list[int]:
    """Walk a clock that never goes back; fire when it first reads a matching time or later."""
    named = meaning.named(clock)
    found, reached = [], clock[0][1]
    for at, reading in clock[1:]:
        if reading > reached:
            if not named.isdisjoint(range(reached + step, reading + 1, step)):
                found.append(at)
            reached = reading
    return found


def policy_fires(meaning: Meaning, clock: Clock, gap: str, fold: str) -> list[int]:
    """Look every matching local time up in the record of what the clock showed."""
    shown: dict[int, list[int]] = {}
    for at, reading in clock:
        shown.setdefault(reading, []).append(at)
    first, last = min(shown), max(shown)
    found = set()
    for reading in meaning.named(clock):
        instants = shown.get(reading)
        if instants:
            found.update({"first": instants[:1], "last": instants[-1:], "both": instants}[fold])
        elif gap == "shift" and first < reading < last:
            found.add(next(at for at, later in clock if later > reading))
    return sorted(found)


def last_fires(meaning: Meaning, clock: Clock, step: int) -> list[int]:
    """Fire each reading where it is shown last, or where the clock last rises past it."""
    found = set()
    readings = [reading for _, reading in clock]
    for wanted in meaning.named(clock):
        if min(readings) + DAY <= wanted < max(readings) - DAY:
            last_shown = max((at for at, reading in clock if reading == wanted), default=0)
            last_below = max(at for at, reading in clock if reading < wanted)
            found.add(max(last_shown, last_below + step))
    return sorted(found)


def fires_of(meaning: Meaning, clock: Clock, step: int) -> list[int]:
    """Return the instants at which the meaning fires by the standard rules."""
    if meaning.wildcard:
        return wildcard_fires(meaning, clock)
    return standard_fires(meaning, clock, step)


def inside(fires: list[int], after: int, until: int) -> list[int]:
    """Return the fires with ``after < t <= until``."""
    return fires[bisect_right(fires, after) : bisect_right(fires, until)]


def within(fires: list[int], low: int, high: int) -> list[int]:
    """Return the fires with ``low <= t < high``."""
    return fires[bisect_left(fires, low) : bisect_left(fires, high)]
