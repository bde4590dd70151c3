"""The service: all operations of operators and applications."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from engine.runtime.apply.apply import PRUNE_AFTER, applied_digest, apply, retire_absent
from engine.runtime.apply.dry_run import DryRun, rehearse
from engine.runtime.apply.edits import ApplyReport, PruneReport
from engine.runtime.apply.source import Source, read_file
from engine.schedules import ScheduleFile
from engine.service.base import ReadOperations
from engine.service.dead_letters import DeadLetters
from engine.service.one_shots import ApplicationSchedules
from engine.service.pausing import Holding
from engine.service.runs import Running

# --- rules of every operation ---
# What operators and applications do to schedules and runs, one file for each kind of verb.
#
# Every verb takes the schedule's row lock, reads the clock after it has it, and writes down who did
# what, when and why. One that changes whether the schedule fires first decides every window up to
# that moment under the old state (rule L3).


# --- declarations ---
# The verbs of whoever declares schedules in a file.


class FileOperations(ReadOperations):
    """Operations that apply a file to the schedules of its project."""

    @staticmethod
    def check(path: Path, *, expectations: bool = False) -> ScheduleFile:
        """Read a schedule file; ``expectations``: an ``expect:`` that fails is a problem too.

        Raises:
            ScheduleFileError: with every problem of the file.
        """
        return read_file(path, expectations=expectations)

    async def build_indexes(self, *, patience: float | None = None) -> list[str]:
        """Build the indexes that migrations have left for later; return the names of those left.

        ``patience``: seconds to wait for other sessions at a stretch; None is as long as it takes.
        """
        return await self._ledger.build_indexes(patience=patience)

    async def apply(
        self,
        file: ScheduleFile,
        *,
        force: bool = False,
        prune: bool = False,
        take_from: str | None = None,
    ) -> ApplyReport:
        """Make the file's schedules the newest definitions of its project.

        With ``prune``, because ``prune`` is to follow, what that would refuse is refused here:
        nothing is applied then. ``take_from`` is a project that was renamed: those of its keys
        that the file declares are this project's from now on, with all that has not ended.

        Raises:
            KeyForeign: when another project owns a key of the file.
            RevisionTooLow: when a file with a higher ``revision`` was applied, unless forced.
            PruneRefused: when ``prune`` would retire more than half of the project, unless forced.
        """
        return await apply(
            self._ledger, file, by=self._actor, force=force, prune=prune, take_from=take_from
        )

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
        self,
        file: ScheduleFile,
        *,
        prune: bool = False,
        force: bool = False,
        take_from: str | None = None,
    ) -> DryRun:
        """Return what ``apply`` would change; see ``rehearsing.rehearse``."""
        return await rehearse(
            self._ledger, file, by=self._actor, prune=prune, force=force, take_from=take_from
        )

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


# --- service ---
# All verbs in one class, and the ledger that they work on.


class ScheduleService(FileOperations, ApplicationSchedules, Holding, Running, DeadLetters):
    """All operations on the schedules of one namespace.

    Args:
        ledger: the memory it works on; it stays the caller's to close.
        actor: who acts, for the ledger's records.
        migrated: the schema versions that were applied when the ledger was opened.
    """

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
