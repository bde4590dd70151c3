"""JSON Schema of schedule files, for editors."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from engine.schedules.ids import KEY
from engine.schedules.loader.entries import MOST_AT_ONCE
from engine.schedules.model import After, CatchUp, Defaults, Retention, Schedule
from engine.schedules.rules import KINDS
from engine.schedules.timing.calendars import MAX_ITEMS, WEEKDAYS
from engine.schedules.timing.spec import Fold, Gap
from engine.schedules.units import LONGEST, format_duration
from engine.schedules.validators import (
    MOST_CAUGHT_UP,
    MOST_KEPT,
    MOST_NEEDED,
    MOST_OPEN,
    MOST_QUEUED,
    Expectation,
)

# --- shapes ---
# Building blocks of the schema: texts, words, lists and mappings.

Shape = dict[str, Any]

LONGEST_MS: Final = LONGEST // timedelta(milliseconds=1)

# JSON Schema patterns are ECMAScript regular expressions; these mean the same in Python.
KEY_PATTERN: Final = f"^{KEY.pattern}$"
_DURATION: Final = r"^(?=.)([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$"
_DAY: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK: Final = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
MOMENT: Final = rf"{_DAY}[T ]{_CLOCK}(Z|[+-][0-9]{{2}}:[0-9]{{2}})?"
_INSTANT: Final = rf"{_DAY}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}Z"
_DAYS_OFF: Final = rf"^({_DAY}(\.\.{_DAY})?|{_INSTANT}\.\.{_INSTANT})$"
CRON: Final = "^(@[^ ]+|[^ ]+( +[^ ]+){4,5})$"
# Only `sched check` verifies the names themselves: they change with each release of tzdata.
ZONE: Final = "^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$"


def text(pattern: str, cure: str, *examples: str) -> Shape:
    """Return the shape of a text with a pattern; editors show ``cure`` if it does not match."""
    shape = {"type": "string", "pattern": pattern, "patternErrorMessage": cure}
    return {**shape, "examples": list(examples)} if examples else shape


def name(*examples: str) -> Shape:
    """Return the shape of a text without leading or trailing blanks."""
    shape = text(r"^[^\s](.*[^\s])?$", "Write a text without blanks around it.", *examples)
    return {**shape, "maxLength": 1000}


def words(model: type[BaseModel], field: str) -> Shape:
    """Return an enum of the words that a field's type allows, so it follows the model."""
    return {"enum": _literals(model.model_fields[field].annotation)}


def _literals(annotation: Any) -> list[str]:
    found: list[str] = []
    for part in get_args(annotation):
        found += [part] if isinstance(part, str) else _literals(part)
    return found


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
"""Calendar as `sched show` prints it inside a definition."""


# --- fields ---
# Shape and description of each field of a schedule file.

RATE: Final = text("^[1-9][0-9]*/[0-9a-z]+$", "Write a number and a duration, as 5/1m.", "5/1m")

CATCH_UP: Final[dict[str, tuple[Shape, str]]] = {
    "policy": (
        words(CatchUp, "policy"),
        "After an outage. `latest`: one run, of the newest missed window, stands for all of them.",
    ),
    "window": (LENGTH, "Windows older than this expire instead of being caught up."),
    "max": (
        {"type": "integer", "minimum": 1, "maximum": MOST_CAUGHT_UP},
        "With `all`, the newest so many run and the others expire.",
    ),
    "order": (words(CatchUp, "order"), "With `all`, which of them starts first."),
    "rate": (RATE, "With `all`, how fast they start."),
    "pause": (words(CatchUp, "pause"), "The policy after an operator's pause."),
    "deploy": (words(CatchUp, "deploy"), "The policy after `enabled: false`."),
}
RETENTION: Final[dict[str, tuple[Shape, str]]] = {
    "keep": (
        {"type": "integer", "minimum": 1, "maximum": MOST_KEPT},
        "So many of the newest rows keep their details, whatever their age.",
    ),
    "age": (LENGTH, "How old other rows become with all their details."),
    "failedAge": (LENGTH, "The same of runs that failed."),
    "maxAge": (LENGTH, "No row becomes older."),
}
EXPECTATION: Final[dict[str, tuple[Shape, str]]] = {
    "on": (ON, "The day, by the schedule's own clock."),
    "fires": (
        list_of(
            text(
                "^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$",
                'Write times in quotes, as "03:00" or "03:00:30".',
                "03:00",
            )
        ),
        "The local times at which runs start on that day, in their order; [] is never.",
    ),
}

SCHEDULE: Final[dict[str, tuple[Shape, str]]] = {
    "key": (
        text(
            KEY_PATTERN,
            "Use 1 to 200 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit.",
            "nightly-report",
        ),
        "Names the schedule, once in the ledger's namespace, and begins the id of each run.",
    ),
    "workflow": (
        name("daily-report", "daily-report@1"),
        "What is started: a name (its newest version), name@1.2, or any Temporal type.",
    ),
    "input": ({}, "The workflow's argument, any JSON value; without the field there is none."),
    "taskQueue": (name("sched"), "Where the workflow's workers listen."),
    "external": (
        SWITCH,
        "Whether `workflow` is a Temporal type as written, which nobody looks up.",
    ),
    "everyMs": (
        {"type": "integer", "minimum": 1000, "maximum": LONGEST_MS, "examples": [60000, 300000]},
        "An interval in milliseconds, aligned to 1970-01-01T00:00:00Z: 300000 is :00, :05, :10.",
    ),
    "offsetMs": (
        {"type": "integer", "minimum": -LONGEST_MS, "maximum": LONGEST_MS},
        "Shifts an interval, in milliseconds; it may be negative.",
    ),
    "cron": (
        text(
            CRON,
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
        text(
            ZONE,
            "Write an IANA name, as America/Sao_Paulo.",
            *("UTC", "America/Sao_Paulo", "America/New_York", "America/Los_Angeles"),
            *("Europe/London", "Europe/Paris", "Asia/Kolkata", "Asia/Tokyo", "Australia/Sydney"),
        ),
        "The IANA zone whose clock the cron, the local moment and the days are meant on.",
    ),
    "at": (
        text(
            f"^{MOMENT}$",
            'Write "2027-01-01T09:00:00Z", or without Z and with a timezone.',
            "2027-01-01T09:00:00Z",
        ),
        "One moment: with an offset, or without and local to `timezone`.",
    ),
    "enabled": (SWITCH, "Whether it fires; this always wins over the ledger."),
    "paused": (SWITCH, "Whether it is paused when first seen; later edits change nothing."),
    "firstFire": (
        words(Schedule, "first_fire"),
        "Whether the window open at first sight is owed; without it, that of an interval is.",
    ),
    "overlap": (
        words(Schedule, "overlap"),
        "What happens to a window while an older run is open; `allow` starts it.",
    ),
    "maxConcurrentRuns": (
        {"type": "integer", "minimum": 1, "maximum": MOST_OPEN},
        "How many runs may be open at once; what becomes of more, `overlap` says: else `queue`.",
    ),
    "maxQueued": (
        {"type": "integer", "minimum": 1, "maximum": MOST_QUEUED},
        "With `overlap: queue`, how many windows may wait; the others are skipped.",
    ),
    "cancelGrace": (
        LENGTH,
        "With `overlap: cancel_previous`, how long a cancelled run has until it is terminated.",
    ),
    "catchUp": (
        {},
        "What happens to windows that were missed for longer than `grace`.",
    ),
    "grace": (LENGTH, "How old a window may be and still start in any case."),
    "start": (BOUND, "It fires from then on, included; a day begins at its midnight."),
    "end": (BOUND, "It fires until then, included; a day counts as the whole of it."),
    "dst": (
        {
            "anyOf": [
                {"const": "standard"},
                mapping(
                    {"gap": {"enum": list(get_args(Gap))}, "fold": {"enum": list(get_args(Fold))}}
                ),
            ]
        },
        "What a fixed-time cron does where its clock skips (gap) or repeats (fold) a time.",
    ),
    "exclude": (
        list_of(
            {
                "anyOf": [
                    *DAY_OFF,
                    {"type": "string", "pattern": CALENDAR_NAME},
                    WRITTEN_OUT,
                ]
            }
        ),
        "Weekdays, days, ranges, stretches and names from `calendars` whose windows are skipped.",
    ),
    "spread": (LENGTH, "Each run starts later than its window by the key's part of this."),
    "onDead": (
        name("alert-team", "alert-team@1"),
        "The workflow that is told of each fire that failed, timed out or was rejected.",
    ),
    "after": (
        mapping(
            {
                "schedule": text(KEY_PATTERN, "Write the key of a schedule.", "nightly-extract"),
                "when": words(After, "when"),
                "window": words(After, "window"),
            },
            "schedule",
        ),
        "The schedule before this one: a window starts once that one's has ended like this.",
    ),
    "needs": (
        {
            **list_of(text(KEY_PATTERN, "Write the key of a schedule.")),
            "minItems": 1,
            "maxItems": MOST_NEEDED,
            "uniqueItems": True,
        },
        "Schedules whose windows of the same fire time have to complete first.",
    ),
    "retention": ({}, "How long its fires keep their details, and how long their rows."),
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

TOP: Final[dict[str, tuple[Shape, str]]] = {
    "$schema": ({"type": "string"}, "Where this schema is, for editors; nothing else reads it."),
    "version": ({"const": 1}, "The format of the file."),
    "project": (
        text(KEY_PATTERN, "Use 1 to 200 of a-z, 0-9, '.', '_' and '-'.", "billing"),
        "The owner of the schedules; without it `default`.",
    ),
    "revision": (
        {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
        "Orders the files of a project: a lower one than the last applied is refused.",
    ),
    "calendars": (
        {
            "type": ["object", "null"],
            "propertyNames": {"pattern": CALENDAR_NAME},
            "additionalProperties": {
                "anyOf": [DAYS_OFF_LIST, mapping({"ics": {"type": "string"}}, "ics")]
            },
        },
        "Days off by name: a list, or {ics: file}; schedules name them in `exclude`.",
    ),
    "defaults": ({"type": ["object", "null"]}, "What schedules share; their own fields win."),
    "queues": (
        {
            "type": ["object", "null"],
            "propertyNames": {"pattern": KEY_PATTERN},
            "additionalProperties": {
                **mapping(
                    {
                        "concurrency": {"type": "integer", "minimum": 1, "maximum": MOST_AT_ONCE},
                        "rate": RATE,
                    }
                ),
                "minProperties": 1,
            },
        },
        "How many steps run at once, and how fast they begin, by the queue they name.",
    ),
    "schedules": ({"type": "array", "minItems": 1}, "The schedules."),
}


# --- schema ---
# JSON Schema (draft 7) of a schedule file, for editors: completion, hints, early errors.
#
# It is never stricter than `load_schedules`, which is authoritative: an editor must not flag a
# valid file. It is laxer where a rule involves several places of the file (is this calendar
# declared?) or a computation (can this cron ever fire?).


def json_schema() -> Shape:
    """Return the JSON Schema of a schedule file, as a new object."""
    schedule = _fields_of(Schedule, "key", "workflow")
    schedule |= {
        "oneOf": [
            *({"required": [kind]} for kind in KINDS),
            # A schedule that follows another one takes its times.
            {
                "anyOf": [{"required": ["after"]}, {"required": ["needs"]}],
                "not": {"anyOf": [{"required": [kind]} for kind in KINDS]},
            },
        ],
        "dependencies": {
            "offsetMs": ["everyMs"],
            "dst": ["cron"],
            **{name: {"not": {"required": ["at"]}} for name in ("start", "end", "exclude")},
        },
    }
    top = {name: {"description": words, **shape} for name, (shape, words) in TOP.items()}
    top["defaults"] |= {**_fields_of(Defaults), **TOP["defaults"][0]}
    top["schedules"]["items"] = {"$ref": "#/definitions/schedule"}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Schedules of sched-engine",
        "description": "A mapping with `schedules`, or the bare list of them.",
        "type": ["object", "array"],
        **{name: value for name, value in mapping(top, "schedules").items() if name != "type"},
        "minItems": 1,
        "items": {"$ref": "#/definitions/schedule"},
        "definitions": {"schedule": schedule},
    }


def json_schema_text() -> str:
    """Return the JSON Schema as in schedules.schema.json and as `sched schema` prints it."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _fields_of(model: type[BaseModel], *required: str) -> Shape:
    """Return the shape of a model: its fields, with their shapes from the tables above."""
    return mapping(
        {to_camel(name): _described(model, name) for name in model.model_fields}, *required
    )


def _described(model: type[BaseModel], name: str) -> Shape:
    table = {CatchUp: CATCH_UP, Expectation: EXPECTATION, Retention: RETENTION}.get(model, SCHEDULE)
    shape, words = table[to_camel(name)]
    if name == "catch_up":
        shape = {**_fields_of(CatchUp), "default": _defaults_of(CatchUp)}
    elif name == "retention":
        shape = _fields_of(Retention)
    elif name == "expect":
        shape = list_of(_fields_of(Expectation, "on", "fires"))
    default = _default(model, name)
    return {"description": words, **shape, **({} if default is None else {"default": default})}


def _defaults_of(model: type[BaseModel]) -> dict[str, Any]:
    return {to_camel(name): _default(model, name) for name in model.model_fields}


def _default(model: type[BaseModel], name: str) -> Any:
    """Return the default of a field if it is a single word or number, else None."""
    value = model.model_fields[name].default
    if isinstance(value, timedelta):
        return format_duration(value)
    return value if isinstance(value, str | int) else None
