"""``sched worker``: one replica, against servers that somebody else runs."""

from __future__ import annotations

import asyncio

import typer

from engine.cli.environment import warn_of_unknown_names
from engine.cli.lines import LinePrinter
from engine.cli.options import DEFAULT_FILE, Imports, Schedules, TaskQueue
from engine.cli.serving import Signals, serve, wait_for_temporal
from engine.runtime import SchedulePlugin, database
from engine.runtime.discovery import import_user_code, imports_from_environment
from engine.runtime.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(worker)


def worker(
    schedules: Schedules = DEFAULT_FILE,
    task_queue: TaskQueue = "sched",
    imports: Imports = None,
) -> None:
    """Run one replica against servers that others run.

    TEMPORAL_* and SCHED_DATABASE_URL name them; one that is away is waited for. SIGTERM and
    Ctrl-C drain the worker: nothing new is claimed, starts and steps in flight finish.
    """
    warn_of_unknown_names()
    settings = Settings.from_environment()  # before anything of the user's is imported
    code = import_user_code(imports or imports_from_environment())
    printer = LinePrinter()
    plugin = SchedulePlugin(schedules, settings=settings, on_event=printer)

    async def run() -> None:
        with Signals() as signals:
            printer.on_closed = signals.leave
            client = await wait_for_temporal(signals, plugin, say=printer.say)
            if client is None:
                return
            if database.url() is None:
                printer.say("no SCHED_DATABASE_URL: stateless, guarded by the run id alone")
            await serve(client, plugin, code, task_queue, signals, say=printer.say)

    asyncio.run(run())
    if printer.closed:
        raise BrokenPipeError
