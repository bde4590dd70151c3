"""Notes on clock changes that affect a cron schedule."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Final, NamedTuple

from engine.schedules.timing.cron import EVERY_READING, STANDARD, Cron, Dst, clock, dst_policy
from engine.schedules.timing.cron_matcher import Readings, readings
from engine.schedules.timing.spec import At, Bounded, Spec
from engine.schedules.timing.zones import Zone, zone
from engine.schedules.units import SECONDS_PER_DAY, TICK, epoch_seconds, from_seconds

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
    if len(items) < 2:  # noqa: PLR2004 - one needs no word between
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
    size, held = len(names), set(values)
    if len(held) == size:
        return [f"{names[begin]} to {names[begin - 1]}"]
    texts: list[str] = []
    for first in sorted(held, key=lambda place: (place - begin) % size):
        if (first - 1) % size in held:
            continue
        length = next(n for n in range(1, size) if (first + n) % size not in held)
        run = [names[(first + n) % size] for n in range(length)]
        texts += [f"{run[0]} to {run[-1]}"] if length >= _LONG_RUN else run
    return texts


# --- notes ---
# Where the clock skips or repeats a reading, the rules (docs/time.md, rules 5 to 7) may differ
# from what people expect. `note` explains a fire, `missing` the absence of fires.

_FEW: Final = 4  # times that are listed one by one
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_ORDINALS: Final = ("first", "second", "third", "fourth")
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
    before, after = _time(change.before), _moment(change.after, change.before)
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
    return date.fromordinal(_EPOCH_DAY + reading // SECONDS_PER_DAY).isoformat()


def _moment(reading: int, beside: int) -> str:
    """Return date and time, or the time alone if ``beside`` is on the same day."""
    if _date(beside) == _date(reading):
        return _time(reading)
    return f"{_date(reading)} {_time(reading)}"
