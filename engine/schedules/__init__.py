"""Schedules: declarations, fire times, and the terms that all rooms share. Pure: no I/O, no clock.

``__all__`` is for users. Other rooms import from here too what schedules are; what is done with
them (read, planned, compared, described, simulated) they import from the package or module that
does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.schedules.hooks import ALL_EVENTS as ALL_EVENTS
from engine.schedules.hooks import EVENT_TYPES as EVENT_TYPES
from engine.schedules.hooks import EventType as EventType
from engine.schedules.hooks import Hook as Hook
from engine.schedules.hooks import event_patterns as event_patterns
from engine.schedules.hooks import key_patterns as key_patterns
from engine.schedules.hooks import place_of_url as place_of_url
from engine.schedules.hooks import refusals as refusals
from engine.schedules.loader.loader import load_schedules as load_schedules
from engine.schedules.model import *
from engine.schedules.run_attributes import KEY_ATTRIBUTE as KEY_ATTRIBUTE
from engine.schedules.run_attributes import attribute_fault as attribute_fault
from engine.schedules.run_attributes import moment_of as moment_of
from engine.schedules.run_attributes import usual_kind as usual_kind
from engine.schedules.terms import *
from engine.schedules.timing.calendars import Calendar as Calendar
from engine.schedules.timing.calendars import Item as Item
from engine.schedules.timing.cron_parser import depends_on_key as depends_on_key
from engine.schedules.timing.spec import *
from engine.schedules.timing.zones import TZDATA_VERSION as TZDATA_VERSION
from engine.schedules.timing.zones import zone as zone

if not TYPE_CHECKING:
    __all__ = ["At", "Cron", "Interval", "Schedule", "ScheduleFile", "Window", "load_schedules"]
