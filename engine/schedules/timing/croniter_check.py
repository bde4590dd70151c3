"""Cross-check of cron expressions against croniter.

croniter parses every expression a second time; its version is pinned because major versions
change meanings. Two independent parsers rarely make the same mistake, so a schedule on which
they differ is refused when it is first seen. The engine alone converts readings to instants;
a few of croniter's are compared in UTC, for a warning: docs/adr/0030-two-parsers-of-cron.md.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Final

from engine.errors import EngineError
from engine.schedules.timing.cron_parser import FIELDS, MACROS, Fields, Special, parse, plain

try:
    from croniter import CroniterBadDateError, CroniterError, croniter
except ModuleNotFoundError as missing:
    raise EngineError(
        "croniter is not installed, which reads each cron expression a second time",
        hint="install what sched-engine depends on again: `pip install croniter==7.0.0`",
    ) from missing

_YEARS: Final = 9
"""Years without an instant after which croniter gives up: a 29 February may be eight away."""

# Expressions outside the grammar of croniter 7.0.0, or that it is known to parse wrongly.
_NUMBER: Final = r"(?:\d+|[A-Z]{3})"
_UNJUDGED: Final = (
    (re.compile(r"(?:^|[\s,])H(?:[\s,(/]|$)"), "H hashes differently there"),
    (re.compile(r"(?:^|[\s,])(?:LW|L-\d+)(?:[\s,]|$)"), "LW and L-n are unknown there"),
    (re.compile(r"\d+W,|,\d+W"), "nW inside a list is refused there"),
    (
        re.compile(rf"(?:^|[\s,])({_NUMBER})-\1(?:[\s,/]|$)"),
        "a range of one value is the whole field",
    ),
    (re.compile(r"(?:^|[\s,])(?:0-7|SUN-7|7-0|7-SUN|SUN-0|0-SUN)(?:[\s,/]|$)"), "as above, 7 is 0"),
    (re.compile(rf"{_NUMBER}-(?:7|SUN)/\d"), "wrapping ranges with a step are wrong"),
)


def unjudged(expression: str) -> str | None:
    """Return why ``expression`` is not checked with croniter, or None if it is."""
    upper = MACROS.get(expression.strip().upper(), expression.upper())
    for pattern, reason in _UNJUDGED:
        if pattern.search(upper):
            return reason
    if re.search(r"[L#]", upper.split()[-1]) and "," in upper.split()[-1]:
        return "lists with nL or n#k are only partly supported there"
    if _wraps_with_step(upper):
        return "wrapping ranges with a step are wrong"
    return None


@lru_cache(maxsize=4096)
def disagreement(expression: str) -> str | None:
    """Return a description of how croniter parses ``expression`` differently, or None.

    None also means that croniter was not consulted; see `unjudged`.

    Raises:
        CronInvalid: The engine's own parser rejects the expression.
    """
    ours = _sets(parse(expression))
    if unjudged(expression):
        return None
    try:
        theirs = _croniter_sets(expression)
    except CroniterError as error:
        # The message of an unexpected error contains a traceback.
        return f"croniter refuses it: {str(error).strip().splitlines()[-1]}"
    for name, mine, other in zip(ours, ours.values(), theirs, strict=True):
        if mine != other:
            return f"{name} field: we read {_listed(mine)}, croniter reads {_listed(other)}"
    return None


@lru_cache(maxsize=4096)
def instants(expression: str, after: datetime, count: int) -> tuple[datetime, ...] | None:
    """Return the first instants of a valid expression in UTC as croniter computes them.

    UTC has no clock changes, beside which croniter may err, and one call may take minutes.

    Args:
        expression: a cron expression that `disagreement` accepts.
        after: a moment in UTC.
        count: number of instants.

    Returns:
        None if croniter is not consulted (see `unjudged`) or finds none within a few years. Where
        both fields of days are restricted, and one has ``L``, ``W`` or ``#``, it ignores a field.
    """
    calendar = parse(expression).calendar if unjudged(expression) is None else None
    if calendar is None:
        return None
    day, _, weekday = plain(expression).split()[-3:]
    special = calendar.day_specials or calendar.weekday_specials
    if special and not {"*", "?"} & {day, weekday}:
        return None
    theirs = croniter(
        _as_croniter_writes(expression),
        after,
        ret_type=datetime,
        day_or=not calendar.both,
        max_years_between_matches=_YEARS,
        second_at_beginning=True,
    )
    try:
        return tuple(theirs.get_next() for _ in range(count))
    except CroniterBadDateError:
        return None


def _wraps_with_step(upper: str) -> bool:
    texts = upper.split()
    for this, text in zip(FIELDS[-len(texts) :], texts, strict=False):
        for first, last in re.findall(rf"({_NUMBER})-({_NUMBER})/\d", text):
            low, high = (this.names.get(end, end) for end in (first, last))
            if int(low) > int(high):
                return True
    return False


def _sets(fields: Fields) -> dict[str, frozenset[object]]:
    """Return our fields as sets: numbers, and `Special` for days that depend on the month.

    ``15W`` becomes 15, because croniter reports nothing else of it.
    """
    calendar = fields.calendar
    days = {day.n if day.kind == "W" else day for day in calendar.day_specials}
    return {
        "second": _values(fields.seconds),
        "minute": _values(fields.minutes),
        "hour": _values(fields.hours),
        "day": _values(calendar.days) | days,
        "month": _values(calendar.months),
        "weekday": _values(calendar.weekdays) | frozenset(calendar.weekday_specials),
    }


def _croniter_sets(expression: str) -> list[frozenset[object]]:
    """Return croniter's fields, in our order and with our `Special` for its special days."""
    # By default croniter expects the seconds at the end of six fields.
    expanded, nth = croniter.expand(_as_croniter_writes(expression), second_at_beginning=True)
    minute, hour, day, month, weekday, *second = expanded
    texts = [second[0] if second else [0], minute, hour, day, month, weekday]
    sets = [
        frozenset[object](range(this.low, this.high + 1)) if "*" in values else frozenset(values)
        for this, values in zip(FIELDS, texts, strict=True)
    ]
    sets[3] = frozenset(Special("L") if day == "l" else day for day in sets[3])
    weekdays = {
        Special("nL", n) if k == "l" else Special("#", n, k) for n, ks in nth.items() for k in ks
    }
    sets[5] = frozenset(sets[5] - nth.keys() | weekdays)
    return sets


def _as_croniter_writes(expression: str) -> str:
    text = " ".join(plain(expression).upper().split())
    return re.sub(r"(?<= )(\d|[A-Z]{3})L$", _last_weekday, text)


def _last_weekday(match: re.Match[str]) -> str:
    """Return ``5L`` as croniter writes it: ``L5``."""
    return f"L{FIELDS[-1].names.get(match[1], match[1])}"


def _values(mask: int) -> frozenset[object]:
    return frozenset(value for value in range(mask.bit_length()) if mask >> value & 1)


def _listed(values: frozenset[object]) -> str:
    return " ".join(sorted((str(value) for value in values), key=lambda text: (len(text), text)))
