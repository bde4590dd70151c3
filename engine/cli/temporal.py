"""Calls of commands to Temporal: runs, their tries and progress, and the namespace.

Commands import it where they need it, because the SDK takes longer to load than most of them run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar

import typer
from pydantic_core import to_jsonable_python
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowFailureError
from temporalio.service import RPCError

from engine.cli.target import ANSWERS_WITHIN, Target, open_service
from engine.errors import TemporalUnavailable, WindowNotFound
from engine.flow import step_key
from engine.runtime import Settings, Setup
from engine.runtime.runs.ends import read_counts
from engine.runtime.runs.histories import HistoryReader, RecordedChild, RecordedStep, RunHistory
from engine.runtime.temporal_client import (
    connect_temporal,
    describe_namespace,
    read_search_attributes,
    temporal_target,
)
from engine.service import (
    OPEN,
    Fire,
    ReasonCode,
    ScheduleService,
    Status,
    StepInProgress,
    TemporalFacts,
    TemporalNamespace,
    Try,
    steps_in_progress,
)

T = TypeVar("T")

PATIENCE: Final = timedelta(seconds=ANSWERS_WITHIN)


async def connected(of: Target, setup: Setup) -> Client:
    """Connect to the environment's Temporal server, or else to that of ``sched up``.

    Args:
        of: the target of the command.
        setup: the team's own options, which come before those of the environment.

    Raises:
        TemporalUnavailable: the server does not answer within ``ANSWERS_WITHIN``.
    """
    elsewhere = os.environ.get("TEMPORAL_ADDRESS") or os.environ.get("TEMPORAL_PROFILE")
    here = {"target_host": of.temporal} if of.temporal and not elsewhere else {}
    options = {**setup.client_options(), **here, "namespace": of.namespace}
    return await reached(**options)


async def reached(**options: Any) -> Client:
    """Connect with these options, and those of the environment.

    Raises:
        TemporalUnavailable: the server does not answer within ``ANSWERS_WITHIN``.
    """
    place = {**temporal_target(), **options}["target_host"]
    return await _in_time(connect_temporal(**options), f"the Temporal server at {place}")


async def if_connected(of: Target, setup: Setup, left_out: str) -> Client | None:
    """Connect as ``connected`` does; if the server does not answer, say what is left out."""
    try:
        return await connected(of, setup)
    except TemporalUnavailable as error:
        typer.echo(f"sched: {left_out}: {error}", err=True)
        return None


async def _in_time(asked: Awaitable[T], what: str) -> T:
    """Return the answer to one question.

    The SDK alone would repeat it for half a minute.

    Raises:
        TemporalUnavailable: there is none within ``ANSWERS_WITHIN``.
    """
    try:
        async with asyncio.timeout(ANSWERS_WITHIN):
            return await asked
    except TimeoutError as error:
        raise TemporalUnavailable(
            f"{what} gave no answer within {ANSWERS_WITHIN:g} s",
            hint="see whether it runs, and what it logs",
        ) from error


async def described(of: Target, setup: Setup) -> TemporalNamespace:
    """Describe the namespace of that server.

    Raises:
        TemporalUnavailable: the server does not answer, or does not say.
    """
    client = await connected(of, setup)
    try:
        return await describe_namespace(client, Settings.from_environment().rpc_timeout)
    except RPCError as error:
        raise TemporalUnavailable(f"namespace {of.namespace}: {error.message}") from error


# --- search attributes ---
# Those of the namespace, for ``sched plan`` and ``sched apply``.


async def search_attributes_of(of: Target) -> dict[str, str]:
    """Return the custom search attributes of the namespace, each with its kind.

    Raises:
        TemporalUnavailable: the server does not answer, or does not say.
    """
    client = await connected(of, Setup.load())
    found = await read_search_attributes(client, PATIENCE)
    if found is None:
        raise TemporalUnavailable("the Temporal server does not list its search attributes")
    return found


# --- namespace ---
# What Temporal says of the namespace, for ``sched doctor``.


async def temporal_facts(of: Target, setup: Setup, task_queues: Sequence[str]) -> TemporalFacts:
    """Return what Temporal says of the namespace and of those who poll these task queues.

    Raises:
        TemporalUnavailable: the server does not answer, or does not say.
    """
    client = await connected(of, setup)
    try:
        namespace = await describe_namespace(client, PATIENCE)
        asked = [_pollers(client, each) for each in task_queues]
        polling = dict(zip(task_queues, await asyncio.gather(*asked), strict=True))
    except RPCError as error:
        raise TemporalUnavailable(f"namespace {of.namespace}: {error.message}") from error
    return TemporalFacts(namespace, await read_search_attributes(client, PATIENCE), polling)


async def _pollers(client: Client, task_queue: str) -> list[str]:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    found = await client.workflow_service.describe_task_queue(request, timeout=PATIENCE)
    return sorted({each.identity for each in found.pollers})


# --- one run ---
# The tries of one run and its undo steps, for ``sched show --at`` and ``sched dead show``; its
# result, for ``sched trigger --wait``; and its workflow id.

_CALLS: Final = Settings(rpc_timeout=PATIENCE)
"""How long each call may take."""


class InTemporal(NamedTuple):
    """A run as Temporal has it: its tries, the undo steps of the last one, and steps in progress.

    Each begins with the oldest. An undo step has a ``step``, what it ``undoes`` and a ``state``:
    ``completed``, ``failed`` or ``running``.
    """

    tries: tuple[Try, ...] = ()
    undo: tuple[dict[str, str], ...] = ()
    running: tuple[StepInProgress, ...] = ()


async def run_in_temporal(of: Target, workflow_id: str, run_id: str) -> InTemporal:
    """Return what Temporal has of a run.

    Raises:
        TemporalUnavailable: the server does not answer.
    """
    client = await connected(of, Setup.load())
    try:
        found = await read_counts(client, workflow_id, run_id, _CALLS)
        run = await HistoryReader(client, patience=PATIENCE).read(workflow_id, run_id)
        running = await steps_in_progress(client, workflow_id, run_id, within=PATIENCE)
    except RPCError as error:
        raise TemporalUnavailable(f"the history could not be read: {error}") from error
    return InTemporal(found.tried, () if run is None else (*_undo_steps(run),), running)


def _undo_steps(run: RunHistory) -> Iterator[dict[str, str]]:
    begun: list[RecordedStep | RecordedChild] = [*run.calls.values(), *run.children.values()]
    named = {
        each.note.key or step_key(each.note.origin or run.origin, each.place): each.step
        for each in run.calls.values()
    }
    named |= {str(each.note.undo["key"]): each.step for each in begun if each.note.undo}
    for call in run.calls.values():
        if (key := call.note.undoes) is not None:
            state = "completed" if call.completed else "failed" if call.ended else "running"
            yield {"step": call.step, "undoes": named.get(key) or key, "state": state}


async def result_of(of: Target, workflow_id: str) -> Any:
    """Return the result of the newest completed run of this id, as JSON has it.

    Raises:
        TemporalUnavailable: the server does not answer, or has forgotten the run.
    """
    client = await connected(of, Setup.load())
    try:
        found = await _in_time(client.get_workflow_handle(workflow_id).result(), "its result")
    except (RPCError, WorkflowFailureError) as error:
        raise TemporalUnavailable(f"the result could not be read: {error}") from error
    return to_jsonable_python(found, fallback=str)


async def count_open_runs(of: Target, types: Sequence[str]) -> dict[str, int]:
    """Return the number of open runs by workflow type, without those that Temporal does not say."""
    found: dict[str, int] = {}
    client = await if_connected(of, Setup.load(), "open runs are not counted")
    if client is None:
        return found
    try:
        for each in types:
            query = f"WorkflowType = '{each}' AND ExecutionStatus = 'Running'"
            counted = await client.count_workflows(query, rpc_timeout=PATIENCE)
            found[each] = counted.count
    except RPCError as error:
        typer.echo(f"sched: open runs are not counted: {error}", err=True)
    return found


async def workflow_of(of: Target, run_id: str, setup: Setup | None = None) -> str:
    """Return the workflow id of a run that is named by Temporal's id of it.

    Args:
        of: the target of the command.
        run_id: the id.
        setup: options of the client; None loads those of the environment.

    Raises:
        WindowNotFound: Temporal has no such run, or no longer.
        TemporalUnavailable: the server does not answer.
    """
    client = await connected(of, setup or Setup.load())
    try:
        named = client.list_workflows(f"RunId = '{run_id}'", limit=1, rpc_timeout=PATIENCE)
        async for run in named:
            return run.id
    except RPCError as error:
        raise TemporalUnavailable(f"the run could not be looked for: {error}") from error
    raise WindowNotFound(
        f"Temporal has no run {run_id}",
        hint="it may have forgotten it; name the workflow id, as `sched fires` shows it",
    )


# --- follow ---
# Follow mode of ``sched fires``: status changes of fires and progress of runs.

_EVERY = 1.0
_LOOKED_AT = 200
_ASKED = 20
"""Number of open runs whose progress is queried in one round, the newest first."""
_DETAILS = "__temporal_workflow_metadata"
"""A query that the SDK answers for every workflow."""

Show = Callable[[Fire, str], None]
"""Callback with a fire that is new or has changed, and its run's reported progress."""


class Follower:
    """Follower of fires: reports each status and each progress once, the oldest fire first.

    Args:
        name: the key of a schedule, or the id of one run, to which no other filter applies; None
            is all schedules.
        status, reason_code: filters; None is all.
        limit: how many existing fires to report at the start.
        show: called for each report.
    """

    def __init__(
        self,
        name: str | None,
        status: Status | None,
        reason_code: ReasonCode | None,
        limit: int,
        *,
        show: Show,
    ) -> None:
        self._run = name if name and ":" in name else None  # keys have no colon
        self._key = None if self._run else name
        self._status = None if self._run else status
        self._reason_code = reason_code
        self._limit, self._show = limit, show
        self._reported: dict[str, tuple[str, str]] = {}

    async def run(self, of: Target) -> None:
        """Follow until cancelled, or until the one run has ended.

        Raises:
            EngineError: the ledger cannot be read, or has no such schedule or run.
        """
        client = await if_connected(of, Setup.load(), "progress of runs is not shown")
        async with open_service(of, patience=ANSWERS_WITHIN) as service:
            if self._key:
                await service.schedule(self._key)
            self.begin(fires := await self._newest(service))
            while self._run is None or fires[0].status in OPEN:
                if client is not None:
                    await self._ask(service, client)
                await asyncio.sleep(_EVERY)
                self.report(fires := await self._newest(service), {})

    def begin(self, fires: Sequence[Fire]) -> None:
        """Report the newest existing fires; of the others, only later changes are reported."""
        self._reported = {fire.workflow_id: (fire.status, "") for fire in fires[self._limit :]}
        self.report(fires[: self._limit], {})

    def report(self, fires: Iterable[Fire], progress: dict[str, str]) -> None:
        """Report changes in these fires, which are ordered newest first."""
        for fire in reversed([*fires]):
            before = self._reported.get(fire.workflow_id, ("", ""))
            now = (fire.status, progress.get(fire.workflow_id, before[1]))
            if now != before:
                self._reported[fire.workflow_id] = now
                self._show(fire, now[1] if fire.status == "started" else "")

    async def _newest(self, service: ScheduleService) -> list[Fire]:
        return await self._fires(service, self._status, max(_LOOKED_AT, self._limit))

    async def _fires(
        self, service: ScheduleService, status: Status | None, limit: int
    ) -> list[Fire]:
        if self._run is not None:
            if (fire := await service.fire(self._run)) is None:
                raise WindowNotFound(
                    f"the ledger has no run {self._run}",
                    hint="see `sched fires KEY` for those of a schedule",
                )
            return [fire] if status in {None, fire.status} else []
        code = self._reason_code
        return await service.fires(key=self._key, status=status, reason_code=code, limit=limit)

    async def _ask(self, service: ScheduleService, client: Client) -> None:
        if self._status not in {None, "started"}:
            return
        fires = await self._fires(service, "started", _ASKED)
        texts = await asyncio.gather(*(_progress(client, fire.workflow_id) for fire in fires))
        progress = {fire.workflow_id: text for fire, text in zip(fires, texts, strict=True) if text}
        self.report([fire for fire in fires if fire.workflow_id in progress], progress)


async def _progress(client: Client, workflow_id: str) -> str | None:
    """Return the progress that a run reports; None if no worker answers the query."""
    handle = client.get_workflow_handle(workflow_id)
    try:
        found = await handle.query(_DETAILS, result_type=WorkflowMetadata, rpc_timeout=PATIENCE)
    except (RPCError, RuntimeError):
        return None
    return str(found.current_details) or None
