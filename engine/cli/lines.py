"""One line per thing that happens, for a terminal or a log."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from engine.runtime.events import Alert, Applied, Closed, Event, Held, Settled
from engine.schedules.planner import FIRST_SIGHT

_BAD = {"failed", "timed_out", "terminated"}


class LinePrinter:
    """Prints events as they come; colours only on a terminal (``NO_COLOR`` is honoured)."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._lock = threading.Lock()
        self._said: set[str] = set()

    def say(self, text: str, style: str = "", *, once: bool = False) -> None:
        """Print a sentence with the time before it."""
        if once:
            if text in self._said:
                return
            self._said.add(text)
        stamp = f"{datetime.now(UTC):%H:%M:%S}  "
        indented = text.replace("\n", "\n" + " " * len(stamp))
        dim, style = ("", "") if os.environ.get("NO_COLOR") else ("dim", style)
        line = Text.assemble((stamp, dim), (indented, style))
        with self._lock:
            self._console.print(line)
            self._console.file.flush()

    def __call__(self, event: Event) -> None:
        """Print one event; what a person need not know is left out."""
        match event:
            case Settled(claim, outcome, lag) if outcome.status == "started":
                moment = f"{claim.fire_time:%Y-%m-%d %H:%M:%S}Z"
                words = claim.reason if claim.reason == FIRST_SIGHT else outcome.timing or ""
                words = words.replace("_", " ")
                caught_up = f", stands for {claim.missed} missed" if claim.missed else ""
                text = (
                    f"{claim.key:<16} {moment}  {words}{caught_up}  lag {lag.total_seconds():.3f} s"
                )
                self.say(f"{text}  {claim.workflow_id}")
            case Settled(claim, outcome):
                why = outcome.reason or outcome.error or "no answer yet"
                status = "not answered" if outcome.status == "starting" else outcome.status
                self.say(f"{claim.key:<16} {status}: {why}  {claim.workflow_id}", "yellow")
            case Closed(evidence) if evidence.closed in _BAD:
                error = evidence.error or ""
                self.say(f"{evidence.workflow_id} {evidence.closed}: {error}", "red")
            case Applied(text, good):
                self.say(text, "" if good else "red")
            case Alert(code, text):
                self.say(f"{code}: {text}", "red")
            case Held(loop, reason):
                self.say(f"{loop} holds: {reason}" if reason else f"{loop} goes on", "yellow")
            case _:
                pass
