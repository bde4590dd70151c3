"""The terminal of ``sched up``: a live table at the bottom, other words scroll away above it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Self

from rich.live import Live

from engine.cli.board import Board, FileState
from engine.cli.desk import Desk
from engine.cli.environment import Target
from engine.cli.lines import LinePrinter
from engine.cli.links import run_link
from engine.cli.output import console
from engine.cli.picture import picture
from engine.runtime.events import Closed, Decided, Event, Settled
from engine.runtime.loop import Loop

_DRAW = 0.5
_HERD, _ASK = timedelta(seconds=0.1), timedelta(seconds=2)
"""A herd of news is drawn once; the ledger is asked what is next."""
_NEXT = 5
_REMEMBERED = 100


def wants_live(*, lines: bool) -> bool:
    """Whether a live table can be shown: on a terminal that nobody else writes to."""
    logs = logging.getLogger().isEnabledFor(logging.INFO)
    out = console()
    return not (lines or logs) and sys.stdout.isatty() and not out.is_dumb_terminal


class Screen:
    """Shows what happens; it is to a terminal what ``LinePrinter`` is to a log.

    What the user's own steps print goes above the table, too.

    Args:
        target: whose pages in the Web UI the runs link to.
        desk: asked for what was before, and what is next.
        timezones: of the schedules, by key; UTC for others.
        after: what has printed above the table.
    """

    def __init__(
        self, target: Target, desk: Desk, timezones: Mapping[str, str], *, after: LinePrinter
    ) -> None:
        self._target, self._desk, self._timezones = target, desk, timezones
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
        """Take in an event: windows go to the table, the rest is said."""
        self._board.hear(event)
        if isinstance(event, (Settled, Decided, Closed)):
            self._news.set()
        else:
            self._lines(event)

    def say(self, text: str, style: str = "") -> None:
        """Print a sentence above the table."""
        self._lines.say(text, style)

    def show(self, file: FileState) -> None:
        """Show how the schedule file stands."""
        self._board.stand(file)
        self._news.set()

    def restore(self) -> None:
        """Give the terminal back at once."""
        self._live.stop()

    async def run(self, project: str) -> None:
        """Draw, and ask the ledger, until cancelled."""

        async def ask() -> timedelta:
            async with self._desk.service() as service:
                if not self._remembers:
                    self._board.remember(await service.fires(limit=_REMEMBERED), self._timezones)
                    self._remembers = True
                file = self._board.file
                upcoming = await service.upcoming(project, _NEXT)
                if file is self._board.file:  # otherwise it may be what was before the file
                    self._board.expect(upcoming)
            return _ASK

        async with asyncio.TaskGroup() as group:
            for name, turn in (("live table", self._redraw), ("what is next", ask)):
                group.create_task(Loop(name, turn, tell=self).run())

    async def _redraw(self) -> timedelta:
        """Soon after news, and otherwise twice a second."""
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
        """Begin again on an empty screen.

        How a terminal moves lines when it is resized, and so where the old table is by now,
        differs from one to the next.
        """
        with self._console:  # all of it at once, so that nothing flickers
            self._console.clear()
            self._lines.repeat()

    def _address(self, workflow_id: str, run_id: str) -> str:
        return run_link(self._target.ui_url or "", self._target.namespace, workflow_id, run_id)
