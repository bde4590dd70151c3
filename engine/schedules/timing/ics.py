"""Reader of .ics calendar files (RFC 5545) into items of ``exclude:``."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import icalendar
import recurring_ical_events  # type: ignore[import-untyped]  # it has none

from engine.errors import TimezoneInvalid
from engine.schedules.terms import from_seconds, iso_text
from engine.schedules.timing.calendars import LONGEST_DAYS, MAX_ITEMS
from engine.schedules.timing.zones import zone

FIRST: Final = 2000
END: Final = 2101
"""Repeated events are expanded from the year `FIRST` until `END`, excluded."""
MOST_EVENTS: Final = 20_000
"""Maximum expanded events, including several on one day: about ten seconds of work."""

_DAY: Final = timedelta(days=1)
_ENDLESS: Final = "give its repeated events an end (UNTIL)"


def read_ics(text: str) -> tuple[str, ...]:
    """Return the events of a calendar as items in chronological order, without cancelled ones.

    An event of whole days becomes dates, an event with times a stretch.

    Raises:
        ValueError: ``args`` are the message and the hint.
    """
    try:
        found = _events(icalendar.Calendar.from_ical(text))
    except TimezoneInvalid as error:
        raise ValueError(error.message, error.hint or "") from None
    except _Refused as error:
        raise ValueError(*error.args) from None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        # Neither library documents what it raises for a broken property.
        raise ValueError(f"this is no calendar: {_first_line(error)}", "export it again") from None
    if not found:
        raise ValueError("the calendar has no events from 2000 on", "export it again, or remove it")
    return tuple(sorted(found))


class _Refused(Exception):
    """Fault of a calendar file; ``args`` are the message and the hint."""


def _events(calendar: Any) -> set[str]:
    for event in calendar.walk("VEVENT"):
        _refuse_frequent(event)
    found: set[str] = set()
    written = 0
    repeated = recurring_ical_events.of(calendar, skip_bad_series=False)
    for year in range(FIRST, END):  # year by year, to detect endless events early
        for event in repeated.between(date(year, 1, 1), date(year + 1, 1, 1)):
            written += 1
            if str(event.get("STATUS", "")).upper() != "CANCELLED" and _takes_time(event):
                found.add(_item(event))
        if len(found) > MAX_ITEMS:
            message = f"the calendar has more than {MAX_ITEMS:,} days off up to 2100"
            raise _Refused(message, _ENDLESS)
        if written > MOST_EVENTS:
            raise _Refused(
                f"its events repeat more than {MOST_EVENTS:,} times up to 2100", _ENDLESS
            )
    return found


def _takes_time(event: Any) -> bool:
    """Return whether an event lasts; one day may be written with its first day as its end, too."""
    return not isinstance(event.start, datetime) or event.start < event.end


def _refuse_frequent(event: Any) -> None:
    """Refuse an event that would expand into millions of events."""
    rules = event.get("RRULE", [])
    for rule in rules if isinstance(rules, list) else [rules]:
        if set(rule.get("FREQ", ())) & {"SECONDLY", "MINUTELY", "HOURLY"}:
            raise _Refused("an event repeats more often than daily", "repeat it by days")


def _item(event: Any) -> str:
    start, end = event.start, event.end
    if end - start > LONGEST_DAYS * _DAY:
        what = f"the event of {start:%Y-%m-%d} is longer than a year"
        raise _Refused(what, "divide it into events of a year at most, or remove it")
    if isinstance(start, datetime):
        return f"{_instant(start)}..{_instant(end)}"
    last = max(start, end - _DAY)  # DTEND is exclusive
    return f"{start}" if last == start else f"{start}..{last}"


def _instant(moment: datetime) -> str:
    """Return ``moment`` in UTC; a zone with an IANA name uses the pinned tzdata.

    Names that a schedule may not use, such as CET, have the offset that the calendar gives them.
    """
    name = getattr(moment.tzinfo, "key", None)
    if name is not None:
        local = moment.replace(tzinfo=UTC)
        with suppress(TimezoneInvalid):
            moment = from_seconds(zone(name).first_instant(int(local.timestamp())))
    elif moment.tzinfo is None:
        raise _Refused(f"the event at {moment} has no time zone", "give it one, or make it a day")
    return iso_text(moment)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:80].rstrip(".")
