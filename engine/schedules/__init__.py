"""Schedules: declarations, fire times, and the terms that all rooms share. Pure: no I/O, no clock.

``__all__`` is for users. Other rooms import from here too what schedules are; what is done with
them (read, planned, compared, described, simulated) they import from the package or module that
does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.safe_text import LINE as LINE, escaped as escaped, unsafe_in as unsafe_in
from engine.schedules.cron_warnings import (
    CronWarning as CronWarning,
    cron_doubts as cron_doubts,
    other_instants as other_instants,
)
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
from engine.schedules.loader.loader import (
    DEFAULT_PROJECT as DEFAULT_PROJECT,
    load_schedules as load_schedules,
)
from engine.schedules.model import (
    DEFAULTS as DEFAULTS,
    FIELDS as FIELDS,
    MOST_CAUGHT_UP as MOST_CAUGHT_UP,
    MOST_TRIES as MOST_TRIES,
    NESTED as NESTED,
    WHEN as WHEN,
    Alerting as Alerting,
    CatchUp as CatchUp,
    Declaration as Declaration,
    Queue as Queue,
    RunRetry as RunRetry,
    Schedule as Schedule,
    ScheduleFile as ScheduleFile,
    definition_digest as definition_digest,
    jsonable as jsonable,
)
from engine.schedules.rules import KINDS as KINDS
from engine.schedules.run_attributes import (
    KEY_ATTRIBUTE as KEY_ATTRIBUTE,
    attribute_fault as attribute_fault,
    moment_of as moment_of,
    usual_kind as usual_kind,
)
from engine.schedules.terms import (
    CHOSEN as CHOSEN,
    EARLIEST as EARLIEST,
    EPOCH as EPOCH,
    FIRST_YEAR as FIRST_YEAR,
    HORIZON as HORIZON,
    KEY as KEY,
    LAST_YEAR as LAST_YEAR,
    MINUTE_MS as MINUTE_MS,
    NATIVE as NATIVE,
    REQUEST_ID as REQUEST_ID,
    SEALED as SEALED,
    SEALED_INPUT as SEALED_INPUT,
    STARTS as STARTS,
    STOOD_FOR as STOOD_FOR,
    STOPS as STOPS,
    TICK as TICK,
    CatchUpOrder as CatchUpOrder,
    CatchUpPolicy as CatchUpPolicy,
    Overlap as Overlap,
    Rate as Rate,
    Reason as Reason,
    ReasonCode as ReasonCode,
    Rule as Rule,
    Sealed as Sealed,
    Stop as Stop,
    Window as Window,
    code_of as code_of,
    epoch_ms as epoch_ms,
    epoch_seconds as epoch_seconds,
    exact_text as exact_text,
    first_of as first_of,
    format_duration as format_duration,
    from_ms as from_ms,
    from_seconds as from_seconds,
    in_ms as in_ms,
    instant_text as instant_text,
    is_suffixed as is_suffixed,
    iso_text as iso_text,
    nearest_name as nearest_name,
    parse_duration as parse_duration,
    parse_rate as parse_rate,
    parse_workflow_id as parse_workflow_id,
    readable as readable,
    resolve_type as resolve_type,
    share_text as share_text,
    start_workflow_id as start_workflow_id,
    starts_key as starts_key,
    storable as storable,
    tenant_of as tenant_of,
    utc_text as utc_text,
)
from engine.schedules.timing.calendars import Calendar as Calendar, Item as Item
from engine.schedules.timing.cron_parser import depends_on_key as depends_on_key
from engine.schedules.timing.spec import (
    At as At,
    Cron as Cron,
    Interval as Interval,
    Spec as Spec,
    latest as latest,
)
from engine.schedules.timing.zones import TZDATA_VERSION as TZDATA_VERSION, zone as zone

if not TYPE_CHECKING:
    __all__ = ["At", "Cron", "Interval", "Schedule", "ScheduleFile", "Window", "load_schedules"]
