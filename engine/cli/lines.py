"""One line per thing that happens, for a log, and above the live table of a terminal."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.cli.board import FileState, manner
from engine.cli.output import ASKED_LATER, UNANSWERED, console
from engine.ledger.fire_records import shown_timing
from engine.runtime.events import Alert, Applied, Closed, Decided, Event, Held, Remark, Settled

_REPEATED = 10
_BAD = {"failed", "timed_out", "terminated"}


class LinePrinter:
    """Prints events as they come; colours only on a terminal (``NO_COLOR`` is honoured).

    Attributes:
        on_closed: called when whoever read the lines has gone, as ``head`` when it has seen
            enough; in any thread. Nothing is printed from then on.
        closed: whether that has happened.
        last: what was said last, with its time and style.

    Args:
        out: where to; standard output without it.
        after: whose lines stand above the first one, and are repeated with these.
    """

    def __init__(self, out: Console | None = None, *, after: LinePrinter | None = None) -> None:
        self._console = out or console()
        self._lock = threading.Lock()
        self._told: tuple[str, ...] = ()
        self.last: deque[tuple[datetime, str, str]] = (
            after.last if after else deque(maxlen=_REPEATED)
        )
        self.on_closed: Callable[[], None] | None = None
        self.closed = False

    def say(self, text: str, style: str = "") -> None:
        """Print a sentence with the time before it."""
        now = datetime.now(UTC)
        self.last.append((now, text, style))
        self._say(now, text, style)

    def repeat(self) -> None:
        """Print again what was said last, after the screen has been wiped."""
        for said in list(self.last):
            self._say(*said)

    def _say(self, moment: datetime, text: str, style: str) -> None:
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
            # Rich takes ten times as long, which a worker feels when a thousand are due.
            self._console.file.write(f"{stamp}{indented}\n")
        elif self._console.soft_wrap:
            self._console.print(Text.assemble((stamp, "dim"), (indented, style)))
        else:
            line = Table.grid()  # where lines are folded, they are indented
            line.add_row(Text(stamp, "dim"), Text(text, style))
            self._console.print(line)
        self._console.file.flush()

    def show(self, file: FileState) -> None:
        """Say what is wrong with the schedule file, unless that was the last word on it."""
        told, self._told = self._told, file.problems
        if file.problems and file.problems != told:
            self.say(f"{file.trouble}\n" + "\n".join(file.problems), "red")

    async def run(self, project: str) -> None:
        """Nothing: a line is printed once."""

    def restore(self) -> None:
        """Nothing: the terminal is as it was."""

    def __call__(self, event: Event) -> None:
        """Print one event; what a person need not know is left out."""
        match event:
            case Settled(claim, outcome, lag) if outcome.status == "started":
                moment = f"{claim.fire_time:%Y-%m-%d %H:%M:%S}Z"
                words = manner(claim, outcome)
                if shown_timing(claim.kind, outcome.timing) not in ASKED_LATER:
                    words += f"  lag {lag.total_seconds():.3f} s"
                self.say(f"{claim.key:<16} {moment}  {words}  {claim.workflow_id}")
            case Settled(claim, outcome):
                why = outcome.reason or outcome.error or "no answer yet"
                status = UNANSWERED if outcome.status == "starting" else outcome.status
                self.say(f"{claim.key:<16} {status}: {why}  {claim.workflow_id}", "yellow")
            # What is rejected an alert says.
            case Decided(decision, workflow_id) if decision.verdict != "rejected":
                self.say(f"{decision.window.key:<16} {event}  {workflow_id}", "yellow")
            case Closed(evidence) if evidence.closed in _BAD:
                error = evidence.error or ""
                self.say(f"{evidence.workflow_id} {evidence.closed}: {error}", "red")
            case Applied(text, good):
                self._told = tuple(text.splitlines())
                self.say(text, "" if good else "red")
            case Remark(text, good):
                self.say(text, "" if good else "red")
            case Alert(code, text):
                self.say(f"{code}: {text}", "red")
            case Held(loop, reason):
                self.say(f"{loop} holds: {reason}" if reason else f"{loop} goes on", "yellow")
            case _:
                pass


def _give_up_stdout() -> None:
    """Send to nowhere what is still to be printed: nobody reads it, and that is no error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
