"""Temporal worker plugin, which makes a worker a replica of the scheduler."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from temporalio.client import Client
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter, DefaultFailureConverter, DefaultPayloadConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import ReplayerConfig, Worker, WorkerConfig

from engine.errors import ScheduleFileError
from engine.events.delivery import listeners_by_name
from engine.events.listeners import listener_of
from engine.flow import CleanUp, RunOptions, VersionedCleanUp, definition_of
from engine.ledger import Ledger, Serving
from engine.ledger.postgres.address import place_of
from engine.runtime.apply.code_check import announced_inputs, declarations_of
from engine.runtime.apply.source import (
    DEFAULT_FILE,
    DEFAULT_PROJECT,
    Paths,
    Source,
    declaring,
    inline_file,
)
from engine.runtime.code.discovery import types_of
from engine.runtime.code.step_check import unserved_steps
from engine.runtime.code.workflow_check import (
    asks_each_workflow,
    require_deployment,
    require_sound,
    sandbox_of,
)
from engine.runtime.events import Event, EventLog, OnEvent, ServerName, log, logger, process_name
from engine.runtime.loop_watch import watched_loop
from engine.runtime.measurements import EventMeter, measure_statement
from engine.runtime.replica import Replica
from engine.runtime.runs.ends import ended_child, own_child
from engine.runtime.runs.memo import ChainMemo, lets_plain_through
from engine.runtime.runs.reset_keys import ResetKeys, check_reset, left_to_undo
from engine.runtime.settings import (
    Settings,
    database_schema,
    database_url as environment_url,
    default_project,
    require_database_url,
    unknown_names,
)
from engine.runtime.steps.interceptors import (
    HEARD_WITHIN,
    EndingFailures,
    HandlerEndings,
    RetryReports,
    StepHeartbeats,
    StepNotes,
)
from engine.runtime.steps.queues import SeenQueues, SlotInterceptor, is_lane
from engine.runtime.steps.resources import WorkerResources, run_with_resources
from engine.schedules import Schedule, ScheduleFile, first_of
from engine.telemetry.health import Health

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from engine.runtime.tracing import ReplicaTraces

_NAMED = 5
_STEPS_AT_ONCE = 100
"""The SDK's default of ``max_concurrent_activities``."""

_served: WeakKeyDictionary[Worker, set[str]] = WeakKeyDictionary()


class SchedulePlugin(SimplePlugin):
    """Plugin that runs the scheduler inside ``worker.run()``.

    Pass it to the client or to the worker; passed to both, it runs once. A client without a
    worker never fires.

    Args:
        schedules: the path of the schedule file or of a folder of them, a list of paths, a
            file already loaded, a list of `Schedule` objects, or None to run what the ledger
            holds. Those that stand beside the worker's workflows join them, except with None.
            If a path that is given cannot be read, the last good definitions of the ledger stay
            in force, and a worker without any ends with its error. By default `schedules.yaml`,
            which need not be there.
        database_url: the ledger; by default ``SCHED_DATABASE_URL``.
        project: the project whose schedules to claim; by default the file's. Of schedules given
            as objects it is the project.
        settings: by default those of the environment.
        on_event: receives each event after the log.
        steps: objects whose methods are steps; the worker serves all of these methods.
        resources: objects that are open already, by class or in place of an ``@resource``
            function. They are given to steps and never closed; others are opened once per worker.
        listeners: functions marked with ``engine.events.on``; the worker calls them with events.

    Raises:
        LedgerError: ``database_url`` is no address of a PostgreSQL database.
        ScheduleFileError: schedules given as objects do not fit together.
        SettingsInvalid: a setting is invalid.
        TypeError: an object of ``steps`` has no step, a key of ``resources`` is of no use, or a
            function of ``listeners`` is not marked.

    Attributes:
        health: whether the replicas of this plugin work; ``engine.telemetry`` serves it over HTTP.
    """

    def __init__(
        self,
        schedules: Paths | Source | ScheduleFile | Sequence[Schedule] | None = DEFAULT_FILE,
        *,
        database_url: str | None = None,
        project: str | None = None,
        settings: Settings | None = None,
        on_event: OnEvent | None = None,
        steps: Sequence[object] = (),
        resources: Mapping[Any, object] | None = None,
        listeners: Sequence[Callable[..., Any]] = (),
    ) -> None:
        self._listeners = tuple(listeners_by_name(map(listener_of, listeners)).values())
        self._seen = SeenQueues()
        super().__init__(
            "sched-engine",
            workflow_runner=sandbox_of,
            interceptors=[
                StepHeartbeats(),
                StepNotes(),
                HandlerEndings(),
                ChainMemo(),
                self._seen,
            ],
            data_converter=_understanding_models,
        )
        self._source = _source_of(schedules, project)
        self._database_url = environment_url(database_url)
        if settings:
            settings.check()
        self.settings = settings or Settings.from_environment()
        for warning in unknown_names():
            logger.warning(warning)
        self._on_event = on_event
        self._meter = EventMeter(self.settings.metrics_keys)
        self.health = Health()
        self._objects, self._given = tuple(steps), dict(resources or {})
        WorkerResources(self._given, self._objects)  # refuses them here
        self._project = project or _project_of(self._source)
        self._replicas: list[Replica] = []

    @property
    def project(self) -> str:
        """Project whose schedules the replicas of this plugin claim."""
        return self._project

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """See the base class.

        Raises:
            LedgerRequired: there is no ledger.
            WorkflowInvalid: a workflow cannot be loaded in the sandbox, or declares what fails.
            ScheduleFileError: a schedule beside a workflow does not fit those given loaded.
        """
        config = super().configure_worker(config)
        self._ledger_url()  # raised later it would hang the worker
        require_sound(
            config.get("workflows", ()),
            config.get("activities", ()),
            config.get("workflow_runner"),
            config["client"].data_converter,
        )
        require_deployment(config)
        self._applied_by(config.get("workflows", ()))  # as above
        # Slots come last, so that a step that waits for one gets heartbeats too.
        interceptors = sorted(
            config.get("interceptors", ()), key=lambda i: isinstance(i, SlotInterceptor)
        )
        if (provider := _tracer_provider()) is not None:
            from engine.runtime.tracing import worker_interceptors  # noqa: PLC0415 - as below

            inherited = config["client"].config(active_config=True).get("interceptors", ())
            others = [*interceptors, *inherited]
            interceptors = [*worker_interceptors(provider, others), *interceptors]
        keys = ResetKeys(config["client"])
        config["interceptors"] = [
            StepNotes(keys) if type(each) is StepNotes else each for each in interceptors
        ]
        given = config.get("max_heartbeat_throttle_interval", HEARD_WITHIN)
        config["max_heartbeat_throttle_interval"] = min(given, HEARD_WITHIN)
        if config.get("activity_executor") is None:
            # One per concurrent step: the SDK warns below that, and threads start when needed.
            most = config.get("max_concurrent_activities") or _STEPS_AT_ONCE
            config["activity_executor"] = ThreadPoolExecutor(most, thread_name_prefix="step")
        resources = WorkerResources(self._given, self._objects, on_event=self._emit)
        config["activities"] = resources.serve(config.get("activities", ()))
        return _with_own_code(config)

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """See the base class. Clean-up runs are replayed like any other."""
        config = super().configure_replayer(config)
        workflows = config.get("workflows", ())
        if CleanUp not in workflows:
            config["workflows"] = [*workflows, CleanUp]
        return config

    def drain(self) -> None:
        """Stop claiming, ahead of the worker's own shutdown."""
        for replica in self._replicas:
            replica.stop()

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Run the worker with a replica beside it. See the base class."""
        if is_lane(worker):
            await next(worker)  # with the resources of the worker beside it
            return
        projects = _served.setdefault(worker, set())
        if self._project in projects:
            await next(worker)
            return
        projects.add(self._project)
        try:
            await run_with_resources(worker, lambda opened: self._beside_replica(opened, next))
        finally:
            projects.discard(self._project)

    async def _beside_replica(
        self, worker: Worker, run: Callable[[Worker], Awaitable[None]]
    ) -> None:
        codec = worker.client.data_converter.payload_codec
        if codec is not None and not await lets_plain_through(codec):
            logger.warning(
                "the codec refuses what it did not encode, so the memo of runs is encoded too:"
                " replicas without the codec cannot read it"
            )
        replica = self._replica(worker)
        self._replicas.append(replica)
        config = worker.config(active_config=True)
        activities = config.get("activities", ())
        if not config.get("no_remote_activities"):  # it polls for steps
            workflows = config.get("workflows", ())
            for alert in unserved_steps(workflows, activities, worker.task_queue):
                self._emit(alert)
        try:
            with watched_loop(self.settings.loop_lag, activities, self._listen):
                await _side_by_side(worker, run, replica)
        finally:
            self._replicas.remove(replica)

    def _replica(self, worker: Worker) -> Replica:
        name = process_name()
        workflows = worker.config(active_config=True).get("workflows", ())
        applied, declared = self._applied_by(workflows), declarations_of(workflows)
        if applied is None and declared:
            names = first_of([str(each.fields["key"]) for each in declared], _NAMED)
            logger.warning("schedules beside workflows are not applied here: %s", names)
        serving = Serving(
            name,
            self._project,
            worker.task_queue,
            types_of(workflows),
            rules=_rules_of(workflows),
            inputs=announced_inputs(workflows),
        )
        return Replica(
            worker.client,
            lambda: self._open_ledger(worker.client.namespace),
            source=applied,
            serving=serving,
            settings=self.settings,
            on_event=EventLog(name, self._places(worker.client), then=self._listen),
            seen=self._seen,
            worker=worker,
            health=self.health,
            traces=self._traces(name),
            reports=_reports_of(worker),
            listeners=self._listeners,
        )

    def _applied_by(self, workflows: Sequence[type]) -> Source | ScheduleFile | None:
        """Return what a replica applies at its start: the schedules, and those of its workflows.

        Raises:
            ScheduleFileError: a schedule beside a workflow is not valid, or has the key of one
                that was given already loaded.
        """
        declared = declarations_of(workflows)
        if self.settings.apply != "on-start" or self._source is None:
            return None
        return declaring(self._source, declared)

    def _places(self, client: Client) -> dict[ServerName, str]:
        """Return where the servers are, for people."""
        temporal = client.service_client.config.target_host
        return {"ledger": place_of(self._ledger_url()), "temporal": temporal}

    @staticmethod
    def _traces(replica: str) -> ReplicaTraces | None:
        if (provider := _tracer_provider()) is None:
            return None
        from engine.runtime.tracing import ReplicaTraces  # noqa: PLC0415 - only for traces

        return ReplicaTraces(provider, replica)

    def _ledger_url(self) -> str:
        return require_database_url(self._database_url)

    async def _open_ledger(self, namespace: str) -> Ledger:
        return await Ledger.connect(
            self._ledger_url(),
            namespace=namespace,
            schema=database_schema(),
            on_statement=measure_statement,
        )

    def _emit(self, event: Event) -> None:
        log(event)
        self._listen(event)

    def _listen(self, event: Event) -> None:
        self._meter.on_event(event)
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:  # noqa: BLE001 - a listener must not end a worker
            logger.exception("the listener of %s failed", type(event).__name__)


async def _side_by_side(
    worker: Worker, run: Callable[[Worker], Awaitable[None]], replica: Replica
) -> None:
    """Run both until either ends, then stop the other; keep the replica's error."""
    running = asyncio.ensure_future(run(worker))
    firing = asyncio.create_task(_fire_while_running(worker, replica))
    try:
        await asyncio.wait({running, firing}, return_when=asyncio.FIRST_COMPLETED)
        # Of a cancelled task exception() raises: that would cancel the worker without a drain.
        if firing.done() and (firing.cancelled() or firing.exception() is not None):
            await worker.shutdown()
        await running
    except asyncio.CancelledError:
        running.cancel()
        await asyncio.wait({running})
        raise
    finally:
        replica.stop()
        await firing


async def _fire_while_running(worker: Worker, replica: Replica) -> None:
    """Fire from the moment the worker can take work until its shutdown is requested."""
    # The SDK has no signal for either moment. The shutdown event is read where it exists, so that a
    # replica does not claim while its worker drains.
    shutdown: asyncio.Event | None = getattr(worker, "_shutdown_event", None)
    while not worker.is_running:
        if worker.is_shutdown or (shutdown and shutdown.is_set()):
            return
        await asyncio.sleep(0.01)
    stopper = asyncio.create_task(_stop_with(shutdown, replica)) if shutdown else None
    try:
        await replica.run()
    finally:
        if stopper:
            stopper.cancel()


async def _stop_with(shutdown: asyncio.Event, replica: Replica) -> None:
    await shutdown.wait()
    replica.stop()


def _with_own_code(config: WorkerConfig) -> WorkerConfig:
    """Add what our workflows need: the clean-up workflow, and the activities of the engine."""
    workflows, activities = config.get("workflows", ()), config.get("activities", ())
    declared = [found for each in workflows if (found := definition_of(each))]
    if not declared or check_reset in activities:
        return config
    if not activities:
        config["no_remote_activities"] = True  # other workers run its task queue's steps
    config["activities"] = [*activities, check_reset, ended_child, own_child]
    if CleanUp not in workflows and any(each.compensate_on_terminate for each in declared):
        own = VersionedCleanUp if asks_each_workflow(config) else CleanUp
        config["workflows"] = [*workflows, own]
        config["activities"] = [*config["activities"], left_to_undo]
    return config


def _tracer_provider() -> TracerProvider | None:
    """Return the tracer provider that the application has set; None if nothing is traced."""
    if "opentelemetry.trace" not in sys.modules:  # without it, none can have been set
        return None
    from engine.telemetry.traces import application_provider  # noqa: PLC0415 - as above

    return application_provider()


def _rules_of(workflows: Sequence[type]) -> dict[str, dict[str, Any]]:
    """Return the run options that these workflows declare, by Temporal type."""
    found = map(definition_of, workflows)
    return {each.type: RunOptions.of(each).to_json() for each in found if each is not None}


def _source_of(
    schedules: Paths | Source | ScheduleFile | Sequence[Schedule] | None, project: str | None
) -> Source | ScheduleFile | None:
    if schedules is None or isinstance(schedules, Source | ScheduleFile):
        return schedules
    if schedules is DEFAULT_FILE:
        return Source(DEFAULT_FILE, required=DEFAULT_FILE.exists())
    if isinstance(schedules, str | os.PathLike):
        return Source(schedules)
    objects = [each for each in schedules if isinstance(each, Schedule)]
    if len(objects) == len(schedules):
        return inline_file(objects, project or DEFAULT_PROJECT)
    if objects:
        raise TypeError("schedules are paths and Schedule objects: give a list of one of them")
    return Source([each for each in schedules if not isinstance(each, Schedule)])


def _project_of(source: Source | ScheduleFile | None) -> str:
    """Return the project of the file, or of the readable ``project:`` line of a broken one.

    Without a text it is that of the environment: a lost file does not say whose it was.
    """
    if source is None:
        return default_project()
    if not isinstance(source, Source):
        return source.project
    look = None
    try:
        look = source.look()
        return look.project() if look.is_certain() else source.read().project
    except ScheduleFileError:
        return look.project() if look else default_project()


def _understanding_models(given: DataConverter | None) -> DataConverter:
    """Allow pydantic models as inputs and results, unless the user chose another converter."""
    converter = given or DataConverter.default
    if converter.failure_converter_class is DefaultFailureConverter:
        converter = replace(converter, failure_converter_class=EndingFailures)
    if converter.payload_converter_class is DefaultPayloadConverter:
        converter = replace(converter, payload_converter_class=PydanticPayloadConverter)
    return converter


def _reports_of(worker: Worker) -> RetryReports | None:
    """Return the reports of the worker's own interceptor of steps."""
    found = worker.config(active_config=True).get("interceptors", ())
    return next((each.reports for each in found if isinstance(each, StepNotes)), None)
