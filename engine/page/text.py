"""Text for people: times and durations, links to Temporal's Web UI, a schedule as YAML."""

from __future__ import annotations

from datetime import datetime, timedelta
from urllib.parse import quote

from engine.schedules import FIELDS, Calendar, Item, Schedule, format_duration, instant_text, zone
from engine.schedules.describe import yaml_value
from engine.service import Fire, ScheduleRow

# --- schedules and fires ---

ASKED_LATER = frozenset({"backfill", "rerun", "handler"})
"""Timings of runs requested long after their windows opened: their lag means nothing."""


def counted(number: int, noun: str) -> str:
    """Return ``1 window``, ``2 windows``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shown_state(row: ScheduleRow) -> str:
    """Return the state of a schedule as lists show it."""
    return "shadow" if row.in_shadow else row.state


def shadowed(schedule: Schedule, at: datetime) -> str:
    """Return the remark on a window to come in shadow mode; empty for any other."""
    end = schedule.shadow_end
    return "recorded only: shadow mode" if end is not None and at < end else ""


def shadow_mode(schedule: Schedule) -> str:
    """Return in a few words that a schedule is in shadow mode, and until when."""
    until = f" until {schedule.shadow_until}" if schedule.shadow_until else ""
    return f"in shadow mode{until}"


def why(fire: Fire) -> str:
    """Return the steps of a fire that keep failing, its error and its reason.

    They are preceded by its number of windows if several.
    """
    several = f"{fire.windows} windows up to {instant_text(fire.last_fire_time)}: "
    return (several if fire.windows > 1 else "") + "; ".join(
        filter(None, (*map(str, fire.failing), fire.error, fire.reason))
    )


def shown_status(fire: Fire) -> str:
    """Return the status of a fire as tables show it: ``stuck`` if its open run cannot continue."""
    return "stuck" if fire.is_stuck else fire.status


def fire_lag(fire: Fire) -> str | None:
    """Return the run's lag in seconds; None if unknown, or if the run was requested later."""
    asked_for = fire.timing in ASKED_LATER
    return None if fire.lag_ms is None or asked_for else f"{fire.lag_ms / 1000:.3f} s"


# --- times ---
# Times as text for people. Pure: now is an argument.

_PRECISE = 60.0
"""Seconds of a duration below which milliseconds are shown."""
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def local(moment: datetime, timezone: str) -> datetime:
    """Return the moment in local time of this IANA zone, by the pinned zone rules."""
    return moment.astimezone(zone(timezone).tzinfo)


def clock(moment: datetime, timezone: str, *, seconds: bool = False) -> str:
    """Return ``2026-11-22 02:00 -03``; the offset disambiguates a repeated hour.

    Whole minutes are written without seconds unless ``seconds``.
    """
    shown = local(moment, timezone)
    text = f"{shown:%Y-%m-%d %H:%M}"
    if seconds or shown.second or shown.microsecond:
        text += f":{shown:%S}"
    if shown.microsecond:
        text += f".{shown.microsecond // 1000:03}"
    return f"{text} {_offset(shown)}"


def _offset(shown: datetime) -> str:
    if getattr(shown.tzinfo, "key", "") == "UTC":
        return "UTC"
    seconds = round((shown.utcoffset() or timedelta()).total_seconds())
    minutes, rest = divmod(abs(seconds), 60)
    parts = [minutes // 60, minutes % 60, rest]
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return ("-" if seconds < 0 else "+") + ":".join(f"{part:02}" for part in parts)


def relative(moment: datetime, now: datetime) -> str:
    """Return ``in 3 h 12 min`` or ``7 s ago``: the two largest units."""
    length = moment - now
    words = " ".join(_largest(abs(length) // timedelta(seconds=1)))
    if not words:
        return "now"
    return f"in {words}" if length > timedelta() else f"{words} ago"


def took(duration_ms: int | None) -> str | None:
    """Return a duration as text: ``0.532 s``, ``3 min 20 s``; None if it is unknown."""
    if duration_ms is None:
        return None
    seconds = duration_ms / 1000
    return f"{seconds:.3f} s" if seconds < _PRECISE else " ".join(_largest(int(seconds)))


def _largest(seconds: int) -> list[str]:
    """Return the two largest units of a number of seconds, each with its count."""
    parts: list[tuple[int, str]] = []
    for unit, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append((count, unit))
    return [f"{count} {unit}" for count, unit in parts[:2] if count]


# --- links to the Temporal Web UI ---
# URLs of pages in Temporal's Web UI. Workflow ids have colons, so every part is encoded.


def runs_link(ui_url: str, namespace: str, key: str) -> str:
    """Return the page that lists every run of a schedule."""
    query = f'WorkflowId STARTS_WITH "sched:{key}:"'
    return f"{ui_url}/namespaces/{_quoted(namespace)}/workflows?query={_quoted(query)}"


def run_link(ui_url: str, namespace: str, workflow_id: str, run_id: str) -> str:
    """Return the page of one run."""
    place = f"{ui_url}/namespaces/{_quoted(namespace)}/workflows"
    return f"{place}/{_quoted(workflow_id)}/{_quoted(run_id)}/history"


def _quoted(text: str) -> str:
    return quote(text, safe="")


# --- YAML of a schedule ---
# A definition as an entry of a schedule file. Reading the entry gives the same definition.


def as_yaml(schedule: Schedule) -> list[str]:
    """Return the entry's lines: the declared fields, and the policies in force by default."""
    most = schedule.max_concurrent_runs
    limit = {"maxConcurrentRuns": most} if most > 1 else {}  # next to the policy it belongs to
    entry = {
        "overlap": schedule.overlap,
        **limit,
        "grace": format_duration(schedule.grace),
        **schedule.shown,
        "catchUp": {
            "policy": schedule.catch_up.policy,
            "window": format_duration(schedule.catch_up.window),
        },
    }
    if schedule.kind == "cron":
        entry["timezone"] = schedule.timezone
    if (interval := entry.pop("everyMs", None)) is not None:
        entry["every"] = format_duration(timedelta(milliseconds=interval))
    lines = [
        _excluded(schedule.exclude) if name == "exclude" else f"{name}: {yaml_value(value)}"
        for name, value in ((name, entry[name]) for name in FIELDS if name in entry)
    ]
    return [("  - " if number == 0 else "    ") + line for number, line in enumerate(lines)]


def _excluded(items: tuple[Item, ...]) -> str:
    """Return ``exclude`` as in a file: calendars, which may have 5000 items, by name only."""
    named = [item.name if isinstance(item, Calendar) else item for item in items]
    sizes = [
        f"{item.name}: {len(item.dates)} items" for item in items if isinstance(item, Calendar)
    ]
    note = f"  # {', '.join(sizes)}; --json has them" if sizes else ""
    return f"exclude: [{', '.join(map(yaml_value, named))}]{note}"
