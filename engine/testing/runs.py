"""Runs of one workflow, and replay of histories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import uuid4

from temporalio import workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import WorkflowHandle, WorkflowHistory
from temporalio.service import RPCError
from temporalio.worker import Replayer, StartActivityInput, WorkflowOutboundInterceptor
from temporalio.workflow import NondeterminismError

from engine.flow import (
    MEMO_KEY,
    NOT_GIVEN,
    UNDO_TYPE,
    FireInfo,
    RunOptions,
    args_of,
    registered_workflows,
)
from engine.runtime.runs.calls import RunInterceptor
from engine.runtime.tracking.replay import (
    HINT,
    HistoryStep,
    explain_nondeterminism,
    history_step,
    workflow_type,
)
from engine.testing.fakes import Fakes, by_name, name_of
from engine.testing.server import DevServer
from engine.testing.worker import Bench, PluginWithoutReplica, RunResult, ServedCode, bench

# --- replay ---
# Checks whether the current code fits the histories of earlier runs.

AnyHistory: TypeAlias = "WorkflowHistory | str | Path | Mapping[str, Any]"
"""A history, the path of a JSON file or of a folder of such files, or JSON."""

_asked: Final[defaultdict[str, list[HistoryStep]]] = defaultdict(list)
"""The steps that replayed code started, by run id. Shared: sandboxes do not reload `engine`."""


async def assert_replayable(
    histories: AnyHistory | Iterable[AnyHistory], *, workflows: Iterable[type] | None = None
) -> int:
    """Assert that the current code replays the histories of earlier runs. Needs no server.

    Args:
        histories: ``WorkflowHistory`` values, JSON as Temporal and ``sched history export`` write
            it, paths of such files, or of folders of them.
        workflows: the classes; by default every one imported so far.

    Returns:
        the number of replayed histories. Runs that have not executed anything yet, such as one
        that waits for its retry, are left out.

    Raises:
        AssertionError: a history does not fit. The message names each such run, with the event,
            the step that the history has there, and what the code does instead.
        ValueError: there is nothing to replay, or a history cannot be read.
    """
    several = [histories] if isinstance(histories, _ONE) else histories
    found = [history for each in several for history in _read(each)]
    if not found:
        raise ValueError("there is no history to replay")
    found = [history for history in found if _has_executed(history)]
    if not found:
        raise ValueError("there is nothing to replay: none of these runs has executed anything yet")
    classes = list(workflows or [each.cls for each in registered_workflows().values()])
    _check_types(found, classes)
    replayer = Replayer(
        workflows=classes, plugins=[PluginWithoutReplica()], interceptors=[_StepRecording()]
    )
    wrong = []
    for history in found:
        try:
            if fault := await _replayed(replayer, history):
                wrong.append(f"{workflow_type(history)} {history.workflow_id} {fault}")
        finally:
            _asked.pop(history.run_id, None)
    if wrong:
        listed = "\n".join(f"  {each}" for each in wrong)
        raise AssertionError(
            f"{len(wrong)} of {len(found)} histories do not replay; {HINT}:\n{listed}"
        )
    return len(found)


def _check_types(found: Sequence[WorkflowHistory], classes: Sequence[type]) -> None:
    marks = (getattr(each, "__temporal_workflow_definition", None) for each in classes)
    known = {UNDO_TYPE, *(mark.name for mark in marks if mark)}
    types = [workflow_type(history) for history in found]
    unknown = [each for each in types if each not in known]
    if unknown and None not in known:  # None: a dynamic workflow takes every type
        raise AssertionError(
            f"{len(unknown)} of {len(found)} histories are of workflows that are not here "
            f"({', '.join(sorted(set(unknown)))}): import them or name them in workflows=; "
            "a class has to stay until its runs have ended"
        )


async def _replayed(replayer: Replayer, history: WorkflowHistory) -> str | None:
    """Replay a history; return the problem, or None."""
    try:
        done = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        error: Exception | None = done.replay_failure
    except RuntimeError as refused:  # such as an unknown workflow type
        error = refused
    if error is None:
        return None
    text = str(error)
    if isinstance(error, NondeterminismError):
        text = explain_nondeterminism(history, text, _asked[history.run_id])
    return f"(run {history.run_id}): {text}"


def _has_executed(history: WorkflowHistory) -> bool:
    """Return whether a workflow task has completed; otherwise the SDK would wait forever."""
    return any(each.HasField("workflow_task_completed_event_attributes") for each in history.events)


def _read(given: AnyHistory) -> Iterator[WorkflowHistory]:
    if isinstance(given, WorkflowHistory):
        yield given
    elif isinstance(given, Mapping):
        yield _parsed(dict(given), "the history")
    elif isinstance(given, str) and given.lstrip().startswith("{"):
        yield _parsed(given, "the history")
    else:
        path = Path(given)
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise ValueError(f"{path} has no .json file")
        for file in files:
            yield _parsed(file.read_text(encoding="utf-8"), str(file))


def _parsed(given: str | dict[str, Any], name: str) -> WorkflowHistory:
    try:
        history = WorkflowHistory.from_json(Path(name).stem, given)
        _ = history.run_id
        # Servers before 2024 do not record it; then the file name stands in for it.
        if known := history.events[0].workflow_execution_started_event_attributes.workflow_id:
            history = replace(history, workflow_id=known)
    except Exception as error:
        raise ValueError(f"{name} is no history of Temporal: {error}") from error
    return history


_ONE: Final = (WorkflowHistory, str, Path, Mapping)


class _StepRecording(RunInterceptor):
    """Interceptor that records the steps that the code starts."""

    def _through(self, following: WorkflowOutboundInterceptor) -> WorkflowOutboundInterceptor:
        return _StepRecorder(following)


class _StepRecorder(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        place = input.activity_id or "?"
        _asked[workflow.info().run_id].append(history_step(input.activity, place))
        return super().start_activity(input)


# --- single runs ---

_QUEUE: Final = "sched"


async def run_workflow(
    workflow: type | str,
    input: Any = NOT_GIVEN,
    *,
    fire: FireInfo | None = None,
    fakes: Fakes = (),
    signals: Mapping[str, Sequence[Any]] | None = None,
    workflows: Iterable[type] | None = None,
    steps: Iterable[Callable[..., Any]] | None = None,
    server: DevServer | None = None,
    workflow_id: str | None = None,
    time_skipping: bool = True,
    in_its_time: bool = False,
    replay: bool = True,
    patience: float = 30,
    resources: Mapping[Any, Any] | None = None,
) -> RunResult:
    """Run a workflow to its end on a real server, as if started by hand or by a schedule.

    Args:
        workflow: the class, or its Temporal type.
        input: its argument; by default it has none.
        fire: the window to run for, see ``fire_for``; by default the run is started by hand.
        fakes: replaced steps; see ``fake``.
        signals: values sent to the run after its start, by name.
        workflows: the classes that the worker serves; by default every one imported so far.
        steps: the steps that it serves; by default every one imported so far.
        server: a running server; by default one is started for this call.
        workflow_id: by default that of the window, or ``by-hand``.
        time_skipping: whether waits pass at once, instead of in real time.
        in_its_time: whether ``ctx.now()`` starts at the window's time if that is in the future, at
            a cost of about a second; otherwise it is the machine's time. Not with ``signals``.
        replay: whether the run's history is replayed afterwards.
        patience: real seconds until the test fails.
        resources: objects to give to steps instead of opening a resource: by ``@resource``
            function, or by class. Others are opened for this call.

    Raises:
        AssertionError: the run did not end in time, or does not replay.
        TypeError: ``workflow`` is not a workflow, or a fake's step is not a step.
    """
    code = ServedCode.of(workflows, steps, by_name(fakes))
    kind = _type_of(workflow)
    async with bench(
        server,
        code,
        [_QUEUE],
        time_skipping=time_skipping,
        in_its_time=in_its_time,
        signals=dict(signals or {}),
        patience=patience,
        resources=resources,
    ) as opened:
        handle = await _started(opened, kind, input, fire, workflow_id)
        ended, _ = await opened.end(handle.id, kind)
    if replay:
        await assert_replayable([ended.history], workflows=code.workflows)
    return ended


# --- steered runs ---
# A run that a test signals, asks, updates, cancels and resets while it is open.


class RunUnderTest:
    """An open run that a test acts on, in real time; made by ``running_workflow``.

    Attributes:
        workflow_id: the run's workflow id.
        run_id: Temporal's run id.
    """

    def __init__(
        self, opened: Bench, kind: str, handle: WorkflowHandle[Any, Any], *, replay: bool
    ) -> None:
        self.workflow_id = handle.id
        self.run_id = handle.first_execution_run_id or handle.run_id or ""
        self._opened, self._kind, self._replay = opened, kind, replay
        self._handle = handle
        self._was_reset = False

    async def signal(self, name: Any, value: Any = NOT_GIVEN) -> None:
        """Send a signal: a name that ``ctx.wait_for`` waits for, or a ``@workflow.signal``.

        Raises:
            temporalio.service.RPCError: the run has ended.
        """
        await self._handle.signal(name, args=args_of(value))

    async def query(self, name: Any, value: Any = NOT_GIVEN) -> Any:
        """Return the answer of a ``@workflow.query``, by the method or its name.

        Raises:
            temporalio.client.WorkflowQueryFailedError: the handler failed.
        """
        return await self._handle.query(name, args=args_of(value))

    async def update(self, name: Any, value: Any = NOT_GIVEN) -> Any:
        """Return the result of a ``@workflow.update``, by the method or its name.

        Raises:
            temporalio.client.WorkflowUpdateFailedError: it was refused, or failed.
        """
        return await self._handle.execute_update(name, args=args_of(value))

    async def cancel(self) -> None:
        """Cancel the run, which then undoes its steps. ``ended`` waits for that."""
        await self._handle.cancel()

    async def skip(self, span: timedelta | float) -> None:
        """Let a time pass for the run (timedelta or seconds), without a wait.

        Raises:
            ValueError: the run takes real time.
        """
        if self._opened.skipper is None:
            raise ValueError("with time_skipping=False the run takes real time")
        await self._opened.skipper.fast_forward(self._handle, span)

    async def ended(self) -> RunResult:
        """Wait for the end of the run; from here on its waits take no time.

        Raises:
            AssertionError: the run did not end in time, or does not replay.
        """
        run_id = self.run_id if self._was_reset else None
        found, _ = await self._opened.end(self.workflow_id, self._kind, run_id)
        if self._replay:
            await assert_replayable([found.history], workflows=self._opened.code.workflows)
        return found

    async def reset(self, to: Callable[..., Any] | int | None = None) -> RunUnderTest:
        """Reset the run as an operator does, and return the new one; an open run ends.

        The steps before the place keep their results, and all others are called again: a test sees
        whether an effect happens twice.

        Args:
            to: the step whose first call is made again, or the number of an event; by default the
                run begins anew.

        Raises:
            ValueError: the run has not called that step, or has executed nothing yet.
        """
        client = self._opened.client
        answer = await client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=client.namespace,
                request_id=uuid4().hex,
                reason="a test",
                workflow_execution=WorkflowExecution(
                    workflow_id=self.workflow_id, run_id=self.run_id
                ),
                workflow_task_finish_event_id=await self._event_of(to),
            )
        )
        self._was_reset = True
        again = client.get_workflow_handle(self.workflow_id, run_id=answer.run_id)
        return RunUnderTest(self._opened, self._kind, again, replay=self._replay)

    async def _event_of(self, to: Callable[..., Any] | int | None) -> int:
        """Return the number of the event to which Temporal resets the run."""
        if isinstance(to, int):
            return to
        there = self._opened.client.get_workflow_handle(self.workflow_id, run_id=self.run_id)
        history = await there.fetch_history()
        if to is None:
            found = (
                each.event_id
                for each in history.events
                if each.HasField("workflow_task_completed_event_attributes")
            )
            missing = "has executed nothing yet"
        else:
            name = name_of(to)
            calls = (each.activity_task_scheduled_event_attributes for each in history.events)
            found = (
                each.workflow_task_completed_event_id
                for each in calls
                if each.activity_type.name == name
            )
            missing = f"has not called the step {name!r}"
        event = next(found, None)
        if event is None:
            raise ValueError(f"the run {self.workflow_id} {missing}")
        return event


@asynccontextmanager
async def running_workflow(
    workflow: type | str,
    input: Any = NOT_GIVEN,
    *,
    fire: FireInfo | None = None,
    fakes: Fakes = (),
    workflows: Iterable[type] | None = None,
    steps: Iterable[Callable[..., Any]] | None = None,
    server: DevServer | None = None,
    workflow_id: str | None = None,
    time_skipping: bool = True,
    replay: bool = True,
    patience: float = 30,
    resources: Mapping[Any, Any] | None = None,
) -> AsyncIterator[RunUnderTest]:
    """Start a workflow on a real server, for a test that acts on the open run.

    ``async with running_workflow(Parcels, order) as run: await run.cancel()``. The run takes real
    time until ``ended`` is awaited. A run that is open at the end of the block is terminated.

    Args:
        workflow: the class, or its Temporal type.
        input: its argument; by default it has none.
        fire: as for ``run_workflow``, like all others.
        fakes: replaced steps.
        workflows: the classes that the worker serves.
        steps: the steps that it serves.
        server: a running server.
        workflow_id: by default that of the window, or ``by-hand``.
        time_skipping: whether waits pass at once when ``ended`` is awaited.
        replay: whether ``ended`` replays the run's history.
        patience: real seconds after which ``ended`` fails the test.
        resources: objects to give to steps.

    Raises:
        TypeError: ``workflow`` is not a workflow, or a fake's step is not a step.
    """
    code = ServedCode.of(workflows, steps, by_name(fakes))
    kind = _type_of(workflow)
    async with bench(
        server,
        code,
        [_QUEUE],
        time_skipping=time_skipping,
        patience=patience,
        resources=resources,
        steered=True,
    ) as opened:
        handle = await _started(opened, kind, input, fire, workflow_id)
        try:
            yield RunUnderTest(opened, kind, handle, replay=replay)
        finally:
            newest = opened.client.get_workflow_handle(handle.id)
            with suppress(RPCError):  # it has ended
                await newest.terminate("the test has ended")


async def _started(
    opened: Bench, kind: str, given: Any, fire: FireInfo | None, workflow_id: str | None
) -> WorkflowHandle[Any, Any]:
    """Start a run as a schedule would, or by hand."""
    named = f"sched:{fire.key}:{fire.bucket}" if fire else "by-hand"
    rules = RunOptions.from_json(opened.code.rules.get(kind))
    with opened.starting():
        return await opened.client.start_workflow(
            kind,
            args=args_of(given),
            id=workflow_id or named,
            task_queue=_QUEUE,
            run_timeout=rules.timeout,
            retry_policy=rules.retry,
            memo={MEMO_KEY: fire.to_memo()} if fire else None,
        )


def _type_of(workflow: type | str) -> str:
    if isinstance(workflow, str):
        return workflow
    # Plain Temporal classes have this mark too.
    mark = getattr(workflow, "__temporal_workflow_definition", None)
    if mark is None or not mark.name:
        raise TypeError(f"{workflow!r} is no workflow: mark the class with @workflow")
    return str(mark.name)
