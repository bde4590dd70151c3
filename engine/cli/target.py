"""Target of a command: the servers of the environment, or those of sched up."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

from engine.cli.options import DEFAULT_DATA_DIR, DEFAULT_FILE
from engine.errors import LedgerRequired, LedgerTimeout, LedgerUnavailable, ScheduleFileError
from engine.runtime import settings
from engine.runtime.apply.source import DEFAULT_PROJECT, Source
from engine.runtime.settings import unknown_names
from engine.service import ScheduleService

# --- environment ---
# The ledger that a command uses: the environment's, or that of a ``sched up`` in the same folder.

UP_FILE = "up.json"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """The servers, namespace and project that a command works on.

    Attributes:
        database_url: the ledger's database.
        namespace: the Temporal namespace.
        ui_url: the URL of Temporal's Web UI, if known.
        temporal: the address of the Temporal server of `sched up`; else the environment names it.
        project: the project that `sched up` runs.
    """

    database_url: str
    namespace: str
    ui_url: str | None = None
    temporal: str | None = None
    project: str | None = None

    @property
    def place(self) -> str:
        """Address of the ledger without user, password and options."""
        address = self.database_url.partition("?")[0].rpartition("://")[2]
        return address.rpartition("@")[2]


def note_running(data_dir: Path, target: Target) -> None:
    """Record the running ``sched up``, so that other commands in this folder find its ledger."""
    path = data_dir / UP_FILE
    path.unlink(missing_ok=True)
    # The database URL includes a password.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(target), file)


def forget_running(data_dir: Path) -> None:
    """Undo ``note_running``."""
    (data_dir / UP_FILE).unlink(missing_ok=True)


def find_target(data_dir: Path = DEFAULT_DATA_DIR) -> Target | None:
    """Return the target that ``SCHED_DATABASE_URL`` names, else the ``sched up`` that runs here."""
    noted = _noted(data_dir)
    url = settings.url()
    if url is not None:
        here = noted if noted and noted.database_url == url else None
        noted = replace(here or Target(url, ""), namespace=_namespace())
    if noted is None:
        return None
    ui = os.environ.get("SCHED_UI_URL") or noted.ui_url
    return replace(noted, ui_url=ui.rstrip("/") if ui else None)


def _namespace() -> str:
    # Only the Temporal SDK knows its variables, and its import takes longer than most commands.
    from engine.runtime.temporal_client import temporal_target  # noqa: PLC0415

    return str(temporal_target()["namespace"])


def _noted(data_dir: Path) -> Target | None:
    try:
        noted = json.loads((data_dir / UP_FILE).read_text(encoding="utf-8"))
        # An older `sched up` wrote fewer fields.
        return Target(
            noted["database_url"], noted["namespace"], noted.get("ui_url"), noted.get("temporal"),
            noted.get("project"),
        )  # fmt: skip
    except (OSError, ValueError, KeyError):
        return None


def target(data_dir: Path = DEFAULT_DATA_DIR) -> Target:
    """Return the target of a command.

    Raises:
        LedgerRequired: neither the environment nor ``data_dir`` names a ledger.
    """
    warn_of_unknown_names()
    found = find_target(data_dir)
    if found is None:
        begin = "" if DEFAULT_FILE.exists() else "; `sched init` writes a project to begin with"
        raise LedgerRequired(
            "no ledger to work on: SCHED_DATABASE_URL is not set, and no `sched up` runs here",
            cure=f"set the variable, or start `sched up` in this folder{begin}",
        )
    return found


def project_here(of: Target) -> str:
    """Return the default project: that of `sched up`, or else that of the schedule file here."""
    if of.project is not None:
        return of.project
    with suppress(ScheduleFileError):
        return Source(Path(os.environ.get("SCHED_SCHEDULES") or DEFAULT_FILE)).look().project()
    return DEFAULT_PROJECT


def warn_of_unknown_names() -> None:
    """Warn about environment variables that look like settings of the engine but are unknown."""
    for warning in unknown_names():
        print(f"sched: {warning}", file=sys.stderr)


@asynccontextmanager
async def service(data_dir: Path = DEFAULT_DATA_DIR) -> AsyncIterator[ScheduleService]:
    """Open the service on the target of a command.

    Raises:
        LedgerRequired: neither the environment nor ``data_dir`` names a ledger.
    """
    async with open_service(target(data_dir)) as opened:
        yield opened


def ask_service(data_dir: Path, question: Callable[[ScheduleService], Awaitable[T]]) -> T:
    """Open the service on the target of a command and return its answer to one question.

    Raises:
        LedgerRequired: neither the environment nor ``data_dir`` names a ledger.
    """

    async def answer() -> T:
        async with service(data_dir) as opened:
            return await question(opened)

    return asyncio.run(answer())


@asynccontextmanager
async def open_service(of: Target) -> AsyncIterator[ScheduleService]:
    """Open the service on the ledger of this target.

    Raises:
        LedgerUnavailable: the ledger cannot be reached.
    """
    try:
        async with ScheduleService.connect(
            of.database_url, namespace=of.namespace, schema=settings.schema(), actor=actor()
        ) as opened:
            yield opened
    except LedgerUnavailable as error:
        if settings.url() is not None or isinstance(error, LedgerTimeout):
            raise
        # A `sched up` killed with -9 leaves its file behind; then the connection is refused. If the
        # connection times out instead, the server is still there.
        cure = "the `sched up` of this folder seems not to run; start it"
        if isinstance(error.__cause__, TimeoutError):
            cure = "it is there and does not answer; see what the `sched up` of this folder says"
        raise LedgerUnavailable(error.message, cure=cure) from error


def actor() -> str:
    """Return the user and host that run this command."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


# --- service of sched up ---
# The service for the ledger access of ``sched up``, apart from the replica's.


class LazyService:
    """Service opened on first use, so that the ledger may be unavailable at the start."""

    def __init__(self, database_url: str, namespace: str) -> None:
        self._url, self._namespace = database_url, namespace
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._service: ScheduleService | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def service(self) -> AsyncIterator[ScheduleService]:
        """Yield the service.

        Raises:
            LedgerUnavailable: the database cannot be reached; the caller may retry.
        """
        async with self._opening:
            if self._service is None:
                self._service = await self._stack.enter_async_context(
                    ScheduleService.connect(
                        self._url,
                        namespace=self._namespace,
                        schema=settings.schema(),
                        actor="sched up",
                    )
                )
        yield self._service
