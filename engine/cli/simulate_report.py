"""Reports of a simulation: text, minute map and HTML page."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from engine.cli.output import console, counted, print_table
from engine.errors import extra_missing
from engine.schedules import MINUTE_MS, epoch_ms, first_of
from engine.schedules.simulation import LONGEST, ScheduleTotals, Simulation, WindowOutcome

# --- minute map ---
# Load over time: a map of minutes as rows of cells. Pure, and independent of the output format.

HOUR, DAY = 60, 24 * 60
_MONDAY = 4 * DAY
"""The first Monday after the epoch, in minutes."""


class ChartShape(NamedTuple):
    """Shape of a map: minutes of a row and of a cell, and labels of the rows and above columns."""

    per_row: int
    per_cell: int
    label: str
    ruler: Mapping[int, str]


_WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_HOURS = ChartShape(
    HOUR, 1, "%Y-%m-%d %Hh", {minute: f"{minute:02}" for minute in range(0, 60, 10)}
)
_DAYS = ChartShape(DAY, 30, "%a %Y-%m-%d", {2 * hour: f"{hour:02}" for hour in range(0, 24, 3)})
_WEEKS = ChartShape(7 * DAY, 180, "%a %Y-%m-%d", {8 * day: name for day, name in enumerate(_WEEK)})


@dataclass(frozen=True, slots=True)
class ReportRow:
    """Row of one hour, day or week (UTC); a cell is its busiest minute, None outside the period."""

    begin: datetime
    cells: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class LoadMap:
    """All rows of a map."""

    rows: tuple[ReportRow, ...]
    shape: ChartShape

    def name(self, row: ReportRow) -> str:
        """Return the label of a row."""
        return f"{row.begin:{self.shape.label}}"


def load_map(simulation: Simulation, values: Sequence[int]) -> LoadMap:
    """Return the map of one value per minute; longer periods give coarser cells."""
    minutes = len(values)
    shape = _HOURS if minutes <= 2 * DAY else _DAYS if minutes <= 62 * DAY else _WEEKS
    first = epoch_ms(simulation.first) // MINUTE_MS
    before = (first - (_MONDAY if shape is _WEEKS else 0)) % shape.per_row
    rows = []
    for begin in range(-before, minutes, shape.per_row):
        cells = tuple(
            max(values[max(at, 0) : max(at + shape.per_cell, 0)], default=None)  # None is outside
            for at in range(begin, begin + shape.per_row, shape.per_cell)
        )
        rows.append(ReportRow(simulation.minute(begin), cells))
    return LoadMap(tuple(rows), shape)


@dataclass(frozen=True, slots=True)
class Peak:
    """Value of a minute, or of each minute in a stretch, on one or more days (UTC).

    ``clock`` is the minute, or the first and the last minute of the stretch.
    """

    value: int
    clock: str
    days: tuple[datetime, ...]

    @property
    def when(self) -> str:
        """Days in words."""
        more = len(self.days) - 1
        first = f"on {self.days[0]:%Y-%m-%d}"
        return f"{first} and {counted(more, 'more day')}" if more else first


def busiest(simulation: Simulation, values: Sequence[int], most: int = 5) -> list[Peak]:
    """Return the highest values with their clock times; days with equal peaks are merged."""
    stretches = ((-value, n, last) for value, n, last in _stretches(simulation, values) if value)
    grouped: dict[tuple[int, str], list[datetime]] = {}
    for value, n, last in heapq.nsmallest(LONGEST.days * most, stretches):
        begin, end = simulation.minute(n), simulation.minute(last)
        clock = f"{begin:%H:%M}" if n == last else f"{begin:%H:%M} to {end:%H:%M}"
        grouped.setdefault((-value, clock), []).append(begin)
    return [Peak(value, at, tuple(days)) for (value, at), days in [*grouped.items()][:most]]


def _stretches(simulation: Simulation, values: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield each value with its first and last minute; a stretch ends with the day (UTC)."""
    first = epoch_ms(simulation.first) // MINUTE_MS
    minutes = groupby(enumerate(values), lambda each: (each[1], (first + each[0]) // DAY))
    for (value, _), stretch in minutes:
        numbers = [n for n, _ in stretch]
        yield value, numbers[0], numbers[-1]


def length(minutes: int) -> str:
    """Return the length of a cell in words."""
    return f"{minutes} min" if minutes < HOUR else f"{minutes // HOUR} h"


def utc(moment: datetime) -> str:
    """Return a moment for a headline."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _period(start: datetime, end: datetime) -> str:
    return f"{utc(start)} to {utc(end)}"


def _size(found: Simulation) -> str:
    return f"{counted(len(found.schedules), 'schedule')}, {found.total.windows:,} windows"


def remarks(found: Simulation) -> list[str]:
    """Return notes on schedules whose overlap is unknown, or whose dependencies are left out."""
    notes = []
    if unknown := [each.key for each in found.schedules if each.overlap_unknown]:
        hint = "say with --duration how long its runs take"
        if found.outages:
            hint = "overlap is not simulated across an --outage"
        notes.append(
            f"not known how runs get in each other's way: {first_of(unknown, _NAMED)};"
            f" counted as with `overlap: allow`; {hint}"
        )
    if follows := [each.key for each in found.schedules if each.follows]:
        notes.append(
            f"not simulated that they wait for other schedules: {first_of(follows, _NAMED)};"
            " counted as if each started at its window"
        )
    return notes


# --- text ---
# Text output of ``sched simulate``: a table, and maps of bars.

_BARS = "▁▂▃▄▅▆▇█"
_COLOURS = ("green", "green", "green", "yellow", "yellow", "yellow", "red", "red")
_SHOWN = 20
_NAMED = 5
_USUAL: tuple[WindowOutcome, ...] = ("on_time", "excluded", "disabled", "paused")


def print_simulation(found: Simulation) -> None:
    """Print the outcomes of the windows, and maps of starts and of open runs."""
    typer.echo(f"{_period(found.start, found.end)}: {_size(found)}")
    for gap in found.outages:
        typer.echo(f"outage {_period(gap.begin, gap.end)}")
    typer.echo()
    _print_outcomes(found)
    if any(found.starts):
        _print_map(found, found.starts, "start")
    if any(found.most_open):
        _print_map(found, found.most_open, "open run")


def _print_outcomes(found: Simulation) -> None:
    first = any(each.first_sight for each in found.schedules)
    columns = ["KEY", "WINDOWS", *(name.upper().replace("_", " ") for name in found.totals)]
    columns += ["FIRST SIGHT"] if first else []

    def row(each: ScheduleTotals) -> list[str]:
        counts = [each.windows, *(each.counts.get(name, 0) for name in found.totals)]
        counts += [each.first_sight] if first else []
        return [each.key, *(f"{count:,}" for count in counts)]

    # Unusual outcomes first, then the most windows.
    schedules = sorted(found.schedules, key=lambda each: (-_unusual(each), -each.windows, each.key))
    total = [found.total] if len(schedules) > 1 else []
    print_table(columns, map(row, [*schedules[:_SHOWN], *total]))
    if len(schedules) > _SHOWN:
        typer.echo(f"({len(schedules) - _SHOWN:,} more schedules are in `all`; --json lists them)")
    for remark in remarks(found):
        typer.echo(remark)


def _unusual(each: ScheduleTotals) -> int:
    return each.windows - sum(each.counts.get(name, 0) for name in _USUAL)


def _print_map(found: Simulation, values: Sequence[int], noun: str) -> None:
    drawn, out = load_map(found, values), console()
    per = drawn.shape.per_cell
    cell = f"; a cell is the busiest minute of {length(per)}" if per > 1 else ""
    out.print()
    out.print(Text(f"{noun}s per minute, UTC{cell}", style="bold"))
    _print_cells(drawn, max(values), out)
    out.print()
    for number, peak in enumerate(busiest(found, values)):
        begin = "busiest  " if number == 0 else "         "
        typer.echo(
            f"{begin}{peak.clock} UTC: {peak.value:,} {noun}{'s' * (peak.value != 1)}, {peak.when}"
        )


def _print_cells(drawn: LoadMap, top: int, out: Console) -> None:
    margin = max(len(drawn.name(row)) for row in drawn.rows) + 2
    out.print(Text(" " * margin + _ruler(drawn), style="dim"))
    for row in drawn.rows:
        line = Text(drawn.name(row).ljust(margin))
        for value in row.cells:
            line.append(*_cell(value, top))
        line.rstrip()
        out.print(line)
    one = f"{_cell(1, top)[0]} 1  " if top > 1 else ""
    out.print(Text(f"{' ' * margin}· none  {one}{_BARS[-1]} {top:,}"))


def _ruler(drawn: LoadMap) -> str:
    line = ""
    for column, name in drawn.shape.ruler.items():
        line = line.ljust(column) + name
    return line


def _cell(value: int | None, top: int) -> tuple[str, str]:
    if value is None:
        return " ", ""
    if value == 0:
        return "·", "dim"
    level = (value * len(_BARS) - 1) // top
    return _BARS[level], _COLOURS[level]


# --- HTML page ---
# The page of ``sched simulate --html``: one file with the look of the page for operators. Here is
# what stands where; ``simulation.html`` draws it.

_WIDTH, _LEFT, _TOP, _PLOT = 960, 56, 10, 200
_MOST_BARS = 300
_NAME, _ROW = 130, 18
_SHOWN_ROWS = 500


def page(found: Simulation, name: str) -> str:
    """Return the page about a simulated file called ``name``.

    Raises:
        ExtraMissing: the extra ``api`` is not installed.
    """
    if missing := extra_missing("api", "--html"):
        raise missing
    from engine.page.layout import rendered, style  # an extra

    charts = [_chart(found, found.starts, "Starts per minute", "starts")]
    if any(found.most_open):
        charts.append(_chart(found, found.most_open, "Open runs", "open at once"))
    schedules = sorted(found.schedules, key=lambda each: (-each.windows, each.key))
    values = {
        "base": "plain.html",
        "style": style(),
        "name": name,
        "size": _size(found),
        "period": _period(found.start, found.end),
        "charts": charts,
        "width": _WIDTH,
        "outages": [_period(gap.begin, gap.end) for gap in found.outages],
        "names": [*found.totals],
        "rows": schedules[:_SHOWN_ROWS],
        "total": found.total,
        "left_out": max(len(schedules) - _SHOWN_ROWS, 0),
        "remarks": remarks(found),
    }
    return rendered("simulation.html", values)


def _chart(found: Simulation, values: Sequence[int], title: str, noun: str) -> dict[str, Any]:
    """Return the bars and the map of one value per minute."""
    drawn = load_map(found, values)
    top = _round_up(max(values, default=0))
    most = max((value or 0 for row in drawn.rows for value in row.cells), default=0)
    return {
        "title": title,
        "words": _words(drawn, len(values)),
        "peaks": [
            f"{peak.clock} UTC: {peak.value:,} {noun}, {peak.when}"
            for peak in busiest(found, values)
        ],
        "left": _LEFT,
        "top": _TOP,
        "plot": _PLOT,
        "bars_height": _TOP + _PLOT + 34,
        "gaps": [_gap(found, gap.begin, gap.end) for gap in found.outages],
        "grid": [(_TOP + _PLOT * (1 - share), f"{top * share:,.0f}") for share in (0, 0.5, 1)],
        "bars": [*_bars(found, values, top)],
        "labels": [
            (
                round(_LEFT + (_WIDTH - _LEFT) * n / 6),
                f"{found.minute(len(values) * n // 6):%m-%d %H:%M}",
            )
            for n in range(6)
        ],
        "row": _ROW,
        "map_height": (len(drawn.rows) + 1) * _ROW + 2,
        "ruler": [
            (_NAME + column * (_WIDTH - _NAME) / len(drawn.rows[0].cells), name)
            for column, name in drawn.shape.ruler.items()
        ],
        "rows": [(drawn.name(row), _cells(row, most)) for row in drawn.rows],
    }


def _words(drawn: LoadMap, minutes: int) -> str:
    step, cell = -(-minutes // _MOST_BARS), drawn.shape.per_cell
    bar = "a minute" if step == 1 else f"the busiest minute of {length(step)}"
    part = "a minute" if cell == 1 else f"the busiest minute of {length(cell)}"
    return f"Times are UTC. Each bar is {bar}, each cell below {part}."


def _bars(
    found: Simulation, values: Sequence[int], top: int
) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield a bar for the busiest minute of each of at most 300 stretches: x to height, title."""
    step = -(-len(values) // _MOST_BARS)
    slot = (_WIDTH - _LEFT) * step / len(values)
    for n, begin in enumerate(range(0, len(values), step)):
        value = max(values[begin : begin + step])
        if value:
            height = max(value / top * _PLOT, 1.0)
            place = _LEFT + n * slot, _TOP + _PLOT - height, max(slot - 0.4, 0.6), height
            x, y, width, high = (f"{each:.2f}" for each in place)
            yield x, y, width, high, f"{utc(found.minute(begin))}: {value:,}"


def _gap(found: Simulation, begin: datetime, end: datetime) -> tuple[str, str]:
    """Return where an outage begins in the chart, and how wide it is."""
    first = epoch_ms(found.first)
    scale = (_WIDTH - _LEFT) / (len(found.starts) * MINUTE_MS)
    x, width = (epoch_ms(begin) - first) * scale, (epoch_ms(end) - epoch_ms(begin)) * scale
    return f"{_LEFT + x:.1f}", f"{max(width, 1):.1f}"


def _cells(row: ReportRow, most: int) -> list[tuple[str, str, str, int]]:
    """Return the cells of a row: x, width, opacity and value; one outside the period is left out.

    An opacity of at least 0.1 keeps a single run visible.
    """
    width = (_WIDTH - _NAME) / len(row.cells)
    return [
        (
            f"{_NAME + n * width:.2f}",
            f"{width - 1:.2f}",
            f"{0.1 + 0.9 * value / most:.2f}" if value else "",
            value,
        )
        for n, value in enumerate(row.cells)
        if value is not None
    ]


def _round_up(highest: int) -> int:
    """Return the smallest round even number that is not below ``highest``."""
    size = 1
    while size * 10 < highest:
        size *= 10
    return next(size * n for n in (2, 4, 6, 8, 10) if size * n >= highest)
