"""The verbs of operators and applications. The command line is a thin door over them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from engine.errors import ScheduleNotFound
from engine.ledger import Ledger
from engine.ledger.letters import DeadLetter
from engine.ledger.records import ActionRow, Fire, NextFire, Origin, ScheduleRow, State, Status
from engine.runtime.declare import PRUNE_AFTER, applied_digest, apply, retire_absent
from engine.runtime.rehearsing import Rehearsal, rehearse
from engine.runtime.reports import ApplyReport, PruneReport
from engine.runtime.settings import Settings
from engine.runtime.source import DEFAULT_PROJECT, Source, read_file
from engine.runtime.verbs.backfilling import Progress, backfill
from engine.runtime.verbs.letters import drop, drop_all, letters, letters_of, rerun_letter
from engine.runtime.verbs.one_shots import Asked, ask_for, reschedule
from engine.runtime.verbs.pausing import Paused, Resumed, pause, resume
from engine.runtime.verbs.requesting import Requested, rerun, trigger
from engine.runtime.verbs.skipping import Skipped, skip, unskip
from engine.runtime.verbs.stopping import Cancelled, cancel
from engine.schedules import ScheduleFile
from engine.schedules.catch_up import CatchUp
from engine.schedules.decisions import Overlap


class ScheduleService:
    """What can be asked of, and done to, the schedules of one namespace.

    Args:
        ledger: the memory it works on; it stays the caller's to close.
        actor: who acts, for the ledger's records.
        migrated: the schema versions that were applied when the ledger was opened.
    """

    def __init__(self, ledger: Ledger, *, actor: str, migrated: tuple[int, ...] = ()) -> None:
        self._ledger, self._actor = ledger, actor
        self.migrated = migrated

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, database_url: str, *, namespace: str, schema: str, actor: str
    ) -> AsyncIterator[ScheduleService]:
        """Open a service on a PostgreSQL ledger for as long as the block lasts.

        Raises:
            LedgerUnavailable: when the database cannot be reached.
            LedgerTooNew: when it was written by a newer version.
        """
        # Whoever only reads a file waits for no driver.
        from engine.ledger import PostgresLedger  # noqa: PLC0415

        ledger = await PostgresLedger.connect(
            database_url, namespace=namespace, schema=schema, connections=2
        )
        try:
            yield cls(ledger, actor=actor, migrated=ledger.migrated)
        finally:
            await ledger.close()

    @staticmethod
    def check(path: Path, *, expectations: bool = False) -> ScheduleFile:
        """Read a schedule file; ``expectations``: an ``expect:`` that fails is a problem too.

        Raises:
            ScheduleFileError: with every problem of the file.
        """
        return read_file(path, expectations=expectations)

    async def apply(
        self, file: ScheduleFile, *, force: bool = False, prune: bool = False
    ) -> ApplyReport:
        """Make the file's schedules the newest definitions of its project.

        With ``prune``, because ``prune`` is to follow, what that would refuse is refused here:
        nothing is applied then.

        Raises:
            KeyForeign: when another project owns a key of the file.
            RevisionTooLow: when a file with a higher ``revision`` was applied, unless forced.
            PruneRefused: when ``prune`` would retire more than half of the project, unless forced.
        """
        return await apply(self._ledger, file, by=self._actor, force=force, prune=prune)

    async def unchanged(self, path: Path) -> ApplyReport | None:
        """Return what applying this file would say if it is what was applied last, else None.

        It is hashed and not read, which of 10,000 schedules spares seconds.

        Raises:
            ScheduleFileError: when it cannot be read.
        """
        look = Source(path).look()
        project = look.project()
        if not look.is_certain():
            return None
        if await applied_digest(self._ledger, project) == look.digest():
            return ApplyReport(project=project, already_applied=True)
        return None

    async def plan(
        self, file: ScheduleFile, *, prune: bool = False, force: bool = False
    ) -> Rehearsal:
        """Return what ``apply`` would change; see ``rehearsing.rehearse``."""
        return await rehearse(self._ledger, file, by=self._actor, prune=prune, force=force)

    async def prune(
        self, file: ScheduleFile, *, absent_for: timedelta = PRUNE_AFTER, force: bool = False
    ) -> PruneReport:
        """Retire the keys that the applied file has lacked for ``absent_for``.

        Raises:
            PruneRefused: when the file lacks more than half of the project, unless forced.
        """
        return await retire_absent(
            self._ledger, file, by=self._actor, absent_for=absent_for, force=force
        )

    async def schedule_at(
        self,
        workflow: str,
        at: datetime | str,
        *,
        key: str | None = None,
        request_id: str | None = None,
        project: str = DEFAULT_PROJECT,
        reason: str | None = None,
        **fields: Any,
    ) -> Asked:
        """Start a workflow once, at ``at``; see ``one_shots.ask_for``.

        Args:
            workflow: what to start, as a schedule file names it.
            at: an aware instant, or ISO 8601; without an offset it is local to ``timezone``.
            key: names the schedule; without one it gets a key of its own.
            request_id: asking twice under one id is refused.
            project: whose workers start it.
            reason: why, for the audit.
            fields: further fields of a schedule, by their names in a file: ``input``,
                ``timezone``, ``taskQueue``, ``metadata``.
        """
        moment = at if isinstance(at, str) else as_text(at)
        return await ask_for(
            self._ledger, {"workflow": workflow, "at": moment, **fields}, by=self._actor,
            project=project, key=key, request_id=request_id, reason=reason,
        )  # fmt: skip

    async def schedule_repeat(
        self,
        workflow: str,
        *,
        key: str | None = None,
        request_id: str | None = None,
        project: str = DEFAULT_PROJECT,
        reason: str | None = None,
        **fields: Any,
    ) -> Asked:
        """Start a workflow again and again, by ``everyMs`` or ``cron``; see ``schedule_at``."""
        return await ask_for(
            self._ledger, {"workflow": workflow, **fields}, by=self._actor,
            project=project, key=key, request_id=request_id, reason=reason,
        )  # fmt: skip

    async def reschedule(self, key: str, *, reason: str | None = None, **when: Any) -> Asked:
        """Let a schedule of an application fire at other times; see ``one_shots.reschedule``.

        Args:
            key: of the schedule.
            reason: why, for the audit.
            when: the fields that say when, by their names in a file; ``at`` may be an instant.
        """
        if isinstance(at := when.get("at"), datetime):
            when["at"] = as_text(at)
        async with self._near():
            return await reschedule(self._ledger, key, when, by=self._actor, reason=reason)

    async def pause(self, key: str, *, reason: str | None, until: datetime | None = None) -> Paused:
        """Let a schedule rest; see ``pausing.pause``."""
        async with self._near():
            return await pause(self._ledger, key, by=self._actor, reason=reason, until=until)

    async def resume(
        self, key: str, *, reason: str | None = None, make_up: CatchUp | None = None
    ) -> Resumed:
        """Let a paused schedule fire again; see ``pausing.resume``."""
        async with self._near():
            return await resume(self._ledger, key, by=self._actor, reason=reason, make_up=make_up)

    async def trigger(
        self,
        key: str,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        overlap: Overlap | None = None,
        own_input: tuple[Any, ...] = (),
    ) -> Requested:
        """Start a run besides the schedule's windows; see ``requesting.trigger``."""
        async with self._near():
            return await trigger(
                self._ledger, key, by=self._actor, reason=reason, request_id=request_id,
                overlap=overlap, own_input=own_input,
            )  # fmt: skip

    async def rerun(
        self,
        key: str,
        bucket: int,
        *,
        reason: str | None = None,
        series: int | None = None,
        overlap: Overlap | None = None,
        own_input: tuple[Any, ...] = (),
    ) -> Requested:
        """Start one more run of a decided window; see ``requesting.rerun``."""
        async with self._near():
            return await rerun(
                self._ledger, key, bucket, by=self._actor, reason=reason, series=series,
                overlap=overlap, own_input=own_input,
            )  # fmt: skip

    async def dead_letters(self, *, key: str | None = None, limit: int = 50) -> list[DeadLetter]:
        """Return what ended badly and nobody has dealt with, newest fire time first."""
        return await letters(self._ledger, key=key, limit=limit)

    async def dead_letters_of(self, name: str, bucket: int | None = None) -> list[DeadLetter]:
        """Return the letter of a run id, or those of a window; see ``letters.letters_of``."""
        return await letters_of(self._ledger, name, bucket)

    async def rerun_dead(
        self,
        name: str,
        bucket: int | None = None,
        *,
        reason: str | None = None,
        overlap: Overlap | None = None,
        own_input: tuple[Any, ...] = (),
    ) -> Requested:
        """Run a window again that ended badly; see ``letters.rerun_letter``."""
        requested = await rerun_letter(
            self._ledger, name, bucket, by=self._actor, reason=reason, overlap=overlap,
            own_input=own_input,
        )  # fmt: skip
        await self._ledger.wake()  # as above
        return requested

    async def drop_dead(
        self, name: str, bucket: int | None = None, *, reason: str | None = None
    ) -> list[DeadLetter]:
        """Let the letter of a run id rest, or those of a window; see ``letters.drop``."""
        return await drop(self._ledger, name, bucket, by=self._actor, reason=reason)

    async def drop_all_dead(self, *, key: str | None = None, reason: str | None = None) -> int:
        """Let every letter rest, of one schedule or of all; returns how many there were."""
        return await drop_all(self._ledger, by=self._actor, key=key, reason=reason)

    async def skip(self, key: str, at: datetime, *, reason: str | None = None) -> Skipped:
        """Skip one window that is to come; see ``skipping.skip``."""
        async with self._near():
            return await skip(self._ledger, key, at, by=self._actor, reason=reason)

    async def unskip(self, key: str, at: datetime, *, reason: str | None = None) -> Skipped:
        """Take a skip back; see ``skipping.unskip``."""
        async with self._near():
            return await unskip(self._ledger, key, at, by=self._actor, reason=reason)

    async def cancel(
        self, name: str, *, reason: str | None = None, terminate: bool = False
    ) -> Cancelled:
        """Cancel a run, or all of a schedule that an application asked for; see ``stopping``."""
        async with self._near():
            return await cancel(
                self._ledger, name, by=self._actor, reason=reason, terminate=terminate
            )

    async def backfill(
        self,
        key: str,
        begin: datetime,
        end: datetime,
        *,
        reason: str | None = None,
        overlap: Literal["allow", "queue"] | None = None,
    ) -> AsyncGenerator[Progress, None]:
        """Start windows of the past that have no run; see ``backfilling.backfill``."""
        async with self._near():
            async for progress in backfill(
                self._ledger, key, begin, end, by=self._actor, reason=reason, overlap=overlap
            ):
                await self._ledger.wake()
                yield progress

    async def actions(self, *, key: str | None = None, limit: int = 50) -> list[ActionRow]:
        """Return what was done to schedules and runs, newest first."""
        return await self._ledger.actions(key=key, limit=limit)

    @asynccontextmanager
    async def _near(self) -> AsyncIterator[None]:
        """Name the keys that may be meant when there is none such.

        What is done may be what something waits for, in a queue or for another schedule.
        """
        try:
            yield
            await self._ledger.wake()
        except ScheduleNotFound as error:
            known = [row.key for row in await self.schedules()]
            raise not_found(error.key, known) from None

    async def schedules(
        self,
        project: str | None = None,
        *,
        origin: Origin | None = None,
        state: State | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[ScheduleRow]:
        """Return every schedule in key order, retired ones too.

        All of them are read, and only those returned of which everything given is true: who
        declares them, how they stand, and what their metadata say at least.
        """
        wanted = (metadata or {}).items()
        return [
            row
            for row in await self._ledger.schedules(project)
            if origin in {None, row.origin}
            and state in {None, row.state}
            and (not wanted or (row.schedule and wanted <= row.schedule.metadata.items()))
        ]

    async def children(self, key: str) -> list[str]:
        """Return the schedules that wait for this one's windows, in key order."""
        return await self._ledger.children(key)

    async def find(self, key: str) -> ScheduleRow | None:
        """Return one schedule, be it retired; None when the ledger has no such key."""
        return next(iter(await self._ledger.schedules(key=key)), None)

    async def schedule(self, key: str) -> ScheduleRow:
        """Return one schedule, be it retired.

        Raises:
            ScheduleNotFound: when the ledger has no such key; the cure names near ones.
        """
        for row in await self._ledger.schedules(key=key):
            return row
        raise not_found(key, [row.key for row in await self.schedules()])

    async def count(self, project: str) -> int:
        """Return how many schedules of the project are not retired."""
        return await self._ledger.count_schedules(project)

    async def served(self) -> frozenset[tuple[str, str]]:
        """Return each project and task queue that a worker serves now.

        Worker and caller must agree on ``SCHED_HEARTBEAT``: three of them without a sign are death.
        """
        return await self._ledger.served(alive=Settings.from_environment().alive)

    async def upcoming(self, project: str, limit: int = 5) -> list[NextFire]:
        """Return what the project's schedules fire next, the earliest first, one of each."""
        return await self._ledger.upcoming(project, limit)

    async def overflow(self, key: str) -> tuple[int, datetime | None]:
        """Return how many windows of the key found its queue full, and when the last opened."""
        return await self._ledger.overflow(key)

    async def fires(
        self, *, key: str | None = None, status: Status | None = None, limit: int = 50
    ) -> list[Fire]:
        """Return fires, newest fire time first."""
        return await self._ledger.fires(key=key, status=status, limit=limit)


def as_text(moment: datetime) -> str:
    """Return an instant as a schedule has it: to the millisecond, floored.

    Raises:
        ValueError: it is naive; its meaning would depend on the machine.
    """
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} is naive; give it a time zone, e.g. tzinfo=UTC")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def not_found(
    key: str, known: Collection[str], *, see: str = "`sched list` shows every key"
) -> ScheduleNotFound:
    """Return the error for a key that is not among ``known``; its cure names near ones."""
    near = get_close_matches(key.lower(), known, n=3)
    cure = f"did you mean {' or '.join(near)}?" if near else see
    return ScheduleNotFound(key, cure=cure)
