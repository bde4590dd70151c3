"""A definition as an entry of a schedule file, which reads back as what it was."""

from __future__ import annotations

import json
import re
from typing import Any

from engine.schedules import Schedule
from engine.schedules.durations import format_duration
from engine.schedules.exclusions import Calendar, Item

_FIRST = ("key", "workflow", "everyMs", "offsetMs", "cron", "at", "timezone", "input")
_PLAIN = re.compile(r"[A-Za-z](?:[\w./@ -]*\w)?|(?:\d+(?:ms|[smhd]))+", re.ASCII)
_MEANS_ELSE = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def as_yaml(schedule: Schedule) -> list[str]:
    """Return the entry's lines: what was declared, and the policies in force by default."""
    most = schedule.max_concurrent_runs
    limit = {"maxConcurrentRuns": most} if most > 1 else {}  # beside the policy that it belongs to
    said = {
        "overlap": schedule.overlap,
        **limit,
        "grace": format_duration(schedule.grace),
        **schedule.to_json(),
        "catchUp": {
            "policy": schedule.catch_up.policy,
            "window": format_duration(schedule.catch_up.window),
        },
    }
    if schedule.kind == "cron":
        said["timezone"] = schedule.timezone
    ordered = {name: said.pop(name) for name in _FIRST if name in said} | said
    lines = [
        _excluded(schedule.exclude) if name == "exclude" else f"{name}: {_value(value)}"
        for name, value in ordered.items()
    ]
    return [("  - " if number == 0 else "    ") + line for number, line in enumerate(lines)]


def _excluded(items: tuple[Item, ...]) -> str:
    """Return ``exclude`` as a file has it: a calendar, which may have 5000 items, by its name."""
    named = [item.name if isinstance(item, Calendar) else item for item in items]
    sizes = [
        f"{item.name}: {len(item.dates)} items" for item in items if isinstance(item, Calendar)
    ]
    said = f"  # {', '.join(sizes)}; --json has them" if sizes else ""
    return f"exclude: [{', '.join(map(_value, named))}]{said}"


def _value(value: Any) -> str:
    """Return the value in YAML 1.2: bare where it is surely text, otherwise as JSON."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _MEANS_ELSE:
        return value
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_value(name)}: {_value(one)}" for name, one in value.items()) + "}"
        )
    text = json.dumps(value, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in text)
