"""Difference between a schedule file and the ledger: definitions, edits and starts. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Final

from engine.schedules.model import FIELDS, WHEN, Schedule, definition_digest
from engine.schedules.terms import epoch_ms, first_of, format_duration

# --- differences ---

_SHOWN: Final = 60
_BEFORE: Final = 10  # characters shown of the common prefix of two long values
_LIKELY: Final = 50  # added and absent keys that are compared with each other
_NAMED: Final = 3  # days off named of those removed, and of those added

_INTERVAL: Final = "everyMs"  # shown as people write it: every 5m
_WITHOUT: Final = frozenset(
    alias for alias, name in FIELDS.items() if Schedule.model_fields[name].default is None
)
"""Fields that a schedule may be without."""


@dataclass(frozen=True, slots=True)
class Head:
    """Newest definition of a key in the ledger, as far as a file is compared with it.

    Attributes:
        seed: the first key of a schedule that was renamed; None is its own.
        successor: the key that the schedule has now, if this is a former one.
    """

    key: str
    project: str
    digest: str
    retired: bool
    origin: str = "file"
    seed: str | None = None
    successor: str | None = None

    @property
    def owner(self) -> str:
        """Owner of the declaration, in words."""
        return "an application" if self.origin == "api" else f"project {self.project}"


@dataclass(frozen=True, slots=True)
class Diff:
    """Changes that applying a file makes: keys in the file's order, ``absent`` sorted.

    Attributes:
        renamed: the former key of each schedule that gets another one.
        unfit: why a key is not applied, because of its former key or since it is one.
        in_vain: what is to be said of a ``was`` that changes nothing.
    """

    added: tuple[str, ...]
    changed: tuple[str, ...]
    returned: tuple[str, ...]
    unchanged: tuple[str, ...]
    absent: tuple[str, ...]
    foreign: tuple[str, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)
    unfit: Mapping[str, str] = field(default_factory=dict)
    in_vain: Mapping[str, str] = field(default_factory=dict)

    @property
    def written(self) -> tuple[str, ...]:
        """The keys of which something is written."""
        return (*self.added, *self.renamed, *self.changed, *self.returned)

    def of_the_same(self, schedules: Iterable[Schedule]) -> Diff:
        """Return the difference from the file that was applied last, which has these schedules."""
        keys = tuple(schedule.key for schedule in schedules)
        return Diff((), (), (), keys, self.absent, ())

    def without(self, keys: Collection[str]) -> Diff:
        """Return the difference without what is written of ``keys``."""
        left: dict[str, Any] = {
            kind: tuple(key for key in getattr(self, kind) if key not in keys)
            for kind in ("added", "changed", "returned")
        }
        renamed = {key: was for key, was in self.renamed.items() if key not in keys}
        return replace(self, **left, renamed=renamed)


def diff(project: str, schedules: Iterable[Schedule], heads: Mapping[str, Head]) -> Diff:
    """Classify the keys of a file, and of its project in the ledger, by the change they need.

    A key of another project, or one that an application declared, is ``foreign``; then nothing
    of the file may be applied. A retired key of any project is free to be taken.

    Args:
        project: the project of the file.
        schedules: those of the file.
        heads: of their keys, of the keys that they had before, and of the whole project.
    """
    kinds: dict[str, list[str]] = {
        kind: [] for kind in ("added", "changed", "returned", "unchanged", "foreign")
    }
    renamed, unfit, in_vain = dict[str, str](), dict[str, str](), dict[str, str]()
    named = set[str | None]()
    for schedule in schedules:
        key, was, head = schedule.key, schedule.was, heads.get(schedule.key)
        # Of a former key that a file still has, the schedule is not absent.
        named |= {key, head.successor if head else None}
        if was is not None and (head is None or head.successor == was):
            if _is_foreign(heads.get(was), project):
                kinds["foreign"].append(was)
                continue
            if was in heads and heads[was].successor is None:
                renamed[key] = was
                named.add(was)
                continue
        if why := unfit_key(key, was, heads):
            unfit[key] = why
            continue
        if why := _vain(schedule, heads):
            in_vain[key] = why
        kinds[_kind(schedule, project, heads)].append(key)
    absent = sorted(
        head.key
        for head in heads.values()
        if head.project == project
        and head.origin == "file"
        and not head.retired
        and head.key not in named
    )
    changes = {kind: tuple(keys) for kind, keys in kinds.items()}
    return Diff(**changes, absent=tuple(absent), renamed=renamed, unfit=unfit, in_vain=in_vain)


def _kind(schedule: Schedule, project: str, heads: Mapping[str, Head]) -> str:
    head = heads.get(schedule.key)
    if head is None:
        return "added"
    if head.retired:
        return "returned"
    if _is_foreign(head, project):
        return "foreign"
    return "unchanged" if head.digest == with_seed(schedule, heads).digest else "changed"


def _is_foreign(head: Head | None, project: str) -> bool:
    return (
        head is not None and not head.retired and (head.project != project or head.origin == "api")
    )


# --- renames ---


def with_seed(schedule: Schedule, heads: Mapping[str, Head]) -> Schedule:
    """Return a schedule of a file with the first key that it ever had in the place of ``was``.

    The ledger has it, also where the file says nothing of a rename any more.
    """
    known = heads.get(schedule.key) or heads.get(schedule.was or "")
    if known is None:
        return schedule
    seed = known.seed or known.key
    was = None if seed == schedule.key else seed
    return schedule if schedule.was == was else schedule.model_copy(update={"was": was})


def unfit_key(key: str, was: str | None, heads: Mapping[str, Head]) -> str | None:
    """Return why a schedule cannot have this key instead of its former one; None if it can."""
    head, old = heads.get(key), heads.get(was or "")
    if head is not None and head.successor not in {None, was}:
        return f"{key} was renamed to {head.successor}; write that key, or was: {head.successor}"
    if old is None or old.successor == key:
        return None
    if old.successor is not None and (head is None or head.retired):
        return f"{was} was renamed to {old.successor} before; write was: {old.successor}, or none"
    if head is not None and not (old.retired and not head.retired) and head.successor != was:
        return (
            f"{was} cannot become {key}, which is, or was, a schedule of its own; choose another"
            f" key, or remove was: and let {was} be retired"
        )
    return None


def _vain(schedule: Schedule, heads: Mapping[str, Head]) -> str | None:
    """Return why ``was`` has no effect, if that is worth a sentence."""
    key, was = schedule.key, schedule.was
    if was is None:
        return None
    if was not in heads:
        return f"there never was a schedule {was}, so {key} is new" if key not in heads else None
    if heads[was].successor != key:
        return f"was: {was} changes nothing: {key} is another schedule"
    return None


def likely_renames(
    compared: Diff, schedules: Iterable[Schedule], heads: Mapping[str, Head]
) -> dict[str, str]:
    """Return the absent key of each added schedule that differs from it in nothing but the key."""
    found, left = dict[str, str](), list(compared.absent[:_LIKELY])
    added = {*compared.added[:_LIKELY]}
    for schedule in schedules:
        if schedule.key not in added:
            continue
        for was in left:
            own = heads[was].seed
            same = schedule.model_copy(update={"key": was, "was": own})
            if same.digest == heads[was].digest:
                found[schedule.key] = was
                left.remove(was)
                break
    return found


def edits(old: Schedule, new: Schedule) -> tuple[str, ...]:
    """Describe each changed field in a few words: ``every 5m → 1m``."""
    before, after = old.shown, new.shown
    names = [name for name in FIELDS if _digest(before, name) != _digest(after, name)]
    return tuple(_edit(name, before, after) for name in names)


def _edit(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    if name == "exclude" and name in before and name in after:
        old, new = _days_off(before[name]), _days_off(after[name])
        gone, come = [day for day in old if day not in new], [day for day in new if day not in old]
        sides = (("without", gone), ("with", come))
        changes = [f"{word} {first_of(days, _NAMED)}" for word, days in sides if days]
        if changes:
            return f"{name} {', '.join(changes)}"
    one, other = _value(before, name), _value(after, name)
    if max(len(one), len(other)) > _SHOWN:
        # The common prefix carries no information and would take the room of the difference.
        signs = zip(one, other, strict=False)
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], signs))
        same = max(alike - _BEFORE, 0)
        one, other = _cut(one, same), _cut(other, same)
    return f"{'every' if name == _INTERVAL else name} {one} → {other}".strip()


def _days_off(items: Iterable[Any]) -> dict[str, None]:
    """Return the items of ``exclude`` as an ordered set; those of a calendar carry its name."""
    return dict.fromkeys(
        f"{item['name']} {day}" if isinstance(item, dict) else item
        for item in items
        for day in (item["dates"] if isinstance(item, dict) else (item,))
    )


def _digest(dump: Mapping[str, Any], name: str) -> str | None:
    """Return the digest of one field; true differs from 1 in it, and 1.0 does not."""
    return definition_digest({name: dump[name]}) if name in dump else None


def _value(dump: Mapping[str, Any], name: str) -> str:
    """Return the value as text; a definition holds no field that equals its default."""
    value = dump.get(name)
    if name == _INTERVAL and value is not None:
        return format_duration(timedelta(milliseconds=value))
    if name not in dump:
        return "(none)" if name in _WITHOUT else "default"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str, begin: int) -> str:
    text = f"…{text[begin:]}" if begin else text
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def starts_new_series(old: Schedule, new: Schedule) -> bool:
    """Return whether the same bucket could mean different windows in the two definitions.

    True when the kind, ``everyMs`` or ``offsetMs`` changes. Cron and ``at`` number their
    windows by fire time, so a new expression needs no new series.
    """
    return (old.kind, old.every_ms, old.offset_ms) != (new.kind, new.every_ms, new.offset_ms)


# --- starts that appear or vanish ---
# A start is identified by its moment: a window of a new series that opens when one of the old
# series would have opened neither appears nor vanishes. All are counted, the first are named.

AHEAD: Final = timedelta(days=7)
"""How far ``sched plan`` looks ahead."""

NAMED: Final = 20
"""Most starts that are named; a schedule that fires every second has 604,800 a week."""


@dataclass(frozen=True, slots=True)
class View:
    """A definition and the state that limits its starts.

    Attributes:
        schedule: the definition.
        after: it starts nothing at or before this moment.
        skipped: future windows that will not start.
        last: the last start, if a limit ends the schedule.
    """

    schedule: Schedule
    after: datetime
    skipped: frozenset[datetime] = frozenset()
    last: datetime | None = None

    def starts(self, until: datetime) -> Iterator[datetime]:
        """Return the starts up to ``until``, in ascending order."""
        found = self.schedule.starts(self.after, min(until, self.last or until))
        return (at for at in found if at not in self.skipped) if self.skipped else found

    def count(self, until: datetime) -> int:
        """Return the number of ``starts`` up to ``until``, without listing them."""
        schedule, until = self.schedule, min(until, self.last or until)
        skipped = sum(
            self.after < at <= until and schedule.first_start(at) == at for at in self.skipped
        )
        kept = schedule.stretches(self.after, until)
        starts = sum(schedule.spec.count(begin, end) for begin, end, reason in kept if not reason)
        return starts - skipped


@dataclass(frozen=True, slots=True)
class Starts:
    """Number of starts, and the first of them."""

    count: int = 0
    first: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class Moved:
    """Starts that only the new definition has, and those that only the old one has."""

    appear: Starts = Starts()
    vanish: Starts = Starts()


def outlook(old: View | None, new: View | None, until: datetime, named: int = NAMED) -> Moved:
    """Compare the starts of two definitions up to ``until``.

    For two cron expressions with seconds it walks through all starts: a week takes seconds.

    Args:
        old: the definition in force; None starts nothing.
        new: its replacement; None starts nothing.
        until: the last moment.
        named: how many starts of each kind to name.
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
    return same and (old.after, old.skipped, old.last) == (new.after, new.skipped, new.last)


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
    """Return how many starts two plain intervals share, by arithmetic; None for other schedules."""
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
    limited = declared.start or declared.end or declared.exclude or view.skipped or view.last
    return declared.every_ms is not None and not limited


def _steps(view: View) -> tuple[int, int]:
    return view.schedule.every_ms or 1, view.schedule.offset_ms
