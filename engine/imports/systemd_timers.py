"""Timers of systemd as schedules: each fire starts the unit of the timer, as systemd does.

A calendar expression of systemd needs every field to match, weekdays included, and names a time
zone at its end. ``systemctl cat`` prints unit files one after the other, each below a comment with
its path; drop-ins follow the file that they change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from engine.errors import ImportUnreadable, TimezoneInvalid
from engine.imports.cron import SYSTEMD, WEEKDAYS, both_days, expression, settle_clock, values_text
from engine.imports.entries import (
    Collector,
    Draft,
    Import,
    NotExpressed,
    Options,
    Remark,
    SourceFields,
    as_input,
    read_text,
)
from engine.schedules import format_duration, zone

WORKFLOW: Final = "run_unit"
_HEADER: Final = re.compile(r"# (?:/[^/\s]+)*?/([^/\s]+\.\w+)(?:\.d/[^/\s]+\.conf)?")
_HINT: Final = "write systemctl cat '*.timer' | sched import systemd-timer"
_TWICE: Final = (
    "several OnCalendar of a timer are a schedule each: fires at one moment are two runs, and"
    " overlap is that of each"
)
_SHORTHANDS: Final = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    "semiannually": "*-01,07-01 00:00:00",
    "biannually": "*-01,07-01 00:00:00",
}
_UNITS: Final = {
    "us": 1e-6,
    "usec": 1e-6,
    "ms": 1e-3,
    "msec": 1e-3,
    "": 1,
    "s": 1,
    "sec": 1,
    "second": 1,
    "seconds": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "minutes": 60,
    "h": 3600,
    "hr": 3600,
    "hour": 3600,
    "hours": 3600,
    "d": 86400,
    "day": 86400,
    "days": 86400,
    "w": 604800,
    "week": 604800,
    "weeks": 604800,
    "M": 2629800,
    "month": 2629800,
    "months": 2629800,
    "y": 31557600,
    "year": 31557600,
    "years": 31557600,
}  # fmt: skip - a table
_LENGTH: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_TRUE: Final = {"1", "yes", "y", "true", "t", "on"}
_REPEATED: Final = ("OnUnitActiveSec", "OnUnitInactiveSec")
_FIRST: Final = ("OnActiveSec", "OnBootSec", "OnStartupSec")
"""What starts the unit once, after the timer, the machine or systemd itself began."""
_LISTS: Final = ("OnCalendar", *_FIRST, *_REPEATED)
_ORDER: Final = ("Documentation", "After", "Before", "Wants", "Requires", "PartOf", "BindsTo")


def read_timers(names: Sequence[str], options: Options) -> Import:
    """Read timers, and the services that they start, from unit files or ``systemctl cat``.

    Raises:
        ImportUnreadable: there is no such file, or no timer in any.
    """
    units: dict[str, _Unit] = {}
    for name in names:
        _parse(read_text(name), Path(name).name if name != "-" else "standard.input", units)
    entries = Collector(options, WORKFLOW)
    for name, unit in units.items():
        if not name.endswith(".timer") and not unit.has("Timer"):
            continue
        times = unit.lists("Timer").get("OnCalendar") or [""]
        for number, text in enumerate(times):
            draft = Draft(f"timer {name}", text, name.removesuffix(".timer"))
            if number:
                draft.differs("twice", _TWICE)
            fill = partial(_fill, name=name, unit=unit, units=units, text=text, options=options)
            entries.add(draft, fill)
    if not entries.found:
        raise ImportUnreadable(f"{', '.join(names)} has no timer", hint=_HINT)
    return entries.imported("timers of systemd", *_remarks(options))


def _remarks(options: Options) -> Iterator[Remark]:
    yield Remark(
        "note",
        "action",
        "each timer starts a workflow that is yours to write; its input is {unit}, and service, the"
        " [Service] of that unit where it was given; whether a timer was enabled is not asked",
    )
    yield Remark(
        "note",
        "timezone",
        f"times without a zone are in {options.timezone}; --timezone names another",
    )


# --- unit files ---


@dataclass(slots=True)
class _Unit:
    """Assignments of a unit, by section; a name may be assigned several times."""

    sections: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def has(self, section: str) -> bool:
        return section in self.sections

    def lists(self, section: str) -> Mapping[str, list[str]]:
        return self.sections.get(section, {})

    def last(self, section: str) -> dict[str, Any]:
        """Return the values that hold: all of those that add up, the last of the others."""
        found = {name: values for name, values in self.lists(section).items() if values}
        return {name: one if name in _LISTS else one[-1] for name, one in found.items()}

    def service(self) -> dict[str, Any]:
        """Return what its service is: a list where something is given several times."""
        found = self.lists("Service").items()
        return {name: one[0] if len(one) == 1 else one for name, one in found if one}


def _parse(text: str, name: str, units: dict[str, _Unit]) -> None:
    """Add the assignments of a text to the units that its comments name, else to one."""
    section = ""
    for line in text.replace("\\\n", " ").split("\n"):
        entry = line.strip()
        header = _HEADER.fullmatch(entry)
        if header:
            name, section = header[1], ""
        elif entry.startswith("[") and entry.endswith("]"):
            section = entry[1:-1]
            units.setdefault(name, _Unit()).sections.setdefault(section, {})
        elif entry and entry[0] not in "#;":
            key, sign, value = entry.partition("=")
            given = units.setdefault(name, _Unit()).sections.setdefault(section, {})
            values = given.setdefault(key.strip() if sign else entry, [])
            if value.strip():
                values.append(value.strip())
            else:
                values.clear()  # an empty value resets what stands above


def _fill(
    draft: Draft,
    *,
    name: str,
    unit: _Unit,
    units: Mapping[str, _Unit],
    text: str,
    options: Options,
) -> None:
    for section in unit.sections:
        if section not in {"Unit", "Timer", "Install"}:
            draft.lacks("action", f"section [{section}] is not imported")
    general, timer = draft.open(unit.last("Unit"), "[Unit] "), draft.open(unit.last("Timer"), "")
    timer.pass_over("OnCalendar")
    if about := general.take("Description"):
        draft.fields["description"] = about
    others = [each for each in _ORDER if general.take(each)]
    if others:
        draft.note("action", f"{', '.join(others)} of its [Unit] stay with systemd")
    if text:
        _calendar(draft, text, options)
        late = _is_true(timer.take("Persistent"))
    else:
        _interval(draft, timer)
        late = None  # after a boot it counts anew
        timer.pass_over("Persistent")
    _policies(draft, timer, text, late=late)
    named = timer.take("Unit", name.removesuffix(".timer") + ".service")
    service = units[named].service() if named in units else {}
    draft.fields["input"] = as_input(unit=named, service=service)


def _policies(draft: Draft, timer: SourceFields, text: str, *, late: bool | None) -> None:
    draft.fields["overlap"] = "skip"  # systemd starts nothing that is active
    if late:
        draft.catch_up(None, of="systemd")
    elif late is not None:
        draft.fields["catchUp"] = {"policy": "none"}
    fixed = _is_true(timer.take("FixedRandomDelay"))
    if (delay := _length(timer.take("RandomizedDelaySec", "0"))) > timedelta(0):
        if fixed:
            draft.fields["spread"] = format_duration(delay)
        else:
            draft.jitter(delay, of="systemd")
    if accuracy := timer.take("AccuracySec"):
        draft.note("jitter", f"AccuracySec {accuracy}: a schedule fires at its time")
    timer.pass_over("RemainAfterElapse")  # of a timer that never elapses again
    for name in (*_FIRST, *_REPEATED) if text else ():
        if lengths := timer.take(name):
            draft.lacks("phase", f"{name} {', '.join(lengths)}: more runs beside OnCalendar")
    for name in ("WakeSystem", "OnClockChange", "OnTimezoneChange"):
        if _is_true(timer.take(name)):
            draft.lacks("action", f"{name} has no counterpart in a schedule")


def _is_true(text: str | None) -> bool:
    return (text or "").lower() in _TRUE


def _length(text: str) -> timedelta:
    parts = [*_LENGTH.finditer(text)]
    if "".join(part[0] for part in parts) != text.rstrip() or any(
        part[2] not in _UNITS for part in parts
    ):
        raise NotExpressed(f"{text!r} is no length of time that is known here")
    return timedelta(seconds=sum(float(part[1]) * _UNITS[part[2]] for part in parts))


def _interval(draft: Draft, timer: SourceFields) -> None:
    """Fill an interval from what counts from the last run."""
    begins = [f"{name} {', '.join(values)}" for name in _FIRST if (values := timer.take(name))]
    active, inactive = (timer.take(name, []) for name in _REPEATED)
    lengths = [*active, *inactive]
    if len(lengths) != 1:
        first = f"{', '.join(begins)}: it runs once after a start, which is no schedule"
        several = "several of OnUnitActiveSec and OnUnitInactiveSec" if lengths else first
        raise NotExpressed(several if lengths or begins else "it has no time: no On…= is set")
    every = _length(lengths[0])
    draft.text = f"every {lengths[0]}"
    milliseconds, finer = divmod(every, timedelta(milliseconds=1))
    if finer:
        raise NotExpressed(f"an interval of {lengths[0]} is finer than a millisecond")
    draft.fields["everyMs"] = milliseconds
    since = "the end" if inactive else "the start"
    after = f" (the first after {'; '.join(begins)})" if begins else ""
    draft.differs(
        "phase",
        f"systemd counts from {since} of the last run{after}; an interval from"
        " 1970-01-01T00:00:00Z",
    )


# --- calendar expressions ---

_WEEKDAY: Final = re.compile(r"(?i)(sun|mon|tue|wed|thu|fri|sat)\w*")
_MEMBER: Final = re.compile(r"(\d+)(?:\.\.(\d+))?(?:/(\d+))?")
_BOUNDS: Final = {
    "year": (1970, 2199),
    "month": (1, 12),
    "day": (1, 31),
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
}
_CENTURY: Final = 100
_SINCE: Final = 70


def _calendar(draft: Draft, text: str, options: Options) -> None:
    if text.startswith("@"):
        draft.fields["at"] = datetime.fromtimestamp(float(text[1:]), UTC).isoformat()
        return
    words, place = _words(text, options.timezone)
    weekdays = _weekdays(words.pop(0)) if _WEEKDAY.match(words[0]) else frozenset(range(7))
    date = words.pop(0) if words and ":" not in words[0] else "*-*-*"
    clock = (words.pop(0) if words else "00:00").split(":")
    if words or not 1 < len(clock) <= 3:  # hour, minute and second
        raise NotExpressed(f"{text!r} is no calendar expression that is known here")
    year, month, day, is_from_end = _date(text, date)
    hour, minute, second = [*clock, "00"][:3]
    days = _values(text, day, "day", is_from_end=is_from_end)
    on, weekday = (
        _from_end(text, days, weekdays)
        if is_from_end
        else both_days(draft, days, weekdays, "systemd")
    )
    parts = ((second, "second"), (minute, "minute"), (hour, "hour"), (month, "month"))
    *times, of_year = (
        values_text(_values(text, part, name), *_BOUNDS[name]) for part, name in parts
    )
    draft.fields["cron"] = expression((*times, on, of_year, weekday))
    draft.fields["timezone"] = place
    if year != "*":
        draft.years(_values(text, year, "year"))
    settle_clock(draft, SYSTEMD, options.now)


def _words(text: str, default: str) -> tuple[list[str], str]:
    """Return the parts of an expression, and its zone."""
    words, place = text.split(), default
    try:
        if len(words) > 1 and not re.match(r"[\d*]", words[-1]) and not _is_weekday(words[-1]):
            place = zone("UTC" if words[-1].upper() == "UTC" else words[-1]).name
            words.pop()
    except TimezoneInvalid as error:
        raise NotExpressed(f"{text!r}: {error}") from None
    if len(words) == 1:
        words = _SHORTHANDS.get(words[0].lower().replace("-", ""), words[0]).split()
    return words, place


def _is_weekday(word: str) -> bool:
    return all(_WEEKDAY.fullmatch(one) for one in re.split(r",|\.\.|-", word) if one)


def _weekdays(text: str) -> frozenset[int]:
    """Return weekdays from 0, Sunday; a range does not wrap, and the week ends on Sunday."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        names = [_WEEKDAY.fullmatch(end) for end in re.split(r"\.\.|-", part)]
        if None in names or len(names) > 2:  # both ends of a range
            raise NotExpressed(f"{part!r} is no weekday of systemd")
        begin, end = ((WEEKDAYS.index(names[n][1].upper()) - 1) % 7 for n in (0, -1))  # type: ignore[index]
        if begin > end:
            raise NotExpressed(f"systemd reads no range that goes backwards, as in {part!r}")
        found.update((value + 1) % 7 for value in range(begin, end + 1))
    return frozenset(found)


def _date(text: str, date: str) -> tuple[str, str, str, bool]:
    """Return year, month and day, and whether days count from the end of a month."""
    before, tilde, day = date.partition("~")
    parts = [*before.split("-"), *([day] if tilde else [])]
    if len(parts) == 2:  # month and day
        parts = ["*", *parts]
    if len(parts) != 3:  # year, month and day
        raise NotExpressed(f"{text!r} is no calendar expression that is known here")
    year, month, day = parts
    if year.isdecimal() and int(year) < _CENTURY:
        year = str(int(year) + (2000 if int(year) < _SINCE else 1900))
    return year, month, day, bool(tilde)


def _from_end(text: str, days: set[int], weekdays: frozenset[int]) -> tuple[str, str]:
    """Return the fields of days that count from the end of a month: 1 is the last one."""
    if len(weekdays) == len(WEEKDAYS):
        return ",".join("L" if day == 1 else f"L-{day - 1}" for day in sorted(days)), "*"
    if days != set(range(1, 8)):
        raise NotExpressed(f"{text!r}: weekdays among the last days of a month, not the last week")
    return "*", ",".join(f"{WEEKDAYS[value]}#L" for value in sorted(weekdays))


def _values(text: str, part: str, name: str, *, is_from_end: bool = False) -> set[int]:
    """Return the values of a field: ``*``, numbers, ranges ``1..5``, and steps ``0/15``."""
    least, most = _BOUNDS[name]
    if part == "*":
        return set(range(least, most + 1))
    found: set[int] = set()
    for each in part.split(","):
        match = _MEMBER.fullmatch(each)
        first, last, step = match.groups() if match else ("-1", None, None)
        begin, by = int(first), int(step or 1)
        end = int(last) if last else most if step else begin
        if step and is_from_end and not last:
            begin, end = (begin - 1) % (by or 1) + 1, begin  # it counts down to the last day
        if not least <= begin <= end <= most or not by:
            raise NotExpressed(f"{each!r} in {text!r} is no {name} that is known here")
        found.update(range(begin, end + 1, by))
    return found
