"""Applies the schedule file each time it is saved, and retires what it has lacked for long."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engine.cli.board import FileState
from engine.cli.desk import Desk
from engine.errors import (
    DefinitionUnreadable,
    EngineError,
    KeyForeign,
    LedgerUnavailable,
    PruneRefused,
    RevisionTooLow,
    ScheduleFileError,
)
from engine.runtime.declare import PRUNE_AFTER, ApplyReport
from engine.runtime.source import read_file
from engine.schedules import Schedule, ScheduleFile
from engine.schedules.diff import edits

_LOOK_EVERY_MS = 5_000
"""Also without a sign from the file system: some (network, container) give none."""
_SETTLE_MS = 500
"""Nothing is read before the folder has been quiet for so long (milliseconds): the first half
of a file may be valid, and mean something else."""
_NAMED = 12
_NOW = 0.0
"""Of the monotonic clock: at the next look."""
_REFUSED = (KeyForeign, RevisionTooLow, DefinitionUnreadable)


class FileWatch:
    """Follows one schedule file for ``sched up``.

    A file that is broken, or cannot be applied, changes nothing: the last good one goes on.

    Args:
        path: of the file; it may vanish and come back.
        begin: what it was when the replica was given it, or why it was not.
        desk: the ledger.
        living: how many schedules the ledger has, where ``begin`` is of no use.
        show: hears how the file stands.
        say: prints a sentence in a style.
        absent_for: after how long a key that the unchanged file lacks is retired.
    """

    def __init__(
        self,
        path: Path,
        begin: ScheduleFile | ScheduleFileError,
        desk: Desk,
        *,
        living: int,
        show: Callable[[FileState], None],
        say: Callable[[str, str], None],
        absent_for: timedelta = PRUNE_AFTER,
    ) -> None:
        self._path, self._desk, self._say, self._show = path, desk, say, show
        self._good = begin if isinstance(begin, ScheduleFile) else None
        self._seen = self._good.digest if self._good else None
        self._absent_for = absent_for
        self._prune_at: float | None = _NOW if self._good else None
        problems = () if self._good else tuple(str(begin).splitlines())
        count = len(self._good.schedules) if self._good else living
        self._state = FileState(str(path), datetime.now(UTC), count, problems)
        show(self._state)

    async def run(self) -> None:
        """Look until cancelled."""
        async for _ in self._signs():
            try:
                await self.turn()
            except EngineError as error:
                self._say(f"{self._path}: {error}", "yellow")

    async def _signs(self) -> AsyncIterator[None]:
        """Whenever something has happened in the file's folder, and every few seconds."""
        # Of the extra `embedded`: a worker's installation has no need of it.
        from watchfiles import awatch  # noqa: PLC0415

        try:
            async for _ in awatch(
                self._path.absolute().parent,
                watch_filter=None,  # an atomic save renames; a mounted volume swaps a link
                recursive=False,
                step=_SETTLE_MS,
                debounce=10 * _SETTLE_MS,
                rust_timeout=_LOOK_EVERY_MS,
                yield_on_timeout=True,
            ):
                yield
        except (OSError, RuntimeError) as error:  # the system has no watch left, the folder went
            every = timedelta(milliseconds=_LOOK_EVERY_MS)
            self._say(f"{self._path} is looked at every {every.seconds} s ({error})", "yellow")
            while True:
                await asyncio.sleep(every.total_seconds())
                yield

    async def turn(self) -> None:
        """Apply the file if it is another than before; retire what has been absent for long."""
        digest = await asyncio.to_thread(_digest, self._path)
        if digest != self._seen:
            await self._apply()
            self._seen = digest  # not before: a ledger that was away is tried again
        if self._good and self._prune_at is not None and time.monotonic() >= self._prune_at:
            await self._prune(self._good)

    async def _apply(self) -> None:
        try:
            file = await asyncio.to_thread(read_file, self._path)
            async with self._desk.service() as service:
                report = await service.apply(file)
        except (ScheduleFileError, *_REFUSED) as error:
            self._prune_at = None  # nothing is retired on the word of a file that is not applied
            self._tell(replace(self._state, problems=tuple(str(error).splitlines())))
            return
        before, self._good = self._good, file
        self._prune_at = _NOW
        for line in _news(file, before, report, self._absent_for):
            self._say(line, "")
        for problem in file.warnings:
            self._say(f"warning: {problem.located(file.name)}", "yellow")
        for remark in report.remarks:
            self._say(remark, "yellow")
        self._tell(FileState(str(self._path), datetime.now(UTC), len(file.schedules)))

    async def _prune(self, file: ScheduleFile) -> None:
        """Have noted what the file lacks, and once more when it has lacked it for long enough."""
        last = self._prune_at != _NOW
        try:
            async with self._desk.service() as service:
                retired = await service.prune(file, absent_for=self._absent_for)
        except LedgerUnavailable:
            raise  # at the next sign
        except PruneRefused:
            self._prune_at = None  # once is enough
            raise
        later = time.monotonic() + self._absent_for.total_seconds()
        self._prune_at = None if last else later
        if retired:
            self._say(f"retired, no longer in {self._path}: {', '.join(retired)}", "")

    def _tell(self, state: FileState) -> None:
        if self._state.problems and not state.problems:
            self._say(f"{self._path} is good again", "green")
        self._state = state
        self._show(state)


def _news(
    file: ScheduleFile, before: ScheduleFile | None, report: ApplyReport, absent_for: timedelta
) -> list[str]:
    """What an apply changed, a line for each of the first keys."""
    old = {schedule.key: schedule for schedule in before.schedules} if before else {}
    new = {schedule.key: schedule for schedule in file.schedules}
    lines = [f"+ {key}: {new[key].workflow}, {new[key].when}" for key in report.added]
    lines += [f"+ {key} is back: {new[key].when}" for key in report.returned]
    lines += [f"~ {key}: {_edits(old.get(key), new[key])}" for key in report.changed]
    lines += [
        f"- {key} is not in the file: retired in {absent_for.total_seconds():.0f} s"
        for key in report.absent
    ]
    more = [f"  and {len(lines) - _NAMED} more"] if len(lines) > _NAMED else []
    return [f"{file.name} applied: {report}", *lines[:_NAMED], *more]


def _edits(old: Schedule | None, new: Schedule) -> str:
    return ", ".join(edits(old, new)) if old else "changed"


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
