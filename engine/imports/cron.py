"""Cron fields and clock rules of other schedulers, in the grammar of a schedule file.

Other schedulers differ in the order of fields, in numbers of weekdays, in how a day of the month
and a weekday combine, and in what they do when a clock changes. Their fields come here as sets of
values or as text, and leave as an expression that means the same. Of clocks each scheduler has a
`ClockRule`; `settle_clock` compares its fires with ours at the coming changes, chooses the ``dst``
that makes them equal, and otherwise names the first difference with its date.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, Literal

from engine.errors import ScheduleError
from engine.imports.entries import Draft, NotExpressed
from engine.schedules import Cron, epoch_seconds, from_seconds, zone
from engine.schedules.describe import MONTH_NAMES, WEEKDAY_NAMES, changes, runs, step_of

# --- fields ---

WEEKDAYS: Final = tuple(name[:3].upper() for name in WEEKDAY_NAMES)
MONTHS: Final = tuple(name[:3].upper() for name in MONTH_NAMES)
_DAY, _WEEKDAY = -3, -1
"""Places in an expression."""
_EVERY_WEEKDAY: Final = frozenset(range(7))
_WEEK: Final = 7
_RUN: Final = 3
"""Neighbours from which on a list is written as a range."""


def values_text(values: Collection[int], least: int, most: int) -> str:
    """Return a field that matches these values of ``least`` to ``most``: ``*/15``, ``1-5,9``.

    Raises:
        NotExpressed: there is no value.
    """
    wanted = sorted(set(values))
    if not wanted or wanted[0] < least or wanted[-1] > most:
        raise NotExpressed(f"a field has no value from {least} to {most}")
    if wanted == [*range(least, most + 1)]:
        return "*"
    if len(wanted) >= _RUN and (step := step_of(wanted)) > 1:
        if wanted == [*range(least, most + 1, step)]:
            return f"*/{step}"
        return f"{wanted[0]}-{wanted[-1]}/{step}"
    return ",".join(_ranges(wanted))


def _ranges(wanted: Sequence[int]) -> Iterator[str]:
    for first, last in runs(wanted):
        if last - first + 1 >= _RUN:
            yield f"{first}-{last}"
        else:
            yield from map(str, range(first, last + 1))


def weekdays_text(values: Collection[int]) -> str:
    """Return a weekday field with names, of values from 0, Sunday, to 6."""
    if set(values) == _EVERY_WEEKDAY:
        return "*"
    text = values_text(values, 0, 6)
    if text.startswith("*") or "/" in text:
        return ",".join(WEEKDAYS[value] for value in sorted(set(values)))
    return ",".join(
        "-".join(WEEKDAYS[int(end)] for end in part.split("-")) for part in text.split(",")
    )


def both_days(
    draft: Draft, days: Collection[int], weekdays: Collection[int], who: str
) -> tuple[str, str]:
    """Return the day and weekday fields of a schedule that needs both to match.

    Between two lists a schedule fires on either; then the other weekdays are excluded.
    """
    day, weekday = values_text(days, 1, 31), weekdays_text(weekdays)
    if day == "*" or weekday == "*":
        return day, weekday
    weeks = _weeks(set(days))
    if weeks:
        return "*", ",".join(
            f"{WEEKDAYS[value]}#{week}" for week in weeks for value in sorted(weekdays)
        )
    exclude_weekdays(draft, weekdays, who)
    return day, "*"


def exclude_weekdays(draft: Draft, kept: Collection[int], who: str) -> None:
    """Exclude every weekday but these."""
    draft.fields["exclude"] = [name for number, name in enumerate(WEEKDAYS) if number not in kept]
    draft.note(
        "day-rule",
        f"{who} needs the day and the weekday to match, where a cron of two lists fires on either;"
        " the other weekdays are excluded",
    )


def _weeks(days: set[int]) -> list[int]:
    """Return the weeks of a month that these days are, if they are whole: 1-7 is the first."""
    weeks = [week for week in range(1, 5) if set(range(week * _WEEK - 6, week * _WEEK + 1)) <= days]
    return weeks if len(days) == _WEEK * len(weeks) else []


def either_day(draft: Draft, text: str, who: str) -> str:
    """Return an expression of a scheduler to which only a plain star is a star.

    It fires on either day where a schedule needs both to match, because one begins with ``*/n``.
    """
    fields = [_without_stars(field) for field in text.split()]
    day, weekday = fields[_DAY], fields[_WEEKDAY]
    if "*" not in (day, weekday) and "*" in (day[0], weekday[0]):
        fields[_DAY] = day.replace("*", "1-31", 1) if day.startswith("*") else day
        fields[_WEEKDAY] = weekday.replace("*", "0-6", 1) if weekday.startswith("*") else weekday
        draft.note(
            "day-rule",
            f"{text}: {who} fires on either day, where a schedule with */n needs both; so the range"
            " is written out",
        )
    return " ".join(fields)


def _without_stars(field: str) -> str:
    """Return ``*`` for a field that has a plain star anywhere, and else the field."""
    parts = field.replace("?", "*").split(",")
    stars = [part for part in parts if part in {"*", "*/1"}]
    return "*" if stars else ",".join(parts)


def expression(fields: Iterable[str]) -> str:
    """Join second, minute, hour, day, month and weekday; a second of 0 is left out."""
    second, *others = fields
    return " ".join(others if second == "0" else [second, *others])


# --- grammars ---

_BOUNDS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_FIELDS: Final = ("minute", "hour", "day", "month", "weekday")
_NAMES: Final[tuple[tuple[str, ...], ...]] = ((), (), (), ("", *MONTHS), WEEKDAYS)
_PART: Final = re.compile(r"(?:([*?])|(\w+)(?:-(\w+))?)(?:/(\d+))?")
_SUNDAY: Final = 7


@dataclass(frozen=True, slots=True)
class Grammar:
    """Grammar of five cron fields, where it is narrower than that of a schedule file.

    Attributes:
        who: the scheduler, as the subject of a sentence.
        starts: whether ``5/20`` is ``5-59/20``.
        question: whether ``?`` is a star.
        sunday: the largest number of a weekday.
    """

    who: str
    starts: bool = False
    question: bool = False
    sunday: int = 6

    def check(self, text: str) -> None:
        """Accept an expression that this scheduler reads.

        Raises:
            NotExpressed: it refuses the expression; the message says what to write instead.
        """
        found = text.split()
        if len(found) != len(_BOUNDS):
            raise NotExpressed(f"{text!r} has {len(found)} fields; {self.who} reads five")
        for number, field in enumerate(found):
            for part in field.split(","):
                self._check_part(part, number)

    def _check_part(self, part: str, number: int) -> None:
        match = _PART.fullmatch(part)
        star, first, last, step = match.groups() if match else ("", "", "", "")
        if not match or (star == "?" and not self.question) or step == "0":
            raise self._unread(part, number)
        if star:
            return
        least, most = _BOUNDS[number]
        most = min(most, self.sunday) if number == len(_BOUNDS) - 1 else most
        begin = self._value(part, first, number, most)
        end = self._value(part, last, number, most) if last else begin
        if step and not last and not self.starts:
            raise NotExpressed(
                f"{self.who} reads no step after a single value, as in {part!r}; if it was meant,"
                f" write {begin}-{min(most, _SUNDAY - 1) if most == _SUNDAY else most}/{step}"
            )
        if begin > end:
            week = most == _SUNDAY and not end
            meant = f"{begin}-7" if week else f"{begin}-{most},{least}-{end}"
            raise NotExpressed(
                f"{self.who} reads no range that goes backwards, as in {part!r}; if it was meant,"
                f" write {meant}"
            )

    def _value(self, part: str, text: str, number: int, most: int) -> int:
        names = _NAMES[number]
        value = names.index(text.upper()) if text.upper() in names else -1
        value = int(text) if text.isdecimal() else value
        if not _BOUNDS[number][0] <= value <= most:
            raise self._unread(part, number)
        return value

    def _unread(self, part: str, number: int) -> NotExpressed:
        """Return the refusal of a part, which a schedule file may read all the same."""
        fields = ["*"] * len(_FIELDS)
        fields[number] = part
        hint = "; a schedule file does: if it was meant, write the schedule by hand"
        try:
            Cron(" ".join(fields), key="k")
        except ScheduleError:
            hint = ""
        return NotExpressed(f"{self.who} does not read {part!r} as {_FIELDS[number]}{hint}")


_QUARTZ_FIELDS: Final = (6, 7)
_QUARTZ_DAY: Final = re.compile(r"L|LW|L-\d+|\d+W")
_QUARTZ_PLACE: Final = re.compile(r"(\w+)(?:L|#([1-5]))")
_YEAR: Final = re.compile(r"(\d{4})(?:-(\d{4}))?")


def quartz_cron(draft: Draft, text: str, who: str) -> None:
    """Set ``cron`` from an expression of Quartz, and the bounds of its years.

    It has seconds first, weekdays from 1, Sunday, and ``?`` for one of the two days.

    Raises:
        NotExpressed: Quartz does not read it, or its years have gaps.
    """
    fields = text.upper().split()
    if len(fields) not in _QUARTZ_FIELDS:
        raise NotExpressed(f"{text!r} has {len(fields)} fields; {who} reads six or seven")
    second, minute, hour, day, month, weekday, *year = fields
    if (day == "?") == (weekday == "?"):
        raise NotExpressed(f"{text!r}: {who} needs ? for the day or for the weekday, and not both")
    for place, field in (("minute", minute), ("hour", hour), ("month", month), ("second", second)):
        if re.search(r"[^\w*,/-]", field):
            raise NotExpressed(f"{who} does not read {field!r} as {place}")
    if not all(_QUARTZ_DAY.fullmatch(one) or _PART.fullmatch(one) for one in day.split(",")):
        raise NotExpressed(f"{who} does not read {day!r} as day")
    on = "*" if day == "?" else day
    of_week = "*" if weekday == "?" else _quartz_weekdays(weekday, who)
    draft.fields["cron"] = expression((second, minute, hour, on, month, of_week))
    if year and year[0] != "*":
        spans = [_YEAR.fullmatch(one) for one in year[0].split(",")]
        ends = [(int(one[1]), int(one[2] or one[1])) for one in spans if one]
        if len(ends) != len(spans):
            raise NotExpressed(f"year {year[0]}: a schedule has one start and one end")
        draft.years([value for low, high in ends for value in range(low, high + 1)])


def _quartz_weekdays(text: str, who: str) -> str:
    """Return a weekday field with names, whose numbers were 1, Sunday, to 7."""
    if text == "*":
        return text
    parts = []
    for part in text.split(","):
        placed = _QUARTZ_PLACE.fullmatch(part)
        match = _PART.fullmatch(part)
        if placed:
            name = WEEKDAYS[_quartz_weekday(placed[1], who)]
            parts.append(f"{name}#{placed[2] or 'L'}")
        elif part == "L":
            parts.append("SAT")
        elif match is None or match[1] == "?":
            raise NotExpressed(f"{who} does not read {part!r} as weekday")
        else:
            star, first, last, step = match.groups()
            begin = 0 if star else _quartz_weekday(first, who)
            end = _quartz_weekday(last, who) if last else _WEEK - 1 if star or step else begin
            days = range(begin, (end if end >= begin else end + _WEEK) + 1, int(step or 1))
            parts += [WEEKDAYS[value % _WEEK] for value in days]
    return ",".join(dict.fromkeys(parts))


def _quartz_weekday(text: str, who: str) -> int:
    if text in WEEKDAYS:
        return WEEKDAYS.index(text)
    if text.isdecimal() and 1 <= int(text) <= _WEEK:
        return int(text) - 1
    raise NotExpressed(f"{who} does not read {text!r} as weekday")


# --- clocks ---

_Gap = Literal["skip", "after", "slide"]
"""A skipped time does not happen; at the first instant after the gap; later by the gap's length."""
_Fold = Literal["first", "last", "both"]


@dataclass(frozen=True, slots=True)
class ClockRule:
    """Behaviour of a scheduler when a clock skips or repeats a time.

    Attributes:
        who: the scheduler, as the subject of a sentence.
        fixed: of cron expressions that name a minute and an hour.
        wildcard: of those whose minute or hour begins with ``*``.
        queues: whether skipped times that fall on one instant run one after the other.
        walks: whether it looks for each time from the one before, as Temporal does (`_walked`).
    """

    who: str
    fixed: tuple[_Gap, _Fold]
    wildcard: tuple[_Gap, _Fold]
    queues: bool = False
    walks: bool = False


CRON: Final = ClockRule("cron", ("after", "first"), ("skip", "both"), queues=True)
KUBERNETES: Final = ClockRule("Kubernetes", ("skip", "both"), ("skip", "both"))
TEMPORAL: Final = ClockRule("Temporal", ("skip", "both"), ("skip", "both"), walks=True)
CELERY: Final = ClockRule("Celery beat", ("slide", "first"), ("slide", "first"))
APSCHEDULER: Final = ClockRule("APScheduler", ("slide", "both"), ("slide", "both"))
SIDEKIQ: Final = ClockRule("fugit", ("skip", "both"), ("skip", "both"))
QUARTZ: Final = ClockRule("Quartz", ("skip", "last"), ("skip", "last"))
EVENTBRIDGE: Final = ClockRule("EventBridge Scheduler", ("skip", "first"), ("skip", "first"))
SYSTEMD: Final = ClockRule("systemd", ("skip", "first"), ("skip", "first"))
GITHUB: Final = ClockRule("GitHub", ("after", "first"), ("skip", "both"))
GOOGLE: Final = ClockRule("Cloud Scheduler", ("after", "first"), ("skip", "both"))

_POLICIES: Final[tuple[Any, ...]] = (
    "standard",
    {"gap": "skip", "fold": "first"},
    {"gap": "skip", "fold": "both"},
    {"gap": "skip", "fold": "last"},
    {"gap": "shift", "fold": "both"},
)
_YEARS: Final = timedelta(days=3660)
_FEW, _FEWER = 20, 4
"""Changes that are looked at; fewer for schedules with seconds."""
_SHOWN: Final = 3
_FIVE: Final = 5


def settle_clock(draft: Draft, rule: ClockRule, now: datetime) -> None:
    """Choose ``dst`` so that the schedule fires as its source does; name what remains."""
    cron, place = draft.fields["cron"], draft.fields.get("timezone", "UTC")
    wildcard = any(field.startswith("*") for field in _minute_and_hour(cron))
    most = _FEWER if len(cron.split()) > _FIVE else _FEW
    coming = list(islice(_changes(place, now), most))
    how = rule.wildcard if wildcard else rule.fixed
    if rule.walks:
        theirs = [_walked(cron, place, change) for change in coming]
    else:
        theirs = [_theirs(cron, place, how, change) for change in coming]
    best, least, ours = _POLICIES[0], None, []
    for policy in _POLICIES[:1] if wildcard else _POLICIES:
        fires = [_ours(cron, place, policy, change) for change in coming]
        apart = sum(len(one ^ other) for one, other in zip(fires, theirs, strict=True))
        if least is None or apart < least:
            best, least, ours = policy, apart, fires
    if best != "standard":
        draft.fields["dst"] = best
        draft.note("dst", f"dst is what {rule.who} does when the clock changes")
    for change, one, other in zip(coming, ours, theirs, strict=True):
        if one != other:
            draft.differs("dst", _sentence(rule, place, change, one - other, other - one))
            return
    if rule.queues and not wildcard:
        _name_crowds(draft, cron, place, coming)


def _minute_and_hour(cron: str) -> Sequence[str]:
    fields = cron.split()
    if len(fields) == 1:
        return ("*",) if cron.lower() == "@hourly" else ()
    return fields[-5:-3]


def _changes(place: str, now: datetime) -> Iterator[tuple[datetime, timedelta]]:
    """Yield the coming changes of a clock, with how far it goes."""
    until = epoch_seconds(now + _YEARS)
    for change in changes(zone(place), epoch_seconds(now), until):
        yield from_seconds(change.at), timedelta(seconds=abs(change.after - change.before))


def _around(change: tuple[datetime, timedelta]) -> tuple[datetime, datetime]:
    at, size = change
    return at - size - timedelta(seconds=1), at + 2 * size


def _ours(cron: str, place: str, policy: Any, change: tuple[datetime, timedelta]) -> set[datetime]:
    return set(Cron(cron, place, policy, key="k").fires(*_around(change)))


def _theirs(
    cron: str, place: str, how: tuple[_Gap, _Fold], change: tuple[datetime, timedelta]
) -> set[datetime]:
    begin, end = _around(change)
    found = (
        at
        for reading in _readings(cron, place, change)
        for at in _instants(reading, place, how, change[0])
    )
    return {at for at in found if begin < at <= end}


_HOUR: Final = timedelta(hours=1)


def _walked(cron: str, place: str, change: tuple[datetime, timedelta]) -> set[datetime]:
    """Return the fires of Temporal, measured of the server of 2026.

    Of two instants that a local time has, its calendar takes the second one in zones east of
    Greenwich, and the first one west of it. It notices a repeated hour only where it leaves an hour
    in which it has fired, and counts an hour more for what follows in the second of the two. So
    zones in the east lose fires, and frequent schedules pause for an hour there.
    """
    begin, end = _around(change)
    clock, readings = zone(place).tzinfo, [*_readings(cron, place, change)]
    at, found = begin, set[datetime]()
    while at <= end:
        local = at.astimezone(clock).replace(tzinfo=None)
        hour = local.replace(minute=0, second=0)
        more = _HOUR if (at - _HOUR).astimezone(clock).hour == local.hour else timedelta(0)
        later = [reading for reading in readings if reading > local]
        if not (later and later[0] < hour + _HOUR):
            left, entered = (_moment(each, place, change[0]) for each in (hour, hour + _HOUR))
            again = [reading for reading in readings if hour <= reading < hour + _HOUR]
            jumps = left is not None and entered is not None and entered - left > _HOUR
            repeats = bool(again) and jumps and not more
            more, later = (_HOUR, again) if repeats else (timedelta(0), later)
        moment = next((m for each in later if (m := _moment(each, place, change[0]))), None)
        if moment is None:
            break
        at = moment + more
        found.add(at)
    return {fire for fire in found if begin < fire <= end}


def _moment(reading: datetime, place: str, change: datetime) -> datetime | None:
    """Return the instant that Go's calendar has for a local time; None if a clock skips it."""
    found = _instants(reading, place, ("skip", "both"), change)
    return found[-1 if reading.replace(tzinfo=UTC) >= change else 0] if found else None


def _readings(cron: str, place: str, change: tuple[datetime, timedelta]) -> Iterator[datetime]:
    """Yield local times that match: the fires of the cron on a clock that never changes."""
    begin, end = (at.astimezone(zone(place).tzinfo).replace(tzinfo=UTC) for at in _around(change))
    for fire in Cron(cron, key="k").fires(begin - change[1], end + change[1]):
        yield fire.replace(tzinfo=None)


def _instants(
    reading: datetime, place: str, how: tuple[_Gap, _Fold], change: datetime
) -> list[datetime]:
    """Return the instants at which a scheduler runs for a local time."""
    clock = zone(place).tzinfo
    first = reading.replace(tzinfo=clock).astimezone(UTC)
    second = reading.replace(tzinfo=clock, fold=1).astimezone(UTC)
    if first == second:
        return [first]
    gap, fold = how
    if first.astimezone(clock).replace(tzinfo=None) != reading:
        return {"skip": [], "slide": [first], "after": [change]}[gap]
    return {"first": [first], "last": [second], "both": [first, second]}[fold]


def _sentence(
    rule: ClockRule,
    place: str,
    change: tuple[datetime, timedelta],
    ours: set[datetime],
    theirs: set[datetime],
) -> str:
    clock = zone(place).tzinfo
    day = change[0].astimezone(clock).date()
    parts = [
        f"{who} runs at {_times(fires, clock)}, which {other} does not"
        for who, fires, other in (
            (rule.who, theirs, "this schedule"),
            ("this schedule", ours, rule.who),
        )
        if fires
    ]
    return f"when the clock of {place} changes, as on {day}, {'; '.join(parts)}"


def _times(fires: set[datetime], clock: Any) -> str:
    shown = [f"{at.astimezone(clock):%H:%M%z}" for at in sorted(fires)]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more


def _name_crowds(
    draft: Draft, cron: str, place: str, coming: Iterable[tuple[datetime, timedelta]]
) -> None:
    """Name skipped times that cron runs one after the other, and a schedule once."""
    for change in coming:
        late = [
            reading
            for reading in _readings(cron, place, change)
            if _instants(reading, place, ("skip", "first"), change[0]) == []
        ]
        if len(late) > 1:
            day = change[0].astimezone(zone(place).tzinfo).date()
            draft.differs(
                "dst",
                f"cron makes up for {len(late)} skipped times one after the other, as on {day};"
                " this schedule runs once",
            )
            return
