"""Turns pydantic's errors into ours and back: users read about fields, not about models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails

from engine.errors import Code
from engine.schedules.fields import refuse, show
from engine.schedules.rules import Fault


def faults_of(error: ValidationError) -> list[Fault]:
    """Return a validation error as faults in plain words."""
    return [_as_fault(dict(line)) for line in error.errors(include_url=False)]


def _as_fault(line: dict[str, Any]) -> Fault:
    path, code, context = tuple(line["loc"]), line["type"], line.get("ctx", {})
    name = str(path[-1]) if path else "the schedule"
    if code.startswith("SCHEDULE_"):
        return Fault(path, Code(code), context["message"], context["cure"])
    if code == "missing":
        example = {
            "key": "key: nightly-report", "workflow": "workflow: daily-report",
            "schedule": "schedule: nightly-extract",
        }.get(name, name)  # fmt: skip
        return Fault(path, Code.FIELD_MISSING, f"{name} is missing", f"add {example}")
    if code == "extra_forbidden":
        return Fault(path, Code.FIELD_UNKNOWN, f"{name} is not a field", "remove it")
    # Every field has a check of its own; this is for whoever forgets one.
    return Fault(path, Code.FIELD_INVALID, f"{name} is {show(line['input'])}", "correct it")


def as_validation_error(faults: Iterable[Fault], given: Mapping[str, Any]) -> ValidationError:
    """Return faults between fields as the error that a pydantic model raises."""
    lines = []
    for fault in faults:
        value = given.get(str(fault.path[0])) if fault.path else None
        error = refuse(fault.message, fault.cure, fault.code)
        lines.append(InitErrorDetails(type=error, loc=fault.path, input=value))
    return ValidationError.from_exception_data("Schedule", lines)
