"""``retention:``, how long a schedule's fires keep their details, and how long their rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from engine.schedules import policy_fields as fields
from engine.schedules.durations import format_duration


class Retention(BaseModel):
    """What a schedule says of it; None takes what holds for the fleet.

    Attributes:
        keep: so many of the newest rows keep their details, whatever their age.
        age: how old other rows become with all their details.
        failed_age: the same of those that failed.
        max_age: no row becomes older.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
    )

    keep: fields.Keep = None
    age: fields.Age = None
    failed_age: fields.FailedAge = None
    max_age: fields.MaxAge = None

    def to_json(self) -> dict[str, Any]:
        """Return what is said, by its file names."""
        return {
            to_camel(name): format_duration(value) if isinstance(value, timedelta) else value
            for name in type(self).model_fields
            if (value := getattr(self, name)) is not None
        }
