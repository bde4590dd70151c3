"""Child runs and parallel calls."""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NoReturn

import temporalio.workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import (
    ApplicationError,
    ChildWorkflowError,
    TerminatedError,
    TimeoutError,
    WorkflowAlreadyStartedError,
)
from temporalio.workflow import ChildWorkflowHandle, ParentClosePolicy

from engine.flow.definition import Retry, WorkflowDefinition, definition_of, duration
from engine.flow.failures import CompensationFailed, NotUndone, plain_text, refusal, was_refused
from engine.flow.fire import MEMO_KEY
from engine.flow.step_calls import (
    ChildOptions,
    UndoScope,
    args_of,
    finish_despite_cancel,
    origin_of,
    result_of,
    was_reset,
)
from engine.flow.steps import StepNote, noted, step_key

ENDED_CHILD: Final = "sched.ended_child"
"""The activity that looks how a child has ended."""

OWN_CHILD: Final = "sched.own_child"
"""The activity that looks whether an open run is a child that a run had before its reset."""

_READING = timedelta(minutes=1)
_PATIENT = RetryPolicy(maximum_interval=timedelta(minutes=1))
_REPORTED_WITHIN = timedelta(seconds=10)
"""Time in which a run hears of the end of a child, unless it never does."""

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


def child_key(workflow_id: str) -> str:
    """Return the key under which an undo step names the child that it undoes."""
    return step_key(origin_of(temporalio.workflow.info()), workflow_id)


def was_undone(error: BaseException) -> bool:
    """Return whether a child ended by itself without success, and so has undone its work.

    Also one that did not start: its id is taken, or its input cannot be written.
    """
    cause = error.__cause__ if isinstance(error, asyncio.CancelledError) else error
    if isinstance(cause, ChildWorkflowError | ApplicationError):
        return not isinstance(cause.__cause__, TerminatedError | TimeoutError)
    return isinstance(cause, WorkflowAlreadyStartedError | TypeError | ValueError)


@dataclass(frozen=True)
class ChildCall:
    """A child with its input and its rules, ready to start."""

    name: str
    target: Any
    args: list[Any]
    id: str
    has_own_id: bool
    task_queue: str | None
    timeout: timedelta | None
    retry: Retry | None
    close_policy: ParentClosePolicy
    result_type: Any


class Children:
    """The children of one run, numbered so that each has the same id on every replay.

    Attributes:
        refused: the failure of a child that could not repeat its calls after a reset.
    """

    def __init__(self) -> None:
        self.refused: BaseException | None = None
        self._not_undone: list[NotUndone] = []
        self._started: Counter[str] = Counter()
        self._under_way: dict[asyncio.Task[Any] | None, tuple[UndoScope, ChildCall]] = {}
        self._open: list[ChildWorkflowHandle[Any, Any]] = []
        self._watches = False
        self._reset_at: int | None = None

    @property
    def under_way(self) -> bool:
        """Whether any child is open."""
        return bool(self._under_way)

    @property
    def waited_for(self) -> list[str]:
        """The names of open children that end with the run."""
        calls = [call for _, call in self._under_way.values()]
        return [call.name for call in calls if call.close_policy != ParentClosePolicy.ABANDON]

    def call_of(
        self,
        child: type | str | Callable[..., Any],
        given: Any,
        options: ChildOptions,
        result_type: Any,
    ) -> ChildCall:
        """Return the call of a child; ``given`` is its input or ``NOT_GIVEN``.

        Raises:
            TypeError: ``child`` is not a workflow, or its input does not fit.
            ValueError: an option has an invalid value.
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
        name, target = _named(child, definition)
        self._started[name] += 1
        return ChildCall(
            name,
            target,
            args,
            own_id or _id_of(name, self._started[name]),
            own_id is not None,
            options.get("task_queue"),
            None if timeout is None else duration(timeout, "timeout"),
            retry,
            close_policy,
            result_type,
        )

    async def run(
        self,
        call: ChildCall,
        scope: UndoScope,
        undo: Mapping[str, Any] | None,
        keep: Callable[[Any], None] | None,
    ) -> Any:
        """Start a child and return its result.

        Args:
            call: the child.
            scope: the part of the run that starts it.
            undo: instructions for a clean-up run, recorded in the history.
            keep: takes the result, also one that arrives together with a cancel.

        Raises:
            temporalio.exceptions.ChildWorkflowError: the child did not complete.
        """
        self._watch_resets()
        waiting = asyncio.current_task()
        self._under_way[waiting] = scope, call
        try:
            handle, stopped = await self._begin(call, undo)
            self._open.append(handle)
            if self._reset_at == _length():
                _look_after(handle)  # it heard of its start together with the reset
            try:
                ending = result_of(handle, f"the child {call.name!r}", keep)
                return await (ending if stopped is None else _cancelled_after(ending, stopped))
            finally:
                self._open.remove(handle)
        except (ChildWorkflowError, ApplicationError) as error:
            if was_refused(error):
                self.refused = error
            raise
        except asyncio.CancelledError as stopped:
            self._note(stopped.__cause__)
            raise
        finally:
            del self._under_way[waiting]

    async def _begin(
        self, call: ChildCall, undo: Mapping[str, Any] | None
    ) -> tuple[ChildWorkflowHandle[Any, Any], asyncio.CancelledError | None]:
        """Start a child; return its handle, and the cancel of the run that came meanwhile, if any.

        The SDK requests the cancel of such a child and forgets its handle. A run that did not wait
        for it would close at once, and so end the child before it has undone its steps.
        """
        with noted(StepNote(undo=undo)):
            try:
                try:
                    return await _started(call, _reuse(call)), None
                except WorkflowAlreadyStartedError:
                    if not await _is_own(call.id):
                        raise
                    return await _started(call, WorkflowIDReusePolicy.TERMINATE_IF_RUNNING), None
            except asyncio.CancelledError as stopped:
                begun = self._starting(call.id)
                if begun is None:
                    raise
                return begun, stopped

    def _starting(self, workflow_id: str) -> ChildWorkflowHandle[Any, Any] | None:
        """Return the handle of a child whose start was not awaited: it is a task of the run."""
        handles = [each for each in asyncio.all_tasks() if isinstance(each, ChildWorkflowHandle)]
        mine = (each for each in handles if each.id == workflow_id and each not in self._open)
        return next(mine, None)

    def _watch_resets(self) -> None:
        if not self._watches:
            self._watches = True
            # A reset gives the run a new random seed. The callback is called outside of the run's
            # tasks, where Temporal's functions fail.
            loop = asyncio.get_running_loop()

            def follow(_seed: int) -> None:
                loop.call_soon(self._was_reset)

            temporalio.workflow.register_random_seed_callback(follow)

    def _was_reset(self) -> None:
        self._reset_at = _length()
        for handle in self._open:
            _look_after(handle)

    async def stop(self, scope: UndoScope) -> None:
        """Cancel the open children of a scope, and wait until they have undone their work."""

        def still() -> list[asyncio.Task[Any] | None]:
            return [task for task, (at, _) in self._under_way.items() if at.is_in(scope)]

        for task in still():
            # Each task waits in `run`, which forwards the cancel.
            if task is not None:
                task.cancel()
        await temporalio.workflow.wait_condition(lambda: not still())

    def take_not_undone(self) -> list[NotUndone]:
        """Return what cancelled children could not undo, once: it is reported nowhere else."""
        found, self._not_undone = self._not_undone, []
        return found

    def _note(self, error: BaseException | None) -> None:
        """Record what a cancelled child could not undo; its error does not become the run's."""
        cause = error.__cause__ if isinstance(error, ChildWorkflowError) else None
        if not isinstance(cause, ApplicationError) or cause.type != CompensationFailed.__name__:
            return
        temporalio.workflow.logger.error("a child that was cancelled: %s", cause.message)
        left = [each for each in cause.details if isinstance(each, Mapping)]
        self._not_undone += map(NotUndone.of, left)


async def _cancelled_after(ending: Coroutine[Any, Any, Any], stopped: BaseException) -> NoReturn:
    """Wait for the end of a child whose cancel is requested, despite further cancels.

    Raises:
        asyncio.CancelledError: the child has ended; its cause is the error of the child.
    """
    try:
        await finish_despite_cancel(ending)
    except (ChildWorkflowError, ApplicationError) as error:
        raise asyncio.CancelledError(*stopped.args) from error
    raise stopped


def _length() -> int:
    return temporalio.workflow.info().get_current_history_length()


def _look_after(handle: ChildWorkflowHandle[Any, Any]) -> None:
    """Look whether a child that was open at the place of a reset has ended.

    The server reports the end of a child to the new run from now on. An end after that of the
    earlier run was reported to none, and the new one would wait for it for ever.
    """
    asyncio.create_task(_report_end(handle))  # noqa: RUF006 - the run's loop keeps it


async def _report_end(handle: Any) -> None:
    """End the wait for a child that has ended, if the server does not report it.

    Args:
        handle: of the child. The SDK has no public way to report the end of a child to it.
    """
    found = await answer_of(
        ENDED_CHILD, {"workflow_id": handle.id, "run_id": handle.first_execution_run_id}
    )
    if not found:
        return
    await temporalio.workflow.sleep(_REPORTED_WITHIN)
    if handle.done():
        return
    try:
        if "error" not in found:
            result = _result_of(found, handle._input.ret_type)  # noqa: SLF001
            handle._resolve_success(result)  # noqa: SLF001
            return
        why, undone = found["error"], found["undone"]
    except Exception as error:  # noqa: BLE001 - nobody waits for this task
        why, undone = f"its result cannot be read: {plain_text(error)}", False
    refused = refusal(
        f"the child {handle.id} ended while no run waited for it ({why})",
        "Reset the run to a place before it started this child",
    )
    refused.__cause__ = ApplicationError(why) if undone else TerminatedError(why)
    handle._resolve_failure(refused)  # noqa: SLF001


def _result_of(found: Mapping[str, Any], result_type: Any) -> Any:
    if found.get("result") is None:
        return None
    payload = payload_of(found["result"])
    return temporalio.workflow.payload_converter().from_payload(payload, result_type)


async def answer_of(activity: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a local activity of the engine reads; it is repeated until it can."""
    found: dict[str, Any] = await temporalio.workflow.execute_local_activity(
        activity, asked, start_to_close_timeout=_READING, retry_policy=_PATIENT, result_type=dict
    )
    return found


def payload_text(payload: Payload) -> str:
    """Return a payload as a text."""
    return base64.b64encode(payload.SerializeToString()).decode()


def payload_of(text: str) -> Payload:
    """Return the payload of a text."""
    return Payload.FromString(base64.b64decode(text))


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


async def _started(call: ChildCall, reuse: WorkflowIDReusePolicy) -> ChildWorkflowHandle[Any, Any]:
    return await temporalio.workflow.start_child_workflow(
        call.target,
        args=call.args,
        id=call.id,
        task_queue=call.task_queue,
        parent_close_policy=call.close_policy,
        run_timeout=call.timeout,
        retry_policy=None if call.retry is None else call.retry.to_policy(),
        result_type=call.result_type,
        id_reuse_policy=reuse,
        memo=_inherited_memo(),
    )


def _inherited_memo() -> dict[str, Any] | None:
    """Return what a child knows of the window; the waits between the tries are its parent's own."""
    found = temporalio.workflow.memo_value(MEMO_KEY, None)
    if not isinstance(found, Mapping):
        return None
    return {MEMO_KEY: {name: each for name, each in found.items() if name != "retry_intervals"}}


def _reuse(call: ChildCall) -> WorkflowIDReusePolicy:
    """Return the reuse policy for the id of an earlier child.

    If the run was reset while a child was open, the server is about to terminate that child. The
    new child must not fail because it starts earlier. An id that the code gives may be the one of
    another's run: see `_is_own`.
    """
    if call.has_own_id or not was_reset(temporalio.workflow.info()):
        return WorkflowIDReusePolicy.ALLOW_DUPLICATE
    return WorkflowIDReusePolicy.TERMINATE_IF_RUNNING


async def _is_own(workflow_id: str) -> bool:
    """Return whether the open run of this id is a child that the run had before its reset."""
    # A replay of a history from a file does not know that its run was reset, and what was copied
    # from the earlier run has not asked: the marker says so.
    info = temporalio.workflow.info()
    if not (was_reset(info) or temporalio.workflow.unsafe.is_replaying()):
        return False
    if not temporalio.workflow.patched(OWN_CHILD):
        return False
    asked = {"workflow_id": workflow_id, "parent": info.workflow_id}
    return bool((await answer_of(OWN_CHILD, asked)).get("own"))


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


DEFAULT_LIMIT: Final = 100
"""How many calls of ``ctx.parallel`` are in flight at a time, unless it says otherwise."""


async def all_of(
    calls: Sequence[Awaitable[Any]], limit: int | None, *, return_exceptions: bool = False
) -> list[Any]:
    """Return the results in order, with at most ``limit`` calls in flight.

    The first failure cancels the calls in flight, waits for them, starts none of the others and is
    raised, unless ``return_exceptions`` lets all continue and puts each error into its place. A
    cancel stops all of them. (``asyncio.TaskGroup`` cancels in set order, which a replay need
    not repeat.)

    Raises:
        ValueError: ``limit`` is below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is at least 1; got {limit!r}")
    gate = asyncio.Semaphore(limit or max(len(calls), 1))

    async def in_turn(thing: Awaitable[Any]) -> Any:
        try:
            async with gate:
                return await thing
        finally:
            if inspect.iscoroutine(thing):
                thing.close()  # avoids Python's warning if it never started

    tasks = [asyncio.ensure_future(in_turn(thing)) for thing in calls]
    if not tasks:
        return []
    until = asyncio.ALL_COMPLETED if return_exceptions else asyncio.FIRST_EXCEPTION
    stopped = None
    try:
        await temporalio.workflow.wait(tasks, return_when=until)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - raised below
        # Not what closes a coroutine that has no task any more: it could wait for nothing.
        stopped = error
    failed = [task for task in tasks if task.done() and (task.cancelled() or task.exception())]
    for task in tasks:
        task.cancel()
    # A cancel of the run itself must not leave tasks behind either.
    results = await asyncio.gather(*tasks, return_exceptions=True)
    if stopped is not None:
        raise stopped
    if failed and not return_exceptions:
        failed[0].result()
    return results
