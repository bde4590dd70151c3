"""Which starts appear and which vanish when one definition takes the place of another. Pure.

A start is its moment: a window of a new series that opens when one of the old would have opened
is neither gone nor new. All of them are counted, and the first of them are named.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from engine.schedules.diff import WHEN
from engine.schedules.instants import epoch_ms
from engine.schedules.model import FIELDS, Schedule

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
