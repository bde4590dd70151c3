"""Evaluators of other schedulers, to compare imported schedules with; they share no engine code.

Celery beat and APScheduler are asked themselves. Cron (the manual of Debian's cron), Kubernetes
(the documentation of robfig/cron) and systemd (systemd.time, and compared with ``systemd-analyze
calendar`` of version 252 in three zones) are brute force over every day here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import product
from zoneinfo import ZoneInfo

MACROS = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}  # fmt: skip
NAMES = {
    name: number
    for names in (
        "sun mon tue wed thu fri sat",
        "- jan feb mar apr may jun jul aug sep oct nov dec",
    )
    for number, name in enumerate(names.split())
}
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def values(text: str, least: int, most: int) -> set[int]:
    """The values of a field: lists of numbers, names, ranges and steps."""
    found: set[int] = set()
    for part in text.lower().replace("?", "*").split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        begin = least if first == "*" else _number(first)
        end = most if first == "*" or (step and not last) else _number(last or first)
        found.update(range(begin, end + 1, int(step or 1)))
    return found


def _number(text: str) -> int:
    return NAMES[text] if text in NAMES else int(text)


def _is_star_of_vixie(field: str) -> bool:
    return field.startswith("*")


def _is_star_of_robfig(field: str) -> bool:
    """A star with a step is none since version 3."""
    return any(part in {"*", "?", "*/1"} for part in field.split(","))


def _days(fields: list[str], start: date, end: date, star: Callable[[str], bool]) -> Iterator[date]:
    days, months, weekdays = (
        values(field, *bounds) for field, bounds in zip(fields[2:], BOUNDS[2:], strict=True)
    )
    both = star(fields[2]) or star(fields[4])
    day = start
    while day <= end:
        one, other = day.day in days, bool({day.isoweekday() % 7, day.isoweekday()} & weekdays)
        if day.month in months and ((one and other) if both else (one or other)):
            yield day
        day += timedelta(days=1)


def _local_times(
    fields: list[str], zone: ZoneInfo, start: datetime, end: datetime, star: Callable[[str], bool]
) -> Iterator[datetime]:
    minutes, hours = values(fields[0], 0, 59), values(fields[1], 0, 23)
    first, last = start.astimezone(zone).date(), end.astimezone(zone).date()
    for day in _days(fields, first, last, star):
        for hour in sorted(hours):
            for minute in sorted(minutes):
                yield datetime.combine(day, time(hour, minute))


def _instants(local: datetime, zone: ZoneInfo) -> list[datetime]:
    """The instants at which a clock shows a time: none, one or two."""
    both = [local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
    real = [at for at in both if at.astimezone(zone).replace(tzinfo=None) == local]
    return sorted(set(real))


def _after_the_gap(local: datetime, zone: ZoneInfo) -> datetime:
    """The first minute that a clock shows after it has skipped a time."""
    minute = local
    while not _instants(minute, zone):
        minute += timedelta(minutes=1)
    return _instants(minute, zone)[0]


def vixie(text: str, zone: ZoneInfo, start: datetime, end: datetime) -> set[datetime]:
    """Cron: what runs at a set time runs once, right after a gap and in the first of two hours."""
    fields = MACROS.get(text, text).split()
    often = fields[0].startswith("*") or fields[1].startswith("*")
    found: set[datetime] = set()
    for local in _local_times(fields, zone, start, end, _is_star_of_vixie):
        real = _instants(local, zone)
        found.update(real if often else (real or [_after_the_gap(local, zone)])[:1])
    return {at for at in found if start < at <= end}


def robfig(text: str, zone: ZoneInfo, start: datetime, end: datetime) -> set[datetime]:
    """Kubernetes: a schedule runs whenever the clock shows its time."""
    fields = MACROS.get(text, text).split()
    times = _local_times(fields, zone, start, end, _is_star_of_robfig)
    found = {at for local in times for at in _instants(local, zone)}
    return {at for at in found if start < at <= end}


SHORTHANDS = {
    "hourly": "*-*-* *:00:00", "daily": "*-*-* 00:00:00", "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00", "quarterly": "*-01,04,07,10-01 00:00:00",
    "yearly": "*-01-01 00:00:00",
}  # fmt: skip


def systemd(text: str, zone: ZoneInfo, start: datetime, end: datetime) -> set[datetime]:
    """systemd: every part has to match; a skipped time passes, of a repeated one the first runs."""
    words = text.split()
    if len(words) > 1 and words[-1][0].isalpha():
        zone = ZoneInfo(words.pop())
    words = SHORTHANDS.get(words[0], " ".join(words)).split()
    weekdays = _weekdays_of_systemd(words.pop(0)) if words[0][0].isalpha() else set(range(1, 8))
    date_part = words.pop(0) if words and ":" not in words[0] else "*-*-*"
    clock = [*(words[0] if words else "0:0").split(":"), "0"][:3]
    sizes = zip(clock, (24, 60, 60), strict=True)
    hours, minutes, seconds = ([n for n in range(most) if _has(part, n)] for part, most in sizes)
    before, tilde, last = date_part.partition("~")
    parts = [*before.split("-"), last] if tilde else date_part.split("-")
    year, month, day = ["*", *parts][-3:]
    found: set[datetime] = set()
    one = start.astimezone(zone).date()
    while one <= end.astimezone(zone).date():
        following = (one.replace(day=28) + timedelta(days=4)).replace(day=1)
        counted = (following - one).days if tilde else one.day
        if (
            one.isoweekday() in weekdays
            and _has(year, one.year)
            and _has(month, one.month)
            and _has(day, counted, down=bool(tilde))
        ):
            for clock_time in product(hours, minutes, seconds):
                found.update(_instants(datetime.combine(one, time(*clock_time)), zone)[:1])
        one += timedelta(days=1)
    return {at for at in found if start < at <= end}


def _has(part: str, value: int, *, down: bool = False) -> bool:
    """Whether a part of a calendar expression has a value; days from the end count down."""
    if part == "*":
        return True
    for each in part.split(","):
        span, slash, step = each.partition("/")
        first, dots, last = span.partition("..")
        low, high = int(first), int(last) if dots else int(first)
        if slash and not dots:
            low, high = (1, int(first)) if down else (int(first), 9999)
        apart = int(first) - value if down and not dots else value - low
        if low <= value <= high and apart % int(step or 1) == 0:
            return True
    return False


def _weekdays_of_systemd(text: str) -> set[int]:
    names = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    found: set[int] = set()
    for part in text.lower().split(","):
        ends = [names.index(end[:3]) + 1 for end in part.replace("..", "-").split("-")]
        found.update(range(ends[0], ends[-1] + 1))
    return found


def on_days(
    matches: Callable[[date], bool],
    hours: set[int],
    minutes: set[int],
    zone: ZoneInfo,
    start: datetime,
    end: datetime,
    *,
    last: bool = False,
) -> set[datetime]:
    """Times on some days: a skipped one passes, and a repeated one runs once."""
    found: set[datetime] = set()
    one = start.astimezone(zone).date()
    while one <= end.astimezone(zone).date():
        if matches(one):
            for clock_time in product(hours, minutes):
                real = _instants(datetime.combine(one, time(*clock_time)), zone)
                found.update(real[-1:] if last else real[:1])
        one += timedelta(days=1)
    return {at for at in found if start < at <= end}


def apscheduler(trigger, start: datetime, end: datetime) -> set[datetime]:
    found: set[datetime] = set()
    previous, now = None, start
    while (fire := trigger.get_next_fire_time(previous, now)) and fire <= end:
        found.add(fire.astimezone(UTC))
        previous = now = fire
    return {at for at in found if at > start}


def celery_beat(schedule, zone: ZoneInfo, start: datetime, end: datetime) -> set[datetime]:
    """Beat, which wakes every five minutes; here only on days whose clock changes."""
    now = last = start
    schedule.nowfun = lambda: now.astimezone(zone)
    found: set[datetime] = set()
    while now <= end:
        is_due, seconds = schedule.is_due(last.astimezone(zone))
        if is_due:
            found.add(now)
            last = now
        most = 300 if _changes_near(now, zone) else 43200
        now += timedelta(seconds=max(1, math.ceil(min(seconds, most))))
    return {at for at in found if start < at <= end}


def _changes_near(now: datetime, zone: ZoneInfo) -> bool:
    day = timedelta(hours=14)
    return zone.utcoffset((now - day).astimezone(zone)) != zone.utcoffset(
        (now + day).astimezone(zone)
    )
