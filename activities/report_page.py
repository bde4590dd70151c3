"""The page: the second step of ``daily-report``. One HTML file that needs nothing else."""

from __future__ import annotations

import asyncio
import os
import uuid
from dataclasses import dataclass
from datetime import date
from html import escape
from pathlib import Path
from zoneinfo import ZoneInfo

from activities.report_charts import MOST_LAGS, hours_chart, lag_text, lags_chart
from activities.report_data import OUTCOMES, Day, Problem, ScheduleDay
from activities.report_style import STYLE
from engine import Retry, step

BAD = ("failed", "never started")


@dataclass
class Report:
    name: str
    day: Day


@dataclass
class Written:
    """The result of the run."""

    path: str
    date: str
    counts: dict[str, int]


@step(timeout=60, retry=Retry(max_attempts=5))
async def write_report(report: Report) -> Written:
    """Write the page; the same day goes to the same file, which is never half written."""
    folder = Path(os.environ.get("SCHED_DATA_DIR") or ".sched") / "reports"
    path = folder.absolute() / f"{report.name}-{report.day.date}.html"
    await asyncio.to_thread(_write, path, page(report))
    return Written(str(path), report.day.date, report.day.counts)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def page(report: Report) -> str:
    """Return the whole page; what comes from outside is escaped."""
    day = report.day
    title = f"{date.fromisoformat(day.date):%A, %-d %B %Y}"
    so_far = ", so far" if day.as_of < day.end else ""
    body = _sections(day) if day.counts else _NOTHING
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(report.name)} {escape(day.date)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<p>{escape(report.name)}</p>
<h1>{title}{so_far}</h1>
<p>{_span(day)}</p>
</header>
{body}
<footer>From the ledger's fire_history, as of {day.as_of:%Y-%m-%d %H:%M:%S} UTC.</footer>
</body>
</html>
"""


def _span(day: Day) -> str:
    """Say what is reported, in UTC; a day that is not over ends now."""
    end = min(day.end, day.as_of)
    until = f"{end:%H:%M}" if end.date() == day.start.date() else f"{end:%Y-%m-%d %H:%M}"
    zone = "" if day.timezone == "UTC" else f"{escape(day.timezone)} · "
    return f"{zone}{day.start:%Y-%m-%d %H:%M} to {until} UTC"


_NOTHING = """<section class="empty">
<h2>No fires that day</h2>
<p>The ledger has no window whose fire time was on it.</p>
</section>"""


_WORDS = (
    "Skipped includes expired; failed includes timed out, cancelled and terminated; never started "
    "is rejected or unvouched"
)


def _sections(day: Day) -> str:
    parts = [_totals(day), _hours(day)]
    if any(each.median_ms is not None for each in day.schedules):
        parts.append(_lags(day))
    if day.problems:
        parts.append(_problems(day))
    parts.append(_schedules(day))
    return "\n".join(parts)


def _totals(day: Day) -> str:
    shown = {"windows": sum(day.counts.values())} | {
        name: day.counts[name] for name in OUTCOMES if name in day.counts
    }
    items = "".join(
        f"<div><dt>{name}</dt><dd{_colour(name)}>{count:,}</dd></div>"
        for name, count in shown.items()
    )
    return f"<dl>{items}</dl>"


def _colour(name: str) -> str:
    return f' class="o{list(OUTCOMES).index(name)}"' if name in BAD else ""


def _hours(day: Day) -> str:
    legend = "".join(
        f'<li><i class="o{n}"></i>{name}</li>'
        for n, name in enumerate(OUTCOMES)
        if name in day.counts
    )
    unusual = f", a day of {len(day.hours)} hours" if len(day.hours) != 24 else ""  # noqa: PLR2004 - hours of a day
    return f"""<section>
<h2>Windows per hour</h2>
<p>By fire time, on the clocks of {escape(day.timezone)}{unusual}</p>
<ul class="legend">{legend}</ul>
{hours_chart(day.hours)}
</section>"""


def _lags(day: Day) -> str:
    measured = sum(each.median_ms is not None for each in day.schedules)
    which = f", the slowest {MOST_LAGS} of {measured:,}" if measured > MOST_LAGS else ""
    return f"""<section>
<h2>Punctuality</h2>
<p>From the fire time to the start of the run{which}; the scale is logarithmic</p>
<ul class="legend"><li><i class="median"></i>half of the runs within</li>
<li><i class="p95"></i>95 % within</li></ul>
{lags_chart(day.schedules)}{_left_out(day)}
</section>"""


def _left_out(day: Day) -> str:
    if not day.lags_left_out:
        return ""
    return (
        f'<p class="note">{day.lags_left_out:,} left out: their windows had opened before the '
        "schedule was known (first sight) or while no worker was there (caught up)</p>"
    )


def _problems(day: Day) -> str:
    zone = ZoneInfo(day.timezone)
    rows = "".join(_problem(each, zone) for each in day.problems)
    return f"""<section>
<h2>What needs somebody</h2>
<p>Failed, timed out, rejected and unvouched; the same again is one line, the latest first</p>
<table><thead><tr><th>last</th><th class="n">times</th><th>schedule</th><th>what</th></tr></thead>
<tbody>{rows}</tbody></table>
</section>"""


def _problem(problem: Problem, zone: ZoneInfo) -> str:
    local = problem.last.astimezone(zone)
    last = f'<time datetime="{problem.last.isoformat()}">{local:%H:%M:%S}</time>'
    return (
        f'<tr><td data-head="last">{last}</td>{_cell("times", f"{problem.times:,}")}'
        f'<td class="key">{escape(problem.key)}</td><td class="why">'
        f'<span class="bad">{escape(problem.status)}</span> {escape(problem.why)}'
        f"<small>{escape(problem.workflow_id)}</small></td></tr>"
    )


def _schedules(day: Day) -> str:
    heads = "".join(f'<th class="n">{name}</th>' for name in OUTCOMES)
    rows = "".join(_schedule(each) for each in day.schedules)
    left_out = day.schedules_left_out
    note = f"<p>and {left_out:,} more schedules</p>" if left_out else ""
    return f"""<section>
<h2>Schedules</h2>
<p>{_WORDS}</p>
<table><thead><tr><th>schedule</th><th class="n">windows</th>{heads}<th class="n">median lag</th>
<th class="n">95 %</th></tr></thead><tbody>{rows}</tbody></table>{note}
</section>"""


def _schedule(schedule: ScheduleDay) -> str:
    cells = [_cell("windows", f"{sum(schedule.counts.values()):,}")]
    for name in OUTCOMES:
        count = schedule.counts.get(name, 0)
        cells.append(_cell(name, f"{count:,}" if count else None, bad=name in BAD))
    for name, lag in (("median lag", schedule.median_ms), ("95 %", schedule.p95_ms)):
        cells.append(_cell(name, None if lag is None else lag_text(lag)))
    return f'<tr><td class="key">{escape(schedule.key)}</td>{"".join(cells)}</tr>'


def _cell(head: str, text: str | None, *, bad: bool = False) -> str:
    """Return a cell that can say its column: on a narrow page the row of heads is not shown."""
    classes = "n zero" if text is None else "n bad" if bad else "n"
    return f'<td class="{classes}" data-head="{head}">{text or "·"}</td>'
