"""File watch of ``sched up``: apply the schedule file on each save, and retire absent keys."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engine.cli.output import counted
from engine.cli.target import DEFAULT_DATA_DIR, LazyService
from engine.errors import LedgerUnavailable, PruneRefused, ScheduleFileError
from engine.runtime.apply.attempts import REFUSALS, apply_source, named
from engine.runtime.apply.source import Source, digest_of, read_aside
from engine.runtime.events import Applied, Event, Notice, OnEvent
from engine.runtime.loop import Loop
from engine.schedules import Declaration, ScheduleFile
from engine.service import PRUNE_AFTER, ApplyReport

_LOOK = timedelta(seconds=0.5)
"""Time between two looks. A look reads the files, which costs less than a millisecond, and needs no
notifications of the file system, which containers and networks often lack."""
_SETTLE = 0.5
"""Seconds for which a file must be unchanged before it is applied: half of a file may be valid, and
mean something else."""
_SETTLED_BY = 10.0
"""Seconds after which a file that keeps changing is reported; later polls try again."""
_NOW = 0.0
"""Monotonic time that has always passed: due at the next poll."""


@dataclass(frozen=True, slots=True)
class FileState:
    """State of the schedule file.

    Attributes:
        since: when its schedules were applied; None until they are known to be.
        schedules: number of schedules in force.
        problems: why its current content is not applied; empty while it is valid.
        refused: a sentence for each of its keys that is not applied, although the others are.
    """

    name: str
    since: datetime | None
    schedules: int
    problems: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def warning(self) -> str:
        """Sentence about what a broken file means for the running schedules."""
        count = counted(self.schedules, "schedule")
        named = {each.partition(":")[0] for each in self.problems}  # a module may be it
        (name,) = named if len(named) == 1 and min(named).endswith(".py") else (self.name,)
        return f"{name} is broken; the last good definitions stay in force ({count})"


def watched_source(path: Path) -> Source:
    """Return a file that a worker can do without: ``FileWatch`` applies it once it is good."""
    return Source(path, required=False)


class FileWatch:
    """Watcher of one schedule file for ``sched up``.

    The replica applies the file it was started with and reports the result (``on_event``); later
    saves are applied here. A file that is broken or cannot be applied changes nothing: the last
    good one stays in force.

    Args:
        path: the path of the file; it may vanish and come back.
        begin: the file that the replica was given, or the error in reading it.
        lazy: the service on the ledger.
        project: the project that the replica serves.
        living: the number of schedules in force at the start.
        types: the worker's workflow types; inputs in the file are checked against them.
        data_dir: the data folder of ``sched up``, for the commands suggested as a hint.
        show: receives each state of the file.
        on_event: receives notices about what was applied and retired.
        absent_for: how long a key must be absent from the file before it is retired.
    """

    def __init__(
        self,
        path: Path,
        begin: ScheduleFile | ScheduleFileError,
        lazy: LazyService,
        *,
        project: str,
        living: int,
        types: frozenset[str] = frozenset(),
        data_dir: Path = DEFAULT_DATA_DIR,
        show: Callable[[FileState], None],
        on_event: OnEvent,
        absent_for: timedelta = PRUNE_AFTER,
        declared: Sequence[Declaration] = (),
    ) -> None:
        self._source = Source(path, declared)
        self._path, self._lazy, self._project, self._types = path, lazy, project, types
        self._show, self._emit, self._absent_for = show, on_event, absent_for
        self._good = begin if isinstance(begin, ScheduleFile) else None
        self._read: ScheduleFile | ScheduleFileError = begin
        self._seen = begin.digest or str(begin)
        self._waits_for_replica = True
        folder = [] if data_dir == DEFAULT_DATA_DIR else ["--data-dir", str(data_dir)]
        self._by_hand = shlex.join(["sched", "apply", str(path), *folder, "--prune", "--force"])
        self._prune_at: float | None = None
        self._leaving: tuple[str, ...] = ()
        # The replica reports problems of the file shortly.
        self._state = FileState(str(path), None, living)
        show(self._state)

    def on_event(self, event: Event) -> None:
        """Process the replica's report on the file that it was started with."""
        if not (isinstance(event, Applied) and self._waits_for_replica):
            return
        self._waits_for_replica = False
        if not event.good:
            self._show_state(replace(self._state, problems=tuple(event.text.splitlines())))
        elif self._good:  # else it was repaired meanwhile, and the next poll applies it
            self._show_applied(self._good, event.refused)

    def expect(self, types: frozenset[str], declared: Sequence[Declaration]) -> None:
        """Take the next report for that of a new replica, whose worker has newer code.

        Args:
            types: its workflow types.
            declared: the schedules that it declares; the next look applies them with the file.
        """
        self._types, self._waits_for_replica = types, True
        before, self._source = self._source.declared, Source(self._path, declared)
        if [each.fields for each in declared] != [each.fields for each in before]:
            # What was read with the older code retires nothing, and is applied again.
            self._good, self._prune_at, self._seen = None, None, ""

    async def run(self) -> None:
        """Watch until cancelled."""

        async def look() -> timedelta:
            await self.run_once()
            return _LOOK

        await Loop(str(self._path), look, on_event=self._emit).run()

    async def run_once(self) -> None:
        """Apply the file if it has changed; retire keys that have been absent for long enough."""
        seen = await self._digest()
        if seen != self._seen:
            digest = await self._settled(seen)
            if digest is None:
                return
            await self._apply()
            # Only after the apply, so that it is retried when the ledger is unavailable. The digest
            # is that of the content read, so that the next poll notices later changes.
            self._seen = self._read.digest or digest
        if self._good and self._prune_at is not None and time.monotonic() >= self._prune_at:
            await self._prune(self._good)

    async def _digest(self) -> str:
        return await asyncio.to_thread(digest_of, self._source, self._read)

    async def _settled(self, digest: str) -> str | None:
        """Return the digest once it is stable; report a file that keeps changing, return None."""
        deadline = time.monotonic() + _SETTLED_BY
        while time.monotonic() < deadline:
            before = digest
            await asyncio.sleep(_SETTLE)
            digest = await self._digest()
            if digest == before:
                return digest
        self._prune_at = None  # a file that is not applied retires nothing
        restless = f"{self._path} or a calendar of it keeps changing: it is applied when it rests"
        self._show_state(replace(self._state, problems=(restless,)))
        return None

    async def _apply(self) -> None:
        try:
            self._read = file = await read_aside(self._source)
            await apply_source(
                file,
                self._apply_file,
                self._applied,
                project=self._project,
                source=self._source,
                types=self._types,
                on_event=self._emit,
            )
        except REFUSALS as error:
            if isinstance(error, ScheduleFileError):
                self._read = error
            self._prune_at = None  # a file that is not applied retires nothing
            self._show_state(replace(self._state, problems=tuple(str(error).splitlines())))

    async def _apply_file(self, file: ScheduleFile) -> ApplyReport:
        async with self._lazy.service() as service:
            return await service.apply(file)

    def _applied(self, file: ScheduleFile, report: ApplyReport) -> None:
        self._good = file
        how = "is good again" if self._state.problems else "applied"
        self._emit(Notice(f"{self._path} {how}: {report}", good=True))
        self._show_applied(file, report.refusals)

    def _show_applied(self, file: ScheduleFile, refused: tuple[str, ...]) -> None:
        self._prune_at, self._leaving = _NOW, ()
        state = FileState(str(self._path), datetime.now(UTC), len(file.schedules), refused=refused)
        self._show_state(state)

    async def _prune(self, file: ScheduleFile) -> None:
        """Record the keys that the file lacks, and retire those absent for long enough."""
        self._prune_at = None  # a refused prune is not retried
        try:
            async with self._lazy.service() as service:
                report = await service.prune(file, absent_for=self._absent_for)
        except PruneRefused as error:
            hint = f"put them back, or retire them with `{self._by_hand}`"
            self._emit(Notice(f"{error.message}; {hint}", good=False))
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
        for remark in report.remarks:
            self._emit(Notice(remark, good=False))

    def _show_state(self, state: FileState) -> None:
        self._state = state
        self._show(state)
