"""IANA time zones as offset tables from the pinned ``tzdata`` package.

System data is never used: ``zoneinfo`` would prefer ``/usr/share/zoneinfo``, and two replicas on
different images would then compute different windows. A `Zone` is a table
``starts[i] -> offsets[i]`` from the beginning of records to the end of 2102: the explicit part
of the TZif file (RFC 8536) followed by the transitions of its footer rule. Building a table takes
about half a millisecond, so it is built whole and cached.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib import resources
from itertools import accumulate
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]  # it ships data, not types

from engine.errors import TimezoneInvalid, nearest, question
from engine.schedules.terms import SECONDS_PER_DAY

if TYPE_CHECKING:
    from collections.abc import Iterator

TZDATA_VERSION: Final[str] = tzdata.IANA_VERSION
BEGINNING: Final = -(2**40)  # before every transition on record
_LAST_YEAR: Final = 2102  # a margin after units.HORIZON

_ABBREVIATIONS: Final = {
    "EST": "America/New_York, or America/Panama for -05:00 all year",
    "EDT": "America/New_York",
    "EST5EDT": "America/New_York",
    "CST": "America/Chicago, Asia/Shanghai or America/Havana",
    "CDT": "America/Chicago",
    "CST6CDT": "America/Chicago",
    "MST": "America/Denver, or America/Phoenix for -07:00 all year",
    "MDT": "America/Denver",
    "MST7MDT": "America/Denver",
    "PST": "America/Los_Angeles or Asia/Manila",
    "PDT": "America/Los_Angeles",
    "PST8PDT": "America/Los_Angeles",
    "AKST": "America/Anchorage",
    "HST": "Pacific/Honolulu",
    "BRT": "America/Sao_Paulo",
    "ART": "America/Argentina/Buenos_Aires",
    "GMT": "UTC, or Europe/London for British local time",
    "GMT0": "UTC",
    "GMT+0": "UTC",
    "GMT-0": "UTC",
    "BST": "Europe/London or Asia/Dhaka",
    "WET": "Europe/Lisbon",
    "WEST": "Europe/Lisbon",
    "CET": "Europe/Paris or Europe/Berlin",
    "CEST": "Europe/Paris or Europe/Berlin",
    "MET": "Europe/Berlin",
    "EET": "Europe/Athens",
    "EEST": "Europe/Athens",
    "MSK": "Europe/Moscow",
    "IST": "Asia/Kolkata, Europe/Dublin or Asia/Jerusalem",
    "JST": "Asia/Tokyo",
    "KST": "Asia/Seoul",
    "AEST": "Australia/Sydney or Australia/Brisbane",
    "AEDT": "Australia/Sydney",
    "ACST": "Australia/Adelaide or Australia/Darwin",
    "AWST": "Australia/Perth",
    "NZST": "Pacific/Auckland",
    "NZDT": "Pacific/Auckland",
}
_NOT_A_PLACE: Final = frozenset({"Factory"})  # tzdata's zone for "not configured"


@dataclass(frozen=True, slots=True, eq=False)
class Zone:
    """Offsets of one IANA zone; `zone` returns one object per name.

    Attributes:
        name: The IANA name.
        starts: Start of each offset, in seconds since the epoch; ascending.
        offsets: Local minus UTC in seconds, valid in ``starts[i] <= t < starts[i + 1]``.
        reached: The first local reading that the clock had *never* shown before ``starts[i]``,
            in local seconds; it never decreases ("a clock that never goes back"). The entries
            divide the local axis: a reading belongs to the last ``i`` with
            ``reached[i] <= reading``.
    """

    name: str
    starts: tuple[int, ...]
    offsets: tuple[int, ...]
    reached: tuple[int, ...]

    @property
    def tzinfo(self) -> ZoneInfo:
        """Zone as a ``tzinfo`` with the same rules, for display."""
        return _tzinfo(self.name)

    def offset(self, instant: int) -> int:
        """Return local minus UTC in seconds at ``instant`` (seconds since the epoch)."""
        return self.offsets[bisect_right(self.starts, instant) - 1]

    def first_instant(self, reading: int) -> int:
        """Return the first instant when the local clock reads ``reading`` or later.

        In a gap that is the first instant after it, in a fold the first of the two
        (docs/time.md, rule 6). Both values are in seconds, ``reading`` on the local axis.
        """
        index = bisect_right(self.reached, reading) - 1
        return max(self.starts[index], reading - self.offsets[index])


def zone_names() -> tuple[str, ...]:
    """Return the IANA names that a schedule may use, sorted."""
    return tuple(sorted(_names()))


def zone(name: str) -> Zone:
    """Return the zone ``name``, the same object on each call.

    Raises:
        TimezoneInvalid: ``name`` is an abbreviation, which stands for an offset or several
            places, or is not in the pinned tzdata. The hint suggests IANA names.
    """
    if not isinstance(name, str):
        raise TimezoneInvalid(
            f"timezone {name!r} is not text", hint='write an IANA name such as "Europe/Paris"'
        )
    return _zone(name)


@cache
def _zone(name: str) -> Zone:
    if name not in _names():
        raise _unknown(name)
    transitions, footer = _read_tzif(_path(name).read_bytes())
    last = transitions[-1][0]
    transitions.extend(turn for turn in _footer_transitions(footer, last) if turn[0] > last)
    return tabulate(name, transitions)


def tabulate(name: str, transitions: list[tuple[int, int]]) -> Zone:
    """Return the zone of ascending (start, offset) pairs; the first applies from `BEGINNING`."""
    starts, offsets = [BEGINNING], [transitions[0][1]]
    for start, offset in transitions[1:]:
        if offset != offsets[-1]:
            starts.append(start)
            offsets.append(offset)
    endings = (start + before for start, before in zip(starts[1:], offsets, strict=False))
    reached = accumulate(endings, max, initial=BEGINNING + offsets[0])
    return Zone(name, tuple(starts), tuple(offsets), tuple(reached))


@cache
def _names() -> frozenset[str]:
    listed = resources.files("tzdata").joinpath("zones").read_text(encoding="ascii").split()
    return frozenset(listed) - _NOT_A_PLACE - _ABBREVIATIONS.keys()


@cache
def _tzinfo(name: str) -> ZoneInfo:
    with _path(name).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _path(name: str) -> resources.abc.Traversable:
    return resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))


def _unknown(name: str) -> TimezoneInvalid:
    place = _ABBREVIATIONS.get(name.upper())
    if place:
        return TimezoneInvalid(f'timezone "{name}" is an abbreviation', hint=f"write {place}")
    fixed = re.fullmatch(r"(?:UTC|GMT|Z)?([+-])0?(\d{1,2})(?::?00)?", name.upper())
    if fixed:
        sign, hours = "-" if fixed[1] == "+" else "+", int(fixed[2])
        hint = f"write Etc/GMT{sign}{hours} (the sign is reversed there)" if hours else "write UTC"
        return TimezoneInvalid(f'timezone "{name}" is an offset, not an IANA name', hint=hint)
    hint = question(*_nearest(name), otherwise='write a name such as "Europe/Paris"')
    return TimezoneInvalid(f'timezone "{name[:80]}" is not an IANA name', hint=hint)


def _nearest(name: str) -> list[str]:
    wanted = name[:80].lower().replace(" ", "_")
    by_lower = {known.lower(): known for known in sorted(_names())}
    city = wanted.rpartition("/")[2]
    same_city = [known for low, known in by_lower.items() if low.rpartition("/")[2] == city]
    close = nearest(wanted, by_lower.values(), most=3, cutoff=0.7)
    exact = [by_lower[wanted]] if wanted in by_lower else []
    return exact or [*dict.fromkeys([*same_city, *close])][:3]


def _read_tzif(data: bytes) -> tuple[list[tuple[int, int]], str]:
    """Return the explicit transitions (start, offset) of a TZif file, and its footer."""
    header = 44
    # A version 2 file contains all data twice: skip the 32-bit block.
    isut, isstd, leap, time, kinds, chars = struct.unpack_from(">6L", data, 20)
    second = header + time * 5 + kinds * 6 + chars + leap * 8 + isstd + isut
    isut, isstd, leap, time, kinds, chars = struct.unpack_from(">6L", data, second + 20)
    at = second + header
    starts = struct.unpack_from(f">{time}q", data, at)
    kind_of = data[at + time * 8 : at + time * 9]
    at += time * 9
    offsets = [struct.unpack_from(">l", data, at + 6 * kind)[0] for kind in range(kinds)]
    at += kinds * 6 + chars + leap * 12 + isstd + isut
    explicit = [(start, offsets[kind]) for start, kind in zip(starts, kind_of, strict=True)]
    return [(BEGINNING, offsets[0]), *explicit], data[at:].strip(b"\n").decode("ascii")


_NAME = r"(?:[A-Za-z]{3,}|<[^>]+>)"
_CLOCK = r"[+-]?\d+(?::\d+){0,2}"
_DAY = rf"M(\d+)\.(\d)\.(\d)(?:/({_CLOCK}))?"
_FOOTER = re.compile(rf"{_NAME}({_CLOCK})(?:{_NAME}({_CLOCK})?,{_DAY},{_DAY})?")


def _footer_transitions(footer: str, last: int) -> Iterator[tuple[int, int]]:
    """Yield the transitions of a POSIX TZ rule, ascending, from the year before ``last``."""
    match = _FOOTER.fullmatch(footer)
    if match is None:  # other forms exist in POSIX, but in no file of tzdata
        raise TimezoneInvalid(f"zone rule {footer!r} is of an unknown form")
    if match[3] is None:
        return
    standard = -_clock(match[1])
    saving = -_clock(match[2]) if match[2] else standard + 3600
    begin, end = match.group(3, 4, 5, 6), match.group(7, 8, 9, 10)
    for year in range(max(1969, 1969 + last // (366 * SECONDS_PER_DAY)), _LAST_YEAR + 1):
        turns = [
            (_rule_reading(year, *begin) - standard, saving),
            (_rule_reading(year, *end) - saving, standard),
        ]
        yield from sorted(turns)


def _rule_reading(year: int, month: str, week: str, weekday: str, clock: str | None) -> int:
    """Return the local second that ``Mmonth.week.weekday/clock`` means in ``year``."""
    first = date(year, int(month), 1).toordinal() - date(1970, 1, 1).toordinal()
    following = date(year + int(month) // 12, int(month) % 12 + 1, 1).toordinal()
    length = following - date(year, int(month), 1).toordinal()
    # Day 0 of the epoch was a Thursday, which POSIX counts as 4.
    day = (int(weekday) - first - 4) % 7 + 7 * (int(week) - 1)
    if day >= length:  # week 5 means "the last one"
        day -= 7
    return (first + day) * SECONDS_PER_DAY + (_clock(clock) if clock else 7200)


def _clock(text: str) -> int:
    """Return ``[+-]h[:m[:s]]`` in seconds."""
    parts = [int(part) for part in text.lstrip("+-").split(":")]
    seconds = sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
    return -seconds if text.startswith("-") else seconds
