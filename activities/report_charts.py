"""The two drawings of the report, as SVG inside the page: no library, nothing to load.

Colours are classes, so that the page's style sheet decides, for light and for dark. What is across
is in per cent of the width and there is no viewBox: on a narrow page bars shrink, text does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from activities.report_data import OUTCOMES, Hour, ScheduleDay

MOST_LAGS = 20

_TOP, _PLOT = 12, 220
_THINNEST = 3.0
_AXIS_MS = (1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)
_ROW = 30


def hours_chart(hours: Sequence[Hour]) -> str:
    """Draw one stacked bar per hour of the local day."""
    ticks = _ticks(max(sum(hour.counts.values()) for hour in hours))
    slot = 100 / len(hours)
    parts = []
    for tick in ticks:
        y = _TOP + _PLOT - tick / ticks[-1] * _PLOT
        parts.append(f'<line class="grid" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
        # Left of the drawing: the style sheet keeps a margin there.
        parts.append(f'<text x="-10" y="{y + 4:.1f}" text-anchor="end">{tick:,}</text>')
    for n, hour in enumerate(hours):
        x = n * slot
        parts.append(_bar(hour, x + slot * 0.14, slot * 0.72, ticks[-1]))
        # Every third label; both of a repeated hour are counted, so a label can come twice.
        if n % 3 == 0:
            parts.append(
                f'<text x="{x + slot / 2:.2f}%" y="{_TOP + _PLOT + 22}" text-anchor="middle">'
                f"{escape(hour.label)}</text>"
            )
    return (
        f'<svg class="hours" height="{_TOP + _PLOT + 30}" role="img" '
        f'aria-label="Windows per hour of the day, by outcome">{"".join(parts)}</svg>'
    )


def _bar(hour: Hour, x: float, width: float, full: int) -> str:
    title = ", ".join(f"{hour.counts[name]:,} {name}" for name in OUTCOMES if name in hour.counts)
    parts = [f"<g><title>{escape(hour.label)}: {title or 'no windows'}</title>"]
    bottom = float(_TOP + _PLOT)
    for number, name in enumerate(OUTCOMES):
        if not hour.counts.get(name):
            continue
        # One failure among hundreds is what a reader looks for: never too thin to be seen.
        height = max(hour.counts[name] / full * _PLOT, _THINNEST)
        bottom -= height
        parts.append(
            f'<rect class="o{number}" x="{x:.2f}%" y="{bottom:.1f}" width="{width:.2f}%" '
            f'height="{height:.1f}"/>'
        )
    return "".join([*parts, "</g>"])


def _ticks(highest: int) -> list[int]:
    """Return round values from zero to just above ``highest``, at most seven of them."""
    rough = max(highest, 1) / 5
    magnitude = 10 ** math.floor(math.log10(rough)) if rough >= 1 else 1
    step = next(magnitude * n for n in (1, 2, 5, 10) if magnitude * n >= rough)
    # A little air above, for what the thinnest segments add.
    return [step * n for n in range(math.floor(highest * 1.02 / step) + 2)]


def lags_chart(schedules: Sequence[ScheduleDay]) -> str:
    """Draw the median and the 95th percentile of the lag, one line per schedule, slowest first."""
    measured = [(each, *_lag(each)) for each in schedules if each.median_ms is not None]
    measured.sort(key=lambda row: -row[2])
    rows = measured[:MOST_LAGS]
    slowest = max(p95 for _, _, p95 in rows)
    axis = [tick for n, tick in enumerate(_AXIS_MS) if n < 3 or _AXIS_MS[n - 1] < slowest]  # noqa: PLR2004 - an axis of one tick would show nothing
    grid = "".join(
        f'<line class="grid" x1="{_across(tick, axis)}" x2="{_across(tick, axis)}" '
        f'y1="0" y2="{_ROW}"/>'
        for tick in axis
    )
    scale = "".join(
        f'<text x="{_across(tick, axis)}" y="14" text-anchor="middle">{lag_text(tick)}</text>'
        for tick in axis
    )
    lines = "".join(_lag_line(*row, axis, grid) for row in rows)
    return f'<ol class="lags">{lines}<li>{_track(scale)}</li></ol>'


def _lag_line(each: ScheduleDay, median: float, p95: float, axis: Sequence[int], grid: str) -> str:
    key, x50, x95, y = escape(each.key), _across(median, axis), _across(p95, axis), _ROW // 2
    drawing = (
        f'{grid}<line class="reach" x1="{x50}" x2="{x95}" y1="{y}" y2="{y}"/>'
        f'<circle class="p95" cx="{x95}" cy="{y}" r="5"/>'
        f'<circle class="median" cx="{x50}" cy="{y}" r="4"/>'
    )
    return (
        f'<li title="{key}: half within {lag_text(median)}, 95 % within {lag_text(p95)}">'
        f"<b>{key}</b>{_track(drawing)}<span>{lag_text(median)} · {lag_text(p95)}</span></li>"
    )


def _across(lag: float, axis: Sequence[int]) -> str:
    """Return the place of a lag on the logarithmic scale."""
    share = math.log10(max(lag, 1)) / math.log10(axis[-1])
    return f"{min(share, 1) * 100:.2f}%"


def _track(drawing: str) -> str:
    # The numbers stand beside it as text, so who cannot see the drawing misses nothing.
    return f'<svg height="{_ROW}" aria-hidden="true">{drawing}</svg>'


def _lag(schedule: ScheduleDay) -> tuple[float, float]:
    return schedule.median_ms or 0.0, schedule.p95_ms or 0.0


def lag_text(ms: float) -> str:
    """Write a lag the way a person would: ``37 ms``, ``1.2 s``, ``3 min``, ``5.4 h``."""
    for limit, unit, size in ((1_000, "ms", 1), (60_000, "s", 1_000), (3_600_000, "min", 60_000)):
        if ms < limit:
            return _number(ms / size, unit)
    return _number(ms / 3_600_000, "h")


def _number(value: float, unit: str) -> str:
    digits = 0 if unit == "ms" or value >= 100 or value == int(value) else 1  # noqa: PLR2004 - three figures are enough for the eye
    return f"{value:.{digits}f} {unit}"
