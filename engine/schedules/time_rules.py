"""By which rules of time a replica computes, and what newer ones mean for a schedule.

Zone rules change several times a year, and an evaluator may be corrected. The ledger keeps the
rules that each schedule was last computed by: a replica with older ones leaves it alone, one
with newer ones takes it over. What must not happen then is that a fixed-time schedule fires a
local time again because its instant has moved (DESIGN §5).
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime, timedelta
from typing import Final

from engine.schedules.cron import EVALUATOR_VERSION
from engine.schedules.cron_fields import parse
from engine.schedules.instants import epoch_seconds, from_seconds
from engine.schedules.model import Schedule
from engine.schedules.zones import TZDATA_VERSION, zone

TIME_RULES: Final = f"{EVALUATOR_VERSION:04}/{TZDATA_VERSION}"
"""The evaluator's version and that of the zone rules; compared as text, newer ones are greater."""

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the local axis has no zone


def reading_at(schedule: Schedule, cursor: datetime) -> datetime | None:
    """Return the latest local time that a fixed-time schedule has come to at ``cursor``.

    Naive, as the local clock shows it. None where no local time can come twice: for intervals,
    moments, and wildcard expressions, which fire at real readings only.
    """
    if not _is_fixed_time(schedule):
        return None
    rules, at = zone(schedule.timezone), epoch_seconds(cursor)
    piece = bisect_right(rules.starts, at) - 1
    reading = max(at + rules.offsets[piece], rules.reached[piece] - 1)
    return _EPOCH + timedelta(seconds=reading)


def cursor_by_new_rules(schedule: Schedule, cursor: datetime, reading: datetime | None) -> datetime:
    """Return from where windows are to be decided, of a schedule that other rules computed.

    Args:
        schedule: the schedule.
        cursor: as the other rules left it.
        reading: what `reading_at` said of it then.

    That is where our rules show ``reading``: the local times up to it have fired and do not
    fire again, those behind it have not, even where that lies before ``cursor``.
    """
    if reading is None or not _is_fixed_time(schedule):
        return cursor
    shown = (reading - _EPOCH) // timedelta(seconds=1)
    return from_seconds(zone(schedule.timezone).first_instant(shown))


def _is_fixed_time(schedule: Schedule) -> bool:
    return schedule.cron is not None and not parse(schedule.cron, schedule.key).wildcard
