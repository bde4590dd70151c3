"""File watch of sched up.

Applies the schedule file each time it is saved, and retires what it has lacked for long.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engine.cli.options import DEFAULT_DATA_DIR
from engine.cli.target import LazyService
from engine.cli.up.board import FileState
from engine.errors import LedgerUnavailable, PruneRefused, ScheduleFileError
from engine.runtime.apply.apply import PRUNE_AFTER
from engine.runtime.apply.attempts import REFUSALS, named, remarks, require_project
from engine.runtime.apply.source import Source, digest_of, read_aside
from engine.runtime.events import Applied, Event, Notice, OnEvent
from engine.runtime.loop import Loop
from engine.schedules import ScheduleFile

_LOOK_EVERY_MS = 5_000
"""Also without a sign from the file system: some (network, container) give none."""
_SETTLE = 0.5
"""Nothing is applied before it has been the same for so long (seconds): the first half of a file
may be valid, and mean something else."""
_SETTLED_BY = 10.0
"""Seconds after which what still changes is said to; it is looked at again later."""
_NOW = 0.0
"""Of the monotonic clock: at the next look."""


class FileWatch:
    """Follows one schedule file for ``sched up``.

    The replica applies the file it was started with and says how that went (``hear``); what is
    saved from then on is applied here. A file that is broken, or cannot be applied, changes
    nothing: the last good one goes on.

    Args:
        path: of the file; it may vanish and come back.
        begin: what it was when the replica was given it, or why it was not.
        desk: the ledger.
        project: that the replica serves.
        living: how many schedules the ledger has, where ``begin`` is of no use.
        types: the workflows that the worker runs, whose inputs are compared with the file's.
        data_dir: of the ``sched up``, for commands that are named as a cure.
        show: hears how the file stands.
        on_event: receives what was done about it.
        absent_for: after how long a key that the unchanged file lacks is retired.
    """

    def __init__(
        self,
        path: Path,
        begin: ScheduleFile | ScheduleFileError,
        desk: LazyService,
        *,
        project: str,
        living: int,
        types: frozenset[str] = frozenset(),
        data_dir: Path = DEFAULT_DATA_DIR,
        show: Callable[[FileState], None],
        on_event: OnEvent,
        absent_for: timedelta = PRUNE_AFTER,
    ) -> None:
        self._path, self._desk, self._project, self._types = path, desk, project, types
        self._show, self._emit, self._absent_for = show, on_event, absent_for
        self._good = begin if isinstance(begin, ScheduleFile) else None
        self._read: ScheduleFile | ScheduleFileError = begin
        self._seen = begin.digest or str(begin)
        self._waits_for_replica = True
        folder = [] if data_dir == DEFAULT_DATA_DIR else ["--data-dir", str(data_dir)]
        self._by_hand = shlex.join(["sched", "apply", str(path), *folder, "--prune", "--force"])
        self._prune_at: float | None = None
        self._leaving: tuple[str, ...] = ()
        # What is wrong with it the replica will say in a moment.
        self._state = FileState(str(path), None, living)
        show(self._state)

    def on_event(self, event: Event) -> None:
        """Take in what the replica says of the file that it was started with."""
        if not (isinstance(event, Applied) and self._waits_for_replica):
            return
        self._waits_for_replica = False
        if not event.good:
            self._stand(replace(self._state, problems=tuple(event.text.splitlines())))
        elif self._good:  # otherwise it has been mended meanwhile, and is looked at in a moment
            self._applied(self._good)

    async def run(self) -> None:
        """Look until cancelled."""
        signs = self._signs()

        async def look() -> timedelta:
            await anext(signs)
            await self.run_once()
            return timedelta(0)

        await Loop(str(self._path), look, on_event=self._emit).run()

    async def run_once(self) -> None:
        """Apply the file if it is another than before; retire what has been absent for long."""
        seen = await self._digest()
        if seen != self._seen:
            digest = await self._settled(seen)
            if digest is None:
                return
            await self._apply()
            # Not before: a ledger that was away is tried again. And as it was when it was read:
            # what has changed since is seen at the next look.
            self._seen = self._read.digest or digest
        if self._good and self._prune_at is not None and time.monotonic() >= self._prune_at:
            await self._prune(self._good)

    async def _digest(self) -> str:
        return await asyncio.to_thread(digest_of, self._path, self._read)

    async def _settled(self, digest: str) -> str | None:
        """Return the digest once it stays the same; None after saying that it does not."""
        deadline = time.monotonic() + _SETTLED_BY
        while time.monotonic() < deadline:
            before = digest
            await asyncio.sleep(_SETTLE)
            digest = await self._digest()
            if digest == before:
                return digest
        self._prune_at = None  # nothing is retired on the word of a file that is not applied
        restless = f"{self._path} or a calendar of it keeps changing: it is applied when it rests"
        self._stand(replace(self._state, problems=(restless,)))
        return None

    async def _signs(self) -> AsyncIterator[None]:
        """Whenever something has happened in the file's folder, and every few seconds."""
        # Of the extra `embedded`: a worker's installation has no need of it.
        from watchfiles import awatch  # noqa: PLC0415

        try:
            async for _ in awatch(
                self._path if self._path.is_dir() else self._path.absolute().parent,
                watch_filter=None,  # an atomic save renames; a mounted volume swaps a link
                recursive=False,
                rust_timeout=_LOOK_EVERY_MS,
                yield_on_timeout=True,
            ):
                yield
        except (OSError, RuntimeError) as error:  # the system has no watch left, the folder went
            every = timedelta(milliseconds=_LOOK_EVERY_MS)
            text = f"{self._path} is looked at every {every.seconds} s ({error})"
            self._emit(Notice(text, good=False))
            while True:
                await asyncio.sleep(every.total_seconds())
                yield

    async def _apply(self) -> None:
        try:
            self._read = file = await read_aside(Source(self._path))
            require_project(file, self._project)
            async with self._desk.service() as service:
                report = await service.apply(file)
        except REFUSALS as error:
            if isinstance(error, ScheduleFileError):
                self._read = error
            self._prune_at = None  # nothing is retired on the word of a file that is not applied
            self._stand(replace(self._state, problems=tuple(str(error).splitlines())))
            return
        self._good = file
        how = "is good again" if self._state.problems else "applied"
        self._emit(Notice(f"{self._path} {how}: {report}", good=True))
        source = Source(self._path)
        for remark in await asyncio.to_thread(remarks, file, report, source, self._types):
            self._emit(remark)
        self._applied(file)

    def _applied(self, file: ScheduleFile) -> None:
        self._prune_at, self._leaving = _NOW, ()
        self._stand(FileState(str(self._path), datetime.now(UTC), len(file.schedules)))

    async def _prune(self, file: ScheduleFile) -> None:
        """Note what the file lacks, and retire it once it has lacked it for long enough."""
        self._prune_at = None  # one that is refused is refused once
        try:
            async with self._desk.service() as service:
                report = await service.prune(file, absent_for=self._absent_for)
        except PruneRefused as error:
            cure = f"put them back, or retire them with `{self._by_hand}`"
            self._emit(Notice(f"{error.message}; {cure}", good=False))
            return
        except LedgerUnavailable:
            self._prune_at = _NOW
            raise
        if report.waiting:
            seconds = self._absent_for.total_seconds()
            self._prune_at = time.monotonic() + seconds
            leaving = [key for key in report.waiting if key not in self._leaving]
            self._leaving = report.waiting
            for line in named([f"- {key} is not in the file" for key in leaving]):
                self._emit(Notice(f"{line}: retired in {seconds:.0f} s", good=True))
        if report.retired:
            text = f"retired, no longer in {self._path}: {', '.join(report.retired)}"
            self._emit(Notice(text, good=True))

    def _stand(self, state: FileState) -> None:
        self._state = state
        self._show(state)
