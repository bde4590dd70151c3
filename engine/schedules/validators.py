"""Validators of single schedule fields, with the message for each mistake."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date, timedelta
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationInfo
from pydantic_core import PydanticCustomError

from engine.errors import Code, ScheduleError
from engine.schedules.ids import KEY
from engine.schedules.policies import (
    MAX_DEPTH,
    MAX_DIGITS,
    UNSTORABLE,
    Overlap,
    When,
    Which,
    is_storable,
)
from engine.schedules.timing.calendars import (
    MAX_DAYS,
    MAX_ITEMS,
    Calendar,
    check_item,
    days_covered,
)
from engine.schedules.timing.cron_parser import plain
from engine.schedules.timing.spec import STANDARD, Dst, dst_policy
from engine.schedules.units import (
    FIRST_YEAR,
    LAST_YEAR,
    LONGEST,
    Rate,
    format_duration,
    parse_duration,
    parse_rate,
)

# --- general fields ---
# Every check raises a ``PydanticCustomError`` whose type is one of our codes and whose context
# holds message and cure, so that no wording of pydantic reaches a user.

MAX_SHOWN: Final = 60
"""Characters of a value in a message."""

_MAX_NAME_BYTES = 1000
"""Temporal's limit on ids, types and task queues."""

_MAX_MS = LONGEST // timedelta(milliseconds=1)
_YAML_1_1_BOOLEANS = {"yes": "true", "on": "true", "y": "true"} | {
    "no": "false", "off": "false", "n": "false",
}  # fmt: skip


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


def refuse(message: str, cure: str, code: str = Code.FIELD_INVALID) -> PydanticCustomError:
    """Return the error that a validator raises."""
    template = "{message}; {cure}" if cure else "{message}"
    return PydanticCustomError(code, template, {"message": message, "cure": cure})


def text_check(name: str, example: str) -> BeforeValidator:
    """Return the check of a printable text of at most 1000 bytes, without blanks around it."""

    def check(value: Any) -> str:
        cure = f"write a text, for example {example}"
        if not isinstance(value, str):
            in_quotes = " in quotes" if isinstance(value, int | float) else ""
            raise refuse(
                f"{name} is {show(value)}", f"write a text{in_quotes}, for example {example}"
            )
        if not value or value.strip() != value:
            raise refuse(f"{name} is {show(value)}", f"{cure}, without blanks around it")
        if len(value.encode(errors="replace")) > _MAX_NAME_BYTES:
            raise refuse(f"{name} is longer than {_MAX_NAME_BYTES} bytes", "write a shorter one")
        if not value.isprintable():
            raise refuse(f"{name} holds a control character", "remove it")
        return value

    return BeforeValidator(check)


def _prose(name: str) -> BeforeValidator:
    def check(value: Any) -> str | None:
        if value is not None and not isinstance(value, str):
            raise refuse(f"{name} is {show(value)}", "write a text, in quotes if need be")
        if value is not None and not is_storable(value):
            raise refuse(f"{name}: {UNSTORABLE}", "remove it")
        return value

    return BeforeValidator(check)


def key_check(name: str) -> Callable[[Any], str]:
    """Return the check of ``key`` and of ``project``, which share a pattern."""

    def check(value: Any) -> str:
        if isinstance(value, str) and KEY.fullmatch(value):
            return value
        cure = "use 1 to 200 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
        if isinstance(value, str):
            proposal = re.sub(r"[^a-z0-9._-]+", "-", value.lower()).strip("-._")[:200]
            if KEY.fullmatch(proposal) and len(proposal) <= MAX_SHOWN:
                cure += f", for example {proposal}"
        elif isinstance(value, int | float):
            cure = "put it in quotes"
        raise refuse(f"{name} is {show(value)}", cure, Code.KEY_INVALID)

    return check


def _switch(name: str) -> BeforeValidator:
    def check(value: Any) -> bool:
        if isinstance(value, bool):
            return value
        meant = _YAML_1_1_BOOLEANS.get(value.lower()) if isinstance(value, str) else None
        raise refuse(f"{name} is {show(value)}", f"write {meant or 'true or false'}")

    return BeforeValidator(check)


def _milliseconds(name: str, lowest: int) -> BeforeValidator:
    def check(value: Any) -> int | None:
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise refuse(f"{name} is {show(value)}", _whole(value))
        if value < lowest and name == "everyMs":
            code, cure = Code.INTERVAL_TOO_SHORT, "write 1000 (one second) or more"
            raise refuse(f"everyMs is {show(value)}, which is below 1000", cure, code)
        if not lowest <= value <= _MAX_MS:
            raise refuse(
                f"{name} is {show(value)}", "write at most a hundred years in milliseconds"
            )
        return value

    return BeforeValidator(check)


def _whole(value: Any) -> str:
    """Return the cure for a value of milliseconds, with the user's own number if it is readable."""
    example = "for example 300000"
    if isinstance(value, str):
        try:
            length = parse_duration(value)
        except ValueError:
            digits = value.replace("_", "").replace(",", "").replace(" ", "")
            if digits.isascii() and digits.isdecimal() and len(digits) <= MAX_SHOWN:
                return f"write {digits}"
        else:
            return f"write {length // timedelta(milliseconds=1)}"
    elif isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_MS:
        return f"write {int(value)}"
    return f"write a whole number of milliseconds, {example}"


def duration(name: str) -> BeforeValidator:
    """Return the check of a duration."""

    def check(value: Any) -> timedelta:
        if isinstance(value, timedelta):
            try:
                format_duration(value)
            except ValueError:
                raise refuse(
                    f"{name} is {show(value)}", "use whole milliseconds from 0 upwards"
                ) from None
            return value
        if not isinstance(value, str):
            unit = f"write a unit too, for example {value}s" if _is_small(value) else ""
            raise refuse(
                f"{name} is {show(value)}", unit or "write a duration, for example 90s or 15m"
            )
        try:
            return parse_duration(value)
        except ValueError as error:
            raise refuse(f"{name} is {show(value)}", str(error)) from None

    return BeforeValidator(check)


def _is_small(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9


def choice(name: str, allowed: tuple[str, ...]) -> BeforeValidator:
    """Return the check of a word from a fixed set."""

    def check(value: Any) -> Any:
        if (isinstance(value, str) and value in allowed) or (value is None and None in allowed):
            return value
        meant = re.sub(r"[\s-]+", "_", value.strip().lower()) if isinstance(value, str) else ""
        words = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
        raise refuse(f"{name} is {show(value)}", f"write {meant if meant in allowed else words}")

    return BeforeValidator(check)


def _optional_choice(name: str, allowed: tuple[str, ...]) -> BeforeValidator:
    checked = choice(name, allowed).func
    return BeforeValidator(lambda value: None if value is None else checked(value))  # type: ignore[call-arg]  # ours takes the value alone


STORED: Final = {"check": "stored"}
"""Validation context for values from the ledger, which were checked when they were written."""


def _json(value: Any, info: ValidationInfo) -> Any:
    return value if info.context == STORED else plain_json(value, MAX_DEPTH)


def plain_json(value: Any, levels: int) -> Any:
    """Return a copy of ``value`` made of JSON's own types only.

    With a copy, later changes of the original do not change the schedule.
    """
    match value:
        case None | bool():
            return value
        case str():
            if not is_storable(value):
                raise refuse(f"input: {UNSTORABLE}", "remove it")
            return value
        case int() if abs(value) < 10**MAX_DIGITS:
            return int(value)
        case float() if value - value == 0:
            return float(value)
        case list() | tuple() if levels:
            return [plain_json(item, levels - 1) for item in value]
        case dict() if levels and all(isinstance(name, str) for name in value):
            return {
                plain_json(name, 0): plain_json(item, levels - 1) for name, item in value.items()
            }
    if not levels:
        raise refuse(f"input is nested more than {MAX_DEPTH} levels deep", "flatten it")
    message = f"input holds a {type(value).__name__} that JSON cannot carry"
    raise refuse(message, "use texts, finite numbers, true, false, null, lists and mappings")


def _metadata(value: Any) -> Any:
    if not isinstance(value, dict):
        raise refuse(f"metadata is {show(value)}", "write a mapping, for example {owner: billing}")
    for name, item in value.items():
        if not isinstance(name, str) or (
            item is not None and not isinstance(item, str | int | float)
        ):
            message = f"metadata {show(name)} is {show(item)}"
            raise refuse(message, "write a text, a number, true, false or null")
    return plain_json(value, 2)


def _digits(value: int) -> str:
    # Python refuses to print integers of thousands of digits.
    return str(value) if abs(value) < 10**MAX_DIGITS else "a number of hundreds of digits"


Key = Annotated[str, BeforeValidator(key_check("key"))]
Workflow = Annotated[str, text_check("workflow", "daily-report or daily-report@1")]
OnDead = Annotated[str | None, text_check("onDead", "alert-team or alert-team@1")]
TaskQueue = Annotated[str, text_check("taskQueue", "sched")]
External = Annotated[bool, _switch("external")]
Enabled = Annotated[bool, _switch("enabled")]
Paused = Annotated[bool, _switch("paused")]
EveryMs = Annotated[int | None, _milliseconds("everyMs", 1000)]
OffsetMs = Annotated[int, _milliseconds("offsetMs", -_MAX_MS)]
CronText = Annotated[str, text_check("cron", '"0 2 * * *"'), AfterValidator(plain)]
Timezone = Annotated[str, text_check("timezone", "America/Sao_Paulo")]
AtText = Annotated[str, text_check("at", '"2027-01-01T09:00:00Z"')]
FirstFire = Annotated[Literal["now", "next"] | None, _optional_choice("firstFire", ("now", "next"))]
Grace = Annotated[timedelta, duration("grace")]
Spread = Annotated[timedelta, duration("spread")]
Prose = Annotated[str | None, _prose("description")]
Json = Annotated[Any, BeforeValidator(_json)]
Metadata = Annotated[dict[str, Any], BeforeValidator(_metadata)]


# --- timing fields ---

_EXAMPLE: Final = "[SAT, SUN, 2026-12-25]"
_MAX_EXPECTED: Final = 1000
_TIME: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?", re.ASCII)


def _dst(value: Any) -> Any:
    try:
        policy = dst_policy(value)
    except ScheduleError as error:
        raise refuse(shorten(error.message, 2 * MAX_SHOWN), error.cure or "") from None
    return "standard" if policy == STANDARD else policy


def _excluded(value: Any) -> Any:
    if isinstance(value, str):
        _check(value)
        return value.upper() if value.isalpha() else value
    if isinstance(value, dict) and value.keys() == {"name", "dates"}:
        return calendar_of(str(value["name"]), value["dates"])
    if isinstance(value, Calendar):
        return value
    raise refuse(f"exclude holds {show(value)}", f"write texts, for example {_EXAMPLE}")


def calendar_of(name: str, dates: Any) -> Calendar:
    """Return a calendar of checked items.

    Raises:
        PydanticCustomError: an item is invalid; the error has our code, message and cure.
    """
    if isinstance(dates, str) and dates.lower().endswith(".ics"):
        raise refuse(
            f"calendar {shorten(name)} is {show(dates)}", f"write {{ics: {shorten(dates)}}}"
        )
    if not isinstance(dates, list | tuple) or not all(isinstance(text, str) for text in dates):
        raise refuse(
            f"calendar {shorten(name)} is {show(dates)}", f"write a list, for example {_EXAMPLE}"
        )
    if len(dates) > MAX_ITEMS:
        what = f"calendar {shorten(name)} has {len(dates):,} items"
        raise refuse(what, f"write at most {MAX_ITEMS:,}")
    for text in dates:
        _check(text)
    return Calendar(name, tuple(dates))


def _check(text: str) -> None:
    try:
        check_item(text)
    except ValueError as error:
        message, cure = error.args
        raise refuse(str(message), str(cure)) from None


def _list(name: str, example: str, most: int) -> BeforeValidator:
    def check(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise refuse(f"{name} is {show(value)}", f"write a list, for example {example}")
        if len(value) > most:
            raise refuse(f"{name} has {len(value):,} items", f"write at most {most:,}")
        return value

    return BeforeValidator(check)


def _day(value: Any) -> str:
    try:
        day = date.fromisoformat(value) if isinstance(value, str) else None
        if day and str(day) == value and FIRST_YEAR <= day.year <= LAST_YEAR:
            return str(day)
    except ValueError:
        pass  # not a date
    raise refuse(f"on is {show(value)}", "write a day of 1970 to 2100, as 2027-03-14")


def _time(value: Any) -> str:
    if isinstance(value, str) and _TIME.fullmatch(value):
        return value
    if isinstance(value, str) and _TIME.fullmatch(f"0{value}"):
        raise refuse(f"fires holds {show(value)}", f'write "0{value}"')
    raise refuse(f"fires holds {show(value)}", 'write times in quotes, as "03:00" or "03:00:30"')


class Expectation(BaseModel):
    """Expected fire times of a schedule on one day, on its local clock.

    Attributes:
        on: the day, as ``2027-03-14``.
        fires: the times, as ``03:00`` or ``03:00:30``, in order; a repeated one is given twice.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    on: Annotated[str, BeforeValidator(_day)]
    fires: Annotated[
        tuple[Annotated[str, BeforeValidator(_time)], ...],
        _list("fires", '["03:00"]', _MAX_EXPECTED),
    ]


def _expectation(value: Any) -> Any:
    if isinstance(value, dict | Expectation):
        return value
    raise refuse(f"expect holds {show(value)}", 'write {on: 2027-03-14, fires: ["03:00"]}')


def _whole_list(items: tuple[str | Calendar, ...]) -> tuple[str | Calendar, ...]:
    """Drop duplicates, and refuse lists that would fill the memory."""
    kept = tuple(dict.fromkeys(items))
    total = sum(1 if isinstance(item, str) else len(item.dates) for item in kept)
    if total > MAX_ITEMS:
        raise refuse(f"exclude has {total:,} items in all", f"write at most {MAX_ITEMS:,}")
    days = sum(map(days_covered, kept))
    if days > MAX_DAYS:
        what = f"exclude covers {days:,} days in all"
        raise refuse(what, f"write at most {MAX_DAYS:,}, or end the schedule with end: instead")
    return kept


def jsonable(items: Iterable[Any]) -> list[Any]:
    """Return items of ``exclude`` or ``expect`` as JSON."""
    return [
        {"name": item.name, "dates": list(item.dates)} if isinstance(item, Calendar)
        else item.model_dump(mode="json") if isinstance(item, Expectation)
        else item
        for item in items
    ]  # fmt: skip


StartText = Annotated[str, text_check("start", "2027-01-01")]
EndText = Annotated[str, text_check("end", "2027-12-31")]
DstPolicy = Annotated[Literal["standard"] | Dst, BeforeValidator(_dst)]
Exclude = Annotated[
    tuple[Annotated[str | Calendar, BeforeValidator(_excluded)], ...],
    _list("exclude", _EXAMPLE, MAX_ITEMS),
    AfterValidator(_whole_list),
]
Expect = Annotated[
    tuple[Annotated[Expectation, BeforeValidator(_expectation)], ...],
    _list("expect", '[{on: 2027-03-14, fires: ["03:00"]}]', _MAX_EXPECTED),
]


# --- overlap, catch-up and retention fields ---

MOST_QUEUED: Final = 100_000
MOST_OPEN: Final = 10_000
"""Most concurrent runs of one schedule; a plan counts them up to its limit."""

MOST_CAUGHT_UP: Final = 1500
"""More than a day of minutes, and as many as one transaction of the tick can hold."""

MOST_KEPT: Final = 1_000_000

_Policy = Literal["latest", "all", "none"]
_Order = Literal["oldest", "newest"]


def _count(name: str, most: int) -> BeforeValidator:
    def check(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most:
            return value
        raise refuse(f"{name} is {show(value)}", f"write a whole number from 1 to {most}")

    return BeforeValidator(check)


def _rate(value: Any) -> Rate | None:
    if value is None or isinstance(value, Rate):
        return value
    try:
        return parse_rate(value if isinstance(value, str) else "")
    except ValueError as error:
        raise refuse(f"catchUp.rate is {show(value)}", str(error)) from None


def _optional(check: BeforeValidator) -> BeforeValidator:
    return BeforeValidator(lambda value: None if value is None else check.func(value))  # type: ignore[call-arg]  # ours takes the value alone


def _retention(value: Any) -> Any:
    if isinstance(value, str | int | float | list) or value is None:
        raise refuse(f"retention is {show(value)}", "write {keep: 1000, age: 90d}")
    return value


def _catch_up(value: Any) -> Any:
    if isinstance(value, str | int | float | list) or value is None:
        policy = value if value in get_args(_Policy) else "latest"
        raise refuse(f"catchUp is {show(value)}", f"write {{policy: {policy}, window: 24h}}")
    return value


OverlapPolicy = Annotated[Overlap, choice("overlap", get_args(Overlap))]
MaxQueued = Annotated[int, _count("maxQueued", MOST_QUEUED)]
MaxConcurrentRuns = Annotated[int, _count("maxConcurrentRuns", MOST_OPEN)]
CancelGrace = Annotated[timedelta, duration("cancelGrace")]

IsCatchUp = BeforeValidator(_catch_up)
Policy = Annotated[_Policy, choice("catchUp.policy", get_args(_Policy))]
Window = Annotated[timedelta, duration("catchUp.window")]
Max = Annotated[int, _count("catchUp.max", MOST_CAUGHT_UP)]
Order = Annotated[_Order, choice("catchUp.order", get_args(_Order))]
StartRate = Annotated[Rate | None, BeforeValidator(_rate)]
AfterPause = Annotated[_Policy, choice("catchUp.pause", get_args(_Policy))]
AfterDeploy = Annotated[_Policy, choice("catchUp.deploy", get_args(_Policy))]

IsRetention = BeforeValidator(_retention)
Keep = Annotated[int | None, _optional(_count("retention.keep", MOST_KEPT))]
Age = Annotated[timedelta | None, _optional(duration("retention.age"))]
FailedAge = Annotated[timedelta | None, _optional(duration("retention.failedAge"))]
MaxAge = Annotated[timedelta | None, _optional(duration("retention.maxAge"))]


# --- after and needs fields ---

MOST_NEEDED: Final = 100

_CHAIN_EXAMPLE: Final = "write {schedule: nightly-extract, when: success}"


def _after(value: Any) -> Any:
    if value is None or not isinstance(value, str | int | float | list):
        return value
    cure = f"write {{schedule: {value}}}" if isinstance(value, str) else _CHAIN_EXAMPLE
    raise refuse(f"after is {show(value)}", cure)


def _needs(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        cure = f"write [{value}]" if isinstance(value, str) else "write a list of keys, as [a, b]"
        raise refuse(f"needs is {show(value)}", cure)
    check = key_check("a key in needs")
    keys = tuple(check(key) for key in value)
    if value == []:
        raise refuse("needs is empty", "name a schedule, or remove the line")
    if len(keys) > MOST_NEEDED:
        raise refuse(
            f"needs has {len(keys)} keys", f"name at most {MOST_NEEDED}", Code.FIELD_INVALID
        )
    for place, key in enumerate(keys):
        if key in keys[:place]:
            raise refuse(f"needs names {key} twice", "name it once")
    return keys


Parent = Annotated[str, BeforeValidator(key_check("after.schedule"))]
ParentWhen = Annotated[When, choice("after.when", get_args(When))]
ParentWindow = Annotated[Which, choice("after.window", get_args(Which))]
IsAfter = BeforeValidator(_after)
Needs = Annotated[tuple[str, ...], BeforeValidator(_needs)]
