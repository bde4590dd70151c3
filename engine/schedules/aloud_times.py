"""Reads the second, minute and hour fields of a cron expression aloud.

Nothing is left out or rounded: two fields that name different times never read alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.schedules.phrases import listed, numbered, runs, step_of, time_of_day

_FEW: Final = 6  # times that are simply listed
_SPANS: Final = 3
_HOURS: Final = 24


def spoken_times(
    seconds: Sequence[int], minutes: Sequence[int], hours: Sequence[int], *, daily: bool
) -> str:
    """Return when it fires on a day that matches; without a span where all 24 hours do.

    Args:
        seconds: of the minute, ascending; so are the others.
        minutes: of the hour.
        hours: of the day.
        daily: every day matches, so that a stretch of hours may pass midnight.
    """
    few = len(seconds) * len(minutes) * len(hours) <= _FEW
    if few:
        return "at " + listed(
            [
                time_of_day((hour * 60 + minute) * 60 + second)
                for hour in hours
                for minute in minutes
                for second in seconds
            ]
        )
    if tuple(seconds) == (0,):
        return _minutes(minutes, hours, daily=daily)
    every_minute = len(minutes) == 60 and len(hours) == _HOURS  # noqa: PLR2004 - all there are
    cycle = _cycle(seconds)
    if every_minute and cycle and not seconds[0]:
        return _every(cycle, "second")
    named = "every second" if cycle == 1 else numbered("second", seconds)
    if every_minute:
        return f"at {named} of every minute"
    return f"at {named} of the minute, {_minutes(minutes, hours, daily=daily)}"


def _minutes(minutes: Sequence[int], hours: Sequence[int], *, daily: bool) -> str:
    if len(minutes) * len(hours) <= _FEW:
        return spoken_times((0,), minutes, hours, daily=daily)
    all_day = len(hours) == _HOURS
    cycle = _cycle(minutes)
    if cycle:
        unit = "every hour" if len(minutes) == 1 else _every(cycle, "minute")
        if all_day and not minutes[0]:
            return unit
        spans = _spans(hours, daily=daily)
        lone = len(minutes) == 1 and any(first == last for first, last in spans)
        if len(minutes) == 1 and (step := step_of(hours)) > 1:
            unit, spans, lone = _every(step, "hour"), [(hours[0], hours[-1])], False
        if len(spans) <= _SPANS and not lone and not all_day:
            first, last = minutes[0] * 60, minutes[-1] * 60
            return f"{unit} " + listed(
                [
                    f"from {time_of_day(low * 3600 + first)} to {time_of_day(high * 3600 + last)}"
                    for low, high in spans
                ]
            )
    named = numbered("hour", hours)
    of = "every hour" if all_day else named if " hour " in named else f"the {named}"
    return f"at {numbered('minute', minutes)} of {of}"


def _spans(hours: Sequence[int], *, daily: bool) -> list[tuple[int, int]]:
    """Return the hours as stretches; one that passes midnight comes last, its end before it."""
    found = runs(hours)
    if daily and len(found) > 1 and found[0][0] == 0 and found[-1][1] == _HOURS - 1:
        found = [*found[1:-1], (found[-1][0], found[0][1])]
    return found


def _cycle(values: Sequence[int]) -> int:
    """Return n where the values go on every n without a break past the sixtieth, else 0."""
    step = step_of(values) if len(values) > 1 else 60
    return step if step and values[-1] + step == values[0] + 60 else 0


def _every(n: int, unit: str) -> str:
    return f"every {unit}" if n == 1 else f"every {n} {unit}s"
