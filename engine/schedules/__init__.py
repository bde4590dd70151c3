"""Schedules: declarations, fire times, and the terms that all rooms share. Pure: no I/O, no clock.

``__all__`` is for users. Other rooms import from here too what schedules are; what is done with
them (read, planned, compared, described, simulated) they import from the package or module that
does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.schedules.hooks import (
    ALL_EVENTS as ALL_EVENTS,
    EVENT_TYPES as EVENT_TYPES,
    EventType as EventType,
    Hook as Hook,
    event_patterns as event_patterns,
    key_patterns as key_patterns,
    place_of_url as place_of_url,
    refusals as refusals,
)
from engine.schedules.loader.loader import load_schedules as load_schedules
from engine.schedules.model import *
from engine.schedules.run_attributes import (
    KEY_ATTRIBUTE as KEY_ATTRIBUTE,
    attribute_fault as attribute_fault,
    moment_of as moment_of,
    usual_kind as usual_kind,
)
from engine.schedules.terms import *
from engine.schedules.timing.calendars import Calendar as Calendar, Item as Item
from engine.schedules.timing.cron_parser import depends_on_key as depends_on_key
from engine.schedules.timing.spec import *
from engine.schedules.timing.zones import TZDATA_VERSION as TZDATA_VERSION, zone as zone

if not TYPE_CHECKING:
    __all__ = ["At", "Cron", "Interval", "Schedule", "ScheduleFile", "Window", "load_schedules"]
