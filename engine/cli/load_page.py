"""The page of ``sched simulate --html``: one file, nothing to load, for light and for dark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape

from engine.cli.load_map import LoadMap, Row, busiest, length, load_map, utc
from engine.cli.load_text import dependency_remark, overlap_remark
from engine.cli.output import counted
from engine.schedules.instants import MINUTE_MS, epoch_ms
from engine.schedules.simulated import Fate, Outcome, Simulation

_WIDTH, _LEFT, _TOP, _PLOT = 960, 56, 10, 200
_BARS = 300
_NAME, _ROW = 130, 18
_SHOWN = 500

_STYLE = """
:root { color-scheme: light dark; --paper: #fbfaf8; --card: #fff; --ink: #1d2129;
  --quiet: #667085; --line: #e6e3de; --bar: #3f78c9; --gap: #cf3f5222; --none: #efedea; }
@media (prefers-color-scheme: dark) { :root { --paper: #14161a; --card: #1b1e24; --ink: #e7e9ed;
  --quiet: #98a0ae; --line: #2c313a; --bar: #5b93e4; --gap: #ef647433; --none: #23272e; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 3rem 2rem; max-width: 66rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
h1 { margin: 0; font-size: 2rem; letter-spacing: -.02em; }
h2 { margin: 0 0 .2rem; font-size: 1.1rem; }
p { margin: .1rem 0 1rem; color: var(--quiet); font-size: .95rem; }
section { margin-top: 1.5rem; padding: 1.4rem 1.6rem; overflow-x: auto; background: var(--card);
  border: 1px solid var(--line); border-radius: 10px; }
svg { display: block; width: 100%; min-width: 40rem; height: auto; }
svg text { fill: var(--quiet); font-size: 13px; }
.grid { stroke: var(--line); } .bar { fill: var(--bar); } .gap { fill: var(--gap); }
.none { fill: var(--none); }
ol { margin: 1rem 0 0; padding-left: 1.4rem; }
table { width: 100%; border-collapse: collapse; font-size: .92rem; }
th { color: var(--quiet); font-weight: 500; }
th, td { padding: .45rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { padding-left: 0; text-align: left; overflow-wrap: anywhere; }
tr:last-child td { border-bottom: 0; font-weight: 600; }
td.zero { color: var(--quiet); }
"""


def page(found: Simulation, name: str) -> str:
    """Return the page about a simulated file called ``name``."""
    windows = sum(fate.windows for fate in found.fates)
    said = f"{counted(len(found.fates), 'schedule')}, {windows:,} windows"
    charts = [_section(found, found.starts, "Starts per minute", "starts")]
    if any(found.most_open):
        charts.append(_section(found, found.most_open, "Open runs", "open at once"))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(name)} simulated</title><style>{_STYLE}</style></head><body>"
        f"<header><h1>{escape(name)}</h1><p>Simulated from {utc(found.start)} to "
        f"{utc(found.end)}: {said}{_outages(found)}</p></header>"
        f"{''.join(charts)}{_table(found)}</body></html>\n"
    )


def _outages(found: Simulation) -> str:
    gaps = [f"{utc(gap.begin)} to {utc(gap.end)}" for gap in found.outages]
    return f"<br>Outages: {'; '.join(gaps)}" if gaps else ""


def _section(found: Simulation, values: Sequence[int], title: str, noun: str) -> str:
    peaks = "".join(
        f"<li>{peak.clock} UTC: {peak.value:,} {noun}, {peak.when}</li>"
        for peak in busiest(found, values)
    )
    drawn = load_map(found, values)
    return (
        f"<section><h2>{title}</h2><p>{_words(drawn, len(values))}</p>"
        f"{_bars(found, values, title)}"
        f"{_heat(drawn, title)}{f'<ol>{peaks}</ol>' if peaks else ''}</section>"
    )


def _words(drawn: LoadMap, minutes: int) -> str:
    step, cell = -(-minutes // _BARS), drawn.per_cell
    bar = "a minute" if step == 1 else f"the busiest minute of {length(step)}"
    part = "a minute" if cell == 1 else f"the busiest minute of {length(cell)}"
    return f"Times are UTC. Each bar is {bar}, each cell below {part}."


def _bars(found: Simulation, values: Sequence[int], title: str) -> str:
    """Draw the busiest minute of each of at most some hundreds of stretches, over time."""
    step = -(-len(values) // _BARS)
    top = _round_up(max(values, default=0))
    slot = (_WIDTH - _LEFT) * step / len(values)
    parts = [_gap(found, gap.begin, gap.end) for gap in found.outages]
    for share in (0, 0.5, 1):
        y = _TOP + _PLOT * (1 - share)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y}" y2="{y}"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{top * share:,.0f}</text>'
        )
    for n, begin in enumerate(range(0, len(values), step)):
        value = max(values[begin : begin + step])
        if value:
            height = max(value / top * _PLOT, 1.0)
            parts.append(
                f'<rect class="bar" x="{_LEFT + n * slot:.2f}" y="{_TOP + _PLOT - height:.1f}" '
                f'width="{max(slot - 0.4, 0.6):.2f}" height="{height:.1f}">'
                f"<title>{utc(found.minute(begin))}: {value:,}</title></rect>"
            )
    for n in range(6):
        x = _LEFT + (_WIDTH - _LEFT) * n / 6
        label = f"{found.minute(len(values) * n // 6):%m-%d %H:%M}"
        parts.append(f'<text x="{x:.0f}" y="{_TOP + _PLOT + 18}">{label}</text>')
    return _svg(_TOP + _PLOT + 34, title, parts)


def _gap(found: Simulation, begin: datetime, end: datetime) -> str:
    first = epoch_ms(found.first)
    scale = (_WIDTH - _LEFT) / (len(found.starts) * MINUTE_MS)
    x, width = (epoch_ms(begin) - first) * scale, (epoch_ms(end) - epoch_ms(begin)) * scale
    return (
        f'<rect class="gap" x="{_LEFT + x:.1f}" y="{_TOP}" width="{max(width, 1):.1f}" '
        f'height="{_PLOT}"><title>outage</title></rect>'
    )


def _heat(drawn: LoadMap, title: str) -> str:
    top = max((value or 0 for row in drawn.rows for value in row.cells), default=0)
    width = (_WIDTH - _NAME) / (drawn.per_row // drawn.per_cell)
    parts = [
        f'<text x="{_NAME + column * width:.1f}" y="13">{name}</text>'
        for column, name in drawn.ruler.items()
    ]
    for n, row in enumerate(drawn.rows, start=1):
        parts.append(f'<text x="0" y="{n * _ROW + 13}">{drawn.name(row)}</text>')
        parts += _heat_row(row, n * _ROW, top)
    return _svg((len(drawn.rows) + 1) * _ROW + 2, f"{title}, as a map", parts)


def _heat_row(row: Row, y: int, top: int) -> list[str]:
    width = (_WIDTH - _NAME) / len(row.cells)
    parts = []
    for n, value in enumerate(row.cells):
        if value is None:
            continue
        # A tenth is still seen, so that one run is told from none.
        look = f'class="bar" opacity="{0.1 + 0.9 * value / top:.2f}"' if value else 'class="none"'
        parts.append(
            f'<rect {look} x="{_NAME + n * width:.2f}" y="{y}" width="{width - 1:.2f}" '
            f'height="{_ROW - 2}"><title>{value:,}</title></rect>'
        )
    return parts


def _table(found: Simulation) -> str:
    names = [*found.totals]
    fates = sorted(found.fates, key=lambda fate: (-fate.windows, fate.key))
    heads = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in names)
    rows = "".join(_table_row(fate, names) for fate in fates[:_SHOWN])
    more = len(fates) - _SHOWN
    note = f"<p>Of {len(fates):,} schedules the {_SHOWN} with most windows.</p>" if more > 0 else ""
    return (
        f"<section><h2>What becomes of each window</h2>{note}<table><tr><th>key</th>"
        f"<th>windows</th>{heads}</tr>{rows}{_table_row(found.total, names)}</table>"
        f"{_remark(found)}</section>"
    )


def _remark(found: Simulation) -> str:
    remarks = (overlap_remark(found), dependency_remark(found))
    return "".join(f"<p>{escape(remark)}</p>" for remark in remarks if remark)


def _table_row(fate: Fate, names: Sequence[Outcome]) -> str:
    cells = (fate.counts.get(name, 0) for name in names)
    numbers = "".join(
        f"<td>{count:,}</td>" if count else '<td class="zero">0</td>' for count in cells
    )
    return f"<tr><td>{escape(fate.key)}</td><td>{fate.windows:,}</td>{numbers}</tr>"


def _round_up(highest: int) -> int:
    """Return the smallest round even number from ``highest`` upwards."""
    size = 1
    while size * 10 < highest:
        size *= 10
    return next(size * n for n in (2, 4, 6, 8, 10) if size * n >= highest)


def _svg(height: int, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )
