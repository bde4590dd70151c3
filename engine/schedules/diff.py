"""Difference between a schedule file and the ledger."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Final

from engine.schedules.model import FIELDS, Schedule
from engine.schedules.units import epoch_ms

# --- differences ---
# Compares a schedule file with what the ledger holds. Pure.

_SHOWN: Final = 60
_BEFORE: Final = 10  # characters shown of what two long values begin with
_NAMED: Final = 3  # days off named of those that went, and of those that came

WHEN: Final = (
    *("everyMs", "offsetMs", "cron", "at", "timezone"),
    *("start", "end", "dst", "exclude"),
)
"""The fields that say when windows open and which of them start, by their names in a file."""


@dataclass(frozen=True, slots=True)
class Head:
    """The newest definition of a key in the ledger, and what else a file is compared with."""

    key: str
    project: str
    digest: str
    retired: bool
    origin: str = "file"

    @property
    def owner(self) -> str:
        """Return the owner of the declaration, in words."""
        return "an application" if self.origin == "api" else f"project {self.project}"


@dataclass(frozen=True, slots=True)
class Diff:
    """Difference that applying a file makes; every list holds keys in the file's order."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    returned: tuple[str, ...]
    unchanged: tuple[str, ...]
    absent: tuple[str, ...]
    foreign: tuple[str, ...]

    def without(self, keys: Collection[str]) -> Diff:
        """Return what is left to be written when these keys are not."""
        return replace(
            self,
            added=tuple(key for key in self.added if key not in keys),
            changed=tuple(key for key in self.changed if key not in keys),
            returned=tuple(key for key in self.returned if key not in keys),
        )


def diff(project: str, schedules: Iterable[Schedule], heads: Mapping[str, Head]) -> Diff:
    """Sort the keys of a file, and of its project in the ledger, by what is to be done.

    A key that belongs to another project is ``foreign``, and nothing of the file may be
    applied then; so is one that an application declared. A retired key of whichever project is
    free to be taken.
    """
    kinds: dict[str, list[str]] = {
        "added": [], "changed": [], "returned": [], "unchanged": [], "foreign": [],
    }  # fmt: skip
    named = set()
    for schedule in schedules:
        named.add(schedule.key)
        head = heads.get(schedule.key)
        if head is None:
            kind = "added"
        elif head.retired:
            kind = "returned"
        elif head.project != project or head.origin == "api":
            kind = "foreign"
        else:
            kind = "unchanged" if head.digest == schedule.digest else "changed"
        kinds[kind].append(schedule.key)
    absent = sorted(
        head.key
        for head in heads.values()
        if head.project == project
        and head.origin == "file"
        and not head.retired
        and head.key not in named
    )
    return Diff(**{kind: tuple(keys) for kind, keys in kinds.items()}, absent=tuple(absent))


def edits(old: Schedule, new: Schedule) -> tuple[str, ...]:
    """Say what an edit changes, a few words for each field: ``everyMs 300000 → 60000``."""
    before, after = old.to_json(), new.to_json()
    names = [
        name
        for name in FIELDS
        if (name in before) != (name in after) or not _same(before.get(name), after.get(name))
    ]
    return tuple(_edit(name, before, after) for name in names)


def _edit(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    if name == "exclude" and name in before and name in after:
        old, new = _days_off(before[name]), _days_off(after[name])
        gone, come = [day for day in old if day not in new], [day for day in new if day not in old]
        sides = (("without", gone), ("with", come))
        said = [f"{word} {_some(days)}" for word, days in sides if days]
        if said:
            return f"{name} {', '.join(said)}"
    one, other = _value(before, name), _value(after, name)
    if max(len(one), len(other)) > _SHOWN:
        # What both begin with says nothing, and would fill the room for what differs.
        signs = zip(one, other, strict=False)
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], signs))
        same = max(alike - _BEFORE, 0)
        one, other = _cut(one, same), _cut(other, same)
    return f"{name} {one} → {other}".strip()


def _days_off(items: Iterable[Any]) -> dict[str, None]:
    """Return the items of an ``exclude``, those of calendars with its name; a set in order."""
    return dict.fromkeys(
        f"{item['name']} {day}" if isinstance(item, dict) else item
        for item in items
        for day in (item["dates"] if isinstance(item, dict) else (item,))
    )


def _some(days: list[str]) -> str:
    more = len(days) - _NAMED
    return ", ".join(days[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal. Python takes true for 1, and a digest does not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _value(dump: Mapping[str, Any], name: str) -> str:
    """The value as the file has it; what equals its default is not part of a definition."""
    value = dump.get(name)
    if name not in dump:
        return "(none)" if name in {"everyMs", "cron", "at", "input", "description"} else "default"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str, begin: int) -> str:
    text = f"…{text[begin:]}" if begin else text
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def starts_new_series(old: Schedule, new: Schedule) -> bool:
    """Whether buckets of the two definitions could mean different windows.

    True when the kind, ``everyMs`` or ``offsetMs`` changes. Cron and ``at`` number their
    windows by the fire time itself, so another expression needs no new series.
    """
    return (old.kind, old.every_ms, old.offset_ms) != (new.kind, new.every_ms, new.offset_ms)


# --- starts that appear or vanish ---
# Which starts appear and which vanish when one definition takes the place of another. Pure.
#
# A start is its moment: a window of a new series that opens when one of the old would have opened
# is neither gone nor new. All of them are counted, and the first of them are named.

AHEAD: Final = timedelta(days=7)
"""How far a plan looks ahead."""

NAMED: Final = 20
"""So many starts are named; a schedule that fires each second has 604,800 in a week."""


@dataclass(frozen=True, slots=True)
class View:
    """A definition as it stands.

    Attributes:
        schedule: the definition.
        after: it starts nothing at or before this moment.
        skipped: windows to come that will not start.
    """

    schedule: Schedule
    after: datetime
    skipped: frozenset[datetime] = frozenset()

    def starts(self, until: datetime) -> Iterator[datetime]:
        """Return what it starts up to ``until``, in the order of time."""
        found = self.schedule.starts(self.after, until)
        return (at for at in found if at not in self.skipped) if self.skipped else found

    def count(self, until: datetime) -> int:
        """Return how many ``starts`` returns, without listing them."""
        spec, excluded = self.schedule.spec, self.schedule.exclusions
        skipped = sum(
            self.after < at <= until and self.schedule.first_start(at) == at for at in self.skipped
        )
        if self.after >= until:
            return 0
        if excluded is None:
            return spec.count(self.after, until) - skipped
        kept = excluded.divide(self.after, until)
        return (
            sum(spec.count(begin, end) for begin, end, reason in kept if reason is None) - skipped
        )


@dataclass(frozen=True, slots=True)
class Starts:
    """So many starts, and the first of them."""

    count: int = 0
    first: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class Moved:
    """The starts that only the new definition has, and those that only the old one has."""

    appear: Starts = Starts()
    vanish: Starts = Starts()


def outlook(old: View | None, new: View | None, until: datetime, named: int = NAMED) -> Moved:
    """Compare what two definitions start up to ``until``.

    Args:
        old: what is in force now; None starts nothing.
        new: what takes its place; None starts nothing.
        until: the last moment.
        named: how many starts of each kind to name.

    Of two cron expressions with seconds it walks through all starts: a week of them takes seconds.
    """
    if old is None or new is None:
        return Moved(_all(new, until, named), _all(old, until, named))
    if _is_same(old, new):
        return Moved()
    both = _common(old, new, until)
    if both is None:
        both = sum(in_old and in_new for _, in_old, in_new in _merged(old, new, until))
    appear, vanish = new.count(until) - both, old.count(until) - both
    return _named(old, new, until, (appear, vanish), named)


def _all(view: View | None, until: datetime, named: int) -> Starts:
    if view is None:
        return Starts()
    return Starts(view.count(until), tuple(islice(view.starts(until), named)))


def _is_same(old: View, new: View) -> bool:
    one, other = old.schedule, new.schedule
    same = all(getattr(one, FIELDS[name]) == getattr(other, FIELDS[name]) for name in WHEN)
    return same and (old.after, old.skipped) == (new.after, new.skipped)


def _named(old: View, new: View, until: datetime, counts: tuple[int, int], named: int) -> Moved:
    appear: list[datetime] = []
    vanish: list[datetime] = []
    wanted = [min(count, named) for count in counts]
    merged = _merged(old, new, until)
    while [len(appear), len(vanish)] != wanted:
        at, in_old, in_new = next(merged)
        if in_new and not in_old and len(appear) < named:
            appear.append(at)
        elif in_old and not in_new and len(vanish) < named:
            vanish.append(at)
    return Moved(Starts(counts[0], tuple(appear)), Starts(counts[1], tuple(vanish)))


def _merged(old: View, new: View, until: datetime) -> Iterator[tuple[datetime, bool, bool]]:
    """Yield each start with whether the old and the new definition have it."""
    olds, news = old.starts(until), new.starts(until)
    one, other = next(olds, None), next(news, None)
    while one is not None or other is not None:
        at = min(moment for moment in (one, other) if moment is not None)
        in_old, in_new = one == at, other == at
        yield at, in_old, in_new
        if in_old:
            one = next(olds, None)
        if in_new:
            other = next(news, None)


def _common(old: View, new: View, until: datetime) -> int | None:
    """Return how many starts two intervals share, by arithmetic; None where that does not tell."""
    if not (_is_plain(old) and _is_plain(new)):
        return None
    (every, offset), (other, shift) = _steps(old), _steps(new)
    divisor = math.gcd(every, other)
    if (shift - offset) % divisor:
        return 0
    period = every // divisor * other
    steps = (shift - offset) // divisor * pow(every // divisor, -1, other // divisor)
    first = (offset + steps * every) % period
    after, last = epoch_ms(max(old.after, new.after)), epoch_ms(until)
    return max(0, (last - first) // period - (after - first) // period)


def _is_plain(view: View) -> bool:
    declared = view.schedule
    limited = declared.start or declared.end or declared.exclude or view.skipped
    return declared.every_ms is not None and not limited


def _steps(view: View) -> tuple[int, int]:
    return view.schedule.every_ms or 1, view.schedule.offset_ms
