"""The commands that stay: ``worker`` and ``up``."""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import Client

from engine.cli.environment import (
    DEFAULT_DATA_DIR,
    DEFAULT_FILE,
    DataDir,
    forget_running,
    note_running,
)
from engine.cli.lines import LinePrinter
from engine.cli.serving import Signals, serve, wait_for_temporal
from engine.errors import EngineError, ScheduleFileError
from engine.runtime import SchedulePlugin, connect
from engine.runtime.declare import PRUNE_AFTER
from engine.runtime.discovery import import_user_code, imports_from_environment
from engine.service import ScheduleService

_NAMESPACE = "default"

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


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(up)
    app.command()(worker)


def worker(
    schedules: Schedules = DEFAULT_FILE,
    task_queue: TaskQueue = "sched",
    imports: Imports = None,
) -> None:
    """Run one replica against the servers that TEMPORAL_* and SCHED_DATABASE_URL name.

    SIGTERM and Ctrl-C drain it: nothing new is claimed, starts and steps in flight finish.
    """
    code = import_user_code(imports or imports_from_environment())
    printer = LinePrinter()
    plugin = SchedulePlugin(schedules, on_event=printer)

    async def run() -> None:
        with Signals() as signals:
            client = await wait_for_temporal(signals, [plugin])
            if client is None:
                return
            if connect.database_url() is None:
                printer.say("no SCHED_DATABASE_URL: stateless, guarded by the run id alone")
            await serve(client, plugin, code, task_queue, signals, say=printer.say)

    asyncio.run(run())


def up(
    schedules: Schedules = DEFAULT_FILE,
    task_queue: TaskQueue = "sched",
    imports: Imports = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    temporal_port: Annotated[int, typer.Option(help="Temporal's port.")] = 7233,
    ui_port: Annotated[int, typer.Option(help="The Web UI's port.")] = 8233,
    postgres_port: Annotated[int, typer.Option(help="PostgreSQL's port.")] = 5433,
) -> None:
    """Run everything here: embedded servers, the schedules, and one worker replica.

    Data stay in the data folder, so that a second start goes on where the first one ended.
    Ctrl-C drains the worker and then stops both servers.
    """
    try:
        from engine.embedded import servers  # noqa: PLC0415 - only this command needs the extra
    except ImportError as error:
        raise EngineError(
            f"the embedded servers are not installed: {error}",
            cure="pip install 'sched-engine[embedded]'",
        ) from error
    printer = LinePrinter()
    broken = _problems_of(schedules)
    if broken and not data_dir.exists():
        raise broken
    code = import_user_code(imports or imports_from_environment())
    own_database = connect.database_url()

    async def run() -> None:
        with Signals() as signals:
            async with servers(
                data_dir,
                temporal_port=temporal_port,
                ui_port=ui_port,
                postgres_port=postgres_port,
                with_postgres=own_database is None,
            ) as embedded:
                url = own_database or (embedded.postgres.url if embedded.postgres else "")
                # The steps of the example, and users' own, find their database here.
                os.environ["SCHED_DATABASE_URL"] = url
                note_running(data_dir, url, _NAMESPACE)
                try:
                    await _refuse_without_definitions(url, broken)
                    printer.say(f"Temporal     {embedded.temporal.address}")
                    printer.say(f"Web UI       {embedded.temporal.ui_url}")
                    printer.say(f"PostgreSQL   {_without_password(url)}")
                    client = await Client.connect(embedded.temporal.address, namespace=_NAMESPACE)
                    plugin = SchedulePlugin(schedules, database_url=url, on_event=printer)
                    pruning = asyncio.create_task(_prune(url, schedules, printer))
                    try:
                        await serve(
                            client,
                            plugin,
                            code,
                            task_queue,
                            signals,
                            say=printer.say,
                            on_worker=True,
                        )
                    finally:
                        pruning.cancel()
                finally:
                    forget_running(data_dir)
                printer.say("stopping both servers")
        printer.say("stopped")

    asyncio.run(run())


def _problems_of(schedules: Path) -> ScheduleFileError | None:
    try:
        ScheduleService.check(schedules)
    except ScheduleFileError as error:
        return error
    return None


async def _refuse_without_definitions(url: str, broken: ScheduleFileError | None) -> None:
    """A broken file is no reason to stop what runs, but with nothing to run it is."""
    if broken is None:
        return
    async with _open(url) as service:
        if not await service.schedules():
            raise broken


async def _prune(url: str, schedules: Path, printer: LinePrinter) -> None:
    """Retire what an unchanged file has lacked for long enough."""
    while True:
        await asyncio.sleep(PRUNE_AFTER.total_seconds() / 3)
        try:
            file = ScheduleService.check(schedules)
            async with _open(url) as service:
                if retired := await service.prune(file):
                    printer.say(f"retired, no longer in {schedules}: {', '.join(retired)}")
        except EngineError as error:
            printer.say(str(error), once=True)


def _open(url: str) -> AbstractAsyncContextManager[ScheduleService]:
    return ScheduleService.connect(
        url, namespace=_NAMESPACE, schema=connect.database_schema(), actor="sched up"
    )


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    scheme, _, user = head.partition("://")
    return f"{scheme}://{user.partition(':')[0]}{at}{tail}" if at else url
