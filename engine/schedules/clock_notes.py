"""What a change of the clock does to a cron schedule, in words, one fire at a time.

A reading that the clock skips or shows twice is where people expect one thing and DESIGN §5
(points 5 to 7) says another. `note` explains a fire that is there, `missing` those that are not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Final, NamedTuple

from engine.schedules.bounds import Bounded
from engine.schedules.clock_changes import Change, changes, instants_of
from engine.schedules.cron import Cron
from engine.schedules.cron_clock import EVERY_READING, STANDARD, Dst, clock, dst_policy
from engine.schedules.cron_readings import Readings, readings
from engine.schedules.instants import SECONDS_PER_DAY, TICK, epoch_seconds, from_seconds
from engine.schedules.phrases import listed, time_of_day
from engine.schedules.timing import At, Spec
from engine.schedules.zones import Zone, zone

_FEW: Final = 4  # times that are listed one by one
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_ORDINALS: Final = ("first", "second", "third", "fourth")
_NUMBERS: Final = ("no", "one", "two", "three", "four")


class Missing(NamedTuple):
    """Named times at which nothing fires, and the instant of the change that skips them."""

    at: datetime
    note: str


class Rule(NamedTuple):
    """How a cron schedule meets its zone: the readings it names, and what becomes of odd ones.

    ``policy`` of a wildcard schedule is `EVERY_READING`, whatever its ``dst`` says.
    """

    named: Readings
    wildcard: bool
    policy: Dst
    zone: Zone


def rule_of(spec: Cron) -> Rule:
    """Return the rule of ``spec``, as its evaluator has it."""
    named, wildcard = readings(spec.expression, spec.key)
    policy = EVERY_READING if wildcard else dst_policy(spec.dst)
    return Rule(named, wildcard, policy, zone(spec.timezone))


def note(spec: Spec, fire_time: datetime) -> str:
    """Return what is unusual about the fire of ``spec`` at ``fire_time``; mostly nothing.

    There is a note exactly when a named time that the clock skips fires here, or when the clock
    shows the time of this fire more than once. An instant that is no fire has none, and neither
    has an interval, nor a moment that carries its own offset.
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
    said = []
    if at == pieces.starts[piece]:
        gap = pieces.gaps[piece], pieces.lows[piece]
        if rule.named.count(*gap):
            said.append(_shifted(rule.named, gap, reading, real=real))
    if real:
        shown = instants_of(rule.zone, reading)
        if len(shown) > 1:
            said.append(_repeated(rule.policy, reading, shown.index(at), len(shown)))
    return "; ".join(said)


def _note_of_moment(spec: At) -> str:
    if spec.timezone is None:
        return ""
    rules, at = zone(spec.timezone), epoch_seconds(spec.instant)
    nominal = datetime.fromisoformat(str(spec.moment)).replace(tzinfo=UTC)  # the local axis
    reading = epoch_seconds(nominal)
    shown = instants_of(rules, reading)
    if shown:
        return _repeated(STANDARD, reading, 0, len(shown)) if len(shown) > 1 else ""
    target = _moment(at + rules.offset(at), reading)
    return f"{_time(reading)} does not exist on {_date(reading)}; fires at {target}"


def missing(spec: Spec, after: datetime, until: datetime) -> Iterator[Missing]:
    """Yield what the clock skips without a fire, for changes with ``after < at <= until``.

    That is: times of a wildcard schedule, and with ``dst: {gap: skip}`` of a fixed-time one.
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


def unbounded(spec: Spec, after: int, until: int) -> tuple[Spec, int, int]:
    """Return the when-part inside ``start`` and ``end``, and what they leave of a stretch.

    The stretch is ``after < t <= until``, in seconds since the epoch.
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
    target = _moment(reading, gap[0])
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
    often = "twice" if count == 2 else f"{_NUMBERS[count]} times"  # noqa: PLR2004 - as it says
    return f"{text} happens {often} on {day}; fires at the {_ORDINALS[index]}"


def _skipped(rule: Rule, change: Change) -> str:
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
    before, after = _time(change.before), _moment(change.after, change.before)
    return f"{times} {verb} on {day}: the clock goes forward from {before} to {after}"


def _times(named: Readings, gap: tuple[int, int]) -> str:
    """Return the named readings of a gap; a few are listed. No zone skips parts of two days."""
    count, first, last = named.count(*gap), named.first(gap[0]), named.last(gap[1] - 1)
    if count > _FEW:
        return f"{count} times from {_time(first)} to {_time(last)}"
    found = [first]
    while found[-1] < last:
        found.append(named.first(found[-1] + 1))
    return listed([_time(reading) for reading in found])


def _is_whole_day(gap: tuple[int, int]) -> bool:
    """Whether a gap is one day of the calendar, from midnight to midnight."""
    return gap[0] % SECONDS_PER_DAY == 0 and gap[1] - gap[0] == SECONDS_PER_DAY


def _time(reading: int) -> str:
    return time_of_day(reading % SECONDS_PER_DAY)


def _date(reading: int) -> str:
    return date.fromordinal(_EPOCH_DAY + reading // SECONDS_PER_DAY).isoformat()


def _moment(reading: int, beside: int) -> str:
    """Return date and time, or the time alone where ``beside`` is of the same day."""
    if _date(beside) == _date(reading):
        return _time(reading)
    return f"{_date(reading)} {_time(reading)}"
