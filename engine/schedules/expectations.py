"""Compares what a schedule's ``expect:`` says with when it fires."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from engine.errors import Code
from engine.schedules.instants import SECONDS_PER_DAY, TICK, from_seconds
from engine.schedules.model import Schedule
from engine.schedules.rules import Fault
from engine.schedules.zones import zone

_SHOWN: Final = 5


def unmet(schedule: Schedule) -> list[Fault]:
    """Return a fault for each day on which the schedule fires otherwise than expected."""
    faults = []
    for index, expected in enumerate(schedule.expect):
        times = local_times(schedule, expected.on)
        wanted = [time if time.count(":") > 1 else f"{time}:00" for time in expected.fires]
        if times != wanted:
            message = f"on {expected.on} it fires {_listed(times)}, not {_listed(wanted)}"
            cure = "correct the schedule or the expectation"
            faults.append(Fault(("expect", index), Code.EXPECTATION_FAILED, message, cure))
    return faults


def local_times(schedule: Schedule, day: str) -> list[str]:
    """Return the local times, as ``03:00:00``, at which runs start for windows of one local day."""
    rules = zone(schedule.timezone)
    midnight = int(datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp())
    # A day of a local clock has 22 to 26 hours, and a clock that goes back may begin it twice.
    begin, end = midnight - SECONDS_PER_DAY, midnight + 2 * SECONDS_PER_DAY
    local = (
        fire + timedelta(seconds=rules.offset(int(fire.timestamp())))
        for fire in schedule.starts(from_seconds(begin) - TICK, from_seconds(end))
    )
    return [f"{moment:%H:%M:%S}" for moment in local if f"{moment:%Y-%m-%d}" == day]


def _listed(times: list[str]) -> str:
    if not times:
        return "never"
    shown = [time.removesuffix(":00") for time in times[:_SHOWN]]
    more = f" and {len(times) - _SHOWN} more" if len(times) > _SHOWN else ""
    return f"at {', '.join(shown)}{more}"
