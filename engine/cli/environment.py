"""Which ledger a command means: the environment's, or that of the ``sched up`` beside it."""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from engine.errors import LedgerRequired
from engine.runtime import connect
from engine.service import ScheduleService

UP_FILE = "up.json"

DataDir = Annotated[
    Path,
    typer.Option("--data-dir", help="Where `sched up` keeps its servers.", envvar="SCHED_DATA_DIR"),
]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="The schedule file.", envvar="SCHED_SCHEDULES")
]
Schedules = Annotated[
    Path, typer.Option("--schedules", help="The schedule file.", envvar="SCHED_SCHEDULES")
]
TaskQueue = Annotated[
    str,
    typer.Option("--task-queue", help="What this worker listens on.", envvar="SCHED_TASK_QUEUE"),
]
Imports = Annotated[
    list[str] | None,
    typer.Option("--import", help="A package of workflows or steps; may be repeated."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

DEFAULT_DATA_DIR = Path(".sched")
DEFAULT_FILE = Path("schedules.yaml")


def note_running(data_dir: Path, database_url: str, namespace: str) -> None:
    """Let other commands in this folder find the ledger of the ``sched up`` that runs here."""
    path = data_dir / UP_FILE
    path.unlink(missing_ok=True)
    # The address has a password in it.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"database_url": database_url, "namespace": namespace}, file)


def forget_running(data_dir: Path) -> None:
    """Undo ``note_running``."""
    (data_dir / UP_FILE).unlink(missing_ok=True)


@asynccontextmanager
async def service(data_dir: Path = DEFAULT_DATA_DIR) -> AsyncIterator[ScheduleService]:
    """Open the service that a command works on.

    Raises:
        LedgerRequired: when neither the environment nor ``data_dir`` names a ledger.
    """
    namespace = connect.temporal_target()["namespace"]
    url = connect.database_url()
    if url is None:
        try:
            noted = json.loads((data_dir / UP_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise LedgerRequired(
                "no ledger to work on: SCHED_DATABASE_URL is not set, and no `sched up` runs here",
                cure="set the variable, or start `sched up` in this folder",
            ) from None
        url, namespace = noted["database_url"], noted["namespace"]
    async with ScheduleService.connect(
        url, namespace=namespace, schema=connect.database_schema(), actor=actor()
    ) as opened:
        yield opened


def actor() -> str:
    """Return who runs this command."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
