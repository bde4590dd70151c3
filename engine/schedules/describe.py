"""Descriptions of schedules in plain English."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise, product
from typing import Any, Final, NamedTuple

from engine.schedules.model import Schedule
from engine.schedules.terms import (
    SECONDS_PER_DAY,
    TICK,
    epoch_seconds,
    format_duration,
    from_seconds,
)
from engine.schedules.timing.calendars import EPOCH_DAY, WEEKDAYS, Item
from engine.schedules.timing.cron_matcher import Readings, bits, readings
from engine.schedules.timing.cron_parser import DayFields, Special, parse
from engine.schedules.timing.spec import (
    EVERY_READING,
    STANDARD,
    At,
    Bounded,
    Cron,
    Dst,
    Interval,
    Spec,
    clock,
    dst_policy,
)
from engine.schedules.timing.zones import Zone, zone

# --- clock changes of a zone ---
# Readings are seconds on the local axis, as in `cron_matcher`.

_REACH: Final = 2 * SECONDS_PER_DAY  # no offset is that long


class ClockChange(NamedTuple):
    """One change of offset, at ``at`` seconds since the epoch.

    The clock reaches ``before`` and then shows ``after``. The readings ``skipped[0] <= r <
    skipped[1]`` are never shown; ``repeated[0] <= r < repeated[1]`` are shown again. Either range
    is empty if its ends are equal.
    """

    at: int
    before: int
    after: int
    skipped: tuple[int, int]
    repeated: tuple[int, int]


def changes(rules: Zone, after: int, until: int) -> Iterator[ClockChange]:
    """Return the changes with ``after < at <= until``, in ascending order."""
    first = max(bisect_right(rules.starts, after), 1)
    for piece in range(first, bisect_right(rules.starts, until)):
        at = rules.starts[piece]
        old, new = at + rules.offsets[piece - 1], at + rules.offsets[piece]
        # Readings that the clock has shown before an earlier change are not skipped.
        low = min(rules.reached[piece], new)
        yield ClockChange(at, old, new, (low, new), (new, max(old, new)))


def instants_of(rules: Zone, reading: int) -> list[int]:
    """Return the instants at which the clock shows ``reading``: none in a gap, two in a fold."""
    first = bisect_right(rules.starts, reading - _REACH) - 1
    found = []
    for piece in range(first, bisect_right(rules.starts, reading + _REACH)):
        at = reading - rules.offsets[piece]
        if bisect_right(rules.starts, at) - 1 == piece:
            found.append(at)
    return found


# --- phrases ---
# Building blocks of sentences about time.

_LONG_RUN: Final = 3  # two neighbours are named, three become "a to b"
_LONG_LADDER: Final = 5  # fewer steps are listed
_TEENS: Final = (11, 12, 13)


def listed(items: Sequence[str], word: str = "and") -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    if len(items) < 2:  # one needs no word between
        return "".join(items)
    return f"{', '.join(items[:-1])} {word} {items[-1]}"


def ordinal(n: int) -> str:
    """Return ``1st``, ``2nd``, ``3rd``, ``4th`` and so on."""
    suffix = "th" if n % 100 in _TEENS else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"


def time_of_day(second: int) -> str:
    """Return the time ``second`` seconds after midnight: ``02:30``, or ``02:30:15``."""
    minute, second = divmod(second, 60)
    text = f"{minute // 60:02}:{minute % 60:02}"
    return f"{text}:{second:02}" if second else text


def runs(values: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending values as (first, last) of consecutive ones."""
    found: list[tuple[int, int]] = []
    for value in values:
        if found and found[-1][1] == value - 1:
            found[-1] = (found[-1][0], value)
        else:
            found.append((value, value))
    return found


def circling(values: Sequence[int], size: int) -> list[tuple[int, int]]:
    """Return `runs` on a circle; one across its end comes last, its end before its start."""
    found = runs(values)
    if len(found) > 1 and found[0][0] == 0 and found[-1][1] == size - 1:
        found = [*found[1:-1], (found[-1][0], found[0][1])]
    return found


def step_of(values: Sequence[int]) -> int:
    """Return the step of evenly spaced, ascending values; 0 for others or fewer than two."""
    steps = {later - value for value, later in pairwise(values)}
    return steps.pop() if len(steps) == 1 else 0


def numbered(noun: str, values: Sequence[int]) -> str:
    """Return ascending numbers after their noun; runs and steps are shortened without loss.

    ``minute 5``, ``minutes 0 to 9 and 30``, ``every 7th minute from 0 to 56``.
    """
    if len(values) >= _LONG_LADDER and (step := step_of(values)) > 1:
        return f"every {ordinal(step)} {noun} from {values[0]} to {values[-1]}"
    texts: list[str] = []
    for first, last in runs(values):
        if last - first + 1 >= _LONG_RUN:
            texts.append(f"{first} to {last}")
        else:
            texts += [str(value) for value in range(first, last + 1)]
    return f"{noun if len(values) == 1 else noun + 's'} {listed(texts)}"


def around(values: Sequence[int], names: Sequence[str], begin: int) -> list[str]:
    """Return names on a circle, from ``begin`` on; three or more neighbours become ``a to b``.

    Args:
        values: positions on the circle of ``names``.
        names: the names by position.
        begin: the position that is named first.
    """
    size = len(names)
    texts: list[str] = []
    for first, last in circling(sorted((value - begin) % size for value in values), size):
        run = [names[(begin + first + n) % size] for n in range((last - first) % size + 1)]
        texts += [f"{run[0]} to {run[-1]}"] if len(run) >= _LONG_RUN else run
    return texts


# --- notes ---
# Where the clock skips or repeats a reading, the rules (docs/time.md, rules 5 to 7) may differ
# from what people expect. `note` explains a fire, `missing` the absence of fires.

_FEW: Final = 4  # times that are listed one by one
_ORDINALS: Final = ("first", "second", "third", "fourth", "fifth")
_NUMBERS: Final = ("no", "one", "two", "three", "four")


class Missing(NamedTuple):
    """Named times at which nothing fires, and the instant of the change that skips them."""

    at: datetime
    note: str


class ZonedCron(NamedTuple):
    """A cron schedule in its zone: the local times it names, and the policy for unusual ones.

    ``policy`` of a wildcard schedule is `EVERY_READING`, whatever its ``dst`` says.
    """

    named: Readings
    wildcard: bool
    policy: Dst
    zone: Zone


def rule_of(spec: Cron) -> ZonedCron:
    """Return the cron schedule ``spec`` in its zone, as its evaluator computes it."""
    named, wildcard = readings(spec.expression, spec.key)
    policy = EVERY_READING if wildcard else dst_policy(spec.dst)
    return ZonedCron(named, wildcard, policy, zone(spec.timezone))


def note(spec: Spec, fire_time: datetime) -> str:
    """Return what is unusual about the fire of ``spec`` at ``fire_time``, or an empty text.

    There is a note exactly when a named time that the clock skips fires here, or when the clock
    shows the time of this fire more than once. An instant without a fire, an interval, and a
    moment that carries its own offset have none.
    """
    at = epoch_seconds(fire_time)
    if isinstance(spec, At):
        return _note_of_moment(spec) if spec.instant == fire_time else ""
    cron, after, until = unbounded(spec, at - 1, at)
    if not isinstance(cron, Cron) or not after < at <= until:
        return ""
    rule = rule_of(cron)
    pieces = clock(rule.zone, rule.policy)
    piece = bisect_right(pieces.starts, at) - 1
    reading = at + pieces.offsets[piece]
    real = (
        pieces.lows[piece] <= reading < pieces.highs[piece] and rule.named.first(reading) == reading
    )
    notes = []
    if at == pieces.starts[piece]:
        gap = pieces.gaps[piece], pieces.lows[piece]
        if rule.named.count(*gap):
            notes.append(_shifted(rule.named, gap, reading, real=real))
    if real:
        shown = instants_of(rule.zone, reading)
        if len(shown) > 1:
            notes.append(_repeated(rule.policy, reading, shown.index(at), len(shown)))
    return "; ".join(notes)


def _note_of_moment(spec: At) -> str:
    if spec.timezone is None:
        return ""
    rules, at = zone(spec.timezone), epoch_seconds(spec.instant)
    nominal = datetime.fromisoformat(str(spec.moment)).replace(tzinfo=UTC)  # the local axis
    reading = epoch_seconds(nominal)
    shown = instants_of(rules, reading)
    if shown:
        return _repeated(STANDARD, reading, 0, len(shown)) if len(shown) > 1 else ""
    target = _moment_text(at + rules.offset(at), reading)
    return f"{_time(reading)} does not exist on {_date(reading)}; fires at {target}"


def missing(spec: Spec, after: datetime, until: datetime) -> Iterator[Missing]:
    """Yield skipped times that do not fire, for changes with ``after < at <= until``.

    These are times of a wildcard schedule, or of a fixed-time one with ``dst: {gap: skip}``.
    """
    cron, low, high = unbounded(spec, epoch_seconds(after), epoch_seconds(until))
    if not isinstance(cron, Cron):
        return
    rule = rule_of(cron)
    if rule.policy.gap == "shift":
        return
    for change in changes(rule.zone, low, high):
        if rule.named.count(*change.skipped):
            yield Missing(from_seconds(change.at), _skipped(rule, change))


def next_shifted(spec: Spec, after: datetime, until: datetime) -> str:
    """Return the note of the first skipped time that fires elsewhere in ``after < t <= until``.

    The text is empty if there is none: of a wildcard schedule no skipped time fires.
    """
    cron, low, high = unbounded(spec, epoch_seconds(after), epoch_seconds(until))
    if not isinstance(cron, Cron):
        return ""
    rule = rule_of(cron)
    if rule.wildcard or rule.policy.gap != "shift":
        return ""
    found = (each for each in changes(rule.zone, low, high) if rule.named.count(*each.skipped))
    change = next(found, None)
    return note(cron, from_seconds(change.at)) if change else ""


def unbounded(spec: Spec, after: int, until: int) -> tuple[Spec, int, int]:
    """Return the when-part without ``start`` and ``end``, and the range clipped to them.

    The range is ``after < t <= until``, in seconds since the epoch.
    """
    while isinstance(spec, Bounded):
        if spec.first is not None:
            after = max(after, epoch_seconds(spec.first - TICK))
        if spec.last is not None:
            until = min(until, epoch_seconds(spec.last))
        spec = spec.spec
    return spec, after, until


def _shifted(named: Readings, gap: tuple[int, int], reading: int, *, real: bool) -> str:
    """Return the note of skipped readings that fire at ``reading``."""
    lone = named.count(*gap) == 1
    target = _moment_text(reading, gap[0])
    target = f"with that of {target}" if real else f"at {target}"
    times, day = _times(named, gap), _date(gap[0])
    if _is_whole_day(gap):
        fires = "fires" if lone and not real else "is one fire" if lone else "are one fire"
        return f"{day} does not exist; its {times} {fires} {target}"
    fires = "fires" if lone and not real else "one fire"
    return f"{times} {'does' if lone else 'do'} not exist on {day}; {fires} {target}"


def _repeated(policy: Dst, reading: int, index: int, count: int) -> str:
    """Return the note of a reading that the clock shows ``count`` times."""
    text, day = _time(reading), _date(reading)
    if policy.fold == "both":
        return f"the {_ORDINALS[index]} of {_NUMBERS[count]} {text} on {day}"
    often = "twice" if count == 2 else f"{_NUMBERS[count]} times"  # as it says
    return f"{text} happens {often} on {day}; fires at the {_ORDINALS[index]}"


def _skipped(rule: ZonedCron, change: ClockChange) -> str:
    """Return the note of skipped readings that do not fire."""
    named, gap = rule.named, change.skipped
    lone = named.count(*gap) == 1
    if rule.wildcard:
        verb = "does not happen" if lone else "do not happen"
    else:
        verb = "is skipped" if lone else "are skipped"
    times, day = _times(named, gap), _date(gap[0])
    if _is_whole_day(gap):
        return f"{day} does not exist: its {times} {verb}"
    before, after = _time(change.before), _moment_text(change.after, change.before)
    return f"{times} {verb} on {day}: the clock goes forward from {before} to {after}"


def _times(named: Readings, gap: tuple[int, int]) -> str:
    """Return the named readings of a gap; a few are listed. No gap spans parts of two days."""
    count, first, last = named.count(*gap), named.first(gap[0]), named.last(gap[1] - 1)
    if count > _FEW:
        return f"{count} times from {_time(first)} to {_time(last)}"
    found = [first]
    while found[-1] < last:
        found.append(named.first(found[-1] + 1))
    return listed([_time(reading) for reading in found])


def _is_whole_day(gap: tuple[int, int]) -> bool:
    """Return whether a gap is one calendar day, from midnight to midnight."""
    return gap[0] % SECONDS_PER_DAY == 0 and gap[1] - gap[0] == SECONDS_PER_DAY


def _time(reading: int) -> str:
    return time_of_day(reading % SECONDS_PER_DAY)


def _date(reading: int) -> str:
    return date.fromordinal(EPOCH_DAY + reading // SECONDS_PER_DAY).isoformat()


def _moment_text(reading: int, beside: int) -> str:
    """Return date and time, or the time alone if ``beside`` is on the same day."""
    if _date(beside) == _date(reading):
        return _time(reading)
    return f"{_date(reading)} {_time(reading)}"


# --- days, months and weekdays ---
# The day rule (docs/time.md, rule 3) is explicit: ``and on every Friday`` where either field is
# enough, ``only if it is Friday`` where both must match.

WEEKDAY_NAMES: Final = (
    *("Sunday", "Monday", "Tuesday", "Wednesday"),
    *("Thursday", "Friday", "Saturday"),
)
MONTH_NAMES: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_ALL_DAYS: Final = 0xFFFF_FFFE
_ALL_WEEKDAYS: Final = 0x7F
_ALL_MONTHS: Final = 0x1FFE


def spoken_days(fields: DayFields) -> str:
    """Return the days in words; ``every day`` comes first iff no day of the months is left out."""
    all_days, all_weekdays = fields.days == _ALL_DAYS, fields.weekdays == _ALL_WEEKDAYS
    months = _months(fields.months)
    within, of = f" in {months}" if months else "", months or "the month"
    if (all_days and all_weekdays) or (not fields.both and (all_days or all_weekdays)):
        return f"every day{within}"
    if all_days:
        return _apart(_weekdays(fields, "and", within, of), "on ")
    days = _day_groups(fields)
    by_day = f"{_apart(days, 'on ')} of {of}"
    if all_weekdays:
        return by_day
    if fields.both:
        each = "each only" if len(days) > 1 else "only"
        return f"{by_day}, {each} if it is {listed(_weekdays(fields, 'or', '', of), 'or')}"
    weekdays = _weekdays(fields, "and", within, of)
    if fields.weekdays:
        weekdays[0] = f"every {weekdays[0]}"
    return f"{by_day}, and {_apart(weekdays, 'on ')}"


def _apart(items: list[str], preposition: str) -> str:
    """Return phrases with a comma before ``and``, since they may contain lists."""
    return ", and ".join(preposition + item for item in items)


def _day_groups(fields: DayFields) -> list[str]:
    groups = [numbered("day", bits(fields.days))] if fields.days else []
    return groups + [_day_special(special) for special in fields.day_specials]


def _day_special(special: Special) -> str:
    if special.kind == "LW":
        return "the last workday"
    if special.kind == "W":
        return f"the workday nearest to day {special.n}"
    return f"the {ordinal(special.n)} day before the last day" if special.n else "the last day"


def _weekdays(fields: DayFields, word: str, within: str, of: str) -> list[str]:
    """Return the plain weekdays as one text, then each special one."""
    plain = bits(fields.weekdays)
    groups = [listed(around(plain, WEEKDAY_NAMES, 1), word) + within] if plain else []
    for special in fields.weekday_specials:
        which = "last" if special.kind == "nL" else _ORDINALS[special.k - 1]
        groups.append(f"the {which} {WEEKDAY_NAMES[special.n]} of {of}")
    return groups


def _months(mask: int) -> str:
    """Return the months, or an empty text if all match."""
    if mask == _ALL_MONTHS:
        return ""
    return listed(around([month - 1 for month in bits(mask)], MONTH_NAMES, 0))


# --- times of day ---
# Nothing is left out or rounded: fields that name different times have different texts.

_FEW_TIMES: Final = 6  # times that are simply listed
_SPANS: Final = 3
_HOURS: Final = 24


def spoken_times(
    seconds: Sequence[int], minutes: Sequence[int], hours: Sequence[int], *, daily: bool
) -> str:
    """Return the times of a matching day in words; without a span of hours if all 24 match.

    Args:
        seconds: of the minute, ascending like the others.
        minutes: of the hour.
        hours: of the day.
        daily: every day matches, so that a span of hours may cross midnight.
    """
    if len(seconds) * len(minutes) * len(hours) <= _FEW_TIMES:
        every = product(hours, minutes, seconds)
        return f"at {listed([time_of_day((h * 60 + m) * 60 + s) for h, m, s in every])}"
    if tuple(seconds) == (0,):
        return _minutes(minutes, hours, daily=daily)
    every_minute = len(minutes) == 60 and len(hours) == _HOURS  # all there are
    cycle = _cycle(seconds)
    if every_minute and cycle and not seconds[0]:
        return _every(cycle, "second")
    named = "every second" if cycle == 1 else numbered("second", seconds)
    if every_minute:
        return f"at {named} of every minute"
    return f"at {named} of the minute, {_minutes(minutes, hours, daily=daily)}"


def _minutes(minutes: Sequence[int], hours: Sequence[int], *, daily: bool) -> str:
    if len(minutes) * len(hours) <= _FEW_TIMES:
        return spoken_times((0,), minutes, hours, daily=daily)
    all_day = len(hours) == _HOURS
    cycle = _cycle(minutes)
    if cycle:
        unit = "every hour" if len(minutes) == 1 else _every(cycle, "minute")
        if all_day and not minutes[0]:
            return unit
        spans = circling(hours, _HOURS) if daily else runs(hours)
        lone = len(minutes) == 1 and any(first == last for first, last in spans)
        if len(minutes) == 1 and (step := step_of(hours)) > 1:
            unit, spans, lone = _every(step, "hour"), [(hours[0], hours[-1])], False
        if len(spans) <= _SPANS and not lone and not all_day:
            ends = [
                (
                    time_of_day(low * 3600 + minutes[0] * 60),
                    time_of_day(high * 3600 + minutes[-1] * 60),
                )
                for low, high in spans
            ]
            return f"{unit} {listed([f'from {first} to {last}' for first, last in ends])}"
    named = numbered("hour", hours)
    of = "every hour" if all_day else named if " hour " in named else f"the {named}"
    return f"at {numbered('minute', minutes)} of {of}"


def _cycle(values: Sequence[int]) -> int:
    """Return n if the values recur every n, also across the end of the 60, else 0."""
    step = step_of(values) if len(values) > 1 else 60
    return step if step and values[-1] + step == values[0] + 60 else 0


def _every(n: int, unit: str) -> str:
    return f"every {unit}" if n == 1 else f"every {n} {unit}s"


# --- specs ---
# The text is made from the parsed fields that the evaluator uses, never from the expression, so it
# cannot disagree with the fires. Nothing is rounded: cron expressions that name different local
# times have different texts. The time zone is not part of the text.

_AHEAD: Final = 5 * 366 * SECONDS_PER_DAY
_FEW_EXCLUSIONS: Final = 6  # exclusions that are named
_UNITS: Final = {"d": "day", "h": "hour", "m": "minute", "s": "second", "ms": "millisecond"}


def describe(what: Schedule | Spec, *, now: datetime | None = None) -> str:
    """Return when ``what`` fires, as in "at 02:30 on Monday to Friday".

    The text of a `Schedule` includes its exclusions, spread and limit. Days and times of a cron,
    and the moments of its bounds, are local to its zone; all other moments name their zone.

    Args:
        what: a schedule or its when-part.
        now: adds a second sentence about clock changes within the next five years, if they skip or
            repeat a time that the schedule names. A naive value raises ValueError.
    """
    if not isinstance(what, Schedule):
        return _spoken(what, getattr(what, "timezone", None) or "UTC") + _at_changes(what, now)
    text = _spoken(what.spec, what.timezone) + _exclusions(what.exclude)
    if what.spread:
        text += f", each run up to {duration(what.spread)} later"
    if what.limit:
        text += f", at most {what.limit} times" if what.limit > 1 else ", once"
    return text + _at_changes(what.spec, now)


def duration(length: timedelta) -> str:
    """Return a duration in words: ``1 hour 30 minutes``."""
    parts = re.findall(r"(\d+)([a-z]+)", format_duration(length))
    return " ".join(f"{n} {_UNITS[unit]}{'' if n == '1' else 's'}" for n, unit in parts)


def _spoken(spec: Spec, timezone: str) -> str:
    if isinstance(spec, Bounded):
        inner = spec.spec
        timezone = inner.timezone if isinstance(inner, Cron) else timezone
        return _spoken(inner, timezone) + _bounds(spec, timezone)
    if isinstance(spec, Cron):
        return _cron(spec)
    if isinstance(spec, Interval):
        return _interval(spec)
    if isinstance(spec, At):
        return f"once, at {_moment(spec.instant, spec.timezone or 'UTC', named=True)}"
    return spec.kind


def _cron(spec: Cron) -> str:
    fields, named = parse(spec.expression, spec.key), rule_of(spec).named
    hours = bits(fields.hours)
    days = spoken_days(fields.calendar)
    times = spoken_times(named.seconds, bits(fields.minutes), hours, daily=days == "every day")
    if len(hours) == 24:  # around the clock
        days = days.removeprefix("every day").removeprefix(" ")
    return f"{times} {days}".rstrip()


def _interval(spec: Interval) -> str:
    text = duration(timedelta(milliseconds=spec.every_ms))
    lone = text.removeprefix("1 ")
    every = lone if text.startswith("1 ") and " " not in lone else text
    offset = spec.offset_ms % spec.every_ms
    sign, shift = (
        ("plus", offset) if offset * 2 <= spec.every_ms else ("minus", spec.every_ms - offset)
    )
    beyond = f" {sign} {duration(timedelta(milliseconds=shift))}" if offset else ""
    return f"every {every}, aligned to the epoch{beyond}"


def _bounds(spec: Bounded, timezone: str) -> str:
    named = not isinstance(spec.spec, Cron)
    begin = f", from {_moment(spec.first, timezone, named=named)}" if spec.first else ""
    end = f", until {_last_moment(spec.last, timezone, named=named)}" if spec.last else ""
    return begin + end


def _last_moment(last: datetime, timezone: str, *, named: bool) -> str:
    tzinfo = zone(timezone).tzinfo
    day = last.astimezone(tzinfo).date()
    if (last + TICK).astimezone(tzinfo).date() != day:  # a date stands for its whole day
        return f"the end of {day}" + (f" in {timezone}" if named else "")
    return _moment(last, timezone, named=named)


def _moment(instant: datetime, timezone: str, *, named: bool) -> str:
    """Return a moment on the clock of ``timezone``, at its own precision."""
    local = instant.astimezone(zone(timezone).tzinfo)
    shown = f"{local:%Y-%m-%d %H:%M:%S.%f}".rstrip("0").removesuffix(".").removesuffix(":00")
    if not named:
        return shown
    return f"{shown} UTC" if timezone == "UTC" else f"{shown} in {timezone}"


def _exclusions(items: tuple[Item, ...]) -> str:
    days, stretches = [], []
    for item in items:
        if not isinstance(item, str):
            days.append(item.name)
        elif item.upper() in WEEKDAYS:
            days.append(WEEKDAY_NAMES[WEEKDAYS.index(item.upper())])
        elif "T" in item:
            stretches.append("from {} until {}".format(*item.split("..")))
        else:
            days.append(item.replace("..", " to "))
    text = f", not on {_shortened(days)}" if days else ""
    if stretches:
        text += f", {'nor' if days else 'not'} {_shortened(stretches)}"
    return text


def _shortened(items: list[str]) -> str:
    if len(items) <= _FEW_EXCLUSIONS:
        return listed(items, "or")
    return f"{', '.join(items[: _FEW_EXCLUSIONS - 1])} or {len(items) - _FEW_EXCLUSIONS + 1} more"


def _at_changes(spec: Spec, now: datetime | None) -> str:
    """Return the sentence about clock changes, or an empty text if none affects the schedule."""
    if now is None:
        return ""
    begin = epoch_seconds(now)
    inner, begin, end = unbounded(spec, begin, begin + _AHEAD)
    if not isinstance(inner, Cron):
        return ""
    rule = rule_of(inner)
    coming = [*changes(rule.zone, begin, end)]
    clauses = []
    if any(rule.named.count(*change.skipped) for change in coming):
        fires = rule.policy.gap == "shift"
        what = "fires at the first moment after it" if fires else "does not happen"
        clauses.append(f"when the clock goes forward, a skipped time {what}")
    if any(rule.named.count(*change.repeated) for change in coming):
        often = {"first": "once, at the first", "last": "once, at the last", "both": "each time"}
        clauses.append(f"when the clock goes back, a repeated time fires {often[rule.policy.fold]}")
    text = "; ".join(clauses)
    return f". {text[0].upper()}{text[1:]}." if text else ""


# --- values of a file ---

_PLAIN: Final = re.compile(r"[A-Za-z](?:[\w./@ -]*\w)?|(?:\d+(?:ms|[smhd]))+", re.ASCII)
_MEANS_ELSE: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def yaml_value(value: Any) -> str:
    """Return a value in YAML 1.2, on one line: a plain scalar if unambiguous, otherwise JSON."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _MEANS_ELSE:
        return value
    if isinstance(value, Mapping):
        parts = (f"{yaml_value(name)}: {yaml_value(one)}" for name, one in value.items())
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(yaml_value, value)) + "]"
    text = json.dumps(value, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in text)
