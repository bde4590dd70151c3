"""Live table and log lines of ``sched up``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, Self

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from engine.cli.output import (
    ASKED_LATER,
    UNANSWERED,
    clock,
    colour_of,
    console,
    counted,
    relative,
    run_link,
)
from engine.cli.target import LazyService, Target
from engine.cli.up.board import WRONG, Board, BoardLine, FileState, manner
from engine.ledger import SURELY_NOT_RUN
from engine.runtime.events import (
    Alert,
    Applied,
    Closed,
    Decided,
    Degraded,
    Event,
    Notice,
    Recovered,
    ServerAway,
    ServerBack,
    Settled,
    logger,
)
from engine.runtime.loop import Loop
from engine.schedules import utc_text
from engine.service import NextFire

# --- table ---
# Rendering of the live table with rich. Pure: time and terminal size are arguments.

_BROKEN_LINES = 6
_REFUSED = 3
_PRECISE = 10.0
"""Seconds of lag below which milliseconds are shown."""
_LEAST_ROWS = 3
_ABOVE = 8
"""One line in this many is reserved for messages above the table."""
_NOW = timedelta(seconds=5)
"""Grace before a due window is shown as due: until then it may be starting."""
_WIDE = 110
"""Width of a terminal with room for the fire time in UTC as well."""
_GAP, _LONGEST_KEY, _LEAST_RUN = 2, 28, 12
_JUSTIFY: dict[str, Literal["right"]] = {"LAG": "right", "TOOK": "right"}


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
    newest: list[BoardLine],
    wrong: list[BoardLine],
    width: int,
    run_address: Callable[[str, str], str] | None,
) -> RenderableType:
    lines = [*newest, *wrong]
    if not lines:
        return Text("no window yet", style="dim")
    elsewhere = any(line.timezone != "UTC" for line in lines)
    rows = [_cells(line, utc=elsewhere and width >= _WIDE) for line in lines]
    widths, room = _widths(rows, width)
    if room < _LEAST_RUN or not any(line.took for line in lines):
        for row in rows:
            del row["TOOK"]
        widths, room = _widths(rows, width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name, needed in widths.items():
        table.add_column(name, no_wrap=True, width=needed, justify=_JUSTIFY.get(name, "left"))
    if room >= _LEAST_RUN:
        table.add_column("RUN", no_wrap=True)
    for number, (line, row) in enumerate(zip(lines, rows, strict=True)):
        if number == len(newest):
            table.add_row(Text("…", "dim"), Text("earlier problems", "dim"))
        run = _run(line, room, run_address)
        status = Text(row.pop("STATUS"), style=colour_of(line.status))
        table.add_row(*row.values(), status, *([run] if room >= _LEAST_RUN else []))
    return table


def _widths(rows: Sequence[Mapping[str, str]], width: int) -> tuple[dict[str, int], int]:
    """Return the widths of the columns, and what is left for the run."""
    widths = {name: max(len(name), *(cell_len(row[name]) for row in rows)) for name in rows[0]}
    return widths, width - sum(widths.values()) - _GAP * len(widths)


def _cells(line: BoardLine, *, utc: bool) -> dict[str, str]:
    return {
        "KEY": line.key if len(line.key) <= _LONGEST_KEY else f"{line.key[: _LONGEST_KEY - 1]}…",
        "FIRE TIME": clock(line.fire_time, line.timezone, seconds=True),
        **({"UTC": f"{line.fire_time:%H:%M:%S}Z"} if utc else {}),
        "LAG": _seconds(line.lag),
        "TOOK": _seconds(line.took),
        "STATUS": line.status,
    }


def _run(line: BoardLine, room: int, run_address: Callable[[str, str], str] | None) -> Text:
    """Return the run id and a note; if the run went wrong, the note, and the id if it fits."""
    run = Text(line.workflow_id if line.status not in SURELY_NOT_RUN else "")
    told = [line.effort, line.note if line.note != "on time" else ""]
    note = Text("; ".join(filter(None, told)), "dim")
    parts = [run, note]
    if note and line.status in WRONG:
        fits = note.cell_len + _GAP + run.cell_len <= room
        parts = [note, run] if fits else [note]
    shown = Text("  ").join(part for part in parts if part)
    if run_address and line.run_id:
        shown.stylize(f"link {run_address(line.workflow_id, line.run_id)}")
    shown.truncate(room, overflow="ellipsis")  # keeps the other columns whole
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
        utc = "" if local.endswith("UTC") else f"  {utc_text(fire.fire_time)}"
        lines.append(text.append(f"{local}{utc}", "not bold"))
    return lines


def _from_now(moment: datetime, now: datetime) -> str:
    if moment < now - _NOW:
        return f"due {relative(moment, now)}"  # no worker has started it
    return relative(max(moment, now), now)


def _file_lines(file: FileState | None) -> list[Text]:
    if file is None:
        return []
    if not file.problems:
        count = counted(file.schedules, "schedule")
        text = Text(f"{file.name}  ", style="bold")
        applied = f"applied {file.since:%H:%M:%S}Z" if file.since else "not applied yet"
        text.append(f"{count}, {applied}; saving it applies it", "not bold")
        return [text, *_refused_lines(file)]
    head = Text(file.warning, style="bold red")
    shown = [Text(f"  {problem}", style="red") for problem in file.problems[:_BROKEN_LINES]]
    if (more := len(file.problems) - _BROKEN_LINES) > 0:
        shown.append(Text(f"  and {more} more: sched check {file.name}", style="red"))
    return [head, *shown]


def _refused_lines(file: FileState) -> list[Text]:
    """Return a line for each key that is not applied, for as long as that lasts."""
    shown = [Text(f"  not applied: {each}", style="red") for each in file.refused[:_REFUSED]]
    for line in shown:
        line.no_wrap, line.overflow = True, "ellipsis"
    if (more := len(file.refused) - _REFUSED) > 0:
        shown.append(Text(f"  and {more} more: sched apply {file.name}", style="red"))
    return shown


def _seconds(time: timedelta | None) -> str:
    if time is None:
        return ""
    seconds = max(time.total_seconds(), 0.0)
    return f"{seconds:.3f} s" if seconds < _PRECISE else f"{seconds:,.1f} s"


# --- log lines ---
# One line per event, for a log or above the live table of a terminal.

_REPEATED = 10
_BAD = {"failed", "timed_out", "terminated"}
_LEVELS = {"yellow": logging.WARNING, "red": logging.ERROR}


class LinePrinter:
    """Printer of events as they come; colours only on a terminal (``NO_COLOR`` is honoured).

    Attributes:
        on_closed: called, in any thread, when the reader closes the pipe, as ``head`` does.
            Nothing is printed from then on.
        closed: whether the reader has closed the pipe.
        last: the last lines, with time and style.

    Args:
        out: the console; the default is standard output.
        after: the printer of the lines above; ``repeat`` prints its lines too.
        logs: whether the log has every event, so that only sentences are left, for the log too.
    """

    def __init__(
        self, out: Console | None = None, *, after: LinePrinter | None = None, logs: bool = False
    ) -> None:
        self._console, self._logs = out or console(), logs
        self._lock = threading.Lock()
        self._reported: tuple[str, ...] = ()
        self.last: deque[tuple[datetime, str, str]] = (
            after.last if after else deque(maxlen=_REPEATED)
        )
        self.on_closed: Callable[[], None] | None = None
        self.closed = False

    def log(self, text: str, style: str = "") -> None:
        """Print a sentence with a timestamp."""
        if self._logs:
            logger.log(_LEVELS.get(style, logging.INFO), "%s", text)
            return
        now = datetime.now(UTC)
        self.last.append((now, text, style))
        self._log(now, text, style)

    def repeat(self) -> None:
        """Print the last lines again after the screen was cleared."""
        for line in list(self.last):
            self._log(*line)

    def _log(self, moment: datetime, text: str, style: str) -> None:
        with self._lock:
            if self.closed:
                return
            try:
                self._print(f"{moment:%H:%M:%S}  ", text, style)
            except BrokenPipeError:
                self.closed = True
                _give_up_stdout()
        if self.closed and self.on_closed:
            self.on_closed()

    def _print(self, stamp: str, text: str, style: str) -> None:
        indented = text.replace("\n", "\n" + " " * len(stamp))
        if not self._console.is_terminal:
            # Rich takes ten times as long, which slows a worker down when a thousand are due.
            self._console.file.write(f"{stamp}{indented}\n")
        elif self._console.soft_wrap:
            self._console.print(Text.assemble((stamp, "dim"), (indented, style)))
        else:
            line = Table.grid()  # indents wrapped lines
            line.add_row(Text(stamp, "dim"), Text(text, style))
            self._console.print(line)
        self._console.file.flush()

    def show(self, file: FileState) -> None:
        """Print the problems of the schedule file unless they were reported last."""
        before, self._reported = self._reported, file.problems
        if file.problems and file.problems != before:
            self.log(f"{file.warning}\n" + "\n".join(file.problems), "red")

    async def run(self, project: str) -> None:
        """Do nothing: unlike a table, a line is printed once."""

    def restore(self) -> None:
        """Do nothing: the terminal is unchanged."""

    def __call__(self, event: Event) -> None:
        """Print one event unless it is of no interest to people, or the log has it."""
        if not self._logs:
            self._show_event(event)

    def _show_event(self, event: Event) -> None:
        match event:
            case Settled(claim, outcome, lag) if outcome.status == "started":
                moment = utc_text(claim.fire_time)
                words = manner(claim, outcome)
                if outcome.timing not in ASKED_LATER:
                    words += f"  lag {lag.total_seconds():.3f} s"
                self.log(f"{claim.key:<16} {moment}  {words}  {claim.workflow_id}")
            case Settled(claim, outcome):
                why = outcome.reason or outcome.error or "no answer yet"
                status = UNANSWERED if outcome.status == "starting" else outcome.status
                self.log(f"{claim.key:<16} {status}: {why}  {claim.workflow_id}", "yellow")
            # An alert reports rejected windows.
            case Decided(decision, workflow_id) if decision.verdict != "rejected":
                self.log(f"{decision.window.key:<16} {event}  {workflow_id}", "yellow")
            case Closed(evidence) if evidence.closed in _BAD:
                error = evidence.error or ""
                self.log(f"{evidence.workflow_id} {evidence.closed}: {error}", "red")
            case Applied(text, good):
                self._reported = tuple(text.splitlines())
                self.log(text, "" if good else "red")
            case Notice(text, good, quiet=False):
                self.log(text, "" if good else "red")
            case Alert(code, text, quiet=False):
                self.log(f"{code}: {text}", "red")
            case Degraded(server=None) | Recovered(server=None) | ServerAway() | ServerBack():
                self.log(str(event), "yellow")
            case _:
                pass


def _give_up_stdout() -> None:
    """Discard further output: the reader has closed the pipe, which is no error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


# --- terminal ---
# The terminal of ``sched up``: a live table at the bottom, and messages that scroll above it.

_DRAW = 0.5
_HERD, _ASK = timedelta(seconds=0.1), timedelta(seconds=2)
"""Intervals: for drawing bursts of events at once, and for reading the next fires."""
_NEXT = 5
_REMEMBERED = 100


def logs_events() -> bool:
    """Return whether the log of this process has every event."""
    return logging.getLogger().isEnabledFor(logging.INFO)


def wants_live(*, lines: bool) -> bool:
    """Return whether a live table can be shown: on a terminal without other output."""
    out = console()
    return not (lines or logs_events()) and sys.stdout.isatty() and not out.is_dumb_terminal


class Screen:
    """Live display of events on a terminal; ``LinePrinter`` is its counterpart for a log.

    Output of the user's own steps appears above the table.

    Args:
        target: the target whose Web UI the runs link to.
        lazy: the service for earlier fires and next fires.
        timezones: the time zones of schedules by key; the default is UTC.
        after: the printer of the lines above the table.
    """

    def __init__(
        self, target: Target, lazy: LazyService, timezones: Mapping[str, str], *, after: LinePrinter
    ) -> None:
        self._target, self._lazy, self._timezones = target, lazy, timezones
        self._board = Board()
        self._console = console(wraps=True)
        self._live = Live(console=self._console, auto_refresh=False)
        self._lines = LinePrinter(self._console, after=after)
        self._size = self._console.size
        self._news = asyncio.Event()
        self._remembers = False

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._draw()
        finally:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """Process an event: windows go to the table, other events are printed."""
        self._board.on_event(event)
        if isinstance(event, (Settled, Decided, Closed)):
            self._news.set()
        else:
            self._lines(event)

    def log(self, text: str, style: str = "") -> None:
        """Print a sentence above the table."""
        self._lines.log(text, style)

    def show(self, file: FileState) -> None:
        """Show the state of the schedule file."""
        self._board.set_file(file)
        self._news.set()

    def restore(self) -> None:
        """Restore the terminal at once."""
        self._live.stop()

    async def run(self, project: str) -> None:
        """Draw, and read the next fires from the ledger, until cancelled."""

        async def ask() -> timedelta:
            async with self._lazy.service() as service:
                fires = await service.fires(limit=_REMEMBERED)
                if not self._remembers:
                    self._board.remember(fires, self._timezones)
                    self._remembers = True
                self._board.learn(fires)
                file = self._board.file
                upcoming = await service.upcoming(project, _NEXT)
                if file is self._board.file:  # else the read may predate the file's new state
                    self._board.expect(upcoming)
            return _ASK

        async with asyncio.TaskGroup() as group:
            for name, work in (("live table", self._redraw), ("what is next", ask)):
                group.create_task(Loop(name, work, on_event=self).run())

    async def _redraw(self) -> timedelta:
        """Draw, then wait for an event, at most half a second."""
        self._draw()
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAW):
                await self._news.wait()
        return _HERD

    def _draw(self) -> None:
        size = self._console.size
        if size != self._size:
            self._size = size
            self._wipe()
        shown = picture(self._board, datetime.now(UTC), size.width, size.height, self._address)
        self._live.update(shown, refresh=True)

    def _wipe(self) -> None:
        """Clear the screen and print the last lines again.

        Terminals differ in how they move lines on a resize, so the old table may be anywhere.
        """
        with self._console:  # in one log, to avoid flicker
            self._console.clear()
            self._lines.repeat()

    def _address(self, workflow_id: str, run_id: str) -> str:
        return run_link(self._target.ui_url or "", self._target.namespace, workflow_id, run_id)
