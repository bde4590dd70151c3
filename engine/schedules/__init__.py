"""Schedules: declarations and fire times. Pure: no I/O and no clock."""

from __future__ import annotations

from engine.schedules.loader.loader import load_schedules
from engine.schedules.model import Schedule, ScheduleFile
from engine.schedules.terms import Window
from engine.schedules.timing.spec import At, Cron, Interval

__all__ = [
    "At",
    "Cron",
    "Interval",
    "Schedule",
    "ScheduleFile",
    "Window",
    "load_schedules",
]
