"""How the state before and after an action is kept: as JSON, instants in ISO 8601 with ``Z``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def noted(state: Mapping[str, Any] | None) -> str | None:
    """Return what the audit keeps of a state, as JSON text."""
    return None if state is None else json.dumps(state, default=_as_text)


def _as_text(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    raise TypeError(f"nothing says how {type(value).__name__} is noted")
