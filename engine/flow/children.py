"""Child runs, and calls in parallel."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import temporalio.workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ChildWorkflowError
from temporalio.workflow import ChildWorkflowHandle

from engine.flow.coroutines import result_of
from engine.flow.definition import WorkflowDefinition, definition_of
from engine.flow.failures import CompensationFailed, NotUndone
from engine.flow.retries import Retry, duration
from engine.flow.step_calls import NOT_GIVEN, origin_of

# --- child runs ---
# Runs that a run starts and waits for.


class Children:
    """The children of one run, numbered so that each has the same id on every replay.

    Attributes:
        not_undone: what children could not undo that were cancelled, and say so to nobody else.
    """

    def __init__(self) -> None:
        self.not_undone: list[NotUndone] = []
        self._started: Counter[str] = Counter()
        self._under_way: dict[asyncio.Task[Any] | None, None] = {}
        self._stopped = False

    @property
    def under_way(self) -> bool:
        """Whether any is open."""
        return bool(self._under_way)

    async def run(
        self,
        child: type | str | Callable[..., Any],
        given: Any,
        *,
        task_queue: str | None,
        timeout: timedelta | float | None,  # noqa: ASYNC109 - kept by the server
        retry: Retry | None,
        result_type: Any,
    ) -> Any:
        """Start a child and return its result.

        Raises:
            TypeError: it is no workflow, or its input does not fit.
            temporalio.exceptions.ChildWorkflowError: the child ended badly.
        """
        definition = definition_of(child) if isinstance(child, type) else None
        if definition is not None:
            _check_input(definition, given)
            timeout = definition.timeout if timeout is None else timeout
            retry = retry or definition.retry
            result_type = result_type or definition.result_type
        if self._stopped:
            raise asyncio.CancelledError("the run is being undone")
        name, target = _named(child, definition)
        self._started[name] += 1
        starting = temporalio.workflow.start_child_workflow(
            target,
            args=[] if given is NOT_GIVEN else [given],
            id=_id_of(name, self._started[name]),
            task_queue=task_queue,
            run_timeout=None if timeout is None else duration(timeout, "timeout"),
            retry_policy=None if retry is None else retry.to_policy(),
            result_type=result_type,
            id_reuse_policy=_reuse(),
        )
        waiting = asyncio.current_task()
        self._under_way[waiting] = None
        try:
            handle: ChildWorkflowHandle[Any, Any] = await starting
            return await result_of(handle, f"the child {name!r}")
        except asyncio.CancelledError as stopped:
            self._note(stopped.__cause__)
            raise
        finally:
            del self._under_way[waiting]

    async def stop(self) -> None:
        """Cancel those that are open, and wait until they have undone what they did."""
        self._stopped = True
        for task in self._under_way:
            # Each waits in `run`, which passes the cancel on.
            if task is not None:
                task.cancel()
        await temporalio.workflow.wait_condition(lambda: not self._under_way)

    def _note(self, error: BaseException | None) -> None:
        """Keep what is left of a child that was cancelled: its error is not the run's."""
        cause = error.__cause__ if isinstance(error, ChildWorkflowError) else None
        if not isinstance(cause, ApplicationError) or cause.type != CompensationFailed.__name__:
            return
        temporalio.workflow.logger.error("a child that was cancelled: %s", cause.message)
        left = [each for each in cause.details if isinstance(each, Mapping)]
        self.not_undone += [
            NotUndone(*(str(each.get(name)) for name in ("step", "undo", "error"))) for each in left
        ]


def _named(child: Any, definition: WorkflowDefinition | None) -> tuple[str, Any]:
    if definition is not None:
        return definition.name, definition.type
    if isinstance(child, str):
        return child.partition("@")[0], child
    plain = getattr(child, "__temporal_workflow_definition", None)
    if plain is None:
        raise TypeError(
            "ctx.child needs a class marked with @workflow, or a Temporal workflow type as text; "
            f"got {child!r}"
        )
    return plain.name or getattr(child, "__name__", "child"), plain.name or child


def _check_input(definition: WorkflowDefinition, given: Any) -> None:
    if given is not NOT_GIVEN and not definition.accepts_input:
        raise TypeError(f"the workflow {definition.name!r} takes no input")
    if given is NOT_GIVEN and definition.requires_input:
        raise TypeError(f"the workflow {definition.name!r} needs an input")


def _reuse() -> WorkflowIDReusePolicy:
    """Return the id-reuse policy towards an earlier child of the same id.

    Where the run was reset while a child was open, that one is about to be terminated, as its
    parent was; the next must not fail because it comes first.
    """
    info = temporalio.workflow.info()
    if origin_of(info) == info.run_id:
        return WorkflowIDReusePolicy.ALLOW_DUPLICATE
    return WorkflowIDReusePolicy.TERMINATE_IF_RUNNING


def _id_of(name: str, number: int) -> str:
    """Return the child's id; never one that begins like those of our own runs."""
    info = temporalio.workflow.info()
    # A later run of the same id must not find the children of an earlier one in its way. A run
    # that was reset has to call those alike that its history has, so it goes by what it began as.
    began_as = origin_of(info)
    again = "" if began_as == info.first_execution_run_id else f":{began_as[:8]}"
    return f"child:{info.workflow_id}{again}:{name}:{number}"


# --- parallel calls ---
# Several things at once, in a way that replays alike.


async def all_of(things: Sequence[Awaitable[Any]], limit: int | None) -> list[Any]:
    """Return what they return, in their order, with at most ``limit`` under way.

    The first failure cancels those under way, waits for them, begins none of the others and is
    raised. (``asyncio.TaskGroup`` cancels in the order of a set, which a replay need not repeat.)

    Raises:
        ValueError: ``limit`` is below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is at least 1; got {limit!r}")
    gate = asyncio.Semaphore(limit or max(len(things), 1))

    async def in_turn(thing: Awaitable[Any]) -> Any:
        try:
            async with gate:
                return await thing
        finally:
            if inspect.iscoroutine(thing):
                thing.close()  # one that never got its turn would be complained about

    tasks = [asyncio.ensure_future(in_turn(thing)) for thing in things]
    if not tasks:
        return []
    try:
        await temporalio.workflow.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failed = [task for task in tasks if task.done() and _failed(task)]
    finally:
        for task in tasks:
            task.cancel()
        # The cancel of the run itself must not leave them behind either.
        results = await asyncio.gather(*tasks, return_exceptions=True)
    if failed:
        failed[0].result()
    return results


def _failed(task: asyncio.Future[Any]) -> bool:
    return task.cancelled() or task.exception() is not None
