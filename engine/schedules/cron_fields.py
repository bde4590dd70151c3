"""Reads a cron expression into bit masks, one per field.

::

    five fields     minute hour day month weekday          fires at second 0
    six fields      second minute hour day month weekday
    macros          @yearly @annually @monthly @weekly @daily @midnight @hourly
    any field       *  5  1-5  5,7  */15  10/15  1-30/2  22-4 (wraps)  H  H(0-29)  H/15
    day             ?  L (last)  L-3  LW (last workday)  15W (workday nearest to the 15th)
    weekday         ?  0-7 or SUN-SAT (0 and 7 are Sunday)  5L or 5#L (last Friday)  MON#2
    month           1-12 or JAN-DEC
    any number      with leading zeros

Bit ``v`` of a mask stands for the value ``v``. The grammar is point 2 of DESIGN §5; whatever it
leaves out is refused with `CronInvalid`, which names the field, the value and the cure.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from engine.errors import CronInvalid
from engine.schedules.cron_items import (
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    Special,
    day_values,
    shown,
    values,
    weekday_values,
)

MACROS: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_LONGEST: Final = 1000  # characters; nobody writes more by hand
_ZEROS: Final = re.compile(r"(?<!\d)0+(?=\d\d|\d[#L])", re.ASCII | re.IGNORECASE)
_LAST: Final = re.compile(r"\b([0-7]|[A-Z]{3})#L\b", re.ASCII | re.IGNORECASE)


class DayFields(NamedTuple):
    """What an expression says about days; equal ones share a calendar.

    ``both`` is the star rule (point 3): true when a day must satisfy the day field *and* the
    weekday field, false when either is enough.
    """

    days: int
    day_specials: tuple[Special, ...]
    months: int
    weekdays: int
    weekday_specials: tuple[Special, ...]
    both: bool


class Fields(NamedTuple):
    """A parsed expression. ``wildcard``: its minute or hour field starts with ``*`` (point 4)."""

    seconds: int
    minutes: int
    hours: int
    calendar: DayFields
    wildcard: bool


def parse(expression: str, key: str = "") -> Fields:
    """Return the fields of ``expression``; ``key`` feeds ``H`` and nothing else.

    Raises:
        CronInvalid: The expression is outside the grammar. Days that no calendar holds are
            found later, by `cron_readings.readings`.
    """
    if not expression.isascii():
        # Capitals of other alphabets would turn into ours, and their blanks look like blanks.
        strange = next(character for character in expression if not character.isascii())
        raise CronInvalid(
            f'cron "{shown(expression)}" holds the character {strange!a}',
            cure="write plain digits, letters and blanks",
        )
    clock, _, rest = expression.strip().partition(" ")
    if clock.startswith(("TZ=", "CRON_TZ=")):
        raise CronInvalid(
            f'cron "{shown(expression)}" names a timezone',
            cure=f'write timezone: {shown(clock.partition("=")[2])} and cron: "{shown(rest)}"',
        )
    upper = plain(expression).upper()
    second, minute, hour, day, month, weekday = _split(upper)
    return Fields(
        seconds=values(SECOND, second, key),
        minutes=values(MINUTE, minute, key),
        hours=values(HOUR, hour, key),
        calendar=_day_fields(day, month, weekday, key),
        wildcard=minute[0] == "*" or hour[0] == "*",
    )


def plain(expression: str) -> str:
    """Return ``expression`` without the spellings of peers that older evaluators do not read.

    ``FRI#L`` is FRIL, and a number has two digits where two are enough. What is
    stored of a schedule is spelt like this, so that a fleet in the middle of an upgrade agrees.
    """
    short = _ZEROS.sub("", expression[: _LONGEST + 1])
    return _LAST.sub(r"\1L", short) + expression[_LONGEST + 1 :]


def hashes(expression: str) -> bool:
    """Return whether ``expression`` has an ``H``; those in Thursday and macros are none."""
    if "H" not in expression and "h" not in expression:
        return False
    upper = expression.upper()
    return "H" in upper.replace("THU", "") and "@" not in upper


def _day_fields(day: str, month: str, weekday: str, key: str) -> DayFields:
    # Many expressions have few different days: an H elsewhere must not part them.
    hashed = key and (hashes(day) or hashes(month) or hashes(weekday))
    return _days(day, month, weekday, key if hashed else "")


@lru_cache(maxsize=4096)
def _days(day: str, month: str, weekday: str, key: str) -> DayFields:
    days, day_specials = day_values(day, key)
    weekdays, weekday_specials = weekday_values(weekday, key)
    starred = day[0] in "*?" or weekday[0] in "*?"
    months = values(MONTH, month, key)
    return DayFields(days, day_specials, months, weekdays, weekday_specials, starred)


def _split(upper: str) -> list[str]:
    """Return six field texts; five-field expressions get second 0."""
    if len(upper) > _LONGEST:
        raise CronInvalid(
            f"cron expression of {len(upper)} characters", cure=f"stay below {_LONGEST}"
        )
    texts = upper.split()
    if len(texts) >= 1 and texts[0].startswith("@"):
        texts = _macro(upper, texts).split()
    if len(texts) == 7:  # noqa: PLR2004 - Quartz's count, met only here
        raise CronInvalid(
            f'cron "{shown(upper)}" has seven fields and a year is not supported',
            cure="write six (second minute hour day month weekday), or use at: for one moment",
        )
    if len(texts) not in (5, 6):
        raise CronInvalid(
            f'cron "{shown(upper)}" has {len(texts)} fields',
            cure="write five (minute hour day month weekday), or six with seconds in front",
        )
    return texts if len(texts) == 6 else ["0", *texts]  # noqa: PLR2004 - six fields, see the module


def _macro(upper: str, texts: list[str]) -> str:
    if len(texts) == 1 and texts[0] in MACROS:
        return MACROS[texts[0]]
    cures = {
        "@EVERY": "write everyMs: with the interval in milliseconds",
        "@REBOOT": "start the workflow from your deployment; a schedule has no reboot",
    }
    known = " ".join(MACROS).lower()
    raise CronInvalid(
        f'cron macro "{shown(upper)}" is not known',
        cure=cures.get(texts[0], f"write one of {known}, alone"),
    )
