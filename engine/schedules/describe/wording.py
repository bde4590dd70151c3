"""English wording of timing specs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from engine.schedules.describe.dst_notes import (
    around,
    changes,
    listed,
    numbered,
    ordinal,
    rule_of,
    runs,
    step_of,
    time_of_day,
    unbounded,
)
from engine.schedules.model import Schedule
from engine.schedules.timing.calendars import WEEKDAYS, Item
from engine.schedules.timing.cron import Cron
from engine.schedules.timing.cron_parser import DayFields, Special, parse
from engine.schedules.timing.spec import At, Bounded, Interval, Spec
from engine.schedules.timing.zones import zone
from engine.schedules.units import SECONDS_PER_DAY, TICK, epoch_seconds

# --- days, months and weekdays ---
# The day rule (docs/time.md, rule 3) is explicit: ``and on every Friday`` where either field is
# enough, ``only if it is Friday`` where both must match.

WEEKDAY_NAMES: Final = (
    *("Sunday", "Monday", "Tuesday", "Wednesday"),
    *("Thursday", "Friday", "Saturday"),
)
_MONTH_NAMES: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_COUNTED: Final = ("first", "second", "third", "fourth", "fifth")
_ALL_DAYS: Final = 0xFFFF_FFFE
_ALL_WEEKDAYS: Final = 0x7F
_ALL_MONTHS: Final = 0x1FFE


def spoken_days(fields: DayFields) -> str:
    """Return the days in words; ``every day`` comes first iff no day of the months is left out."""
    all_days, all_weekdays = fields.days == _ALL_DAYS, fields.weekdays == _ALL_WEEKDAYS
    months = _months(fields.months)
    within, of = f" in {months}" if months else "", months or "the month"
    if (all_days and all_weekdays) or (not fields.both and (all_days or all_weekdays)):
        return f"every day{within}"
    if all_days:
        return _apart(_weekdays(fields, "and", within, of), "on ")
    days = _day_groups(fields)
    by_day = f"{_apart(days, 'on ')} of {of}"
    if all_weekdays:
        return by_day
    if fields.both:
        each = "each only" if len(days) > 1 else "only"
        return f"{by_day}, {each} if it is {listed(_weekdays(fields, 'or', '', of), 'or')}"
    weekdays = _weekdays(fields, "and", within, of)
    if fields.weekdays:
        weekdays[0] = f"every {weekdays[0]}"
    return f"{by_day}, and {_apart(weekdays, 'on ')}"


def _apart(items: list[str], preposition: str) -> str:
    """Return phrases with a comma before ``and``, since they may contain lists."""
    return ", and ".join(preposition + item for item in items)


def _day_groups(fields: DayFields) -> list[str]:
    plain = [day for day in range(1, 32) if fields.days >> day & 1]
    groups = [numbered("day", plain)] if plain else []
    return groups + [_day_special(special) for special in fields.day_specials]


def _day_special(special: Special) -> str:
    if special.kind == "LW":
        return "the last workday"
    if special.kind == "W":
        return f"the workday nearest to day {special.n}"
    return f"the {ordinal(special.n)} day before the last day" if special.n else "the last day"


def _weekdays(fields: DayFields, word: str, within: str, of: str) -> list[str]:
    """Return the plain weekdays as one text, then each special one."""
    plain = [day for day in range(7) if fields.weekdays >> day & 1]
    groups = [listed(around(plain, WEEKDAY_NAMES, 1), word) + within] if plain else []
    for special in fields.weekday_specials:
        which = "last" if special.kind == "nL" else _COUNTED[special.k - 1]
        groups.append(f"the {which} {WEEKDAY_NAMES[special.n]} of {of}")
    return groups


def _months(mask: int) -> str:
    """Return the months, or an empty text if all match."""
    if mask == _ALL_MONTHS:
        return ""
    held = [month - 1 for month in range(1, 13) if mask >> month & 1]
    return listed(around(held, _MONTH_NAMES, 0))


# --- times of day ---
# Nothing is left out or rounded: fields that name different times have different texts.

_FEW_TIMES: Final = 6  # times that are simply listed
_SPANS: Final = 3
_HOURS: Final = 24


def spoken_times(
    seconds: Sequence[int], minutes: Sequence[int], hours: Sequence[int], *, daily: bool
) -> str:
    """Return the times of a matching day in words; without a span of hours if all 24 match.

    Args:
        seconds: of the minute, ascending like the others.
        minutes: of the hour.
        hours: of the day.
        daily: every day matches, so that a span of hours may cross midnight.
    """
    few = len(seconds) * len(minutes) * len(hours) <= _FEW_TIMES
    if few:
        return "at " + listed(
            [
                time_of_day((hour * 60 + minute) * 60 + second)
                for hour in hours
                for minute in minutes
                for second in seconds
            ]
        )
    if tuple(seconds) == (0,):
        return _minutes(minutes, hours, daily=daily)
    every_minute = len(minutes) == 60 and len(hours) == _HOURS  # noqa: PLR2004 - all there are
    cycle = _cycle(seconds)
    if every_minute and cycle and not seconds[0]:
        return _every(cycle, "second")
    named = "every second" if cycle == 1 else numbered("second", seconds)
    if every_minute:
        return f"at {named} of every minute"
    return f"at {named} of the minute, {_minutes(minutes, hours, daily=daily)}"


def _minutes(minutes: Sequence[int], hours: Sequence[int], *, daily: bool) -> str:
    if len(minutes) * len(hours) <= _FEW_TIMES:
        return spoken_times((0,), minutes, hours, daily=daily)
    all_day = len(hours) == _HOURS
    cycle = _cycle(minutes)
    if cycle:
        unit = "every hour" if len(minutes) == 1 else _every(cycle, "minute")
        if all_day and not minutes[0]:
            return unit
        spans = _spans(hours, daily=daily)
        lone = len(minutes) == 1 and any(first == last for first, last in spans)
        if len(minutes) == 1 and (step := step_of(hours)) > 1:
            unit, spans, lone = _every(step, "hour"), [(hours[0], hours[-1])], False
        if len(spans) <= _SPANS and not lone and not all_day:
            first, last = minutes[0] * 60, minutes[-1] * 60
            return f"{unit} " + listed(
                [
                    f"from {time_of_day(low * 3600 + first)} to {time_of_day(high * 3600 + last)}"
                    for low, high in spans
                ]
            )
    named = numbered("hour", hours)
    of = "every hour" if all_day else named if " hour " in named else f"the {named}"
    return f"at {numbered('minute', minutes)} of {of}"


def _spans(hours: Sequence[int], *, daily: bool) -> list[tuple[int, int]]:
    """Return the hours as spans; one across midnight comes last, its end before its start."""
    found = runs(hours)
    if daily and len(found) > 1 and found[0][0] == 0 and found[-1][1] == _HOURS - 1:
        found = [*found[1:-1], (found[-1][0], found[0][1])]
    return found


def _cycle(values: Sequence[int]) -> int:
    """Return n if the values recur every n, also across the end of the 60, else 0."""
    step = step_of(values) if len(values) > 1 else 60
    return step if step and values[-1] + step == values[0] + 60 else 0


def _every(n: int, unit: str) -> str:
    return f"every {unit}" if n == 1 else f"every {n} {unit}s"


# --- specs ---
# The text is made from the parsed fields that the evaluator uses, never from the expression, so it
# cannot disagree with the fires. Nothing is rounded: cron expressions that name different local
# times have different texts. The time zone is not part of the text.

_AHEAD: Final = 5 * 366 * SECONDS_PER_DAY
_FEW_EXCLUSIONS: Final = 6  # exclusions that are named
_MILLISECOND: Final = timedelta(milliseconds=1)
_UNITS: Final = (
    ("day", 86_400_000),
    ("hour", 3_600_000),
    ("minute", 60_000),
    ("second", 1000),
    ("millisecond", 1),
)


def read_aloud(what: Schedule | Spec, *, now: datetime | None = None) -> str:
    """Return when ``what`` fires, as in "at 02:30 on Monday to Friday".

    The text of a `Schedule` includes its exclusions and spread. Days and times of a cron, and the
    moments of its bounds, are local to its zone; all other moments name their zone.

    Args:
        what: a schedule or its when-part.
        now: adds a second sentence about clock changes within the next five years, if they skip or
            repeat a time that the schedule names. A naive value raises ValueError.
    """
    if not isinstance(what, Schedule):
        return _spoken(what, getattr(what, "timezone", None) or "UTC") + _at_changes(what, now)
    text = _spoken(what.spec, what.timezone) + _exclusions(what.exclude)
    if what.spread:
        text += f", each run up to {duration(what.spread)} later"
    return text + _at_changes(what.spec, now)


def duration(length: timedelta) -> str:
    """Return a duration in words: ``1 hour 30 minutes``."""
    rest, parts = length // _MILLISECOND, []
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}{'' if count == 1 else 's'}")
    return " ".join(parts) or "0 seconds"


def _spoken(spec: Spec, timezone: str) -> str:
    if isinstance(spec, Bounded):
        inner = spec.spec
        timezone = inner.timezone if isinstance(inner, Cron) else timezone
        return _spoken(inner, timezone) + _bounds(spec, timezone)
    if isinstance(spec, Cron):
        return _cron(spec)
    if isinstance(spec, Interval):
        return _interval(spec)
    if isinstance(spec, At):
        return f"once, at {_moment(spec.instant, spec.timezone or 'UTC', named=True)}"
    return spec.kind


def _cron(spec: Cron) -> str:
    fields, named = parse(spec.expression, spec.key), rule_of(spec).named
    hours = _bits(fields.hours)
    days = spoken_days(fields.calendar)
    times = spoken_times(named.seconds, _bits(fields.minutes), hours, daily=days == "every day")
    if len(hours) == 24:  # noqa: PLR2004 - around the clock
        days = days.removeprefix("every day").removeprefix(" ")
    return f"{times} {days}".rstrip()


def _interval(spec: Interval) -> str:
    text = duration(timedelta(milliseconds=spec.every_ms))
    lone = text.removeprefix("1 ")
    every = lone if text.startswith("1 ") and " " not in lone else text
    offset = spec.offset_ms % spec.every_ms
    sign, shift = (
        ("plus", offset) if offset * 2 <= spec.every_ms else ("minus", spec.every_ms - offset)
    )
    beyond = f" {sign} {duration(timedelta(milliseconds=shift))}" if offset else ""
    return f"every {every}, aligned to the epoch{beyond}"


def _bounds(spec: Bounded, timezone: str) -> str:
    text = ""
    named = not isinstance(spec.spec, Cron)
    if spec.first is not None:
        text += f", from {_moment(spec.first, timezone, named=named)}"
    if spec.last is not None:
        text += f", until {_last_moment(spec.last, timezone, named=named)}"
    return text


def _last_moment(last: datetime, timezone: str, *, named: bool) -> str:
    tzinfo = zone(timezone).tzinfo
    day = last.astimezone(tzinfo).date()
    if (last + TICK).astimezone(tzinfo).date() != day:  # a date stands for its whole day
        return f"the end of {day}" + (f" in {timezone}" if named else "")
    return _moment(last, timezone, named=named)


def _moment(instant: datetime, timezone: str, *, named: bool) -> str:
    """Return a moment on the clock of ``timezone``, at its own precision."""
    local = instant.astimezone(zone(timezone).tzinfo)
    if local.microsecond:
        shown = f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond:06}".rstrip("0")
    else:
        shown = f"{local:%Y-%m-%d %H:%M:%S}" if local.second else f"{local:%Y-%m-%d %H:%M}"
    if not named:
        return shown
    return f"{shown} UTC" if timezone == "UTC" else f"{shown} in {timezone}"


def _exclusions(items: tuple[Item, ...]) -> str:
    days, stretches = [], []
    for item in items:
        if not isinstance(item, str):
            days.append(item.name)
        elif item.upper() in WEEKDAYS:
            days.append(WEEKDAY_NAMES[WEEKDAYS.index(item.upper())])
        elif "T" in item:
            stretches.append("from {} until {}".format(*item.split("..")))
        else:
            days.append(item.replace("..", " to "))
    text = f", not on {_shortened(days)}" if days else ""
    if stretches:
        text += f", {'nor' if days else 'not'} {_shortened(stretches)}"
    return text


def _shortened(items: list[str]) -> str:
    if len(items) <= _FEW_EXCLUSIONS:
        return listed(items, "or")
    return f"{', '.join(items[: _FEW_EXCLUSIONS - 1])} or {len(items) - _FEW_EXCLUSIONS + 1} more"


def _at_changes(spec: Spec, now: datetime | None) -> str:
    """Return the sentence about clock changes, or an empty text if none affects the schedule."""
    if now is None:
        return ""
    begin = epoch_seconds(now)
    inner, begin, end = unbounded(spec, begin, begin + _AHEAD)
    if not isinstance(inner, Cron):
        return ""
    rule = rule_of(inner)
    coming = [*changes(rule.zone, begin, end)]
    clauses = []
    if any(rule.named.count(*change.skipped) for change in coming):
        fires = rule.policy.gap == "shift"
        what = "fires at the first moment after it" if fires else "does not happen"
        clauses.append(f"when the clock goes forward, a skipped time {what}")
    if any(rule.named.count(*change.repeated) for change in coming):
        often = {"first": "once, at the first", "last": "once, at the last", "both": "each time"}
        clauses.append(f"when the clock goes back, a repeated time fires {often[rule.policy.fold]}")
    text = "; ".join(clauses)
    return f". {text[0].upper()}{text[1:]}." if text else ""


def _bits(mask: int) -> tuple[int, ...]:
    return tuple(value for value in range(mask.bit_length()) if mask >> value & 1)
