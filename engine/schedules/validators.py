"""Checks of single schedule fields: the message for each mistake, and the JSON Schema shape."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final, get_args

from pydantic import BeforeValidator, ValidationInfo
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from engine.errors import Code, ScheduleError
from engine.schedules.terms import (
    FIRST_YEAR,
    KEY,
    LAST_YEAR,
    LONGEST,
    MAX_DEPTH,
    MAX_DIGITS,
    UNSTORABLE,
    Rate,
    Sealed,
    format_duration,
    is_storable,
    parse_duration,
    parse_rate,
)
from engine.schedules.timing.calendars import (
    MAX_DAYS,
    MAX_ITEMS,
    WEEKDAYS,
    Calendar,
    check_item,
    days_covered,
)
from engine.schedules.timing.spec import STANDARD, Fold, Gap, dst_policy

# --- shapes ---
# JSON Schema of single values: texts, lists and mappings.

Shape = dict[str, Any]

# JSON Schema patterns are ECMAScript regular expressions; these mean the same in Python.
KEY_PATTERN: Final = f"^{KEY.pattern}$"
_DURATION: Final = r"^(?=.)([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$"
_DAY: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK: Final = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_MOMENT: Final = rf"{_DAY}[T ]{_CLOCK}(Z|[+-][0-9]{{2}}:[0-9]{{2}})?"
_INSTANT: Final = rf"{_DAY}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}Z"
_DAYS_OFF: Final = rf"^({_DAY}(\.\.{_DAY})?|{_INSTANT}\.\.{_INSTANT})$"
CALENDAR_NAME: Final = "^[a-z][a-z0-9._-]{0,199}$"


def pattern(expression: str, hint: str, *examples: str) -> Shape:
    """Return the shape of a text; editors show ``hint`` if it does not match ``expression``."""
    shape = {"type": "string", "pattern": expression, "patternErrorMessage": hint}
    return {**shape, "examples": list(examples)} if examples else shape


def list_of(items: Shape) -> Shape:
    """Return the shape of a list of ``items``."""
    return {"type": "array", "items": items}


def mapping(properties: dict[str, Shape], *required: str) -> Shape:
    """Return the shape of a mapping that allows only these fields."""
    return {
        "type": "object",
        "properties": properties,
        **({"required": list(required)} if required else {}),
        "additionalProperties": False,
    }


def whole_number(lowest: int, highest: int) -> Shape:
    """Return the shape of a whole number between two bounds, both included."""
    return {"type": "integer", "minimum": lowest, "maximum": highest}


CRON: Final = pattern(
    "^(@[^ ]+|[^ ]+( +[^ ]+){4,5})$",
    "Write five fields (minute hour day month weekday), six with seconds first, or a macro as "
    "@daily.",
    *("0 2 * * *", "*/15 * * * *", "0 9 * * MON-FRI", "@hourly"),
)
# Only `sched check` verifies the names themselves: they change with each release of tzdata.
ZONE: Final = pattern(
    "^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$",
    "Write an IANA name, as America/Sao_Paulo.",
    *("UTC", "America/Sao_Paulo", "America/New_York", "America/Los_Angeles"),
    *("Europe/London", "Europe/Paris", "Asia/Kolkata", "Asia/Tokyo", "Australia/Sydney"),
)
MOMENT: Final = pattern(
    f"^{_MOMENT}$",
    'Write "2027-01-01T09:00:00Z", or without Z and with a timezone.',
    "2027-01-01T09:00:00Z",
)
BOUND: Final = pattern(
    f"^({_DAY}|{_MOMENT})$", "Write 2027-01-01 or 2027-01-01T09:00:00.", "2027-01-01"
)
_LENGTH: Final = pattern(_DURATION, "Write a duration, as 500ms, 90s, 15m, 1h30m or 2d.")
_ANY_CASE: Final = "|".join(
    "".join(f"[{sign}{sign.lower()}]" for sign in weekday) for weekday in WEEKDAYS
)
_DAY_OFF: Final[list[Shape]] = [
    {"enum": list(WEEKDAYS)},
    {"type": "string", "pattern": f"^({_ANY_CASE})$"},
    pattern(_DAYS_OFF, "Write a day, a range of days, or a weekday.", "2026-12-25"),
]
DAYS_OFF_LIST: Final = {**list_of({"anyOf": _DAY_OFF}), "maxItems": MAX_ITEMS}
_WRITTEN_OUT: Final = mapping({"name": {"type": "string"}, "dates": DAYS_OFF_LIST}, "name", "dates")
"""Calendar as `sched show` prints it inside a definition."""


# --- general fields ---
# Every check raises a ``PydanticCustomError`` whose type is one of our codes and whose context
# holds message and hint, so that no wording of pydantic reaches a user.

What = str | ValidationInfo
"""What a message is about: a name, or the field that a model has checked."""

MAX_SHOWN: Final = 60
"""Characters of a value in a message."""

_MAX_NAME_BYTES = 1000
"""Temporal's limit on ids, types and task queues."""

_SECOND_MS: Final = 1000
MAX_MS = LONGEST // timedelta(milliseconds=1)
BOM: Final = "\ufeff"
_SAME: Final[Mapping[str, str]] = {}
_YAML_1_1_BOOLEANS = {
    **dict.fromkeys(("yes", "on", "y"), "true"),
    **dict.fromkeys(("no", "off", "n"), "false"),
}


def show(value: Any) -> str:  # noqa: PLR0911 - a table of one line each
    """Return a value as a user would recognize it, in at most 60 characters."""
    match value:
        case None:
            return "empty"
        case bool():
            return "true" if value else "false"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case timedelta():
            return str(value)
        case str():
            return f"'{shorten(value, MAX_SHOWN - 2)}'"
    return shorten(str(value) if not isinstance(value, int) else _digits(value))


def shorten(text: str, limit: int = MAX_SHOWN) -> str:
    """Return a text on one line, cut to ``limit`` characters."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def refuse(message: str, hint: str, code: str = Code.FIELD_INVALID) -> PydanticCustomError:
    """Return the error that a validator raises."""
    template = "{message}; {hint}" if hint else "{message}"
    return PydanticCustomError(code, template, {"message": message, "hint": hint})


def name_of(what: What) -> str:
    """Return a name as messages have it: ``catchUp.max`` in a model with the title ``catchUp``."""
    if isinstance(what, str):
        return what
    owner, field = (what.config or {}).get("title", ""), to_camel(what.field_name or "")
    return f"{owner}.{field}" if owner[:1].islower() else field


def wrong(what: What, value: Any, hint: str, code: str = Code.FIELD_INVALID) -> PydanticCustomError:
    """Return the error for a value that a field cannot have."""
    return refuse(f"{name_of(what)} is {show(value)}", hint, code)


@dataclass(frozen=True, slots=True, eq=False)
class Check(BeforeValidator):
    """Check of a field's value before its type is checked.

    Its function gets the value, and may get what to call it in messages.

    Attributes:
        shape: the JSON Schema of the values that it accepts; None is that of the type.
    """

    shape: Shape | None = None

    def of(self, value: Any, what: What) -> Any:
        """Return the checked value, for a check that gets what to call it."""
        return self.func(value, what)  # type: ignore[call-arg, arg-type] # a name stands for a field


def text(*examples: str, shape: Shape | None = None) -> Check:
    """Return the check of a printable text of at most 1000 bytes, without blanks around it."""
    example = " or ".join(examples)
    if shape is None:
        shape = pattern(r"^[^\s](.*[^\s])?$", "Write a text without blanks around it.", *examples)
        shape["maxLength"] = 1000

    def check(value: Any, what: What) -> str:
        in_quotes = " in quotes" if isinstance(value, int | float) else ""
        hint = f"write a text{in_quotes}, for example {example}"
        if not isinstance(value, str):
            raise wrong(what, value, hint)
        if not value or value.strip() != value:
            raise wrong(what, value, f"{hint}, without blanks around it")
        if len(value.encode(errors="replace")) > _MAX_NAME_BYTES:
            message = f"{name_of(what)} is longer than {_MAX_NAME_BYTES} bytes"
            raise refuse(message, "write a shorter one")
        if strange := next((sign for sign in value if not sign.isprintable()), None):
            raise refuse(f"{name_of(what)} holds {character(strange)}", "remove it")
        return value

    return Check(check, shape=shape)


def character(sign: str) -> str:
    """Return what a character that cannot be shown is, with its number."""
    kinds = {"Cc": "the control character", "Cf": "the invisible character", "Zs": "the blank"}
    kind = kinds.get(unicodedata.category(sign), "the character")
    return f"{'the byte order mark' if sign == BOM else kind} U+{ord(sign):04X}"


def _prose(value: Any, what: What) -> str | None:
    if value is not None and not isinstance(value, str):
        raise wrong(what, value, "write a text, in quotes if need be")
    if value is not None and not is_storable(value):
        raise refuse(f"{name_of(what)}: {UNSTORABLE}", "remove it")
    return value


PROSE: Final = Check(_prose, shape={"type": "string"})
"""Any text, or None."""

_KEY_HINT: Final = "use 1 to 200 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
KEY_SHAPE: Final = pattern(KEY_PATTERN, f"{_KEY_HINT.capitalize()}.", "nightly-report")


def can_be_shown(text: str) -> bool:
    """Return whether a text is a key, and short enough for a message."""
    return len(text) <= MAX_SHOWN and KEY.fullmatch(text) is not None


def check_key(value: Any, what: What) -> str:
    """Return a key, or a project: they share a pattern.

    Raises:
        PydanticCustomError: it is none.
    """
    if isinstance(value, str) and KEY.fullmatch(value):
        return value
    hint = _KEY_HINT
    if isinstance(value, str):
        parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", value)  # NightlyReport
        proposal = re.sub(r"[^a-z0-9._-]+", "-", parts.lower()).strip("-._")[:200]
        if can_be_shown(proposal):
            hint += f", for example {proposal}"
    elif isinstance(value, int | float):
        hint = "put it in quotes"
    raise wrong(what, value, hint, Code.KEY_INVALID)


PARENT: Final = pattern(KEY_PATTERN, "Write the key of a schedule.")
NAME: Final = Check(check_key, shape=KEY_SHAPE)
PARENT_NAME: Final = Check(check_key, shape={**PARENT, "examples": ["nightly-extract"]})


_TOPIC: Final = r"[a-z][a-z0-9-]*(\.[a-z][a-z0-9-]*){0,2}"
_LONGEST_TOPIC: Final = 200


def _topic(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str) and len(value) <= _LONGEST_TOPIC and re.fullmatch(_TOPIC, value):
        return value
    hint = "write one to three segments of a-z, 0-9 and '-', each beginning with a letter, "
    hint += "for example notifications.task-reminder"
    raise wrong("topic", value, hint, Code.TOPIC_INVALID)


TOPIC: Final = Check(
    _topic,
    shape={
        **pattern(
            f"^{_TOPIC}$",
            "Write one to three segments of a-z, 0-9 and -, as notifications.task-reminder.",
            "notifications.task-reminder",
        ),
        "maxLength": _LONGEST_TOPIC,
    },
)


def _switch(value: Any, what: What) -> bool:
    if isinstance(value, bool):
        return value
    meant = _YAML_1_1_BOOLEANS.get(value.lower()) if isinstance(value, str) else None
    raise wrong(what, value, f"write {meant or 'true or false'}")


SWITCH: Final = Check(_switch, shape={"type": "boolean"})


def milliseconds(lowest: int, *examples: int) -> Check:
    """Return the check of a whole number of milliseconds, up to a hundred years."""

    def check(value: Any, what: What) -> Any:
        if not _is_number(value, int):
            raise wrong(what, value, _whole(value, name_of(what)))
        if value < lowest == _SECOND_MS:
            code, hint = Code.INTERVAL_TOO_SHORT, "write 1000 (one second) or more"
            raise refuse(f"{name_of(what)} is {show(value)}, which is below 1000", hint, code)
        if not lowest <= value <= MAX_MS:
            raise wrong(what, value, "write at most a hundred years in milliseconds")
        return value

    shape = whole_number(lowest, MAX_MS)
    return Check(check, shape={**shape, "examples": list(examples)} if examples else shape)


def _whole(value: Any, of: str) -> str:
    """Return the hint for a value of milliseconds, with the user's own number if it is readable."""
    example = "for example 300000"
    if isinstance(value, str):
        try:
            length = parse_duration(value)
        except ValueError:
            digits = value.replace("_", "").replace(",", "").replace(" ", "")
            if digits.isascii() and digits.isdecimal() and len(digits) <= MAX_SHOWN:
                return f"write {digits}"
        else:
            number = length // timedelta(milliseconds=1)
            return f"write {number}, or every: {value}" if of == "everyMs" else f"write {number}"
    elif isinstance(value, float) and value.is_integer() and abs(value) <= MAX_MS:
        return f"write {int(value)}"
    return f"write a whole number of milliseconds, {example}"


def duration(value: Any, what: What) -> timedelta:
    """Return a duration.

    Raises:
        PydanticCustomError: the value is none.
    """
    if isinstance(value, timedelta):
        try:
            format_duration(value)
        except ValueError:
            raise wrong(what, value, "use whole milliseconds from 0 upwards") from None
        return value
    if not isinstance(value, str):
        unit = f"write a unit too, for example {value}s" if _is_small(value) else ""
        raise wrong(what, value, unit or "write a duration, for example 90s or 15m")
    try:
        return parse_duration(value)
    except ValueError as error:
        raise wrong(what, value, str(error)) from None


DURATION: Final = Check(duration, shape=_LENGTH)


_MACRO: Final = re.compile(r"@[a-z]+", re.ASCII | re.IGNORECASE)
_FIELDS_OF_CRON: Final = (5, 6)


def interval(value: Any, what: What = "every") -> timedelta:
    """Return the length of an interval.

    Raises:
        PydanticCustomError: the value is none, or below a second.
    """
    if isinstance(value, str):
        is_cron = len(value.split()) in _FIELDS_OF_CRON or _MACRO.fullmatch(value)
        if is_cron and re.search(r"[*@]", value):
            raise wrong(what, value, f'write cron: "{shorten(value)}"')
    if _is_small(value) and value >= _SECOND_MS:  # meant as milliseconds
        plain = format_duration(timedelta(milliseconds=value))
        raise wrong(what, value, f"write {plain}, or everyMs: {value}")
    found = duration(value, what)
    if found < timedelta(milliseconds=_SECOND_MS):
        message = f"every is {format_duration(found)}, which is below 1s"
        raise refuse(message, "write 1s or more", Code.INTERVAL_TOO_SHORT)
    return found


def _is_small(value: Any) -> bool:
    return _is_number(value, int) and 0 <= value < 10**9


EVERY: Final = Check(interval, shape={**_LENGTH, "examples": ["15s", "5m", "1h", "1d"]})


def coded(check: Check, code: Code) -> Check:
    """Return a check that refuses the same values with another code."""

    def recoded(value: Any, what: ValidationInfo) -> Any:
        try:
            return check.of(value, what)
        except PydanticCustomError as error:
            context = error.context or {}
            raise refuse(context["message"], context["hint"], code) from None

    return Check(recoded, shape=check.shape)


def choice(words: Any, elsewhere: Mapping[str, str] = _SAME) -> Check:
    """Return the check of one of the words of a Literal type.

    ``elsewhere``: what other schedulers call them.
    """
    allowed: tuple[str, ...] = get_args(words)

    def check(value: Any, what: What) -> Any:
        if isinstance(value, str) and value in allowed:
            return value
        meant = _in_words(value) if isinstance(value, str) else ""
        meant = elsewhere.get(meant, meant)
        listed = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
        raise wrong(what, value, f"write {meant if meant in allowed else listed}")

    return Check(check, shape={"enum": list(allowed)})


def _in_words(text: str) -> str:
    """Return ``buffer_one`` for ``BufferOne``, and for the word of Temporal's API too."""
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])|[\s-]+", "_", text.strip())
    return parts.lower().rpartition("policy_")[2]


def fits(is_valid: Callable[[Any], bool], hint: str, shape: Shape) -> Check:
    """Return the check of a value by a question that has one hint."""

    def check(value: Any, what: What) -> Any:
        if is_valid(value):
            return value
        raise wrong(what, value, hint)

    return Check(check, shape=shape)


def count(most: int) -> Check:
    """Return the check of a whole number from 1 to ``most``."""
    return fits(
        lambda value: _is_number(value, int) and 1 <= value <= most,
        f"write a whole number from 1 to {most}",
        whole_number(1, most),
    )


def _is_number(value: Any, kind: Any = int | float) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def between(least: timedelta, most: timedelta, name: str = "") -> Check:
    """Return the check of a duration between two bounds, both included."""

    def check(value: Any, what: What) -> timedelta:
        found = duration(value, name or what)
        if least <= found <= most:
            return found
        bounds = f"{format_duration(least)} to {format_duration(most)}"
        raise refuse(f"{name or name_of(what)} is {format_duration(found)}", f"write {bounds}")

    return Check(check, shape=_LENGTH)


def factor(most: float, *, least: float = 1) -> Check:
    """Return the check of a number from ``least`` to ``most``."""
    return fits(
        lambda value: _is_number(value) and least <= value <= most,
        f"write a number from {least:g} to {most:g}",
        {"type": "number", "minimum": least, "maximum": most},
    )


def _rate(value: Any, what: What) -> Rate:
    if isinstance(value, Rate):
        return value
    try:
        return parse_rate(value if isinstance(value, str) else "")
    except ValueError as error:
        raise wrong(what, value, str(error)) from None


RATE: Final = Check(
    _rate,
    shape=pattern("^[1-9][0-9]*/[0-9a-z]+$", "Write a number and a duration, as 5/1m.", "5/1m"),
)
"""A rate, as ``5/1m``."""


def list_check(example: str, most: int) -> Check:
    """Return the check of a list of at most ``most`` items."""

    def check(value: Any, what: What) -> Any:
        if not isinstance(value, list | tuple):
            raise wrong(what, value, f"write a list, for example {example}")
        if len(value) > most:
            raise refuse(f"{name_of(what)} has {len(value):,} items", f"write at most {most:,}")
        return value

    return Check(check)


STORED: Final = {"check": "stored"}
"""Validation context for values from the ledger, which were checked when they were written."""


def _json(value: Any, info: ValidationInfo) -> Any:
    as_it_is = info.context == STORED or isinstance(value, Sealed)
    return value if as_it_is else plain_json(value, MAX_DEPTH)


def plain_json(value: Any, levels: int, of: str = "input") -> Any:
    """Return a copy of ``value`` made of JSON's own types only.

    With a copy, later changes of the original do not change the schedule.
    """
    match value:
        case None | bool():
            return value
        case str():
            if not is_storable(value):
                raise refuse(f"{of}: {UNSTORABLE}", "remove it")
            return value
        case int() if abs(value) < 10**MAX_DIGITS:
            return int(value)
        case float() if value - value == 0:
            return float(value)
        case list() | tuple() if levels:
            return [plain_json(item, levels - 1, of) for item in value]
        case dict() if levels and all(isinstance(name, str) for name in value):
            return {
                plain_json(name, 0, of): plain_json(item, levels - 1, of)
                for name, item in value.items()
            }
    if not levels:
        raise refuse(f"{of} is nested more than {MAX_DEPTH} levels deep", "flatten it")
    message = f"{of} holds a {type(value).__name__} that JSON cannot carry"
    raise refuse(message, "use texts, finite numbers, true, false, null, lists and mappings")


def _metadata(value: Any) -> Any:
    if not isinstance(value, dict):
        raise wrong("metadata", value, "write a mapping, for example {owner: billing}")
    for name, item in value.items():
        if not isinstance(name, str) or (
            item is not None and not isinstance(item, str | int | float)
        ):
            message = f"metadata {show(name)} is {show(item)}"
            raise refuse(message, "write a text, a number, true, false or null")
    return plain_json(value, 2, "metadata")


def _digits(value: int) -> str:
    # Python refuses to print integers of thousands of digits.
    return str(value) if abs(value) < 10**MAX_DIGITS else "a number of hundreds of digits"


INPUT: Final = Check(_json, shape={})
METADATA: Final = Check(
    _metadata,
    shape={
        "type": "object",
        "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
    },
)


# --- timing fields ---

_EXAMPLE: Final = "[SAT, SUN, 2026-12-25]"
_TIME: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?", re.ASCII)


def _dst(value: Any) -> Any:
    try:
        policy = dst_policy(value)
    except ScheduleError as error:
        raise refuse(shorten(error.message, 2 * MAX_SHOWN), error.hint or "") from None
    return "standard" if policy == STANDARD else policy


def _excluded(value: Any) -> Any:
    if isinstance(value, str):
        _check(value)
        return value.upper() if value.isalpha() else value
    written_out = isinstance(value, dict) and value.keys() == {"name", "dates"}
    if written_out and isinstance(value["name"], str):
        return calendar_of(value["name"], value["dates"])
    if isinstance(value, Calendar):
        return value
    raise refuse(f"exclude holds {show(value)}", f"write texts, for example {_EXAMPLE}")


def calendar_of(name: str, dates: Any) -> Calendar:
    """Return a calendar of checked items.

    Raises:
        PydanticCustomError: an item is invalid; the error has our code, message and hint.
    """
    what = f"calendar {shorten(name)}"
    if isinstance(dates, str) and dates.lower().endswith(".ics"):
        raise wrong(what, dates, f"write {{ics: {shorten(dates)}}}")
    if not isinstance(dates, list | tuple) or not all(isinstance(text, str) for text in dates):
        raise wrong(what, dates, f"write a list, for example {_EXAMPLE}")
    if len(dates) > MAX_ITEMS:
        raise refuse(f"{what} has {len(dates):,} items", f"write at most {MAX_ITEMS:,}")
    for text in dates:
        _check(text)
    return Calendar(name, tuple(dates))


def _check(text: str) -> None:
    try:
        check_item(text)
    except ValueError as error:
        message, hint = error.args
        raise refuse(str(message), str(hint)) from None


def _day(value: Any) -> str:
    try:
        day = date.fromisoformat(value) if isinstance(value, str) else None
        if day and str(day) == value and FIRST_YEAR <= day.year <= LAST_YEAR:
            return str(day)
    except ValueError:
        pass  # not a date
    raise wrong("on", value, "write a day of 1970 to 2100, as 2027-03-14")


def _time(value: Any) -> str:
    if isinstance(value, str) and _TIME.fullmatch(value):
        return value
    if isinstance(value, str) and _TIME.fullmatch(f"0{value}"):
        raise refuse(f"fires holds {show(value)}", f'write "0{value}"')
    raise refuse(f"fires holds {show(value)}", 'write times in quotes, as "03:00" or "03:00:30"')


def whole_list(items: tuple[str | Calendar, ...]) -> tuple[str | Calendar, ...]:
    """Return ``exclude`` without duplicates; refuse a list that would fill the memory."""
    kept = tuple(dict.fromkeys(items))
    total = sum(1 if isinstance(item, str) else len(item.dates) for item in kept)
    if total > MAX_ITEMS:
        raise refuse(f"exclude has {total:,} items in all", f"write at most {MAX_ITEMS:,}")
    days = sum(map(days_covered, kept))
    if days > MAX_DAYS:
        what = f"exclude covers {days:,} days in all"
        raise refuse(what, f"write at most {MAX_DAYS:,}, or end the schedule with end: instead")
    return kept


EXPECTED: Final = '{on: 2027-03-14, fires: ["03:00"]}'

DST: Final = Check(
    _dst,
    shape={
        "anyOf": [
            {"const": "standard"},
            mapping({"gap": {"enum": [*get_args(Gap)]}, "fold": {"enum": [*get_args(Fold)]}}),
        ]
    },
)
EXCLUDED: Final = Check(
    _excluded,
    shape={"anyOf": [*_DAY_OFF, {"type": "string", "pattern": CALENDAR_NAME}, _WRITTEN_OUT]},
)
EXCLUDE: Final = list_check(_EXAMPLE, MAX_ITEMS)
ON: Final = Check(_day, shape=pattern(f"^{_DAY}$", "Write a day, as 2027-03-14.", "2027-03-14"))
TIME: Final = Check(
    _time,
    shape=pattern(
        "^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$",
        'Write times in quotes, as "03:00" or "03:00:30".',
        "03:00",
    ),
)


# --- tags and needs ---
# Lists of short names.

MOST_TAGS: Final = 50
_TAG: Final = r"[a-z0-9][a-z0-9._-]{0,63}"
_TAG_HINT: Final = "use 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"


def _tags(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        in_a_list = isinstance(value, str) and re.fullmatch(_TAG, value)
        raise wrong("tags", value, f"write [{value if in_a_list else 'billing, nightly'}]")
    if len(value) > MOST_TAGS:
        raise refuse(f"tags has {len(value):,} items", f"write at most {MOST_TAGS}")
    for tag in value:
        if not isinstance(tag, str) or not re.fullmatch(_TAG, tag):
            in_quotes = isinstance(tag, int | float)
            raise wrong("a tag", tag, "put it in quotes" if in_quotes else _TAG_HINT)
        if value.count(tag) > 1:
            raise refuse(f"tags has {tag} twice", "write it once")
    return tuple(sorted(value))


TAGS: Final = Check(
    _tags,
    shape={
        **list_of(pattern(f"^{_TAG}$", f"{_TAG_HINT.capitalize()}.", "billing")),
        "maxItems": MOST_TAGS,
        "uniqueItems": True,
    },
)

MOST_NEEDED: Final = 100


def _needs(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        hint = f"write [{value}]" if isinstance(value, str) else "write a list of keys, as [a, b]"
        raise wrong("needs", value, hint)
    keys = tuple(check_key(key, "a key in needs") for key in value)
    if value == []:
        raise refuse("needs is empty", "name a schedule, or remove the line")
    if len(keys) > MOST_NEEDED:
        raise refuse(f"needs has {len(keys)} keys", f"name at most {MOST_NEEDED}")
    for place, key in enumerate(keys):
        if key in keys[:place]:
            raise refuse(f"needs names {key} twice", "name it once")
    return keys


NEEDS: Final = Check(
    _needs,
    shape={**list_of(PARENT), "minItems": 1, "maxItems": MOST_NEEDED, "uniqueItems": True},
)
