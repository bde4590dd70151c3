"""The JSON Schema (draft 7) of a schedule file, for editors: completion, hints, first mistakes.

It is never stricter than `load_schedules`, which alone decides: an editor must not underline
what works. It is laxer where a rule needs more than one place of the file (is this calendar
declared?) or a calculation (can this cron ever fire?).
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from engine.schedules.catch_up import CatchUp
from engine.schedules.cron_clock import Fold, Gap
from engine.schedules.durations import LONGEST, format_duration
from engine.schedules.exclusions import MAX_ITEMS, WEEKDAYS
from engine.schedules.model import Defaults, Schedule
from engine.schedules.policy_fields import MOST_CAUGHT_UP, MOST_QUEUED
from engine.schedules.when_fields import Expectation
from engine.schedules.windows import KEY

Shape = dict[str, Any]

_LONGEST_MS: Final = LONGEST // timedelta(milliseconds=1)

# JSON Schema's dialect of patterns is ECMAScript's; everything here means the same in Python's.
_KEY: Final = f"^{KEY.pattern}$"
_DURATION: Final = r"^(?=.)([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$"
_DAY: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK: Final = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_MOMENT: Final = rf"{_DAY}[T ]{_CLOCK}(Z|[+-][0-9]{{2}}:[0-9]{{2}})?"
_INSTANT: Final = rf"{_DAY}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}Z"
_DAYS_OFF: Final = rf"^({_DAY}(\.\.{_DAY})?|{_INSTANT}\.\.{_INSTANT})$"
_CRON: Final = "^(@[^ ]+|[^ ]+( +[^ ]+){4,5})$"
# The names themselves are left to `sched check`: each release of tzdata has others.
_ZONE: Final = "^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$"


def _text(pattern: str, cure: str, *examples: str) -> Shape:
    shape = {"type": "string", "pattern": pattern, "patternErrorMessage": cure}
    return {**shape, "examples": list(examples)} if examples else shape


def _name(*examples: str) -> Shape:
    shape = _text(r"^[^\s](.*[^\s])?$", "Write a text without blanks around it.", *examples)
    return {**shape, "maxLength": 1000}


def _words(model: type[BaseModel], field: str) -> Shape:
    """Return the words that a field's type allows, so that a new one is offered at once."""
    return {"enum": _literals(model.model_fields[field].annotation)}


def _literals(annotation: Any) -> list[str]:
    found: list[str] = []
    for part in get_args(annotation):
        found += [part] if isinstance(part, str) else _literals(part)
    return found


def _list(items: Shape) -> Shape:
    return {"type": "array", "items": items}


def _mapping(properties: dict[str, Shape], *required: str) -> Shape:
    return {
        "type": "object",
        "properties": properties,
        **({"required": list(required)} if required else {}),
        "additionalProperties": False,
    }


_SWITCH: Final[Shape] = {"type": "boolean"}
_LENGTH: Final = _text(_DURATION, "Write a duration, as 500ms, 90s, 15m, 1h30m or 2d.")
_ON: Final = _text(f"^{_DAY}$", "Write a day, as 2027-03-14.", "2027-03-14")
_BOUND: Final = _text(
    f"^({_DAY}|{_MOMENT})$", "Write 2027-01-01 or 2027-01-01T09:00:00.", "2027-01-01"
)
_ANY_CASE: Final = "|".join(
    "".join(f"[{sign}{sign.lower()}]" for sign in weekday) for weekday in WEEKDAYS
)
_DAY_OFF: Final[list[Shape]] = [
    {"enum": list(WEEKDAYS)},
    {"type": "string", "pattern": f"^({_ANY_CASE})$"},
    _text(_DAYS_OFF, "Write a day, a range of days, or a weekday.", "2026-12-25"),
]
_CALENDAR_NAME: Final = "^[a-z][a-z0-9._-]{0,199}$"
_DAYS_OFF_LIST: Final = {**_list({"anyOf": _DAY_OFF}), "maxItems": MAX_ITEMS}
_WRITTEN_OUT: Final = _mapping(
    {"name": {"type": "string"}, "dates": _DAYS_OFF_LIST}, "name", "dates"
)
"""A calendar as `sched show` prints it inside a definition."""

_CATCH_UP: Final[dict[str, tuple[Shape, str]]] = {
    "policy": (
        _words(CatchUp, "policy"),
        "After an outage. `latest`: one run, of the newest missed window, stands for all of them.",
    ),
    "window": (_LENGTH, "Windows older than this expire instead of being caught up."),
    "max": (
        {"type": "integer", "minimum": 1, "maximum": MOST_CAUGHT_UP},
        "With `all`, the newest so many run and the others expire.",
    ),
    "order": (_words(CatchUp, "order"), "With `all`, which of them starts first."),
    "rate": (
        _text("^[1-9][0-9]*/[0-9a-z]+$", "Write a number and a duration, as 5/1m.", "5/1m"),
        "With `all`, how fast they start.",
    ),
    "pause": (_words(CatchUp, "pause"), "The policy after an operator's pause."),
    "deploy": (_words(CatchUp, "deploy"), "The policy after `enabled: false`."),
}
_EXPECTATION: Final[dict[str, tuple[Shape, str]]] = {
    "on": (_ON, "The day, by the schedule's own clock."),
    "fires": (
        _list(
            _text(
                "^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$",
                'Write times in quotes, as "03:00" or "03:00:30".',
                "03:00",
            )
        ),
        "The local times at which runs start on that day, in their order; [] is never.",
    ),
}

_SCHEDULE: Final[dict[str, tuple[Shape, str]]] = {
    "key": (
        _text(
            _KEY,
            "Use 1 to 200 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit.",
            "nightly-report",
        ),
        "Names the schedule, once in the ledger's namespace, and begins the id of each run.",
    ),
    "workflow": (
        _name("daily-report", "daily-report@1"),
        "What is started: a name (its newest version), name@1.2, or any Temporal type.",
    ),
    "input": ({}, "The workflow's argument, any JSON value; without the field there is none."),
    "taskQueue": (_name("sched"), "Where the workflow's workers listen."),
    "external": (
        _SWITCH,
        "Whether `workflow` is a Temporal type as written, which nobody looks up.",
    ),
    "everyMs": (
        {"type": "integer", "minimum": 1000, "maximum": _LONGEST_MS, "examples": [60000, 300000]},
        "An interval in milliseconds, aligned to 1970-01-01T00:00:00Z: 300000 is :00, :05, :10.",
    ),
    "offsetMs": (
        {"type": "integer", "minimum": -_LONGEST_MS, "maximum": _LONGEST_MS},
        "Shifts an interval, in milliseconds; it may be negative.",
    ),
    "cron": (
        _text(
            _CRON,
            "Write five fields (minute hour day month weekday), six with seconds first, "
            "or a macro as @daily.",
            "0 2 * * *",
            "*/15 * * * *",
            "0 9 * * MON-FRI",
            "@hourly",
        ),
        "Five fields `minute hour day month weekday`, in quotes; six have leading seconds.",
    ),
    "timezone": (
        _text(
            _ZONE,
            "Write an IANA name, as America/Sao_Paulo.",
            *("UTC", "America/Sao_Paulo", "America/New_York", "America/Los_Angeles"),
            *("Europe/London", "Europe/Paris", "Asia/Kolkata", "Asia/Tokyo", "Australia/Sydney"),
        ),
        "The IANA zone whose clock the cron, the local moment and the days are meant on.",
    ),
    "at": (
        _text(
            f"^{_MOMENT}$",
            'Write "2027-01-01T09:00:00Z", or without Z and with a timezone.',
            "2027-01-01T09:00:00Z",
        ),
        "One moment: with an offset, or without and local to `timezone`.",
    ),
    "enabled": (_SWITCH, "Whether it fires; this always wins over the ledger."),
    "paused": (_SWITCH, "Whether it is paused when first seen; later edits change nothing."),
    "firstFire": (
        _words(Schedule, "first_fire"),
        "Whether the window open at first sight is owed; without it, that of an interval is.",
    ),
    "overlap": (
        _words(Schedule, "overlap"),
        "What happens to a window while an older run is open; `allow` starts it.",
    ),
    "maxQueued": (
        {"type": "integer", "minimum": 1, "maximum": MOST_QUEUED},
        "With `overlap: queue`, how many windows may wait; the others are skipped.",
    ),
    "cancelGrace": (
        _LENGTH,
        "With `overlap: cancel_previous`, how long a cancelled run has until it is terminated.",
    ),
    "catchUp": (
        {},
        "What happens to windows that were missed for longer than `grace`.",
    ),
    "grace": (_LENGTH, "How old a window may be and still start in any case."),
    "start": (_BOUND, "It fires from then on, included; a day begins at its midnight."),
    "end": (_BOUND, "It fires until then, included; a day counts as the whole of it."),
    "dst": (
        {
            "anyOf": [
                {"const": "standard"},
                _mapping(
                    {"gap": {"enum": list(get_args(Gap))}, "fold": {"enum": list(get_args(Fold))}}
                ),
            ]
        },
        "What a fixed-time cron does where its clock skips (gap) or repeats (fold) a time.",
    ),
    "exclude": (
        _list(
            {
                "anyOf": [
                    *_DAY_OFF,
                    {"type": "string", "pattern": _CALENDAR_NAME},
                    _WRITTEN_OUT,
                ]
            }
        ),
        "Weekdays, days, ranges, stretches and names from `calendars` whose windows are skipped.",
    ),
    "spread": (_LENGTH, "Each run starts later than its window by the key's part of this."),
    "expect": ({}, "When it should fire, for `sched check`."),
    "description": ({"type": "string"}, "Shown above the details of each run."),
    "metadata": (
        {
            "type": "object",
            "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
        },
        "Names with texts, numbers, true, false or null; kept with the definition, for people.",
    ),
}  # fmt: skip

_TOP: Final[dict[str, tuple[Shape, str]]] = {
    "version": ({"const": 1}, "The format of the file."),
    "project": (
        _text(_KEY, "Use 1 to 200 of a-z, 0-9, '.', '_' and '-'.", "billing"),
        "The owner of the schedules; without it `default`.",
    ),
    "revision": (
        {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
        "Orders the files of a project: a lower one than the last applied is refused.",
    ),
    "calendars": (
        {
            "type": ["object", "null"],
            "propertyNames": {"pattern": _CALENDAR_NAME},
            "additionalProperties": {
                "anyOf": [_DAYS_OFF_LIST, _mapping({"ics": {"type": "string"}}, "ics")]
            },
        },
        "Days off by name: a list, or {ics: file}; schedules name them in `exclude`.",
    ),
    "defaults": ({"type": ["object", "null"]}, "What schedules share; their own fields win."),
    "queues": ({"enum": [None, {}, []]}, "Reserved: leave it out."),
    "schedules": ({"type": "array", "minItems": 1}, "The schedules."),
}


def json_schema() -> Shape:
    """Return the JSON Schema of a schedule file, as a new value."""
    schedule = _fields_of(Schedule, "key", "workflow")
    schedule |= {
        "oneOf": [{"required": [kind]} for kind in ("everyMs", "cron", "at")],
        "dependencies": {
            "offsetMs": ["everyMs"],
            "dst": ["cron"],
            **{name: {"not": {"required": ["at"]}} for name in ("start", "end", "exclude")},
        },
    }
    top = {name: {"description": words, **shape} for name, (shape, words) in _TOP.items()}
    top["defaults"] |= {**_fields_of(Defaults), **_TOP["defaults"][0]}
    top["schedules"]["items"] = {"$ref": "#/definitions/schedule"}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Schedules of sched-engine",
        "description": "A mapping with `schedules`, or the bare list of them.",
        "type": ["object", "array"],
        **{name: value for name, value in _mapping(top, "schedules").items() if name != "type"},
        "minItems": 1,
        "items": {"$ref": "#/definitions/schedule"},
        "definitions": {"schedule": schedule},
    }


def json_schema_text() -> str:
    """Return the JSON Schema as it is shipped beside this module, and printed by `sched schema`."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _fields_of(model: type[BaseModel], *required: str) -> Shape:
    """Return the mapping of a model: its own fields, with the shapes of the tables above."""
    return _mapping(
        {to_camel(name): _described(model, name) for name in model.model_fields}, *required
    )


def _described(model: type[BaseModel], name: str) -> Shape:
    table = {CatchUp: _CATCH_UP, Expectation: _EXPECTATION}.get(model, _SCHEDULE)
    shape, words = table[to_camel(name)]
    if name == "catch_up":
        shape = {**_fields_of(CatchUp), "default": _defaults_of(CatchUp)}
    elif name == "expect":
        shape = _list(_fields_of(Expectation, "on", "fires"))
    default = _default(model, name)
    return {"description": words, **shape, **({} if default is None else {"default": default})}


def _defaults_of(model: type[BaseModel]) -> dict[str, Any]:
    return {to_camel(name): _default(model, name) for name in model.model_fields}


def _default(model: type[BaseModel], name: str) -> Any:
    """Return what holds where a field is not given, if that is one word or number."""
    value = model.model_fields[name].default
    if isinstance(value, timedelta):
        return format_duration(value)
    return value if isinstance(value, str | int) else None
