"""What is declared, and when it fires. Pure: no I/O and no clock."""

from __future__ import annotations

from engine.schedules.cron import Cron
from engine.schedules.file import load_schedules
from engine.schedules.model import Schedule
from engine.schedules.schedule_file import ScheduleFile
from engine.schedules.timing import At, Interval
from engine.schedules.windows import Window

__all__ = [
    "At",
    "Cron",
    "Interval",
    "Schedule",
    "ScheduleFile",
    "Window",
    "load_schedules",
]
