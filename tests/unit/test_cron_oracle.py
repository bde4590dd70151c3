"""Our evaluator against a brute-force scan of real clocks.

The oracle knows no parser and no table: it makes expressions together with their meaning, walks
UTC minute by minute (or second by second) through zoneinfo, and reads off what DESIGN §5 says.
"""

from __future__ import annotations

import calendar
import random
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from engine.schedules import cron as cron_module
from engine.schedules.cron import Cron
from engine.schedules.zones import BEGINNING, tabulate

if TYPE_CHECKING:
    from collections.abc import Callable

MINUTE = 60
DAY = 86_400
YEARS = (datetime(1975, 1, 1, tzinfo=UTC), datetime(2037, 12, 31, tzinfo=UTC))
ODD_ZONES = (
    *("Australia/Lord_Howe", "Antarctica/Troll", "Pacific/Apia", "Africa/Casablanca"),
    *("Asia/Gaza", "America/St_Johns", "Europe/Dublin", "Asia/Kathmandu"),
    *("America/New_York", "Europe/London", "Pacific/Kwajalein", "Antarctica/Casey"),
    *("America/Sao_Paulo", "Asia/Tehran", "Africa/Cairo", "America/Caracas"),
)


# --- the clocks -----------------------------------------------------------------------------


@cache
def load(name: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def offset_at(zone: ZoneInfo, instant: int) -> int:
    offset = datetime.fromtimestamp(instant, zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


@cache
def transitions(name: str) -> tuple[int, ...]:
    """Probe every five days and bisect: slow, simple and unrelated to our TZif reader."""
    zone = load(name)
    start, end = (int(year.timestamp()) for year in YEARS)
    probes = [(at, offset_at(zone, at)) for at in range(start, end, 5 * DAY)]
    found = []
    for (low, old), (high, new) in pairwise(probes):
        if old != new:
            found.append(bisected(zone, low, high))
    return tuple(found)


def bisected(zone: ZoneInfo, low: int, high: int) -> int:
    old = offset_at(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if offset_at(zone, middle) == old else (low, middle)
    return high


def scan(name: str, start: int, end: int, step: int) -> list[tuple[int, int]]:
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

    def __post_init__(self) -> None:
        self.matches_day = cache(self.matches_day)

    def matches(self, reading: int) -> bool:
        days, second = divmod(reading, DAY)
        return (
            second // 3600 in self.hours
            and second // 60 % 60 in self.minutes
            and second % 60 in self.seconds
            and self.matches_day(date(1970, 1, 1) + timedelta(days))
        )


def number_field(rng: random.Random, size: int, high: int, stars: float) -> tuple[str, set[int]]:
    if rng.random() < stars:
        if rng.random() < 0.4:
            return "*", set(range(size))
        step = rng.choice([2, 3, 5, 7, 10, 15, 20, 23])
        return f"*/{step}", set(range(0, size, step))
    form = rng.randrange(6)
    first, last = rng.randrange(high), rng.randrange(high)
    step = rng.randrange(1, 20)
    if form == 0:
        several = {rng.randrange(high) for _ in range(3)}
        return ",".join(map(str, several)), several
    if form == 1:
        cycle = [first]
        while cycle[-1] != last:
            cycle.append((cycle[-1] + 1) % size)
        return f"{first}-{last}/{step}", set(cycle[::step])
    if form == 2:
        return f"{first:02}/{step}", set(range(first, size, step))
    return str(first), {first}


def last_day(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def nearest_workday(day: date, wanted: int) -> int:
    if wanted > last_day(day):
        return 0
    workdays = (d for d in range(1, last_day(day) + 1) if day.replace(day=d).weekday() < 5)
    return min(workdays, key=lambda d: abs(d - wanted))


DAY_FIELDS: list[tuple[str, Callable[[date], bool]]] = [
    ("1-15", lambda d: d.day <= 15),
    ("25-5", lambda d: d.day >= 25 or d.day <= 5),
    ("*/2", lambda d: d.day % 2 == 1),
    ("L", lambda d: d.day == last_day(d)),
    ("L-3", lambda d: d.day == last_day(d) - 3),
    ("LW", lambda d: d.day == nearest_workday(d, last_day(d))),
    ("29W", lambda d: d.day == nearest_workday(d, 29)),
    ("1W,8", lambda d: d.day in (nearest_workday(d, 1), 8)),
]
WEEKDAY_FIELDS: list[tuple[str, Callable[[date], bool]]] = [
    ("SUN", lambda d: d.isoweekday() == 7),
    ("7,3", lambda d: d.isoweekday() in (3, 7)),
    ("fri-mon", lambda d: d.isoweekday() in (5, 6, 7, 1)),
    ("*/3", lambda d: d.isoweekday() % 7 in (0, 3, 6)),
    ("0L", lambda d: d.isoweekday() == 7 and d.day + 7 > last_day(d)),
    ("SUN#2", lambda d: d.isoweekday() == 7 and 7 < d.day <= 14),
    ("SAT#1,5L", lambda d: (d.isoweekday() == 6 and d.day <= 7) or last_friday(d)),
]


def last_friday(day: date) -> bool:
    return day.isoweekday() == 5 and day.day + 7 > last_day(day)


def day_rule(rng: random.Random) -> tuple[str, str, Callable[[date], bool]]:
    """Return the day and weekday texts and their joint meaning (the star rule)."""
    any_day = (rng.choice("*?"), lambda _: True)
    day, by_day = any_day if rng.random() < 0.7 else rng.choice(DAY_FIELDS)
    weekday, by_weekday = any_day if rng.random() < 0.7 else rng.choice(WEEKDAY_FIELDS)
    if day[0] in "*?" or weekday[0] in "*?":
        return day, weekday, lambda d: by_day(d) and by_weekday(d)
    return day, weekday, lambda d: by_day(d) or by_weekday(d)


def make(rng: random.Random, *, with_seconds: bool = False, stars: float = 0.3) -> Meaning:
    minute, minutes = number_field(rng, 60, 60, stars)
    hour, hours = number_field(rng, 24, rng.choice([4, 24]), stars)
    day, weekday, matches_day = day_rule(rng)
    text, seconds = f"{minute} {hour} {day} * {weekday}", {0}
    if with_seconds:
        second, seconds = number_field(rng, 60, 60, 0.5)
        text = f"{second} {text}"
    starred = minute[0] == "*" or hour[0] == "*"
    return Meaning(text, seconds, minutes, hours, matches_day, starred)


# --- the oracle -----------------------------------------------------------------------------


def wildcard_fires(meaning: Meaning, clock: list[tuple[int, int]]) -> list[int]:
    return [at for at, reading in clock if meaning.matches(reading)]


def standard_fires(meaning: Meaning, clock: list[tuple[int, int]], step: int) -> list[int]:
    """Walk a clock that never goes back; fire when it first reads a matching time or later."""
    found, reached = [], clock[0][1]
    for at, reading in clock[1:]:
        if reading > reached:
            if any(meaning.matches(r) for r in range(reached + step, reading + 1, step)):
                found.append(at)
            reached = reading
    return found


def policy_fires(
    meaning: Meaning, clock: list[tuple[int, int]], step: int, gap: str, fold: str
) -> list[int]:
    """Look every matching local time up in the record of what the clock showed."""
    shown: dict[int, list[int]] = {}
    for at, reading in clock:
        shown.setdefault(reading, []).append(at)
    found = set()
    for reading in range(min(shown), max(shown) + 1, step):
        if not meaning.matches(reading):
            continue
        instants = shown.get(reading)
        if instants:
            found.update({"first": instants[:1], "last": instants[-1:], "both": instants}[fold])
        elif gap == "shift":
            found.add(next(at for at, later in clock if later > reading))
    return sorted(found)


def moments(rng: random.Random, low: int, high: int, middle: int, n: int) -> list[int]:
    near = [middle + rng.randrange(-2, 3) for _ in range(n // 3)]
    close = [middle + rng.randrange(-4 * 3600, 4 * 3600) for _ in range(n // 3)]
    far = [rng.randrange(low, high) for _ in range(n - len(near) - len(close))]
    return [min(max(at, low), high) for at in (*near, *close, *far)]


def compare(cron: Cron, expected: list[int], at: int, low: int, high: int) -> int:
    """Compare next and previous at ``at``; ``expected`` is complete in ``low <= t < high``."""

    def seconds(instant: datetime | None) -> int | None:
        return None if instant is None else int(instant.timestamp())

    moment = datetime.fromtimestamp(at, UTC)
    following, earlier = seconds(cron.next(moment)), seconds(cron.previous(moment))
    later = bisect_right(expected, at)
    where = f"{cron!r} at {moment}"
    if later < len(expected):
        assert following == expected[later], where
    else:
        assert following is None or following >= high, where
    if later > 0:
        assert earlier == expected[later - 1], where
    else:
        assert earlier is None or earlier < low, where
    return 2


def cases(rng: random.Random, windows: int) -> list[tuple[str, int]]:
    names = resources.files("tzdata").joinpath("zones").read_text().split()
    usable = [name for name in names if "/" in name]
    chosen = [*ODD_ZONES, *rng.sample(usable, windows)]
    found = [(name, at) for name in chosen for at in transitions(name)]
    odd = [(name, at) for name, at in found if name in ODD_ZONES]
    return rng.sample(odd, windows // 2) + rng.sample(found, windows // 2)


def test_the_evaluator_agrees_with_a_minute_by_minute_scan_around_transitions():
    rng = random.Random(20_261_121)
    compared = 0
    for name, turn in [("Pacific/Apia", 1_325_239_200), *cases(rng, 150)]:
        middle = turn // MINUTE * MINUTE
        low, high = middle - 36 * 3600, middle + 36 * 3600
        # A day and two hours of margin, so that the shift of any fold and gap is inside.
        clock = scan(name, low - 26 * 3600, high + 26 * 3600, MINUTE)
        assert all(reading % MINUTE == 0 for _, reading in clock), name
        for _ in range(6):
            meaning = make(rng)
            if meaning.wildcard:
                fires = wildcard_fires(meaning, clock)
            else:
                fires = standard_fires(meaning, clock, MINUTE)
            expected = [at for at in fires if low <= at < high]
            cron = Cron(meaning.text, name)
            for at in moments(rng, low, high - 1, turn, 12):
                compared += compare(cron, expected, at, low, high)
            compared += compare_lists(rng, cron, expected, low, high)
    assert compared >= 20_000


def compare_lists(rng: random.Random, cron: Cron, expected: list[int], low: int, high: int) -> int:
    """Compare fires, count and latest over a random stretch."""
    after, until = sorted(rng.randrange(low, high) for _ in range(2))
    inside = expected[bisect_right(expected, after) : bisect_right(expected, until)]
    start, end = (datetime.fromtimestamp(at, UTC) for at in (after, until))
    assert [int(fire.timestamp()) for fire in cron.fires(start, end)] == inside, repr(cron)
    assert cron.count(start, end) == len(inside), f"{cron!r} from {start} to {end}"
    newest = [int(fire.timestamp()) for fire in cron.latest(end, len(inside))]
    assert newest == inside[::-1], repr(cron)
    return 3


def test_the_evaluator_agrees_with_a_second_by_second_scan_around_transitions():
    rng = random.Random(7)
    for name, turn in cases(rng, 24):
        low, high = turn - 5400, turn + 5400
        clock = scan(name, low - 7200, high + 7200, 1)
        if abs((clock[-1][1] - clock[0][1]) - (clock[-1][0] - clock[0][0])) > 7200:
            continue  # a shift of many hours needs the margin of the other test
        for _ in range(3):
            meaning = make(rng, with_seconds=True, stars=0.6)
            if meaning.wildcard:
                fires = wildcard_fires(meaning, clock)
            else:
                fires = standard_fires(meaning, clock, 1)
            expected = [at for at in fires if low <= at < high]
            cron = Cron(meaning.text, name)
            for at in moments(rng, low, high - 1, turn, 12):
                compare(cron, expected, at, low, high)
            compare_lists(rng, cron, expected, low, high)


def test_the_overrides_of_gap_and_fold_agree_with_a_record_of_the_clock():
    rng = random.Random(99)
    for name, turn in cases(rng, 40):
        middle = turn // MINUTE * MINUTE
        low, high = middle - 30 * 3600, middle + 30 * 3600
        clock = scan(name, low - 52 * 3600, high + 52 * 3600, MINUTE)
        for gap in ("shift", "skip"):
            for fold in ("first", "last", "both"):
                meaning = make(rng, stars=0)
                fires = policy_fires(meaning, clock, MINUTE, gap, fold)
                expected = [at for at in fires if low <= at < high]
                cron = Cron(meaning.text, name, dst={"gap": gap, "fold": fold})
                for at in moments(rng, low, high - 1, turn, 6):
                    compare(cron, expected, at, low, high)
                compare_lists(rng, cron, expected, low, high)


def last_fires(meaning: Meaning, clock: list[tuple[int, int]], step: int) -> list[int]:
    """Fire each reading where it is shown last, or where the clock last rises past it."""
    found = set()
    readings = [reading for _, reading in clock]
    for wanted in range(min(readings) + DAY, max(readings) - DAY, step):
        if meaning.matches(wanted):
            last_shown = max((at for at, reading in clock if reading == wanted), default=0)
            last_below = max(at for at, reading in clock if reading < wanted)
            found.add(max(last_shown, last_below + step))
    return sorted(found)


def test_changes_of_offset_inside_each_other_follow_the_same_rules(monkeypatch):
    """No zone does this today; a clock that jumps about at random must not break the set."""
    rng = random.Random(11)
    origin = int(datetime(2030, 5, 5, tzinfo=UTC).timestamp())
    for n in range(60):
        table, at = [(BEGINNING, 0)], origin
        for _ in range(6):
            at += rng.randrange(1, 24) * 900
            table.append((at, rng.randrange(-16, 17) * 900))
        zone = tabulate(f"Test/{n}", table)
        monkeypatch.setattr(cron_module, "zone", lambda _, zone=zone: zone)
        low, high = origin - 12 * 3600, at + 12 * 3600
        clock = [
            (u, u + next(offset for start, offset in reversed(table) if start <= u))
            for u in range(low - 2 * DAY, high + 2 * DAY, 300)
        ]
        for fold in ("standard", "wildcard", "last"):
            cron, fires = jumpy_case(rng, clock, f"Test/{n}", fold)
            expected = [fire for fire in fires if low <= fire < high]
            for moment in moments(rng, low, high - 1, rng.choice(table[1:])[0], 12):
                compare(cron, expected, moment, low, high)
            compare_lists(rng, cron, expected, low, high)


def jumpy_case(
    rng: random.Random, clock: list[tuple[int, int]], name: str, fold: str
) -> tuple[Cron, list[int]]:
    minutes, hours = rng.choice([{0}, {0, 30}, {15, 45}]), set(rng.sample(range(24), 8))
    meaning = Meaning("", {0}, minutes, hours, lambda _: True, fold == "wildcard")
    minute, hour = (",".join(map(str, values)) for values in (minutes, hours))
    if fold == "wildcard":
        meaning.hours, hour = set(range(24)), "*"
        return Cron(f"{minute} {hour} * * *", name), wildcard_fires(meaning, clock)
    if fold == "standard":
        return Cron(f"{minute} {hour} * * *", name), standard_fires(meaning, clock, 300)
    return Cron(f"{minute} {hour} * * *", name, {"fold": "last"}), last_fires(meaning, clock, 300)


def test_the_evaluator_agrees_with_a_scan_of_whole_years():
    """Away from transitions the calendar is what can go wrong: walk days, not minutes."""
    rng = random.Random(3)
    for _ in range(150):
        year = rng.randrange(1971, 2100)
        day, weekday, matches_day = day_rule(rng)
        days = [date(year, 1, 1) + timedelta(n) for n in range(366 + 366)]
        expected = [
            int(datetime(d.year, d.month, d.day, 9, 30, tzinfo=UTC).timestamp())
            for d in days
            if matches_day(d)
        ]
        cron = Cron(f"30 9 {day} * {weekday}")
        start = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
        compare_lists(rng, cron, expected, start, start + 732 * DAY)
        at = rng.randrange(start, start + 732 * DAY)
        assert bisect_left(expected, at) == cron.count(
            datetime.fromtimestamp(start - 1, UTC), datetime.fromtimestamp(at - 1, UTC)
        )
