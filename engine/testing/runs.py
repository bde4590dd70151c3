"""Runs of one workflow, and replay of histories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, StartActivityInput, WorkflowOutboundInterceptor
from temporalio.workflow import NondeterminismError

from engine.flow import MEMO_KEY, FireInfo, registered_workflows
from engine.flow.saga import UNDO_TYPE
from engine.flow.step_calls import NOT_GIVEN, args_of
from engine.runtime.interceptors import RunInterceptor
from engine.runtime.tracking.replay import (
    CURE,
    HistoryStep,
    explain_nondeterminism,
    history_step,
    workflow_type,
)
from engine.testing.fakes import Fakes, by_name
from engine.testing.server import DevServer
from engine.testing.worker import PluginWithoutReplica, RunResult, ServedCode, bench

# --- replay ---
# Checks whether the current code fits the histories of earlier runs.

History: TypeAlias = "WorkflowHistory | str | Path | Mapping[str, Any]"
"""A history, the path of a JSON file or of a folder of such files, or JSON."""

_asked: Final[defaultdict[str, list[HistoryStep]]] = defaultdict(list)
"""The steps that replayed code started, by run id. Shared: sandboxes do not reload `engine`."""


async def assert_replayable(
    histories: History | Iterable[History], *, workflows: Iterable[type] | None = None
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
            f"{len(wrong)} of {len(found)} histories do not replay; {CURE}:\n{listed}"
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


def _read(given: History) -> Iterator[WorkflowHistory]:
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
    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:  # noqa: A002 - the SDK's name
        place = input.activity_id or "?"
        _asked[workflow.info().run_id].append(history_step(input.activity, place))
        return super().start_activity(input)


# --- single runs ---

_QUEUE: Final = "sched"


async def run_workflow(
    workflow: type | str,
    input: Any = NOT_GIVEN,  # noqa: A002 - the word of schedules.yaml
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
    named = f"sched:{fire.key}:{fire.bucket}" if fire else "by-hand"
    async with bench(
        server, code, [_QUEUE],
        time_skipping=time_skipping, in_its_time=in_its_time, signals=dict(signals or {}),
        patience=patience, resources=resources,
    ) as opened:  # fmt: skip
        with opened.starting():
            handle = await opened.client.start_workflow(
                kind,
                args=args_of(input),
                id=workflow_id or named,
                task_queue=_QUEUE,
                memo={MEMO_KEY: fire.to_memo()} if fire else None,
            )
        ended, _ = await opened.end(handle.id, kind)
    if replay:
        await assert_replayable([ended.history], workflows=code.workflows)
    return ended


def _type_of(workflow: type | str) -> str:
    if isinstance(workflow, str):
        return workflow
    # Plain Temporal classes have this mark too.
    mark = getattr(workflow, "__temporal_workflow_definition", None)
    if mark is None or not mark.name:
        raise TypeError(f"{workflow!r} is no workflow: mark the class with @workflow")
    return str(mark.name)
