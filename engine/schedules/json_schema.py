"""The JSON Schema (draft 7) of a schedule file, for editors: completion, hints, first mistakes.

It is never stricter than `load_schedules`, which alone decides: an editor must not underline
what works. It is laxer where a rule needs more than one place of the file (is this calendar
declared?) or a calculation (can this cron ever fire?).
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from engine.schedules.catch_up import CatchUp
from engine.schedules.defaults import Defaults
from engine.schedules.durations import format_duration
from engine.schedules.model import Schedule
from engine.schedules.retention import Retention
from engine.schedules.rules import KINDS
from engine.schedules.schema_fields import CATCH_UP, EXPECTATION, RETENTION, SCHEDULE, TOP
from engine.schedules.schema_shapes import (
    Shape,
    list_of,
    mapping,
)
from engine.schedules.when_fields import Expectation


def json_schema() -> Shape:
    """Return the JSON Schema of a schedule file, as a new value."""
    schedule = _fields_of(Schedule, "key", "workflow")
    schedule |= {
        "oneOf": [
            *({"required": [kind]} for kind in KINDS),
            # One that follows another takes its times.
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
    """Return the JSON Schema as it is shipped beside this module, and printed by `sched schema`."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _fields_of(model: type[BaseModel], *required: str) -> Shape:
    """Return the mapping of a model: its own fields, with the shapes of the tables above."""
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
    """Return what holds where a field is not given, if that is one word or number."""
    value = model.model_fields[name].default
    if isinstance(value, timedelta):
        return format_duration(value)
    return value if isinstance(value, str | int) else None
