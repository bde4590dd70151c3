"""Warnings about cron expressions that probably do not mean what their author wants.

Each is one of the mistakes that users of cron report most often. The words are those of ``next``,
made from the parsed fields, and the hint is what to write instead.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from engine.schedules.describe import (
    MONTH_NAMES,
    describe,
    listed,
    next_shifted,
    numbered,
    unbounded,
)
from engine.schedules.model import Schedule
from engine.schedules.timing.cron_matcher import bits
from engine.schedules.timing.cron_parser import (
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    WEEKDAY,
    DayFields,
    Field,
    parse,
)
from engine.schedules.timing.croniter_check import instants
from engine.schedules.timing.spec import Cron

_AHEAD: Final = timedelta(days=400)
_EVERY: Final = "*"
_ANY: Final = frozenset({"*", "?"})
_STEP: Final = re.compile(r"(?:\*|\d+)/(\d+)")
_UNITS: Final = {"second": "s", "minute": "m", "hour": "h"}
_COMPARED: Final = 3
"""Instants that croniter computes too."""
_A_YEAR: Final = 2027
"""A year without a leap day."""
_LATE: Final = 29
"""The first day that a month may lack."""


class CronWarning(NamedTuple):
    """A probable mistake, and what to write instead."""

    message: str
    hint: str


class _Texts(NamedTuple):
    """The six fields of an expression as they are written, in capitals."""

    second: str
    minute: str
    hour: str
    day: str
    month: str
    weekday: str


def cron_doubts(schedule: Schedule, now: datetime) -> list[CronWarning]:
    """Return the probable mistakes of a schedule's cron expression; of a macro there are none.

    Args:
        schedule: a schedule of any kind.
        now: clock changes of the 400 days after this moment are looked at.
    """
    spec, _, _ = unbounded(schedule.spec, 0, 0)
    if not isinstance(spec, Cron) or spec.expression.strip().startswith("@"):
        return []
    fields = spec.expression.upper().split()
    texts = _Texts(*(fields if len(fields) == len(_Texts._fields) else ["0", *fields]))
    found = [*_floods(spec, texts), *_uneven(spec, texts), *_days(spec, texts)]
    shifted = next_shifted(schedule.spec, now, now + _AHEAD)
    if shifted and "dst" not in schedule.model_fields_set:
        hint = "write a time at which no clock changes, or dst: {gap: skip}"
        found.append(CronWarning(shifted, hint))
    return found


def other_instants(schedule: Schedule, now: datetime) -> list[CronWarning]:
    """Return a warning if croniter computes other instants in UTC than the engine.

    Args:
        schedule: a schedule of any kind.
        now: a moment in UTC; the three instants after it are compared.
    """
    spec, _, _ = unbounded(schedule.spec, 0, 0)
    if not isinstance(spec, Cron):
        return []
    theirs = instants(spec.expression, now.replace(microsecond=0), _COMPARED)
    if theirs is None:
        return []
    mine, ours = Cron(spec.expression), [now]
    while len(ours) <= len(theirs) and (found := mine.next(ours[-1])):
        ours.append(found)
    if tuple(ours[1:]) == theirs:
        return []
    read = f"in UTC it fires at {_times(ours[1:])}; croniter computes {_times(theirs)}"
    return [CronWarning(read, "write it more plainly, or report it")]


def _times(moments: Iterable[datetime]) -> str:
    return listed([f"{each:%Y-%m-%d %H:%M:%S}Z" for each in moments])


def _floods(spec: Cron, texts: _Texts) -> Iterator[CronWarning]:
    """Yield the warning of a field that was left at ``*`` before one that was not."""
    fires = f'"{spec.expression}" fires {describe(spec)}'
    if texts.second == _EVERY:
        fewer = " ".join(texts[1:] if texts.minute == _EVERY else ("0", *texts[1:]))
        hint = f'six fields begin with the second; for once a minute write "{fewer}"'
        yield CronWarning(f"{fires}: 60 times a minute", hint)
    elif texts.minute == _EVERY and texts.hour != _EVERY and "-" not in texts.hour:
        once = " ".join(("0", *texts[2:]))
        yield CronWarning(f"{fires}: 60 times an hour", f'for once write "{once}"')


def _uneven(spec: Cron, texts: _Texts) -> Iterator[CronWarning]:
    """Yield the warnings of steps after which the field does not come out even."""
    parsed = parse(spec.expression, spec.key)
    hours, minutes = bits(parsed.hours), bits(parsed.minutes)
    daily = texts.day in _ANY and texts.weekday in _ANY
    calendar = parsed.calendar
    for field, text, mask, goes_on in (
        (SECOND, texts.second, parsed.seconds, _neighbours(minutes, MINUTE)),
        (MINUTE, texts.minute, parsed.minutes, _neighbours(hours, HOUR)),
        (HOUR, texts.hour, parsed.hours, daily),
        (MONTH, texts.month, calendar.months, True),
        (WEEKDAY, texts.weekday, calendar.weekdays, True),
    ):
        step, values = _STEP.fullmatch(text), bits(mask)
        rest = values[0] + field.size - values[-1] if values else 0
        if step is None or not goes_on or rest == int(step[1]):
            continue
        named = numbered(field.name, values)
        gap = f"{rest} {field.name}{'s' if rest > 1 else ''}"
        unit = _UNITS.get(field.name)
        hint = f"for every {step[1]} {field.name}s write every: {step[1]}{unit}"
        if unit is None:
            hint = f"write the {field.name}s that are meant"
        yield CronWarning(f'"{text}" is {named}, and then {values[0]} again after {gap}', hint)


def _neighbours(values: Sequence[int], field: Field) -> bool:
    """Return whether the field goes from one of the values straight to another one."""
    return any((value + 1 - field.low) % field.size + field.low in values for value in values)


def _days(spec: Cron, texts: _Texts) -> Iterator[CronWarning]:
    """Yield the warnings of the fields of days."""
    calendar = parse(spec.expression, spec.key).calendar
    fires = f'"{spec.expression}" fires {describe(spec)}'
    step = _STEP.fullmatch(texts.day)
    if texts.day not in _ANY and texts.weekday not in _ANY:
        both = "both fields have to match" if calendar.both else "either field is enough"
        nth = f"{texts.weekday}#1" if texts.weekday.isalnum() else "MON#1"
        hint = f'write * in one of the two; the first such weekday of a month is "{nth}"'
        yield CronWarning(f"{fires}: {both}", hint)
    elif step and int(step[1]) > 1:
        hint = f"for every {step[1]} days write every: {int(step[1]) * 24}h"
        yield CronWarning(f"{fires}, and begins anew on the 1st of each month", hint)
    elif texts.weekday in _ANY:
        yield from _rare(fires, calendar)


def _rare(fires: str, calendar: DayFields) -> Iterator[CronWarning]:
    """Yield the warning of a day that not every month has."""
    first = (calendar.days & -calendar.days).bit_length() - 1
    if calendar.day_specials or first < _LATE:
        return
    months = bits(calendar.months)
    short = tuple(month for month in months if monthrange(_A_YEAR, month)[1] < first)
    hint = "for the last day of the month write L as the day"
    if short == months:
        yield CronWarning(f"{fires}: only in leap years, once in four years", hint)
    elif short:
        lacking = listed([MONTH_NAMES[month - 1] for month in short], "or")
        years = ", except in leap years" if first == _LATE else ""
        yield CronWarning(f"{fires}: not in {lacking}{years}", hint)
