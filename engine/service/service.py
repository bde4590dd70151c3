"""Service: all operations of operators and applications."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import PruneRefused
from engine.runtime.apply.apply import (
    PRUNE_AFTER,
    DryRun,
    applied_digest,
    apply,
    dry_run,
    retire_absent,
    retire_project,
)
from engine.runtime.apply.edits import ApplyReport, PruneReport, Renamed
from engine.runtime.apply.source import Source, read_file
from engine.schedules import Declaration, ScheduleFile
from engine.service.backfill import PastWindows
from engine.service.base import ReadOperations, not_found
from engine.service.dead_letters import DeadLetters
from engine.service.doctor import Installation
from engine.service.editing import ScheduleEdits
from engine.service.events import EventOperations
from engine.service.pages import Lists
from engine.service.status import Overview
from engine.service.takeover import Takeovers
from engine.service.tokens import Tokens

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.converter import DataConverter


class FileOperations(ReadOperations):
    """Operations that apply a file to the schedules of its project."""

    @staticmethod
    def check(
        path: Path, *, expectations: bool = False, declared: Sequence[Declaration] = ()
    ) -> ScheduleFile:
        """Read and check a schedule file, with the schedules that code declares beside it.

        ``expectations`` also evaluates its ``expect:`` entries.

        Raises:
            ScheduleFileError: the file has problems; the error lists all of them.
        """
        return read_file(path, expectations=expectations, declared=declared)

    async def build_indexes(self, *, patience: float | None = None) -> list[str]:
        """Build the indexes that migrations deferred; return the names of those still missing.

        ``patience``: seconds to wait for other sessions at a time; None waits without limit.
        """
        return await self._ledger.build_indexes(patience=patience)

    async def apply(
        self,
        file: ScheduleFile,
        *,
        force: bool = False,
        prune: bool = False,
        take_from: Renamed | None = None,
    ) -> ApplyReport:
        """Make the file's schedules the newest definitions of its project.

        ``prune`` announces that ``prune`` follows: if that would be refused, nothing is applied.
        ``take_from`` is the former name of a renamed project: its keys that the file declares move
        to this project, with everything that has not ended, and those of applications if asked for.

        Raises:
            KeyForeign: another project owns a key of the file.
            InputsSealed: the project's inputs are sealed, and there is no codec here.
            RevisionTooLow: a file with a higher ``revision`` was applied, unless forced.
            PruneRefused: ``prune`` would retire more than half of the project, unless forced.
        """
        return await apply(
            self._ledger,
            file,
            by=self._actor,
            force=force,
            prune=prune,
            take_from=take_from,
            sealing=self._sealing,
        )

    async def unchanged(self, path: Path) -> ApplyReport | None:
        """Return the report of applying this file if it was the last one applied, else None.

        The file is hashed, not parsed, which saves seconds for 10,000 schedules.

        Raises:
            ScheduleFileError: it cannot be read.
        """
        look = Source(path).look()
        project = look.project()
        if not look.is_certain():
            return None
        digest = await self._sealing.file_digest(project, look.digest())
        if await applied_digest(self._ledger, project) == digest:
            return ApplyReport(project=project, already_applied=True)
        return None

    async def plan(
        self,
        file: ScheduleFile,
        *,
        prune: bool = False,
        force: bool = False,
        take_from: Renamed | None = None,
    ) -> DryRun:
        """Return what ``apply`` would change; see ``engine.runtime.apply.apply.dry_run``."""
        return await dry_run(
            self._ledger,
            file,
            by=self._actor,
            prune=prune,
            force=force,
            take_from=take_from,
            sealing=self._sealing,
        )

    async def prune(
        self, file: ScheduleFile, *, absent_for: timedelta = PRUNE_AFTER, force: bool = False
    ) -> PruneReport:
        """Retire the keys that the applied file has lacked for ``absent_for``.

        Raises:
            PruneRefused: the file lacks more than half of the project, unless forced.
        """
        return await retire_absent(
            self._ledger,
            file,
            by=self._actor,
            absent_for=absent_for,
            force=force,
            sealing=self._sealing,
        )

    async def retire_project(
        self,
        project: str,
        *,
        reason: str | None = None,
        forget: bool = False,
        force: bool = False,
    ) -> tuple[str, ...]:
        """Retire every schedule of a project that is no more, and return the keys.

        Open runs continue. Rows and series stay: a key that returns never fires a window twice.

        Args:
            project: the project.
            reason: the reason, for the audit log.
            forget: also leave its retired schedules out of lists, until a file declares one again.
            force: even if a worker serves it, which would bring its keys back when it starts again.

        Raises:
            ScheduleNotFound: the ledger has no schedule of this project.
            PruneRefused: a worker serves it, unless forced.
        """
        if not await self.schedules(project):
            known = {row.project for row in await self.schedules()}
            raise not_found(f"of project {project}", known, of=project)
        if not force and any(served == project for served, _ in await self.served()):
            raise PruneRefused(
                f"a worker serves project {project}: when it starts again, it applies its file, and"
                " the keys return",
                hint="stop the worker first; --force retires them all the same",
            )
        return await retire_project(
            self._ledger, project, by=self._actor, reason=reason, forget=forget
        )


class ScheduleService(
    FileOperations,
    ScheduleEdits,
    Lists,
    PastWindows,
    DeadLetters,
    EventOperations,
    Takeovers,
    Overview,
    Installation,
    Tokens,
):
    """All operations on the schedules of one namespace.

    It checks no permission: its caller authorises. Owner, tenant and the other identifiers in
    metadata are for audit and filters.

    Args:
        ledger: the ledger to work on; the caller closes it.
        actor: the actor, for the audit log.
        migrated: the schema versions that were applied when the ledger was opened.
        data_converter: that of the application's Temporal client, or a function that returns it
            when it is needed. Its codec seals the inputs in the ledger and opens them. By default
            that of ``client``.
        client: the application's Temporal client, or a function that makes it when a handle of
            ``start`` needs it. By default the service connects as the environment says
            (``TEMPORAL_ADDRESS`` …).
    """

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        database_url: str,
        *,
        namespace: str,
        schema: str,
        actor: str,
        data_converter: DataConverter | Callable[[], DataConverter | None] | None = None,
        client: Client | Callable[[], Awaitable[Client]] | None = None,
        patience: float | None = None,
        migrates: bool = True,
    ) -> AsyncIterator[ScheduleService]:
        """Open a service on a PostgreSQL ledger for the duration of the block.

        ``patience``: seconds for which a connection or a statement is waited for; None is those of
        a worker. ``migrates``: see ``Ledger.connect``.

        Raises:
            LedgerUnavailable: the database cannot be reached.
            LedgerTooNew: a newer version has written to it.
        """
        # Commands that only read a file need not load the driver.
        from engine.ledger import Ledger

        ledger = await Ledger.connect(
            database_url,
            namespace=namespace,
            schema=schema,
            connections=2,
            patience=patience,
            migrates=migrates,
        )
        try:
            yield cls(
                ledger,
                actor=actor,
                migrated=ledger.migrated,
                data_converter=data_converter,
                client=client,
            )
        finally:
            await ledger.close()
