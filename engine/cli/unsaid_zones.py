"""Says which schedules fire by UTC because nobody named a zone, not because somebody wrote it."""

from __future__ import annotations

from collections.abc import Sequence

from engine.schedules import Schedule, ScheduleFile

_NAMED = 5
_OF_THE_CLOCK = 4
"""The fields of hour, day, month and weekday: with a star in each, every hour is like another."""


def unsaid_zones(file: ScheduleFile) -> list[str]:
    """Return the keys whose cron has a ``timezone`` neither of its own nor from ``defaults``."""
    return [
        schedule.key
        for schedule in file.schedules
        if schedule.cron is not None
        and "timezone" not in schedule.model_fields_set
        and _knows_hours(schedule)
    ]


def _knows_hours(schedule: Schedule) -> bool:
    cron = schedule.cron or ""
    return cron.lower() != "@hourly" and cron.split()[-_OF_THE_CLOCK:] != ["*"] * _OF_THE_CLOCK


def unsaid_zones_in_words(keys: Sequence[str]) -> str:
    """Return a note for people; empty where every zone is said."""
    if not keys:
        return ""
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return (
        f"note: no timezone is named, so that UTC is meant: {', '.join(keys[:_NAMED])}{more};"
        " write timezone: beside cron, or in defaults:"
    )
