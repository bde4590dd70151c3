"""The fields of a schedule, one by one: what each accepts, and the sentence for what it does not.

Every check raises a ``PydanticCustomError`` whose type is one of our codes and whose context
holds message and cure, so that no wording of pydantic's ever reaches a user.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from engine.errors import Code
from engine.schedules.cron_fields import plain
from engine.schedules.durations import LONGEST, format_duration, parse_duration
from engine.schedules.nodes import MAX_DEPTH, MAX_DIGITS, UNSTORABLE, is_storable
from engine.schedules.windows import KEY

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
    """Return the check of a text without blanks around it, of at most a thousand bytes."""

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
    """Say how to write milliseconds, in the user's own number where that can be read."""
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
    """Return the check of a word out of a few."""

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
"""The context for what the ledger has kept: it was looked through when it was written."""


def _json(value: Any, info: ValidationInfo) -> Any:
    return value if info.context == STORED else plain_json(value, MAX_DEPTH)


def plain_json(value: Any, levels: int) -> Any:
    """Return a copy of ``value`` made of JSON's own types only.

    A copy, so that nobody changes a schedule by changing what it was made from.
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
