"""Cron expression parser: text to bit masks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.errors import CronInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# --- items of a field ---
# Parser of one field: its list, its items and its special days. The section "fields" below
# describes the grammar.

_MONTHS: Final = (
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN"),
    *("JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


class Special(NamedTuple):
    """Day that depends on the month.

    ``kind`` is ``L`` (``n`` days before the last day), ``LW`` (the last workday), ``W`` (the
    workday nearest to day ``n``), ``nL`` (the last weekday ``n``) or ``#`` (the ``k``-th
    weekday ``n``). Weekdays count from Sunday = 0.
    """

    kind: str
    n: int = 0
    k: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """Field of a cron expression: its lowest and highest value, and the names of values."""

    name: str
    low: int
    high: int
    names: dict[str, int] = field(default_factory=dict)
    hash_high: int = 0  # H stays at or below this; 0 means ``high``

    @property
    def size(self) -> int:
        """Number of values of the field, without 7 as the second number of Sunday."""
        return self.high - self.low + 1

    @property
    def accepts(self) -> str:
        """Allowed values, for messages."""
        names = f" or {next(iter(self.names))}-{[*self.names][-1]}" if self.names else ""
        top = 7 if self.name == "weekday" else self.high
        return f"{self.low}-{top}{names}"


SECOND: Final = Field("second", 0, 59)
MINUTE: Final = Field("minute", 0, 59)
HOUR: Final = Field("hour", 0, 23)
# H stops at 28, so that a hashed monthly schedule fires in February too.
DAY: Final = Field("day", 1, 31, hash_high=28)
MONTH: Final = Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)})
WEEKDAY: Final = Field("weekday", 0, 6, {name: number for number, name in enumerate(_WEEKDAYS)})
FIELDS: Final = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)

_ITEM = re.compile(
    r"(?:(?P<star>\*)|(?P<hash>H)(?:\((?P<from>\d{1,2})-(?P<to>\d{1,2})\))?"
    r"|(?P<first>\d{1,2}|[A-Z]{3})(?:-(?P<last>\d{1,2}|[A-Z]{3}))?)(?:/(?P<step>\d{1,4}))?",
    re.ASCII,
)


def values(this: Field, text: str, key: str) -> int:
    """Return the mask of a comma-separated list; ``key`` determines ``H``.

    Raises:
        CronInvalid: An item is outside the grammar.
    """
    return _list(this, text, key if "H" in text else "")


@lru_cache(maxsize=4096)
def _list(this: Field, text: str, key: str) -> int:
    mask = 0
    for item in text.split(","):
        mask |= _item(this, item, key)
    return mask


def day_values(text: str, key: str) -> tuple[int, tuple[Special, ...]]:
    """Return the plain days of the day field as a mask, and its special days."""
    return _with_specials(DAY, text, key, _day_special)


def weekday_values(text: str, key: str) -> tuple[int, tuple[Special, ...]]:
    """Return the plain weekdays of the weekday field as a mask, and its special ones."""
    return _with_specials(WEEKDAY, text, key, _weekday_special)


def _with_specials(
    this: Field, text: str, key: str, special: Callable[[str], Special | None]
) -> tuple[int, tuple[Special, ...]]:
    mask, specials = 0, []
    for item in ["*"] if text == "?" else text.split(","):
        found = special(item)
        if found is None:
            mask |= values(this, item, key)
        else:
            specials.append(found)
    return mask, tuple(sorted(set(specials)))


def _item(this: Field, item: str, key: str) -> int:
    """Return the mask of one list item."""
    match = _ITEM.fullmatch(item)
    if match is None:
        raise _wrong(this, item, *_diagnosis(this, item))
    step = _step(this, item, match["step"])
    if match["star"]:
        return _mask(range(this.low, this.high + 1, step))
    if match["hash"]:
        return _hashed(this, match, key)
    first = _number(this, item, match["first"])
    if match["last"] is None:
        last = this.high if match["step"] else first % 7 if this is WEEKDAY else first
    else:
        last = _number(this, item, match["last"])
    return _range(this, first, last, step)


def _range(this: Field, first: int, last: int, step: int) -> int:
    """Return the mask of ``first-last/step``, which may wrap around the end of the field."""
    if this is WEEKDAY and first == 7:  # 7 is Sunday as well as 0
        first, last = 0, last % 7
    if last < first:
        last += this.size
    return _mask(
        this.low + (value - this.low) % this.size for value in range(first, last + 1, step)
    )


def _hashed(this: Field, match: re.Match[str], key: str) -> int:
    """Return the mask of ``H``, ``H(a-b)`` or either with ``/n``; it is stable for a key."""
    item = match[0]
    low = this.low if match["from"] is None else _number(this, item, match["from"])
    high = (
        (this.hash_high or this.high) if match["to"] is None else _number(this, item, match["to"])
    )
    if low > high:
        raise _wrong(
            this, item, "is not a range", f"write H(a-b) with a <= b inside {this.accepts}"
        )
    number = int.from_bytes(sha256(f"{this.name}\0{key}".encode()).digest()[:8], "big")
    size = high - low + 1
    if match["step"] is None:
        return _range(this, low + number % size, low + number % size, 1)
    step = int(match["step"])
    return _range(this, low + number % min(step, size), high, step)


def _step(this: Field, item: str, text: str | None) -> int:
    step = 1 if text is None else int(text)
    if step == 0:
        raise _wrong(this, item, "has a step of zero", f"write 1 to {this.size} behind the /")
    if step > this.size:
        raise _wrong(
            this,
            item,
            f"steps by {step}, but the field has {this.size} values",
            f"write 1 to {this.size} behind the /, or every: for longer intervals",
        )
    return step


def _number(this: Field, item: str, text: str) -> int:
    if not text.isdigit():
        if text not in this.names:
            raise _wrong(this, item, "is not a name of this field", f"write {this.accepts}")
        return this.names[text]
    number = int(text)
    top = 7 if this is WEEKDAY else this.high
    if not this.low <= number <= top:
        raise _wrong(this, item, "is out of range", f"write {this.accepts}")
    return number


def _day_special(item: str) -> Special | None:
    if item in ("L", "LW"):
        return Special(item)
    match = re.fullmatch(r"L-(\d{1,2})|(\d{1,2})W", item, re.ASCII)
    if match is None:
        return None
    if match[2]:
        return Special("W", _number(DAY, item, match[2]))
    back = int(match[1])
    if not 1 <= back <= 30:  # the first of a month of 31 days
        raise _wrong(DAY, item, "is out of range", "write L-1 to L-30 (days before the last)")
    return Special("L", back)


def _weekday_special(item: str) -> Special | None:
    if item == "L":
        raise _wrong(WEEKDAY, item, "does not say which weekday", "write 5L for the last Friday")
    match = re.fullmatch(r"(\d|[A-Z]{3})(?:L|#(\d{1,2}))", item, re.ASCII)
    if match is None:
        return None
    weekday = _number(WEEKDAY, item, match[1]) % 7
    if match[2] is None:
        return Special("nL", weekday)
    if not 1 <= int(match[2]) <= 5:  # a month has at most five of a weekday
        raise _wrong(WEEKDAY, item, "is out of range", "write #1 to #5, or 5L for the last Friday")
    return Special("#", weekday, int(match[2]))


def _diagnosis(this: Field, item: str) -> tuple[str, str]:  # noqa: PLR0911 - one line a mistake
    """Return the fault and the hint for an item of unknown form."""
    if not item:
        return "is empty", "remove the extra comma"
    if re.fullmatch(r"R(\(.*\))?(/\d+)?", item):
        return "is random and would differ between replicas", "write H, a stable hash of the key"
    if "?" in item:
        if this in (DAY, WEEKDAY):
            return "is not ? alone", "write ? as the whole field, or leave it out"
        return "is allowed only in the day and weekday fields", "write *"
    if re.search(r"[LW#]", item) and this not in (DAY, WEEKDAY):
        return "belongs to the day or weekday field", f"write {this.accepts}"
    if item[:3] in this.names and item.isalpha():
        return "is not a name of this field", f"write {item[:3]}"
    return "cannot be read", f"write {this.accepts}, a range a-b, a list a,b or a step */n"


def _wrong(this: Field, item: str, what: str, hint: str) -> CronInvalid:
    return CronInvalid(f'{this.name} field: "{shown(item)}" {what}', hint=hint)


def shown(text: str) -> str:
    """Return ``text`` shortened for a message."""
    return text if len(text) <= 60 else text[:57] + "..."  # a line of a terminal


def _mask(values: Iterable[int]) -> int:
    mask = 0
    for value in values:
        mask |= 1 << value
    return mask


# --- fields ---
# Parser of a whole cron expression into bit masks, one per field (docs/time.md, rule 2).
#
# ::
#
#     five fields     minute hour day month weekday          fires at second 0
#     six fields      second minute hour day month weekday
#     macros          @yearly @annually @monthly @weekly @daily @midnight @hourly
#     any field       *  5  1-5  5,7  */15  10/15  1-30/2  22-4 (wraps)  H  H(0-29)  H/15
#     day             ?  L (last)  L-3  LW (last workday)  15W (workday nearest to the 15th)
#     weekday         ?  0-7 or SUN-SAT (0 and 7 are Sunday)  5L or 5#L (last Friday)  MON#2
#     month           1-12 or JAN-DEC
#     any number      may have leading zeros
#
# Bit ``v`` of a mask stands for the value ``v``. Anything else raises `CronInvalid`, which names
# the field, the value and the hint.

MACROS: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_LONGEST: Final = 1000  # characters, more than in any handwritten expression
_ZEROS: Final = re.compile(r"(?<!\d)0+(?=\d\d|\d[#L])", re.ASCII | re.IGNORECASE)
_LAST: Final = re.compile(r"\b([0-7]|[A-Z]{3})#L\b", re.ASCII | re.IGNORECASE)


class DayFields(NamedTuple):
    """Day fields of an expression; equal ones share a calendar.

    ``both`` is the day rule (docs/time.md, rule 3): true if a day must match the day field *and*
    the weekday field, false if either is enough.
    """

    days: int
    day_specials: tuple[Special, ...]
    months: int
    weekdays: int
    weekday_specials: tuple[Special, ...]
    both: bool


class Fields(NamedTuple):
    """Parsed expression; ``wildcard``: minute or hour starts with ``*`` (docs/time.md, rule 4)."""

    seconds: int
    minutes: int
    hours: int
    calendar: DayFields
    wildcard: bool


def parse(expression: str, key: str = "") -> Fields:
    """Return the fields of ``expression``; ``key`` determines ``H`` and nothing else.

    Raises:
        CronInvalid: The expression is outside the grammar. Days that never occur are
            detected later, by `cron_matcher.readings`.
    """
    if not expression.isascii():
        # upper() turns some non-ASCII letters into ASCII, and non-ASCII blanks look like spaces.
        strange = next(character for character in expression if not character.isascii())
        raise CronInvalid(
            f'cron "{shown(expression)}" holds the character {strange!a}',
            hint="write plain digits, letters and blanks",
        )
    clock, _, rest = expression.strip().partition(" ")
    if clock.startswith(("TZ=", "CRON_TZ=")):
        raise CronInvalid(
            f'cron "{shown(expression)}" names a timezone',
            hint=f'write timezone: {shown(clock.partition("=")[2])} and cron: "{shown(rest)}"',
        )
    if found := _of_aws(expression):
        raise found
    try:
        return _fields(expression.upper(), key)
    except CronInvalid:
        # Most expressions have no such spelling, and to look for one takes as long as to parse.
        short = plain(expression)
        if short == expression:
            raise
        return _fields(short.upper(), key)


_OF_RATE: Final = re.compile(r"\s*(\d{1,6}) +([mhd])[a-z]+\s*", re.ASCII | re.IGNORECASE)
_OF_AWS: Final = re.compile(r"(cron|rate)\((.*)\)", re.ASCII | re.IGNORECASE)


def _of_aws(expression: str) -> CronInvalid | None:
    """Return the error of an expression of EventBridge, with what it is here; else None."""
    match = _OF_AWS.fullmatch(expression.strip())
    if match is None:
        return None
    what, hint = f'"{shown(expression)}" is an expression of EventBridge', "write it as cron"
    *fields, _ = match[2].split() or [""]
    if length := _OF_RATE.fullmatch(match[2]):
        hint = f"write every: {length[1]}{length[2].lower()}"
    elif len(fields) == 5:  # those of its six without the year
        hint = f'write cron: "{shown(" ".join(fields))}"'
        if re.search(r"\d", fields[-1]):
            hint += ", with weekdays by name: there 1 is Sunday"
    return CronInvalid(what, hint=hint)


def _fields(upper: str, key: str) -> Fields:
    second, minute, hour, day, month, weekday = _split(upper)
    return Fields(
        seconds=values(SECOND, second, key),
        minutes=values(MINUTE, minute, key),
        hours=values(HOUR, hour, key),
        calendar=_day_fields(day, month, weekday, key),
        wildcard=minute[0] == "*" or hour[0] == "*",
    )


def plain(expression: str) -> str:
    """Return ``expression`` in its usual spelling, which croniter and the audit parse too.

    ``FRI#L`` becomes ``FRIL``, and superfluous leading zeros are dropped. Schedules are stored
    in this form, so that both spellings are one definition.
    """
    short = _ZEROS.sub("", expression[: _LONGEST + 1])
    return _LAST.sub(r"\1L", short) + expression[_LONGEST + 1 :]


def depends_on_key(expression: str) -> bool:
    """Return whether ``expression`` contains an ``H`` other than those of THU and of macros."""
    if "H" not in expression and "h" not in expression:
        return False
    upper = expression.upper()
    return "H" in upper.replace("THU", "") and "@" not in upper


def _day_fields(day: str, month: str, weekday: str, key: str) -> DayFields:
    # Many expressions share few distinct days: an H in another field must not split the cache.
    hashed = key and (depends_on_key(day) or depends_on_key(month) or depends_on_key(weekday))
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
            f"cron expression of {len(upper)} characters", hint=f"stay below {_LONGEST}"
        )
    texts = upper.split()
    if len(texts) >= 1 and texts[0].startswith("@"):
        texts = _macro(upper, texts).split()
    if len(texts) == 7:  # Quartz's count, met only here
        raise CronInvalid(
            f'cron "{shown(upper)}" has seven fields and a year is not supported',
            hint="write six (second minute hour day month weekday), or use at: for one moment",
        )
    if len(texts) not in (5, 6):
        raise CronInvalid(
            f'cron "{shown(upper)}" has {len(texts)} fields',
            hint="write five (minute hour day month weekday), or six with seconds in front",
        )
    return texts if len(texts) == 6 else ["0", *texts]  # six fields, see the module


def _macro(upper: str, texts: list[str]) -> str:
    if len(texts) == 1 and texts[0] in MACROS:
        return MACROS[texts[0]]
    length = "".join(texts[1:]).lower()
    hints = {
        "@EVERY": f"write every: {length or '15m'}",
        "@REBOOT": "start the workflow from your deployment; a schedule has no reboot",
    }
    known = " ".join(MACROS).lower()
    raise CronInvalid(
        f'cron macro "{shown(upper.lower())}" is not known',
        hint=hints.get(texts[0], f"write one of {known}, alone"),
    )
