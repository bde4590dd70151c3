"""Commands up and worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    nullcontext,
)
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import PollerBehaviorAutoscaling, Worker

from engine.cli.api import DEFAULT_PORT, ApiPort, LocalApi
from engine.cli.target import (
    DEFAULT_DATA_DIR,
    DEFAULT_FILE,
    UP_FILE,
    DataDir,
    Imports,
    LazyService,
    Schedules,
    SetupFunction,
    Target,
    TaskQueue,
    find_target,
    forget_running,
    note_running,
    on_signal,
    port_number,
    warn_of_unknown_names,
)
from engine.cli.up.code_watch import CodeWatch, require_sound
from engine.cli.up.file_watch import FileWatch, watched_source
from engine.cli.up.live_table import LinePrinter, Screen, wants_live
from engine.errors import EngineError, ScheduleFileError, TemporalUnavailable
from engine.ledger.postgres.address import place_of
from engine.runtime import SchedulePlugin, Setup
from engine.runtime.apply.code_check import declarations_of
from engine.runtime.clock import wait_for
from engine.runtime.code.discovery import UserCode, import_user_code, imports_from_environment
from engine.runtime.events import Event, EventLog, OnEvent, ServerName
from engine.runtime.loop import beside
from engine.runtime.settings import Settings, database_schema, database_url, require_database_url
from engine.runtime.temporal_client import (
    connect_temporal,
    describe_namespace,
    register_keyword,
    temporal_target,
)
from engine.runtime.watch.watch import WatchProcess
from engine.schedules import KEY_ATTRIBUTE, Declaration, ScheduleFile, format_duration
from engine.service import ScheduleService
from engine.telemetry.export import configure
from engine.telemetry.http import serving
from engine.telemetry.logs import (
    configure_logging,
    core_runtime,
    logs_events,
    show_run_warnings,
    show_service_events,
)
from engine.telemetry.tracer import export_traces

if TYPE_CHECKING:
    from engine.embedded import EmbeddedServers, Server

commands = typer.Typer(rich_markup_mode=None)


# --- worker until a signal ---
# One worker that runs until a signal asks it to drain.

_PATIENCE = 1.0
_POLLS = PollerBehaviorAutoscaling(minimum=5)
"""Polls of the task queue: at least as many as the SDK's default, and more while tasks wait there.
Over a link of 300 ms, five polls bring 17 tasks a second."""
_DRAINING = "draining: nothing new is claimed, what is in flight finishes (again to leave at once)"


class StopSignals:
    """Stop signals as an event to wait for, until the running loop is closed.

    A second SIGINT or SIGTERM ends the process at once. SIGHUP (the terminal closed) never does.
    """

    # Windows has no SIGHUP.
    _numbers = (signal.SIGINT, signal.SIGTERM, *filter(None, [getattr(signal, "SIGHUP", None)]))

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.before_leaving_at_once: list[Callable[[], None]] = []
        self._loop = asyncio.get_running_loop()
        for number in self._numbers:
            on_signal(number, partial(self._received, number))

    def leave(self) -> None:
        """Request a stop; callable from any thread."""
        self._loop.call_soon_threadsafe(self.asked.set)

    def _received(self, number: int) -> None:
        if self.asked.is_set() and number in {signal.SIGINT, signal.SIGTERM}:
            for each in self.before_leaving_at_once:
                with contextlib.suppress(Exception):  # the other callbacks still run
                    each()
            os._exit(128 + number)
        self.asked.set()


async def wait_for_temporal(
    signals: StopSignals, options: Mapping[str, Any], *, log: Callable[[str], None]
) -> Client | None:
    """Connect as soon as the server answers; return None on an earlier stop signal."""
    reported = False
    while not signals.asked.is_set():
        try:
            return await connect_temporal(**options)
        except TemporalUnavailable as error:
            if not reported:
                log(f"waiting: {error}")
            reported = True
        await wait_for(signals.asked, _PATIENCE)
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
    setup: Setup,
    log: Callable[[str], None],
    renewed: asyncio.Event | None = None,
) -> None:
    """Run a worker with every workflow and step found, until a stop signal.

    Args:
        client: a client connected with the plugin, which its workers inherit. A plugin of the
            worker would be too late: the client encodes and decodes inputs and results.
        plugin: the client's plugin.
        code: the workflows and steps to serve.
        task_queue: the task queue to serve.
        signals: the stop signals.
        setup: the team's own options of the worker.
        log: prints a line.
        renewed: ends the worker too, because its code has changed.

    Raises:
        EngineError: the replica cannot work here, for example RetentionTooShort.
    """
    if not code.workflows:
        log("no workflows found here: only external schedules fire (--import names packages)")
    worker = Worker(
        client,
        task_queue=task_queue,
        workflows=code.workflows,
        activities=code.activities or [_nothing],
        graceful_shutdown_timeout=plugin.settings.drain,
        workflow_task_poller_behavior=_POLLS,
        activity_task_poller_behavior=_POLLS,
        **setup.worker_options(),
    )
    running = asyncio.create_task(worker.run())
    await _first_of(running, signals.asked, renewed)
    if not running.done():
        plugin.drain()
        with contextlib.suppress(OSError):  # the terminal may have closed
            if signals.asked.is_set():
                log(_DRAINING)
        await worker.shutdown()
    await running


async def _first_of(running: asyncio.Task[None] | None, *events: asyncio.Event | None) -> None:
    """Wait for the end of a task or for an event; None never comes."""
    waits = [asyncio.create_task(event.wait()) for event in events if event]
    try:
        tasks = [*waits, *([running] if running else [])]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


# --- metrics and health ---

HttpPort = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        help="Serve /metrics, /healthz and /readyz on this port.",
        envvar="SCHED_HTTP_PORT",
        parser=port_number,
    ),
]
HttpHost = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="The address that this port listens on; by default only this machine.",
        envvar="SCHED_HTTP_HOST",
    ),
]


class Endpoint:
    """The HTTP endpoint that the command was asked for; without a port there is none.

    Attributes:
        exports: what is measured, with or without an endpoint.
    """

    def __init__(self, port: int | None, host: str) -> None:
        self.port, self.host = port, host
        export_traces()
        self.exports = configure(prometheus=port is not None)

    @contextlib.asynccontextmanager
    async def open(self, plugin: SchedulePlugin, log: Callable[[str], None]) -> AsyncIterator[None]:
        """Export metrics and serve health while the block lasts; a taken port is a warning."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.exports.running())
            if self.port is not None:
                place = serving(
                    plugin.health, port=self.port, host=self.host, metrics=self.exports.respond
                )
                try:
                    port = await stack.enter_async_context(place)
                except OSError as error:
                    at = f"{self.host}:{self.port}"
                    log(
                        f"warning: no metrics and no health at {at}: {error.strerror or error};"
                        " --http-port or SCHED_HTTP_PORT names another port"
                    )
                else:
                    log(f"metrics and health at http://{self.host}:{port}")
            yield


# --- command ---


def _begin() -> Settings:
    """Return the settings, after the log was set up that they ask for."""
    warn_of_unknown_names()
    settings = Settings.from_environment()  # before user code is imported, and any server started
    if settings.log_format is not None:
        configure_logging(as_json=settings.log_format == "json")
    return settings


def _served(imports: list[str] | None) -> UserCode:
    """Return the code to serve, before any server is started or waited for.

    Raises:
        EngineError: it cannot be imported, or not in the sandbox of its runs.
    """
    code = import_user_code(imports or imports_from_environment())
    require_sound(code)
    return code


def _join(data_dir: Path) -> Target | None:
    """Return the ``sched up`` of this folder, and set what it sets for its own steps.

    None if the environment names a server.
    """
    named = ("SCHED_DATABASE_URL", "TEMPORAL_ADDRESS", "TEMPORAL_PROFILE")
    found = None if any(map(os.environ.get, named)) else find_target(data_dir)
    if found is not None:
        _let_steps_find(found.database_url, data_dir)
    return found


def _let_steps_find(url: str, data_dir: Path) -> None:
    """Set where the example's steps, and the users' own, find the database and the data folder."""
    os.environ["SCHED_DATABASE_URL"] = url
    os.environ["SCHED_DATA_DIR"] = str(data_dir.absolute())


@commands.command()
def worker(
    context: typer.Context,
    schedules: Schedules = DEFAULT_FILE,
    task_queue: TaskQueue = "sched",
    imports: Imports = None,
    setup: SetupFunction = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    http_port: HttpPort = None,
    http_host: HttpHost = "127.0.0.1",
) -> None:
    """Run one worker against existing servers.

    TEMPORAL_* and SCHED_DATABASE_URL name them; if neither an address nor a database is named, the
    worker joins the `sched up` of this folder. If one is unreachable, the worker waits for it.
    SIGTERM and Ctrl-C drain the worker: it claims nothing new, and starts and steps in flight
    finish. If the file that is named is lost or broken, the last good definitions stay in force,
    and the worker is not ready; it ends with 2 if there are none.
    """
    settings, options, code = _begin(), Setup.load(setup), _served(imports)
    named = context.get_parameter_source("schedules")
    file = schedules if named is None or named.name != "DEFAULT" else DEFAULT_FILE
    beside = _join(data_dir)
    url = require_database_url(beside.database_url if beside else None)
    printer = LinePrinter(logs=logs_events())
    show_run_warnings(printer.log)
    endpoint = Endpoint(http_port, http_host)
    plugin = SchedulePlugin(
        file, database_url=url, settings=settings, on_event=printer, listeners=code.listeners
    )

    async def run() -> None:
        signals = StopSignals()
        printer.on_closed = signals.leave
        async with endpoint.open(plugin, printer.log):
            if beside:
                printer.log(f"joins the `sched up` here: {beside.place}, {beside.temporal}")
            connecting = {**options.client_options(plugin), **endpoint.exports.client_options()}
            if beside and beside.temporal:
                connecting |= {"target_host": beside.temporal, "namespace": beside.namespace}
            client = await wait_for_temporal(signals, connecting, log=printer.log)
            if client is not None:
                await serve(
                    client, plugin, code, task_queue, signals, setup=options, log=printer.log
                )

    asyncio.run(run())
    if printer.closed:
        raise BrokenPipeError


@commands.command()
def watch() -> None:
    """Watch the ledger, and alert when windows do not fire. Needs no worker.

    It also alerts when every worker is gone, and when a server is unreachable. It posts each
    problem and its end to SCHED_ALERT_URL, and calls SCHED_HEARTBEAT_URL every minute while all is
    well.
    """
    settings = _begin()
    url = require_database_url()
    printer = LinePrinter(logs=logs_events())
    core_runtime()
    temporal = temporal_target()
    places: dict[ServerName, str] = {"ledger": place_of(url), "temporal": temporal["target_host"]}
    alone = WatchProcess(
        url,
        settings,
        namespace=str(temporal["namespace"]),
        schema=database_schema(),
        connect=connect_temporal,
        on_event=EventLog("watch", places, then=printer),
    )

    async def run() -> None:
        signals = StopSignals()
        printer.on_closed = signals.leave
        receiver = "SCHED_ALERT_URL" if settings.alert_url else "this terminal alone"
        every = format_duration(settings.heartbeat / 2)
        printer.log(f"watching the ledger every {every}, alerts go to {receiver}")
        running = asyncio.create_task(alone.run())
        await _first_of(running, signals.asked)
        alone.stop()
        await running

    asyncio.run(run())


# --- browser ---


async def open_page(url: str) -> str:
    """Open the page in a browser and return a sentence about the result."""
    # Without a display Python would choose a text browser, which takes over the terminal.
    names = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    seen = sys.platform == "darwin" or any(os.environ.get(name) for name in names)
    if seen and await asyncio.to_thread(webbrowser.open, url):
        return f"opened {url}"
    return f"no browser to open here (BROWSER names one): {url}"


# --- command ---

_NAMESPACE = "default"

_port = partial(typer.Option, metavar="PORT", parser=port_number)
TemporalPort = Annotated[int, _port(help="Temporal's port.")]
UiPort = Annotated[int, _port(help="The Web UI's port.")]
PostgresPort = Annotated[int, _port(help="PostgreSQL's port.")]
Open = Annotated[bool, typer.Option("--open", help="Open the Web UI in a browser.")]
Lines = Annotated[
    bool,
    typer.Option(
        "--lines",
        help="Print a line for each start, failure and window without a run instead of the live"
        " table; this is the default when the output is not a terminal.",
    ),
]


Reload = Annotated[
    bool | None,
    typer.Option(
        "--reload/--no-reload",
        help="Start the worker again when its code changes.  [default: in a terminal]",
        show_default=False,
    ),
]


@commands.command()
def up(
    schedules: Schedules = DEFAULT_FILE,
    task_queue: TaskQueue = "sched",
    imports: Imports = None,
    setup: SetupFunction = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    temporal_port: TemporalPort = 7233,
    ui_port: UiPort = 8233,
    postgres_port: PostgresPort = 5433,
    *,
    api_port: ApiPort = DEFAULT_PORT,
    open_ui: Open = False,
    lines: Lines = False,
    reload: Reload = None,
    http_port: HttpPort = None,
    http_host: HttpHost = "127.0.0.1",
) -> None:
    """Run everything locally: two servers, the schedules and one worker.

    Saving the schedule file applies it. If it has mistakes, they are printed and the last good
    version stays in force. A key that is removed from the file is retired after 30 seconds, but
    never more than half of the keys at once. With --reload, saving a module of the worker drains
    the worker and starts it again; open runs go on. Data is kept in the data folder, so the next
    start continues where this one ended. Ctrl-C drains the worker, then stops both servers.
    """
    settings = _begin()
    options = Setup.load(setup)
    code = _served(imports)
    file = _read(schedules, declarations_of(code.workflows))
    if isinstance(file, ScheduleFileError) and not data_dir.exists():
        raise file
    application = _Application(
        schedules=schedules,
        task_queue=task_queue,
        imports=imports or (),
        code=code,
        file=file,
        reloads=sys.stdout.isatty() if reload is None else reload,
        data_dir=data_dir,
        # `sched up` always means the file in this folder.
        settings=replace(settings, apply="on-start"),
        setup=options,
        open_ui=open_ui,
        live=wants_live(lines=lines),
        endpoint=Endpoint(http_port, http_host),
        api=LocalApi(api_port, data_dir),
    )
    from engine.embedded import servers  # a worker needs none, and Windows has none

    running = servers(
        data_dir,
        temporal_port=temporal_port,
        ui_port=ui_port,
        postgres_port=postgres_port,
        with_postgres=database_url() is None,
    )
    raise typer.Exit(asyncio.run(application.run(running)))


@dataclass
class _Application:
    """Application that runs between the start and the stop of the servers."""

    schedules: Path
    task_queue: str
    imports: Sequence[str]
    code: UserCode
    file: ScheduleFile | ScheduleFileError
    reloads: bool
    data_dir: Path
    settings: Settings
    setup: Setup
    open_ui: bool
    live: bool
    endpoint: Endpoint
    api: LocalApi
    fallen: bool = False
    listeners: tuple[OnEvent, ...] = ()  # to the replica, which is created before them

    async def run(self, running: AbstractAsyncContextManager[EmbeddedServers]) -> int:
        lines = LinePrinter(logs=logs_events())
        async with AsyncExitStack() as stack:
            signals = StopSignals()
            lines.on_closed = signals.leave
            self._log_start(lines)
            embedded = await stack.enter_async_context(running)
            forget = partial(forget_running, self.data_dir)
            signals.before_leaving_at_once += [embedded.abandon, forget]  # even while shutting down
            target = self._announce(embedded, lines)
            stack.callback(forget)
            plugin = self._plugin(self.file, self.code, target.database_url)
            await self._listen(stack, target, plugin, lines)
            note_running(self.data_dir, replace(target, project=plugin.project))
            lazy = await stack.enter_async_context(self._lazy_service(target))
            await self._bind(embedded, lazy, lines)
            living = await self._living(lazy, plugin.project)
            if self.open_ui and target.ui_url:
                lines.log(await open_page(target.ui_url))
            with self._screen(target, lazy, plugin.project, lines) as screen:
                signals.before_leaving_at_once.append(screen.restore)
                watch = FileWatch(
                    self.schedules,
                    self.file,
                    lazy,
                    project=plugin.project,
                    living=living,
                    types=self.code.types,
                    data_dir=self.data_dir,
                    declared=declarations_of(self.code.workflows),
                    show=screen.show,
                    on_event=screen,
                )
                self.listeners = (screen, watch.on_event)
                await self._serve(embedded, plugin, watch, screen, signals)
            lines.log("stopping the servers")
        lines.log("stopped")
        if lines.closed:
            raise BrokenPipeError
        return 1 if self.fallen else 0

    def _log_start(self, lines: LinePrinter) -> None:
        if sys.stdout.isatty():  # for interactive use; a log needs only the result
            servers_named = "Temporal" if database_url() else "PostgreSQL and Temporal"
            lines.log(f"starting {servers_named}")

    def _plugin(
        self,
        file: ScheduleFile | ScheduleFileError | None,
        code: UserCode,
        url: str,
        project: str | None = None,
    ) -> SchedulePlugin:
        return SchedulePlugin(
            file if isinstance(file, ScheduleFile) else watched_source(self.schedules),
            database_url=url,
            project=project,
            settings=self.settings,
            on_event=self._relay,
            listeners=code.listeners,
        )

    async def _listen(
        self, stack: AsyncExitStack, target: Target, plugin: SchedulePlugin, lines: LinePrinter
    ) -> None:
        """Serve metrics, health and the API until the stack is closed."""
        await stack.enter_async_context(self.endpoint.open(plugin, lines.log))
        api = self.api.running(target, self.setup.converter, lines.log)
        await stack.enter_async_context(api)

    def _lazy_service(self, target: Target) -> LazyService:
        return LazyService(target.database_url, _NAMESPACE, self.setup.converter)

    def _relay(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)

    def _screen(
        self, target: Target, lazy: LazyService, project: str, lines: LinePrinter
    ) -> AbstractContextManager[Screen | LinePrinter]:
        return Screen(target, lazy, project, after=lines) if self.live else nullcontext(lines)

    def _announce(self, embedded: EmbeddedServers, lines: LinePrinter) -> Target:
        url = embedded.postgres.url if embedded.postgres else require_database_url()
        target = Target(url, _NAMESPACE, embedded.temporal.ui_url, embedded.temporal.address)
        _let_steps_find(url, self.data_dir)
        if embedded.ended_orphans:
            lines.log("ended the servers of a `sched up` that was killed")
        lines.log(f"Temporal     {embedded.temporal.address}")
        lines.log(f"Web UI       {target.ui_url}")
        lines.log(f"PostgreSQL   {target.place} (address with password: {self.data_dir / UP_FILE})")
        return target

    async def _bind(self, embedded: EmbeddedServers, lazy: LazyService, lines: LinePrinter) -> None:
        """Bind a ledger of our own to a Temporal that begins anew, as if its file was deleted."""
        if embedded.postgres is None:
            return
        client = await Client.connect(embedded.temporal.address, namespace=_NAMESPACE)
        found = await describe_namespace(client, self.settings.rpc_timeout)
        async with lazy.service() as service:
            done = await service.move(found, old_is_gone=True)
        if done.moved_from is not None:
            ended = f"{done.lost} open runs are lost, {done.unvouched} starts unvouched"
            lines.log(f"Temporal has begun anew, the ledger goes on with it: {ended}", "yellow")

    async def _living(self, lazy: LazyService, project: str) -> int:
        """Return the number of schedules in force; raise the file's error if there are none."""
        if not isinstance(self.file, ScheduleFileError):
            return len(self.file.schedules)
        async with lazy.service() as service:
            living = await service.count(project)
        if not living:
            raise self.file
        return living

    async def _serve(
        self,
        embedded: EmbeddedServers,
        plugin: SchedulePlugin,
        watch: FileWatch,
        screen: Screen | LinePrinter,
        signals: StopSignals,
    ) -> None:
        show_run_warnings(screen.log)
        show_service_events(screen.log)
        code = CodeWatch(self.code, self.imports, log=screen.log)
        falls = filter(None, (embedded.temporal, embedded.postgres))
        jobs = [
            *(self._notice_a_fall(server, signals, screen) for server in falls),
            watch.run(),
            screen.run(),
            *([code.run()] if self.reloads else []),
        ]
        async with AsyncExitStack() as stack:
            for job in jobs:
                await stack.enter_async_context(beside(job))
            address = embedded.temporal.address
            await self._work(address, plugin, code, screen, signals)
            while code.renewed.is_set() and not signals.asked.is_set():
                watch.expect(code.code.types, declarations_of(code.code.workflows))
                url = os.environ["SCHED_DATABASE_URL"]
                again = self._plugin(None, code.code, url, plugin.project)
                again.health = plugin.health  # the endpoint serves it
                try:
                    await self._work(address, again, code, screen, signals)
                except EngineError as error:
                    screen.log(f"the worker cannot work with this code: {error}", "red")
                    await _first_of(None, signals.asked, code.renewed)

    async def _work(
        self,
        address: str,
        plugin: SchedulePlugin,
        code: CodeWatch,
        screen: Screen | LinePrinter,
        signals: StopSignals,
    ) -> None:
        """Run a worker with the newest code until a stop signal, or until there is newer code."""
        code.renewed.clear()
        options = {**self.setup.client_options(plugin), **self.endpoint.exports.client_options()}
        client = await Client.connect(address, namespace=_NAMESPACE, **options)
        if (problem := await register_keyword(client, KEY_ATTRIBUTE)) is not None:
            screen.log(f"the Web UI cannot filter by schedule: {problem}", "yellow")
        await serve(
            client,
            plugin,
            code.code,
            self.task_queue,
            signals,
            setup=self.setup,
            log=screen.log,
            renewed=code.renewed,
        )

    async def _notice_a_fall(
        self, server: Server, signals: StopSignals, screen: Screen | LinePrinter
    ) -> None:
        """Stop everything, with a message, if a server ends by itself."""
        code, log = await server.wait(), server.log.name
        name = log.removesuffix(".log")
        screen.log(f"{name} ended with code {code}; see {self.data_dir / log}", "red")
        self.fallen = True
        signals.asked.set()


def _read(schedules: Path, declared: Sequence[Declaration]) -> ScheduleFile | ScheduleFileError:
    try:
        return ScheduleService.check(schedules, declared=declared)
    except ScheduleFileError as error:
        return error
