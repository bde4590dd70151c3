"""The live table of ``sched up`` as rich draws it. Pure: the time and the terminal are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Literal

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from engine.cli.board import WRONG, Board, FileState, Line
from engine.cli.output import colour_of, counted
from engine.cli.times import clock, relative
from engine.ledger.schedule_records import NextFire

_BROKEN_LINES = 6
_PRECISE = 10.0
"""Seconds of lag below which milliseconds tell something."""
_LEAST_ROWS = 3
_ABOVE = 8
"""One line in so many is left for what is said above the table."""
_NOW = timedelta(seconds=5)
"""For so long a window that is due may simply be on its way."""
_WIDE = 110
"""Columns of a terminal that has room for the fire time in UTC as well."""
_GAP, _LONGEST_KEY, _LEAST_RUN = 2, 28, 12
_NO_RUN = frozenset({"skipped", "expired", "rejected"})
_JUSTIFY: dict[str, Literal["right"]] = {"LAG": "right"}


def picture(
    board: Board,
    now: datetime,
    width: int,
    height: int,
    run_address: Callable[[str, str], str] | None = None,
) -> RenderableType:
    """Return the whole live region for a terminal of this size."""
    below = [Text(), *_next_lines(board.upcoming, now), Text(), *_file_lines(board.file)]
    room = height - len(below) - 5 - height // _ABOVE  # headings and counts
    newest, wrong = board.foremost(max(_LEAST_ROWS, room))
    windows = _windows(newest, wrong, width, run_address)
    return Group(Text(), windows, _counts(board), *below)


def _windows(
    newest: list[Line],
    wrong: list[Line],
    width: int,
    run_address: Callable[[str, str], str] | None,
) -> RenderableType:
    lines = [*newest, *wrong]
    if not lines:
        return Text("no window yet", style="dim")
    elsewhere = any(line.timezone != "UTC" for line in lines)
    rows = [_cells(line, utc=elsewhere and width >= _WIDE) for line in lines]
    widths = {name: max(len(name), *(cell_len(row[name]) for row in rows)) for name in rows[0]}
    room = width - sum(widths.values()) - _GAP * len(widths)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name, needed in widths.items():
        table.add_column(name, no_wrap=True, width=needed, justify=_JUSTIFY.get(name, "left"))
    if room >= _LEAST_RUN:
        table.add_column("RUN", no_wrap=True)
    for number, (line, row) in enumerate(zip(lines, rows, strict=True)):
        if number == len(newest):
            table.add_row(Text("…", "dim"), Text("what went wrong before", "dim"))
        run = _run(line, room, run_address)
        status = Text(row.pop("STATUS"), style=colour_of(line.status))
        table.add_row(*row.values(), status, *([run] if room >= _LEAST_RUN else []))
    return table


def _cells(line: Line, *, utc: bool) -> dict[str, str]:
    return {
        "KEY": line.key if len(line.key) <= _LONGEST_KEY else f"{line.key[: _LONGEST_KEY - 1]}…",
        "FIRE TIME": clock(line.fire_time, line.timezone, seconds=True),
        **({"UTC": f"{line.fire_time:%H:%M:%S}Z"} if utc else {}),
        "LAG": _lag(line.lag),
        "STATUS": line.status,
    }


def _run(line: Line, room: int, run_address: Callable[[str, str], str] | None) -> Text:
    """The run's id and a note; where something went wrong, why, and the id if it fits whole."""
    run = Text(line.workflow_id if line.status not in _NO_RUN else "")
    note = Text(line.note if line.note != "on time" else "", "dim")
    parts = [run, note]
    if note and line.status in WRONG:
        fits = note.cell_len + _GAP + run.cell_len <= room
        parts = [note, run] if fits else [note]
    shown = Text("  ").join(part for part in parts if part)
    if run_address and line.run_id:
        shown.stylize(f"link {run_address(line.workflow_id, line.run_id)}")
    shown.truncate(room, overflow="ellipsis")  # a time or a status is worth more than a note
    return shown


def _counts(board: Board) -> RenderableType:
    text = Text("\n")
    shown = [(status, count) for status, count in sorted(board.counts.items()) if count]
    if not shown:
        return text.append("nothing has fired since the start", "dim")
    for number, (status, count) in enumerate(shown):
        text.append(" · " if number else "")
        text.append(f"{count} {status}", colour_of(status))
    return text.append("  since the start", "dim")


def _next_lines(upcoming: Sequence[NextFire] | None, now: datetime) -> list[Text]:
    if upcoming is None:
        return []
    if not upcoming:
        return [Text("nothing will fire", style="dim")]
    words = [_from_now(fire.fire_time, now) for fire in upcoming]
    key_width, width = max(len(fire.key) for fire in upcoming), max(map(len, words))
    lines = []
    for number, (fire, from_now) in enumerate(zip(upcoming, words, strict=True)):
        text = Text("      " if number else "next  ", "bold", no_wrap=True, overflow="ellipsis")
        text.append(f"{fire.key:<{key_width}}  ", "not bold")
        colour = "yellow" if from_now.startswith("due") else "cyan"
        text.append(f"{from_now:<{width}}  ", f"{colour} not bold")
        local = clock(fire.fire_time, fire.timezone, seconds=True)
        utc = "" if local.endswith("UTC") else f"  {fire.fire_time:%Y-%m-%d %H:%M:%S}Z"
        lines.append(text.append(f"{local}{utc}", "not bold"))
    return lines


def _from_now(moment: datetime, now: datetime) -> str:
    if moment < now - _NOW:
        return f"due {relative(moment, now)}"  # nobody has started it
    return relative(max(moment, now), now)


def _file_lines(file: FileState | None) -> list[Text]:
    if file is None:
        return []
    if not file.problems:
        count = counted(file.schedules, "schedule")
        text = Text(f"{file.name}  ", style="bold")
        applied = f"applied {file.since:%H:%M:%S}Z" if file.since else "not applied yet"
        text.append(f"{count}, {applied}; saving it applies it", "not bold")
        return [text]
    head = Text(file.trouble, style="bold red")
    shown = [Text(f"  {problem}", style="red") for problem in file.problems[:_BROKEN_LINES]]
    if (more := len(file.problems) - _BROKEN_LINES) > 0:
        shown.append(Text(f"  and {more} more: sched check {file.name}", style="red"))
    return [head, *shown]


def _lag(lag: timedelta | None) -> str:
    if lag is None:
        return ""
    seconds = lag.total_seconds()
    return f"{seconds:.3f} s" if seconds < _PRECISE else f"{seconds:,.1f} s"
