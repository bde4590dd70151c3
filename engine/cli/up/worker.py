"""Command ``sched worker``, and the worker of ``sched up``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from types import TracebackType
from typing import Self

import typer
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from engine.cli.options import DEFAULT_FILE, Imports, Schedules, TaskQueue
from engine.cli.target import warn_of_unknown_names
from engine.cli.up.live_table import LinePrinter
from engine.errors import TemporalUnavailable
from engine.runtime import SchedulePlugin
from engine.runtime import settings as database
from engine.runtime.discovery import UserCode, import_user_code, imports_from_environment
from engine.runtime.settings import Settings
from engine.runtime.temporal_client import connect_temporal


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(worker)


# --- worker until a signal ---
# One worker that runs until a signal asks it to drain.

_PATIENCE = 1.0
_DRAINING = "draining: nothing new is claimed, what is in flight finishes (again to leave at once)"


class StopSignals:
    """Stop signals as an event to wait for.

    A second SIGINT or SIGTERM ends the process at once. SIGHUP (the terminal closed) never does.
    """

    _numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.before_leaving_at_once: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        for number in self._numbers:
            self._loop.add_signal_handler(number, self._received, number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number in self._numbers:
            self._loop.remove_signal_handler(number)

    def leave(self) -> None:
        """Request a stop; callable from any thread."""
        self._loop.call_soon_threadsafe(self.asked.set)

    def _received(self, number: int) -> None:
        if self.asked.is_set() and number != signal.SIGHUP:
            for each in self.before_leaving_at_once:
                with contextlib.suppress(Exception):  # the other callbacks still run
                    each()
            os._exit(128 + number)
        self.asked.set()


async def wait_for_temporal(
    signals: StopSignals, plugin: SchedulePlugin, *, say: Callable[[str], None]
) -> Client | None:
    """Connect as soon as the server answers; return None on an earlier stop signal."""
    told = False
    while not signals.asked.is_set():
        try:
            return await connect_temporal(plugins=[plugin])
        except TemporalUnavailable as error:
            if not told:
                say(f"waiting: {error}")
            told = True
        try:
            async with asyncio.timeout(_PATIENCE):
                await signals.asked.wait()
        except TimeoutError:
            continue
    return None


@activity.defn(name="sched:nothing")
async def _nothing() -> None:
    """Do nothing: a placeholder, because the SDK refuses a worker without any code to serve."""


async def serve(
    client: Client,
    plugin: SchedulePlugin,
    code: UserCode,
    task_queue: str,
    signals: StopSignals,
    *,
    say: Callable[[str], None],
) -> None:
    """Run a worker with every workflow and step found, until a stop signal.

    Args:
        client: a client connected with the plugin, which its workers inherit. A plugin of the
            worker would be too late: the client encodes and decodes inputs and results.
        plugin: the client's plugin.
        code: the workflows and steps to serve.
        task_queue: the task queue to serve.
        signals: the stop signals.
        say: prints a line.

    Raises:
        EngineError: the replica cannot work here, for example RetentionTooShort.
    """
    if not code.workflows:
        say("no workflows found here: only external schedules fire (--import names packages)")
    worker = Worker(
        client,
        task_queue=task_queue,
        workflows=code.workflows,
        activities=code.activities or [_nothing],
        graceful_shutdown_timeout=plugin.settings.drain,
    )
    running = asyncio.create_task(worker.run())
    asked = asyncio.create_task(signals.asked.wait())
    await asyncio.wait({running, asked}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not running.done():
        plugin.drain()
        with contextlib.suppress(OSError):  # the terminal may have closed
            say(_DRAINING)
        await worker.shutdown()
    await running


# --- command ---


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
    settings = Settings.from_environment()  # before user code is imported
    code = import_user_code(imports or imports_from_environment())
    printer = LinePrinter()
    plugin = SchedulePlugin(schedules, settings=settings, on_event=printer)

    async def run() -> None:
        with StopSignals() as signals:
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
