"""Values of a definition as JSON, and the digest that equal definitions share."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from engine.schedules import when_fields
from engine.schedules.catch_up import CatchUp
from engine.schedules.cron_clock import Dst
from engine.schedules.durations import format_duration
from engine.schedules.follow import After
from engine.schedules.retention import Retention


def jsonable(value: Any) -> Any:
    """Return the value of a field as JSON has it, without what equals a default."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, tuple):
        return when_fields.jsonable(value)
    if isinstance(value, Dst):
        return asdict(value)
    if isinstance(value, After | CatchUp | Retention):
        return value.to_json()
    return value


def definition_digest(dump: dict[str, Any]) -> str:
    """Return the SHA-256, in hex, of a definition as JSON.

    Neither the order of names counts, nor whether a number is written 1 or 1.0: JSON, and a
    database column of it, knows neither.
    """
    text = json.dumps(_canonical(dump), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _canonical(value: Any) -> Any:
    """Return a JSON value in which equal numbers are written alike."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _canonical(item) for name, item in value.items()}
    return [_canonical(item) for item in value] if isinstance(value, list) else value
