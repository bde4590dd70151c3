"""Reads the day, month and weekday fields of a cron expression aloud.

The star rule (DESIGN §5, point 3) is spoken: ``and on every Friday`` where either field is
enough, ``only if it is Friday`` where both must match.
"""

from __future__ import annotations

from typing import Final

from engine.schedules.cron_fields import DayFields
from engine.schedules.cron_items import Special
from engine.schedules.phrases import around, listed, numbered, ordinal

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
    """Return on which days it fires; it begins with ``every day`` exactly when all days match."""
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
    """Return phrases with a comma before ``and``, since they hold lists themselves."""
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
    """Return the months, or nothing where all match."""
    if mask == _ALL_MONTHS:
        return ""
    held = [month - 1 for month in range(1, 13) if mask >> month & 1]
    return listed(around(held, _MONTH_NAMES, 0))
