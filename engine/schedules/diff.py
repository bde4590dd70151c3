"""Compares a schedule file with what the ledger holds. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Final

from engine.schedules.model import FIELDS, Schedule

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
        """Who declares it, in words."""
        return "an application" if self.origin == "api" else f"project {self.project}"


@dataclass(frozen=True, slots=True)
class Diff:
    """What applying a file would do; every list holds keys in the file's order."""

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
