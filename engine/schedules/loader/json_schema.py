"""JSON Schema of schedule files, for editors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from engine.schedules.hooks import HOOK_FIELDS, HOOK_NEEDS
from engine.schedules.loader.entries import QUEUE_FIELDS
from engine.schedules.model import DEFAULTS, FIELDS, CatchUp, Part, Schedule
from engine.schedules.rules import BESIDE, KINDS, fields_with
from engine.schedules.terms import format_duration
from engine.schedules.validators import (
    CALENDAR_NAME,
    DAYS_OFF_LIST,
    KEY_PATTERN,
    Check,
    Shape,
    check_key,
    fits,
    list_of,
    mapping,
    pattern,
    whole_number,
)

# --- file ---
# Fields of the file, with check and description; those of a schedule stand in `model`.

MAX_REVISION: Final = 2**63 - 1  # PostgreSQL's bigint


def _shape(checks: Mapping[str, Check], *required: str) -> Shape:
    return mapping({name: check.shape or {} for name, check in checks.items()}, *required)


def _is_revision(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_REVISION  # a bool is an int too


HEAD: Final[Mapping[str, tuple[Check, str]]] = {
    "$schema": (
        fits(
            lambda value: isinstance(value, str),
            'write "schedules.schema.json", or remove it',
            {"type": "string"},
        ),
        "Where this schema is, for editors; nothing else reads it.",
    ),
    "version": (
        fits(lambda value: value == 1 and value is not True, "write version: 1", {"const": 1}),
        "The format of the file.",
    ),
    "project": (
        Check(
            check_key,
            shape=pattern(KEY_PATTERN, "Use 1 to 200 of a-z, 0-9, '.', '_' and '-'.", "billing"),
        ),
        "The owner of the schedules; without it `default`.",
    ),
    "revision": (
        fits(_is_revision, "write a whole number from 0 upwards", whole_number(0, MAX_REVISION)),
        "Orders the files of a project: a lower one than the last applied is refused.",
    ),
}
"""Fields of the file with a single value."""

TOP: Final[Mapping[str, tuple[Shape, str]]] = {
    **{name: (check.shape or {}, words) for name, (check, words) in HEAD.items()},
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
            "additionalProperties": {**_shape(QUEUE_FIELDS), "minProperties": 1},
        },
        "How many steps run at once, also of one key, and how fast they begin, by their queue.",
    ),
    "hooks": (
        {
            "type": ["array", "null"],
            "items": _shape(HOOK_FIELDS, *HOOK_NEEDS),
        },
        "Addresses that get events: what becomes of fires and schedules (`sched docs events`).",
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
    schedule = _fields_of(Schedule)
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
            name: {"not": {"anyOf": [{"required": [kind]} for kind in KINDS if kind not in beside]}}
            for trait, beside in BESIDE.items()
            for name in fields_with(Schedule, trait)
        },
    }
    top = {name: {"description": words, **shape} for name, (shape, words) in TOP.items()}
    shared = {name: _described(Schedule, FIELDS[name]) for name in DEFAULTS}
    for shape in shared.values():
        shape.pop("default", None)
    top["defaults"] |= {**mapping(shared), **TOP["defaults"][0]}
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


def _fields_of(model: type[BaseModel]) -> Shape:
    """Return the shape of a model: its fields, as they are declared."""
    fields = model.model_fields
    required = [to_camel(name) for name, field in fields.items() if field.is_required()]
    return mapping({to_camel(name): _described(model, name) for name in fields}, *required)


def _described(model: type[BaseModel], name: str) -> Shape:
    field = model.model_fields[name]
    shape = _shape_of(field.annotation, field.metadata)
    if field.description is None:  # the sentence of the mapping around it explains it
        return shape
    default = _default(model, name)
    shown = {} if default is None else {"default": default}
    return {"description": field.description, **shape, **shown}


def _shape_of(kind: Any, metadata: Sequence[Any] = ()) -> Shape:
    """Return the shape that a field's check declares, or that of its type."""
    for each in metadata:
        if isinstance(each, Check) and each.shape is not None:
            return each.shape
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        defaults = {to_camel(name): _default(kind, name) for name in kind.model_fields}
        whole = {**_fields_of(kind), **({"default": defaults} if kind is CatchUp else {})}
        short = kind.short if issubclass(kind, Part) else ""
        return {"anyOf": [whole["properties"][short], whole]} if short else whole
    inner, *more = get_args(kind)  # Annotated, tuple, or a type beside None
    found = _shape_of(inner, more)
    return list_of(found) if get_origin(kind) is tuple else found


def _default(model: type[BaseModel], name: str) -> Any:
    """Return the default of a field if it is a single word or number, else None."""
    value = model.model_fields[name].default
    if isinstance(value, timedelta):
        return format_duration(value)
    return value if isinstance(value, str | int) else None
