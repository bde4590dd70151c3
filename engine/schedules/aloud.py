"""Reads the when-part of a schedule aloud, in plain English.

What is read are the parsed fields that the evaluator uses, never the text of the expression, so
the sentence cannot disagree with the fires. Nothing is rounded: two cron expressions that name
different local times never read alike. The time zone is not part of the sentence.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from engine.schedules.aloud_days import WEEKDAY_NAMES, spoken_days
from engine.schedules.aloud_times import spoken_times
from engine.schedules.bounds import Bounded
from engine.schedules.clock_changes import changes
from engine.schedules.clock_notes import rule_of, unbounded
from engine.schedules.cron import Cron
from engine.schedules.cron_fields import parse
from engine.schedules.exclusions import WEEKDAYS, Item
from engine.schedules.instants import SECONDS_PER_DAY, TICK, epoch_seconds
from engine.schedules.model import Schedule
from engine.schedules.phrases import listed
from engine.schedules.timing import At, Interval, Spec
from engine.schedules.zones import zone

_AHEAD: Final = 5 * 366 * SECONDS_PER_DAY
_FEW: Final = 6  # exclusions that are named
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

    Of a `Schedule` its exclusions and spread are read too. Days of the month and times are local
    to the schedule's zone; the moments of bounds are too, and otherwise they name theirs.

    Args:
        what: A schedule or its when-part.
        now: With it a second sentence says what happens when the clock changes, if it changes
            within five years at a time that the schedule names. A naive one is a ValueError.
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
    """Return a moment on the clock of ``timezone``, to the precision that it has."""
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
    if len(items) <= _FEW:
        return listed(items, "or")
    return f"{', '.join(items[: _FEW - 1])} or {len(items) - _FEW + 1} more"


def _at_changes(spec: Spec, now: datetime | None) -> str:
    """Return the sentence about clock changes; nothing where none can touch the schedule."""
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
