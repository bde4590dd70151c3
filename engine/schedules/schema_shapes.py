"""The shapes that the JSON Schema of a schedule file is made of: texts, words, lists, mappings."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, get_args

from pydantic import BaseModel

from engine.schedules.durations import LONGEST
from engine.schedules.exclusions import MAX_ITEMS, WEEKDAYS
from engine.schedules.windows import KEY

Shape = dict[str, Any]

LONGEST_MS: Final = LONGEST // timedelta(milliseconds=1)

# JSON Schema's dialect of patterns is ECMAScript's; everything here means the same in Python's.
KEY_PATTERN: Final = f"^{KEY.pattern}$"
_DURATION: Final = r"^(?=.)([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$"
_DAY: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK: Final = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
MOMENT: Final = rf"{_DAY}[T ]{_CLOCK}(Z|[+-][0-9]{{2}}:[0-9]{{2}})?"
_INSTANT: Final = rf"{_DAY}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}Z"
_DAYS_OFF: Final = rf"^({_DAY}(\.\.{_DAY})?|{_INSTANT}\.\.{_INSTANT})$"
CRON: Final = "^(@[^ ]+|[^ ]+( +[^ ]+){4,5})$"
# The names themselves are left to `sched check`: each release of tzdata has others.
ZONE: Final = "^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$"


def text(pattern: str, cure: str, *examples: str) -> Shape:
    """Return a text of a pattern; ``cure`` is what an editor says of another."""
    shape = {"type": "string", "pattern": pattern, "patternErrorMessage": cure}
    return {**shape, "examples": list(examples)} if examples else shape


def name(*examples: str) -> Shape:
    """Return a text without blanks around it."""
    shape = text(r"^[^\s](.*[^\s])?$", "Write a text without blanks around it.", *examples)
    return {**shape, "maxLength": 1000}


def words(model: type[BaseModel], field: str) -> Shape:
    """Return the words that a field's type allows, so that a new one is offered at once."""
    return {"enum": _literals(model.model_fields[field].annotation)}


def _literals(annotation: Any) -> list[str]:
    found: list[str] = []
    for part in get_args(annotation):
        found += [part] if isinstance(part, str) else _literals(part)
    return found


def list_of(items: Shape) -> Shape:
    """Return a list of ``items``."""
    return {"type": "array", "items": items}


def mapping(properties: dict[str, Shape], *required: str) -> Shape:
    """Return a mapping of these fields and no other."""
    return {
        "type": "object",
        "properties": properties,
        **({"required": list(required)} if required else {}),
        "additionalProperties": False,
    }


SWITCH: Final[Shape] = {"type": "boolean"}
LENGTH: Final = text(_DURATION, "Write a duration, as 500ms, 90s, 15m, 1h30m or 2d.")
ON: Final = text(f"^{_DAY}$", "Write a day, as 2027-03-14.", "2027-03-14")
BOUND: Final = text(
    f"^({_DAY}|{MOMENT})$", "Write 2027-01-01 or 2027-01-01T09:00:00.", "2027-01-01"
)
_ANY_CASE: Final = "|".join(
    "".join(f"[{sign}{sign.lower()}]" for sign in weekday) for weekday in WEEKDAYS
)
DAY_OFF: Final[list[Shape]] = [
    {"enum": list(WEEKDAYS)},
    {"type": "string", "pattern": f"^({_ANY_CASE})$"},
    text(_DAYS_OFF, "Write a day, a range of days, or a weekday.", "2026-12-25"),
]
CALENDAR_NAME: Final = "^[a-z][a-z0-9._-]{0,199}$"
DAYS_OFF_LIST: Final = {**list_of({"anyOf": DAY_OFF}), "maxItems": MAX_ITEMS}
WRITTEN_OUT: Final = mapping({"name": {"type": "string"}, "dates": DAYS_OFF_LIST}, "name", "dates")
"""A calendar as `sched show` prints it inside a definition."""
