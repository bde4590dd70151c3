"""Worker of the testing kit, and its results."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    StartWorkflowInput,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowHistory,
    WorkflowQueryFailedError,
)
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import TimeSkipper
from temporalio.worker import Worker

from engine.flow import (
    MEMO_KEY,
    WAITS,
    FireInfo,
    RunOptions,
    definition_of,
    lane_of,
    registered_steps,
    registered_workflows,
    step_definition_of,
    without_versions,
)
from engine.ledger import Status
from engine.runtime import SchedulePlugin, Settings
from engine.runtime.code.discovery import types_of
from engine.runtime.runs.ends import evidence_of
from engine.runtime.steps.resources import WorkerResources
from engine.runtime.tracking.replay import task_failure
from engine.testing.fakes import Fake, activities
from engine.testing.server import DevServer, dev_server

# --- results ---


@dataclass(frozen=True)
class RunResult:
    """Outcome of one run in a test.

    Attributes:
        workflow_id: the run's id; for a window ``sched:<key>:<bucket>``.
        run_id: Temporal's run id.
        status: ``completed``, ``failed``, ``cancelled``, ``terminated`` or ``timed_out``.
        history: for ``assert_replayable``, or for inspection.
        result: the result of ``run``.
        error: the error of the failing step, or of the run itself, in Temporal's form: usually an
            ``ApplicationError`` with ``.type`` and ``.message``.
        steps: the names of the started steps, including undo steps, in order.
    """

    workflow_id: str
    run_id: str
    status: Status
    history: WorkflowHistory = field(repr=False)
    result: Any = None
    error: BaseException | None = None
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class FireResult:
    """Outcome of one window in a test.

    Attributes:
        key: the schedule's key.
        bucket: the window's number.
        fire_time: when it opened, in UTC.
        status: its status in ``sched fires``.
        reason: why it was skipped, or another remark.
        timing: why its run started when it did; None without a run.
        workflow_id: the id that its run has or would have.
        run: the outcome of its run; None without a run.
    """

    key: str
    bucket: int
    fire_time: datetime
    status: Status
    reason: str | None
    timing: str | None
    workflow_id: str
    run: RunResult | None = None

    @property
    def result(self) -> Any:
        """The run's result."""
        return self.run.result if self.run else None

    @property
    def error(self) -> BaseException | None:
        """The run's failure."""
        return self.run.error if self.run else None

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that the run started, in order."""
        return self.run.steps if self.run else ()


# --- worker ---
_ANSWERS_WITHIN = timedelta(seconds=5)

# Workers with the user's code on a server for tests, and the outcomes of their runs.


@dataclass(frozen=True)
class ServedCode:
    """Workflows and activities that the workers serve.

    Attributes:
        workflows: classes, marked with ``@workflow`` or plain.
        steps: functions, or their replacements.
        result_types: the declared result types, by Temporal type.
        rules: the declared run options, by Temporal type.
        queues: the queues in which steps wait.
        is_all: whether the steps are all that were imported, needed by the test or not.
    """

    workflows: Sequence[type]
    steps: Sequence[Callable[..., Any]]
    result_types: dict[str, Any]
    rules: dict[str, dict[str, Any]]
    queues: frozenset[str]
    is_all: bool = False

    @classmethod
    def of(
        cls,
        workflows: Iterable[type] | None,
        steps: Iterable[Callable[..., Any]] | None,
        fakes: dict[str, Fake],
        *,
        queues: Iterable[str] = (),
    ) -> ServedCode:
        """Return the given code; by default everything that this process has imported.

        ``queues`` are those of the schedule file, in addition to the ones that steps name.
        """
        if workflows is None:
            workflows = [each.cls for each in registered_workflows().values()]
        is_all = steps is None
        if steps is None:
            steps = [each.fn for each in registered_steps().values()]
        found, steps = list(workflows), list(steps)
        declared = [
            step_definition_of(step) for step in [*steps, *(f.step for f in fakes.values())]
        ]
        definitions = [each for cls_ in found if (each := definition_of(cls_))]
        return cls(
            found,
            activities(steps, fakes),
            {each.type: each.result_type for each in definitions},
            {each.type: RunOptions.of(each).to_json() for each in definitions},
            frozenset([*queues, *(each.queue for each in declared if each and each.queue)]),
            is_all,
        )

    @property
    def types(self) -> frozenset[str]:
        """The Temporal types of the workflows."""
        return types_of(self.workflows)


class PluginWithoutReplica(SchedulePlugin):
    """Plugin for workers and replays of a test, where only the test decides what fires."""

    def __init__(self) -> None:
        super().__init__(None, settings=Settings())

    def _ledger_url(self) -> str:
        return ""

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Run the worker only."""
        await next(worker)


class _InItsTime(Interceptor):
    """Interceptor that delays the run of a future window until it opens, by the run's clock."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _Delaying(next)


class _Delaying(OutboundInterceptor):
    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        memo = (input.memo or {}).get(MEMO_KEY)
        if isinstance(memo, Payload):
            memo = PayloadConverter.default.from_payload(memo)
        if memo is not None:
            wait = FireInfo.from_memo(memo).fire_time - datetime.now(UTC)
            input.start_delay = wait if wait > timedelta(0) else None
        return await super().start_workflow(input)


@dataclass(frozen=True)
class Bench:
    """Running workers, with a client of their own namespace.

    Attributes:
        server: the servers behind it.
        client: starts runs, with time skipping if it is wanted.
        code: the code that the workers serve.
        skipper: skips time; None if runs take real time.
        signals: values sent to each run, by name.
        patience: real seconds that one run may take.
        steered: whether the test acts on its runs, in real time.
    """

    server: DevServer
    client: Client
    code: ServedCode
    skipper: TimeSkipper | None
    signals: dict[str, Sequence[Any]]
    patience: float
    steered: bool = False

    def starting(self) -> Any:
        """Return a block in which to start runs: those that get signals start in real time."""
        if self.skipper is not None and (self.signals or self.steered):
            return self.skipper.with_time_skipping_disabled()
        return nullcontext()

    async def end(
        self, workflow_id: str, workflow_type: str, run_id: str | None = None
    ) -> tuple[RunResult, timedelta]:
        """Wait for the end of a run; return its outcome, and its duration by its own clock.

        Args:
            workflow_id: the run's workflow id.
            workflow_type: its type.
            run_id: its run id; by default the newest run.

        Raises:
            AssertionError: the run did not end within ``patience``; the message names its waits.
        """
        wanted = self.code.result_types.get(workflow_type)
        handle = self.client.get_workflow_handle(workflow_id, run_id=run_id, result_type=wanted)
        acts = self.signals or self.steered
        going = asyncio.ensure_future(self._signal(handle)) if acts else None
        try:
            result, error = await self._result(handle)
        finally:
            if going is not None:
                await going
        run = await handle.describe()
        history = await handle.fetch_history()
        scheduled = (each.activity_task_scheduled_event_attributes for each in history.events)
        ended = RunResult(
            workflow_id=workflow_id,
            run_id=run.run_id,
            status=evidence_of(run).closed or "started",
            result=result,
            error=error,
            steps=tuple(each.activity_type.name for each in scheduled if each.activity_id),
            history=history,
        )
        begun = run.execution_time or run.start_time
        return ended, max((run.close_time or begun) - begun, timedelta(0))

    async def _signal(self, handle: WorkflowHandle[Any, Any]) -> None:
        """Send the signals, and only then skip time for the run."""
        try:
            for name, values in self.signals.items():
                for value in values:
                    await handle.signal(name, args=[] if value is None else [value])
            if self.skipper is not None:
                await _through_changes(partial(self.skipper.fast_forward, handle))
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:  # it has ended without waiting for them
                raise

    async def _result(self, handle: WorkflowHandle[Any, Any]) -> tuple[Any, BaseException | None]:
        waiting = asyncio.ensure_future(_through_changes(handle.result))
        done, _ = await asyncio.wait({waiting}, timeout=self.patience)
        if not done:
            what = await _pending(handle)
            # Not cancelled, because no call may be in flight when the process ends.
            await handle.terminate("the test has no patience left")
            await asyncio.wait({waiting})
            waiting.exception()
            raise AssertionError(f"{handle.id} had not ended after {self.patience:g} s: {what}")
        try:
            return waiting.result(), None
        except WorkflowFailureError as failure:
            return None, _first_cause(failure)


async def _through_changes(wait: Callable[[], Awaitable[Any]]) -> Any:
    """Wait for events of a run, and begin again where its history has changed its branch.

    Temporal then ends the wait, as what it sent so far may not be in the history any more.
    """
    while True:
        try:
            return await wait()
        except RPCError as error:
            details = error.grpc_status.details
            if not any(each.type_url.endswith(".CurrentBranchChangedFailure") for each in details):
                raise


@asynccontextmanager
async def bench(
    server: DevServer | None,
    code: ServedCode,
    queues: Collection[str],
    *,
    time_skipping: bool = True,
    in_its_time: bool = False,
    signals: dict[str, Sequence[Any]] | None = None,
    patience: float = 30,
    resources: Mapping[Any, Any] | None = None,
    steered: bool = False,
) -> AsyncIterator[Bench]:
    """Run workers for these task queues, in a namespace of their own.

    Resources of the steps are opened once for all of them, but for those that are given.
    """
    holder = WorkerResources(resources, on_demand=code.is_all)
    steps = holder.serve(code.steps)
    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(dev_server()) if server is None else server
        before = (_InItsTime(),) if time_skipping and in_its_time else ()
        client = await there.connect(plugins=(PluginWithoutReplica(),), interceptors=before)
        skipper = TimeSkipper(client) if time_skipping else None
        await stack.enter_async_context(holder.opened(waits=False))
        stack.enter_context(without_versions(code.workflows))
        for queue in sorted(queues):
            worker = Worker(client, task_queue=queue, workflows=code.workflows, activities=steps)
            await stack.enter_async_context(worker)
            for name in sorted(code.queues):
                # Tests ignore the limits of queues: the steps only have to be served.
                lane = Worker(client, task_queue=lane_of(queue, name), activities=steps)
                await stack.enter_async_context(lane)
        yield Bench(
            there,
            skipper.client if skipper else client,
            code,
            skipper,
            dict(signals or {}),
            patience,
            steered,
        )


async def _pending(handle: WorkflowHandle[Any, Any]) -> str:
    described = await handle.describe()
    waits = await _waited_for(handle)
    for each in described.raw_description.pending_activities:
        failed = f", {each.last_failure.message}" if each.last_failure.message else ""
        waits.append(f"the step {each.activity_type.name} is at attempt {each.attempt}{failed}")
    waits += [
        f"the child {each.workflow_id} is open"
        for each in described.raw_description.pending_children
    ]
    return "; ".join(waits) or _wait(await handle.fetch_history())


async def _waited_for(handle: WorkflowHandle[Any, Any]) -> list[str]:
    """Return the signals and handlers that the run says it waits for; none if it cannot say."""
    try:
        found: list[str] = await handle.query(WAITS, rpc_timeout=_ANSWERS_WITHIN)
    except (RPCError, WorkflowQueryFailedError):
        return []
    return [f"it waits for {each}" for each in found]


def _wait(history: WorkflowHistory) -> str:
    """Return what a run without an open step or child may be waiting for."""
    if failing := task_failure(history):
        return f"its workflow task fails again and again: {failing[1]}"
    may_be = "it waits for something that does not come about"
    kinds = [event.event_type for event in history.events]
    if waits := kinds.count(EventType.EVENT_TYPE_TIMER_STARTED):
        return f"{may_be}, or its waits take longer ({waits} so far, each about a second)"
    return may_be


def _first_cause(failure: WorkflowFailureError) -> BaseException:
    cause: BaseException = failure.cause
    while cause.__cause__ is not None and _is_wrapping(cause):
        cause = cause.__cause__
    return cause


def _is_wrapping(error: BaseException) -> bool:
    """Return whether Temporal wrapped this error around the one that matters."""
    if isinstance(error, ActivityError | ChildWorkflowError):
        return True
    return isinstance(error, ApplicationError) and error.message == "Failed decoding arguments"
