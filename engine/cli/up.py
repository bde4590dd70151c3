"""``sched up``: embedded servers, the schedules and one replica, from nothing."""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import Client

from engine.cli.environment import (
    DEFAULT_DATA_DIR,
    DEFAULT_FILE,
    UP_FILE,
    DataDir,
    Imports,
    Schedules,
    TaskQueue,
    forget_running,
    note_running,
)
from engine.cli.lines import LinePrinter
from engine.cli.serving import Signals, serve
from engine.embedded import EmbeddedServers, servers
from engine.errors import EngineError, ScheduleFileError
from engine.runtime import SchedulePlugin, connect
from engine.runtime.declare import PRUNE_AFTER
from engine.runtime.discovery import UserCode, import_user_code, imports_from_environment
from engine.service import ScheduleService

_NAMESPACE = "default"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(up)


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
    broken = _problems_of(schedules)
    if broken and not data_dir.exists():
        raise broken
    application = _Application(
        schedules=schedules,
        task_queue=task_queue,
        code=import_user_code(imports or imports_from_environment()),
        broken=broken,
        printer=LinePrinter(),
    )
    own_database = connect.database_url()
    running = servers(
        data_dir,
        temporal_port=temporal_port,
        ui_port=ui_port,
        postgres_port=postgres_port,
        with_postgres=own_database is None,
    )
    raise typer.Exit(asyncio.run(application.run(running, data_dir, own_database)))


@dataclass
class _Application:
    """What runs between the start and the stop of the servers."""

    schedules: Path
    task_queue: str
    code: UserCode
    broken: ScheduleFileError | None
    printer: LinePrinter
    fallen: bool = False

    async def run(
        self,
        running: AbstractAsyncContextManager[EmbeddedServers],
        data_dir: Path,
        own_database: str | None,
    ) -> int:
        say = self.printer.say
        async with AsyncExitStack() as stack:
            signals = stack.enter_context(Signals())
            embedded = await stack.enter_async_context(running)
            url = own_database or (embedded.postgres.url if embedded.postgres else "")
            # The steps of the example, and users' own, find their database here.
            os.environ["SCHED_DATABASE_URL"] = url
            note_running(data_dir, url, _NAMESPACE)
            stack.callback(forget_running, data_dir)
            await self._refuse_without_definitions(url)
            say(f"Temporal     {embedded.temporal.address}")
            say(f"Web UI       {embedded.temporal.ui_url}")
            say(f"PostgreSQL   {_place(url)} (address with password: {data_dir / UP_FILE})")
            client = await Client.connect(embedded.temporal.address, namespace=_NAMESPACE)
            plugin = SchedulePlugin(self.schedules, database_url=url, on_event=self.printer)
            beside = [
                asyncio.create_task(self._watch(embedded, data_dir, signals)),
                asyncio.create_task(self._prune(url)),
            ]
            try:
                await serve(client, plugin, self.code, self.task_queue, signals, say=say)
            finally:
                for task in beside:
                    task.cancel()
            say("stopping both servers")
        say("stopped")
        return 1 if self.fallen else 0

    async def _refuse_without_definitions(self, url: str) -> None:
        """A broken file is no reason to stop what runs, but with nothing to run it is."""
        if self.broken is None:
            return
        async with _open(url) as service:
            if not await service.schedules():
                raise self.broken

    async def _watch(self, embedded: EmbeddedServers, data_dir: Path, signals: Signals) -> None:
        """A server that ends by itself ends everything, with a sentence."""
        named = {"temporal": embedded.temporal, "postgres": embedded.postgres}
        waits = {
            asyncio.create_task(server.wait()): name for name, server in named.items() if server
        }
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                name, log = waits[task], data_dir / f"{waits[task]}.log"
                self.printer.say(f"{name} ended with code {task.result()}; see {log}", "red")
            self.fallen = True
            signals.asked.set()
        finally:
            for task in waits:
                task.cancel()

    async def _prune(self, url: str) -> None:
        """Retire what an unchanged file has lacked for long enough."""
        read, file = b"", None
        while True:
            await asyncio.sleep(PRUNE_AFTER.total_seconds() / 3)
            try:
                text = self.schedules.read_bytes()
                if text != read or file is None:  # a big file takes seconds to parse
                    read, file = text, ScheduleService.check(self.schedules)
                async with _open(url) as service:
                    retired = await service.prune(file)
            except (EngineError, OSError) as error:
                self.printer.say(str(error), once=True)
                continue
            if retired:
                self.printer.say(f"retired, no longer in {self.schedules}: {', '.join(retired)}")


def _problems_of(schedules: Path) -> ScheduleFileError | None:
    try:
        ScheduleService.check(schedules)
    except ScheduleFileError as error:
        return error
    return None


def _open(url: str) -> AbstractAsyncContextManager[ScheduleService]:
    return ScheduleService.connect(
        url, namespace=_NAMESPACE, schema=connect.database_schema(), actor="sched up"
    )


def _place(url: str) -> str:
    """The address without user, password and options."""
    return url.rpartition("@")[2].partition("?")[0]
