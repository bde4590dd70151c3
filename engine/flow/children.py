"""Child runs and parallel calls."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import temporalio.workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ChildWorkflowError
from temporalio.workflow import ChildWorkflowHandle, ParentClosePolicy

from engine.flow.coroutines import result_of
from engine.flow.definition import WorkflowDefinition, definition_of, duration
from engine.flow.failures import CompensationFailed, NotUndone, was_refused
from engine.flow.step_calls import ChildOptions, args_of, origin_of

# --- child runs ---


_CLOSE_POLICIES: Final = {
    None: ParentClosePolicy.TERMINATE,
    "terminate": ParentClosePolicy.TERMINATE,
    "abandon": ParentClosePolicy.ABANDON,
    "request_cancel": ParentClosePolicy.REQUEST_CANCEL,
}


def _close_policy(name: str | None) -> ParentClosePolicy:
    if name not in _CLOSE_POLICIES:
        known = ", ".join(filter(None, _CLOSE_POLICIES))
        raise ValueError(f"parent_close_policy is one of {known}; got {name!r}")
    return _CLOSE_POLICIES[name]


def _checked_id(given: str | None) -> str | None:
    """Return the id that was asked for; the ids of the engine's own runs are taken."""
    if given is not None and (not given or given.startswith("sched:")):
        raise ValueError(
            f"the id of a child is a text that does not begin with sched:; got {given!r}"
        )
    return given


class Children:
    """The children of one run, numbered so that each has the same id on every replay.

    Attributes:
        not_undone: what cancelled children could not undo; it is reported nowhere else.
        refused: the failure of a child that could not repeat its calls after a reset.
    """

    def __init__(self) -> None:
        self.not_undone: list[NotUndone] = []
        self.refused: BaseException | None = None
        self._started: Counter[str] = Counter()
        self._under_way: dict[asyncio.Task[Any] | None, None] = {}
        self._stopped = False

    @property
    def under_way(self) -> bool:
        """Whether any child is open."""
        return bool(self._under_way)

    async def run(
        self,
        child: type | str | Callable[..., Any],
        given: Any,
        options: ChildOptions,
        result_type: Any,
    ) -> Any:
        """Start a child and return its result.

        Raises:
            TypeError: ``child`` is not a workflow, or its input does not fit.
            ValueError: an option has an invalid value.
            temporalio.exceptions.ChildWorkflowError: the child did not complete.
        """
        definition = definition_of(child) if isinstance(child, type) else None
        args = args_of(given, definition)
        timeout, retry = options.get("timeout"), options.get("retry")
        own_id = _checked_id(options.get("id"))
        close_policy = _close_policy(options.get("parent_close_policy"))
        if definition is not None:
            timeout = definition.timeout if timeout is None else timeout
            retry = retry or definition.retry
            result_type = result_type or definition.result_type
        if self._stopped:
            raise asyncio.CancelledError("the run is being undone")
        name, target = _named(child, definition)
        self._started[name] += 1
        starting = temporalio.workflow.start_child_workflow(
            target,
            args=args,
            id=own_id or _id_of(name, self._started[name]),
            task_queue=options.get("task_queue"),
            parent_close_policy=close_policy,
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
        except ChildWorkflowError as error:
            if was_refused(error):
                self.refused = error
            raise
        except asyncio.CancelledError as stopped:
            self._note(stopped.__cause__)
            raise
        finally:
            del self._under_way[waiting]

    async def stop(self) -> None:
        """Cancel the open children, and wait until they have undone their work."""
        self._stopped = True
        for task in self._under_way:
            # Each task waits in `run`, which forwards the cancel.
            if task is not None:
                task.cancel()
        await temporalio.workflow.wait_condition(lambda: not self._under_way)

    def _note(self, error: BaseException | None) -> None:
        """Record what a cancelled child could not undo; its error does not become the run's."""
        cause = error.__cause__ if isinstance(error, ChildWorkflowError) else None
        if not isinstance(cause, ApplicationError) or cause.type != CompensationFailed.__name__:
            return
        temporalio.workflow.logger.error("a child that was cancelled: %s", cause.message)
        left = [each for each in cause.details if isinstance(each, Mapping)]
        self.not_undone += map(NotUndone.of, left)


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


def _reuse() -> WorkflowIDReusePolicy:
    """Return the reuse policy for the id of an earlier child.

    If the run was reset while a child was open, the server is about to terminate that child. The
    new child must not fail because it starts earlier.
    """
    info = temporalio.workflow.info()
    if origin_of(info) == info.run_id:
        return WorkflowIDReusePolicy.ALLOW_DUPLICATE
    return WorkflowIDReusePolicy.TERMINATE_IF_RUNNING


def _id_of(name: str, number: int) -> str:
    """Return the child's id, which never begins like the ids of the engine's own runs."""
    info = temporalio.workflow.info()
    # A later run of the same id must not collide with the children of an earlier one. A reset run
    # has to name its children as in its history, so it uses the id of the run it began as.
    began_as = origin_of(info)
    again = "" if began_as == info.first_execution_run_id else f":{began_as[:8]}"
    return f"child:{info.workflow_id}{again}:{name}:{number}"


# --- parallel calls ---
# Concurrent waits, in an order that every replay repeats.


async def all_of(things: Sequence[Awaitable[Any]], limit: int | None) -> list[Any]:
    """Return the results in order, with at most ``limit`` calls in flight.

    The first failure cancels the calls in flight, waits for them, starts none of the others and is
    raised. (``asyncio.TaskGroup`` cancels in set order, which a replay need not repeat.)

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
                thing.close()  # avoids Python's warning if it never started

    tasks = [asyncio.ensure_future(in_turn(thing)) for thing in things]
    if not tasks:
        return []
    try:
        await temporalio.workflow.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failed = [task for task in tasks if task.done() and (task.cancelled() or task.exception())]
    finally:
        for task in tasks:
            task.cancel()
        # A cancel of the run itself must not leave tasks behind either.
        results = await asyncio.gather(*tasks, return_exceptions=True)
    if failed:
        failed[0].result()
    return results
