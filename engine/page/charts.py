"""Charts of the page as shapes; the templates draw them as SVG.

Statuses differ in height as well as in colour, and each chart has its meaning in words.
Shapes of one colour are one path: a list of 50 schedules has 1,000 windows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import sqrt
from typing import ClassVar, Final, Literal

from engine.page.text import counted, took
from engine.service import Fire, Status

# --- what a status looks like ---

Shade = Literal["ok", "bad", "odd", "open", "wait", "none"]

SHADES: Final[Mapping[Status, Shade]] = {
    "completed": "ok",
    "failed": "bad",
    "timed_out": "bad",
    "rejected": "bad",
    "cancelled": "odd",
    "terminated": "odd",
    "expired": "odd",
    "unvouched": "odd",
    "started": "open",
    "starting": "open",
    "claimed": "open",
    "queued": "wait",
    "skipped": "none",
}
_HEIGHT: Final[Mapping[Shade, int]] = {
    "ok": 12,
    "bad": 16,
    "odd": 14,
    "open": 9,
    "wait": 6,
    "none": 3,
}


def counts_text(counts: Mapping[Status, int]) -> str:
    """Return counts by status in words: ``18 completed, 2 failed``."""
    return ", ".join(f"{number:,} {word.replace('_', ' ')}" for word, number in counts.items())


# --- strips ---


@dataclass(frozen=True, slots=True)
class Strip:
    """Strip of windows, the oldest on the left.

    Attributes:
        width: of the drawing, whose height is ``Strip.HEIGHT``.
        paths: the windows of each shade as one path.
        words: what it shows.
    """

    HEIGHT: ClassVar[int] = 16

    width: int
    paths: Sequence[tuple[Shade, str]]
    words: str


_STEP, _BAR = 7, 5


def strip(recent: Sequence[Status], slots: int = 20) -> Strip:
    """Return the strip of windows, given the newest first; they stand at the right end."""
    paths: dict[Shade, str] = {}
    for number, status in enumerate(recent[:slots]):
        shade = SHADES[status]
        height = _HEIGHT[shade]
        x, y = (slots - 1 - number) * _STEP, Strip.HEIGHT - height
        paths[shade] = paths.get(shade, "") + f"M{x} {y}h{_BAR}v{height}h-{_BAR}z"
    words = counts_text(Counter(recent[:slots])) or "no window yet"
    return Strip(slots * _STEP - (_STEP - _BAR), [*paths.items()], words)


@dataclass(frozen=True, slots=True)
class Bar:
    """Bar of one window: how long its run took, and what became of it."""

    x: int
    y: int
    height: int
    shade: Shade
    title: str
    target: str


@dataclass(frozen=True, slots=True)
class Durations:
    """Bars of windows, the oldest on the left; the longest run has the whole height."""

    HEIGHT: ClassVar[int] = 72
    BAR: ClassVar[int] = 8

    width: int
    bars: Sequence[Bar]
    longest: str


def durations(fires: Sequence[Fire], titles: Sequence[str], slots: int = 50) -> Durations:
    """Return the bars of fires, given the newest first, each with its title; they end at the right.

    The height is the square root of the duration, so that a short run beside long ones is seen.
    """
    longest = max((fire.duration_ms or 0 for fire in fires), default=0)
    step = Durations.BAR + 3
    bars = []
    for number, (fire, title) in enumerate(zip(fires, titles, strict=True)):
        share = sqrt((fire.duration_ms or 0) / longest) if longest else 0.0
        shade = SHADES[fire.status]
        height = max(round(share * Durations.HEIGHT), _HEIGHT[shade] // 2 + 2)
        x = (slots - 1 - number) * step
        bars.append(
            Bar(x, Durations.HEIGHT - height, height, shade, title, f"run-{fire.workflow_id}")
        )
    return Durations(slots * step - 3, bars, took(longest or None) or "")


# --- a week ---

HOUR: Final = timedelta(hours=1)
DAYS: Final = 7
HOURS: Final = 24


@dataclass(frozen=True, slots=True)
class HourCell:
    """One hour of a week.

    Attributes:
        begins: when it begins.
        past: windows that have opened, by status.
        coming: windows to come.
        level: how full it is beside the fullest hour: 0 is empty, 5 the fullest.
        is_bad: whether a window of it failed.
        title: what it says when it is pointed at.
    """

    begins: datetime
    past: Mapping[Status, int]
    coming: int
    level: int
    is_bad: bool
    title: str

    @property
    def number(self) -> int:
        """How many windows it has."""
        return sum(self.past.values()) + self.coming


@dataclass(frozen=True, slots=True)
class WeekMap:
    """The hours of a week, a row for each day, and its fullest hours."""

    days: Sequence[Sequence[HourCell]]
    most: int
    fullest: Sequence[HourCell] = field(default=())

    @property
    def total(self) -> int:
        """How many windows the week has."""
        return sum(cell.number for day in self.days for cell in day)


_LEVELS: Final = 5
_FULLEST: Final = 5


def week_map(
    monday: datetime, past: Mapping[datetime, Mapping[Status, int]], coming: Mapping[datetime, int]
) -> WeekMap:
    """Return the map of a week that begins at ``monday``, from counts by the start of each hour."""
    hours = [monday + number * HOUR for number in range(DAYS * HOURS)]
    numbers = [sum(past.get(each, {}).values()) + coming.get(each, 0) for each in hours]
    most = max(numbers)
    cells = [
        _cell(each, past.get(each, {}), coming.get(each, 0), number, most)
        for each, number in zip(hours, numbers, strict=True)
    ]
    fullest = sorted((each for each in cells if each.number), key=lambda each: -each.number)
    days = [cells[first : first + HOURS] for first in range(0, len(cells), HOURS)]
    return WeekMap(days, most, fullest[:_FULLEST])


def _cell(
    begins: datetime, past: Mapping[Status, int], coming: int, number: int, most: int
) -> HourCell:
    level = 0 if not number else 1 + (number * _LEVELS - 1) // most if most > 1 else 1
    words = [counts_text(past)] if past else []
    words += [f"{coming:,} to come"] if coming else []
    title = f"{begins:%a %d %b %H:%M} UTC: {'; '.join(words) or 'no window'}"
    is_bad = any(SHADES[status] == "bad" for status in past)
    return HourCell(begins, past, coming, min(level, _LEVELS), is_bad, title)


# --- lanes of a week ---


@dataclass(frozen=True, slots=True)
class Lane:
    """Windows of one schedule in a week.

    Attributes:
        paths: its windows by shade; ``next`` are those to come.
        bands: stretches with more windows than are drawn, as x and width.
        words: what it shows.
    """

    WIDTH: ClassVar[int] = 1008
    """Units of a week: 6 for an hour."""
    HEIGHT: ClassVar[int] = 16

    key: str
    paths: Sequence[tuple[str, str]]
    bands: Sequence[tuple[float, float]]
    words: str


def lane(
    key: str,
    monday: datetime,
    past: Sequence[Fire],
    coming: Iterable[datetime],
    *,
    most: int,
    now: datetime,
) -> Lane:
    """Return the lane of a schedule.

    Args:
        key: its key.
        monday: when the week begins.
        past: its fires of the week, the newest first.
        coming: its windows to come.
        most: how many of either are given at most; behind so many a band stands for the rest.
        now: the present moment.
    """
    paths: dict[str, str] = {}
    for fire in past:
        shade = SHADES[fire.status]
        paths[shade] = paths.get(shade, "") + _tick(_x(fire.fire_time, monday), _HEIGHT[shade])
    times = [*coming]
    for at in times:
        paths["next"] = paths.get("next", "") + _tick(_x(at, monday), _HEIGHT["ok"])
    bands = []
    if len(past) >= most and (end := _x(past[-1].fire_time, monday)) > 0:
        bands.append((0.0, end))
    if len(times) >= most and (begin := _x(times[-1], monday)) < Lane.WIDTH:
        bands.append((begin, round(Lane.WIDTH - begin, 1)))
    counts = counts_text(Counter(fire.status for fire in past))
    more = f"{counted(len(times), 'window')}{' or more' if len(times) >= most else ''} to come"
    words = "; ".join(filter(None, (counts, more if times or now < monday else "")))
    return Lane(key, [*paths.items()], bands, words or "no window")


def _x(at: datetime, monday: datetime) -> float:
    return round((at - monday) / timedelta(days=DAYS) * Lane.WIDTH, 1)


def _tick(x: float, height: int) -> str:
    return f"M{x:g} {Lane.HEIGHT - height}h2v{height}h-2z"
