"""Live table and log lines of ``sched up``."""

from __future__ import annotations

import logging
import os
import sys
import threading
from asyncio import TaskGroup
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Self

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
    effort_text,
    escaped,
    fire_lag,
    relative,
    run_link,
    shown_status,
    table_lines,
    took,
    why,
)
from engine.cli.target import LazyService, Target
from engine.cli.up.file_watch import FileState
from engine.ledger import SURELY_NOT_RUN, Claim, Outcome
from engine.runtime.events import (
    AlreadyCancelled,
    Applied,
    Closed,
    Decided,
    Event,
    Settled,
    Stopped,
    entry_of,
    logger,
)
from engine.runtime.loop import Loop
from engine.schedules import utc_text
from engine.service import Fire, NextFire, Status
from engine.telemetry.logs import logs_events

# --- table ---
# Rendering of the live table. Pure: time and terminal size are arguments.

WRONG: Final[tuple[Status, ...]] = (
    *("failed", "timed_out", "terminated"),
    *("rejected", "expired", "unvouched"),
)
"""Statuses that may need attention: their windows are shown longer than others."""
_BROKEN_LINES = 6
_REFUSED = 3
_LEAST_ROWS = 3
_ABOVE = 8
"""One line in this many is reserved for messages above the table."""
_NOW = timedelta(seconds=5)
"""Grace before a due window is shown as due: until then it may be starting."""
_WIDE = 110
"""Width of a terminal with room for the fire time in UTC as well."""
_LONGEST_KEY = 28
_COUNTED = 10_000
"""Rows of the ledger that are counted at most, the newest: it is done for each burst of events."""


@dataclass(slots=True)
class TableContent:
    """Content of the live table.

    Attributes:
        fires: the newest fires, as the ledger has them.
        wrong: the newest fires that may need attention.
        upcoming: the next fires; None while they are unknown.
        timezones: the time zones of schedules by key; the default is UTC.
        file: the state of the schedule file; None while it is unknown.
        counts: the windows since the start by status.
    """

    fires: Sequence[Fire] = ()
    wrong: Sequence[Fire] = ()
    upcoming: Sequence[NextFire] | None = None
    timezones: dict[str, str] = field(default_factory=dict)
    file: FileState | None = None
    counts: Mapping[Status, int] = field(default_factory=dict)

    def set_file(self, file: FileState) -> None:
        """Set the state of the schedule file; if nothing was to fire, that is now unknown."""
        self.file, self.upcoming = file, self.upcoming or None

    def expect(self, upcoming: Sequence[NextFire]) -> None:
        """Set the next fires as read from the ledger.

        An empty list counts only once the file is applied, or is broken and will not be.
        """
        known = self.file is None or self.file.since or self.file.problems
        self.upcoming = upcoming if upcoming or known else None
        self.timezones |= {fire.key: fire.timezone for fire in upcoming}

    def foremost(self, room: int) -> tuple[Sequence[Fire], Sequence[Fire]]:
        """Return the newest fires, and older ones that went wrong.

        The latter fill at most a third of the room, plus one row for a heading.
        """
        older = _without(self.fires[: room - room // 3 - 1], self.wrong)[: room // 3]
        newest = self.fires[: room - len(older) - bool(older)]
        return newest, _without(newest, older)


def _without(shown: Iterable[Fire], fires: Iterable[Fire]) -> Sequence[Fire]:
    runs = {fire.workflow_id for fire in shown}
    return [fire for fire in fires if fire.workflow_id not in runs]


def picture(
    view: TableContent,
    now: datetime,
    width: int,
    height: int,
    run_address: Callable[[str, str], str] | None = None,
) -> RenderableType:
    """Return the whole live region for a terminal of this size."""
    below = [Text(), *_next_lines(view.upcoming, now), Text(), *_file_lines(view.file)]
    room = height - len(below) - 5 - height // _ABOVE  # headings and counts
    newest, wrong = view.foremost(max(_LEAST_ROWS, room))
    fires = [*newest, *wrong]
    lines = [Text("no window yet", "dim")]
    if fires:
        rows = [_row(fire, view.timezones.get(fire.key, "UTC"), width) for fire in fires]
        lines = table_lines(_COLUMNS, rows, optional=_SPARE, spare=_SPARE, room=width)
        lines[0].stylize("bold")
        for fire, line in zip(fires, lines[1:], strict=True):
            if run_address and fire.run_id:
                line.stylize(f"link {run_address(fire.workflow_id, fire.run_id)}")
        if wrong:
            lines.insert(len(newest) + 1, Text("…  earlier problems", "dim"))
    return Group(Text(), *lines, Text(), _counts(view.counts), *below)


_SHOWN_AS: Final[Mapping[Status, str]] = {"starting": UNANSWERED}
_COLUMNS = ("KEY", "FIRE TIME", "UTC", "LAG", "TOOK", "STATUS", "RUN")
_SPARE = ("UTC", "TOOK", "RUN")


def _row(fire: Fire, timezone: str, width: int) -> tuple[object, ...]:
    """Return the cells of one fire; if it went wrong, the reason comes before the run's id."""
    key, moment = fire.key, fire.fire_time
    run = fire.workflow_id if fire.status not in SURELY_NOT_RUN else ""
    timing = (fire.timing or "").replace("_", " ").removeprefix("on time")
    note = "; ".join(filter(None, [effort_text(fire.tries, fire.step_retries), timing, why(fire)]))
    wrong = fire.status in WRONG or fire.is_stuck
    return (
        key if len(key) <= _LONGEST_KEY else f"{key[: _LONGEST_KEY - 1]}…",
        clock(moment, timezone, seconds=True),
        f"{moment:%H:%M:%S}Z" if timezone != "UTC" and width >= _WIDE else "",
        fire_lag(fire),
        took(fire.duration_ms),
        shown_status(fire),
        "  ".join(filter(None, [note, run] if wrong else [run, note])),
    )


def _counts(counts: Mapping[Status, int]) -> Text:
    if not counts:
        return Text("no window since the start", "dim")
    shown = sorted((_SHOWN_AS.get(status, status), count) for status, count in counts.items())
    parts = [Text(f"{count} {status}", colour_of(status)) for status, count in shown]
    whole = sum(counts.values()) < _COUNTED
    return Text(" · ").join(parts).append("  since the start" if whole else "  of late", "dim")


def _next_lines(upcoming: Sequence[NextFire] | None, now: datetime) -> list[Text]:
    if upcoming is None:
        return []
    if not upcoming:
        return [Text("nothing will fire", style="dim")]
    # What no worker has started for a while is due.
    words = [
        f"due {relative(at, now)}" if at < now - _NOW else relative(max(at, now), now)
        for at in (fire.fire_time for fire in upcoming)
    ]
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


def _file_lines(file: FileState | None) -> list[Text]:
    if file is None:
        return []
    name, count = file.name, counted(file.schedules, "schedule")
    if file.problems:
        head = Text(file.warning, "bold red")
        return [head, *_first(file.problems, _BROKEN_LINES, f"sched check {name}")]
    applied = f"applied {file.since:%H:%M:%S}Z" if file.since else "not applied yet"
    text = Text.assemble((f"{name}  ", "bold"), f"{count}, {applied}; saving it applies it")
    refused = _first(
        [f"not applied: {each}" for each in file.refused], _REFUSED, f"sched apply {name}"
    )
    for line in refused:  # each for as long as that lasts
        line.no_wrap, line.overflow = True, "ellipsis"
    return [text, *refused]


def _first(sentences: Sequence[str], most: int, command: str) -> list[Text]:
    """Return the first sentences as lines, and the command that shows the others."""
    more = [f"and {len(sentences) - most} more: {command}"] if len(sentences) > most else []
    return [Text(f"  {each}", "red") for each in [*sentences[:most], *more]]


# --- log lines ---
# One line per event, for a log or above the live table of a terminal.

_REPEATED = 10
_BAD = {"failed", "timed_out", "terminated"}
_LEVELS = {"yellow": logging.WARNING, "red": logging.ERROR}
_COLOURS = {level: colour for colour, level in _LEVELS.items()}


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
        text = escaped(text)
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

    async def run(self) -> None:
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
            case Decided() | Closed() | Stopped() | AlreadyCancelled():
                pass
            case _ if entry := entry_of(event):
                if isinstance(event, Applied):
                    self._reported = tuple(event.text.splitlines())
                self.log(entry.text, _COLOURS.get(entry.level, ""))


def manner(claim: Claim, outcome: Outcome) -> str:
    """Return how a window was started: ``on time``, ``first sight``, ``caught up, …``."""
    words = claim.reason_code if claim.reason_code == "first_sight" else outcome.timing or ""
    caught_up = f", stands for {claim.missed} missed" if claim.missed else ""
    return words.replace("_", " ") + caught_up


def _give_up_stdout() -> None:
    """Discard further output: the reader has closed the pipe, which is no error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


# --- terminal ---
# The terminal of ``sched up``: a live table at the bottom, and messages that scroll above it.

_DRAW, _READ = timedelta(seconds=0.5), timedelta(seconds=2)
"""Intervals: for drawing, and for reading the ledger when nothing happens."""
_HERD = 0.1
"""Seconds in which the events of a burst are read at once."""
_NEXT, _FIRES, _PROBLEMS = 5, 100, 30
_RECENT = timedelta(days=1)
"""Age up to which a window that went wrong is shown after others have scrolled away."""


def wants_live(*, lines: bool) -> bool:
    """Return whether a live table can be shown: on a terminal without other output."""
    out = console()
    return not (lines or logs_events()) and sys.stdout.isatty() and not out.is_dumb_terminal


class Screen:
    """Live display of events on a terminal; ``LinePrinter`` is its counterpart for a log.

    Output of the user's own steps appears above the table.

    Args:
        target: the target whose Web UI the runs link to.
        lazy: the service for what the table shows.
        project: the project whose next fires it shows.
        after: the printer of the lines above the table.
    """

    def __init__(
        self, target: Target, lazy: LazyService, project: str, *, after: LinePrinter
    ) -> None:
        self._target, self._lazy, self._project = target, lazy, project
        self._view, self._since = TableContent(), datetime.now(UTC)
        self._zones_of: FileState | None = None
        self._console = console(wraps=True)
        self._live = Live(console=self._console, auto_refresh=False)
        self._lines = LinePrinter(self._console, after=after)
        self._size = self._console.size
        self._drawing = Loop("live table", self._redraw, on_event=self)
        self._reading = Loop("what is next", lambda: self._read(datetime.now(UTC)), on_event=self)

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
        if isinstance(event, (Settled, Decided, Closed)):
            self._reading.wake_within(_HERD)
        else:
            self._lines(event)

    def log(self, text: str, style: str = "") -> None:
        """Print a sentence above the table."""
        self._lines.log(text, style)

    def show(self, file: FileState) -> None:
        """Show the state of the schedule file."""
        self._view.set_file(file)
        self._drawing.wake()

    def restore(self) -> None:
        """Restore the terminal at once."""
        self._live.stop()

    async def run(self) -> None:
        """Draw, and read the ledger, until cancelled."""
        async with TaskGroup() as group:
            for loop in (self._drawing, self._reading):
                group.create_task(loop.run())

    async def _read(self, now: datetime) -> timedelta:
        view = self._view
        async with self._lazy.service() as service:
            fires = await service.fires(limit=_FIRES)
            view.fires = [fire for fire in fires if fire.fire_time <= now]  # not skipped in advance
            wrong = [each for each in await service.failing(limit=_PROBLEMS) if each.is_stuck]
            for status in WRONG:
                wrong += await service.fires(status=status, limit=_PROBLEMS)
            recent = (each for each in wrong if now - _RECENT < each.fire_time <= now)
            view.wrong = sorted(recent, key=lambda each: each.fire_time, reverse=True)
            view.counts = await service.count_windows(self._since, now, most=_COUNTED)
            file = view.file
            if file is not self._zones_of:
                rows = await service.schedules(self._project)
                view.timezones |= {row.key: row.schedule.timezone for row in rows if row.schedule}
                self._zones_of = file
            upcoming = await service.upcoming(self._project, _NEXT)
            if file is view.file:  # else the read may predate the file's new state
                view.expect(upcoming)
        self._drawing.wake()
        return _READ

    async def _redraw(self) -> timedelta:
        self._draw()
        return _DRAW

    def _draw(self) -> None:
        size = self._console.size
        if size != self._size:
            self._size = size
            # Terminals differ in how they move lines on a resize: the old table may be anywhere.
            with self._console:  # in one log, to avoid flicker
                self._console.clear()
                self._lines.repeat()
        shown = picture(self._view, datetime.now(UTC), size.width, size.height, self._address)
        self._live.update(shown, refresh=True)

    def _address(self, workflow_id: str, run_id: str) -> str:
        return run_link(self._target.ui_url or "", self._target.namespace, workflow_id, run_id)
