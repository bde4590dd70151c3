"""Calls of a run: checked before anything is sent, awaited, and undone if the run ends badly."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, TypeVar

import temporalio.workflow
from temporalio.common import Priority, RawValue, RetryPolicy
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ActivityError, ChildWorkflowError

from engine.flow.definition import (
    DEFAULT_RETRY,
    FOREVER,
    Retry,
    WorkflowDefinition,
    duration,
    refuse_unknown,
    require_retry,
)
from engine.flow.steps import (
    DEFAULT_TIMEOUT,
    HEADER,
    StepDefinition,
    StepNote,
    Undo,
    checked_queue,
    fairness_key,
    lane_of,
    noted,
    step_definition_of,
    step_key,
    turn_key,
)

NOT_GIVEN: Final[Any] = object()  # None is a valid input
_PRIORITIES: Final = (1, 2, 3, 4, 5)  # Temporal's own
_LEAST_WEIGHT, _MOST_WEIGHT = 0.001, 1000  # Temporal's own
_HOPELESS: Final = ("PayloadsTooLarge",)
"""Failures that the SDK reports as retryable, and that each attempt would meet again."""


class Routing(TypedDict):
    """Task queue and priority of a step call."""

    task_queue: str | None
    priority: Priority


def routing_of(
    queue: str | None,
    priority: int | None,
    task_queue: str | None = None,
    fairness: str | None = None,
    weight: float | None = None,
) -> Routing:
    """Return the task queue and priority of a step; by default those of the run.

    Without ``fairness`` the steps in a queue take turns by schedules.
    """
    in_run = temporalio.workflow.in_workflow()
    of_run = temporalio.workflow.info().priority if in_run else Priority.default
    if priority is None:
        priority = of_run.priority_key
    if fairness is not None:
        turn: str | None = fairness_key(fairness)
    else:
        turn, weight = of_run.fairness_key, of_run.fairness_weight
    if queue is not None:
        task_queue = lane_of(temporalio.workflow.info().task_queue, queue)
        turn = turn or turn_key()
    return {"task_queue": task_queue, "priority": Priority(priority, turn, weight)}


class StepOptions(TypedDict, total=False):
    """Options of one call that override those of ``@step``; see ``Context.step``."""

    retry: Retry | None
    timeout: timedelta | float | None
    deadline: timedelta | float | None
    heartbeat: timedelta | float | None
    queue: str | None
    task_queue: str | None
    priority: int | None
    fairness: str | None
    fairness_weight: float | None
    idempotency_key: str | None
    summary: str | None
    local: bool


class ChildOptions(TypedDict, total=False):
    """Options of a child; see ``Context.child``."""

    task_queue: str | None
    timeout: timedelta | float | None
    retry: Retry | None
    id: str | None
    parent_close_policy: Literal["terminate", "abandon", "request_cancel"] | None


@dataclass(frozen=True)
class StepCall:
    """A step with its input and its rules, ready to start.

    Attributes:
        undone: the name of the step or child that it undoes.
        undoes: the idempotency key of that; empty if it undoes no call.
    """

    fn: Callable[..., Any]
    args: list[Any]
    timeout: timedelta
    retry: Retry
    priority: int | None = None
    key: str | None = None
    summary: str | None = None
    queue: str | None = None
    deadline: timedelta | None = None
    task_queue: str | None = None
    heartbeat: timedelta | None = None
    fairness: str | None = None
    fairness_weight: float | None = None
    local: bool = False
    undone: str = ""
    undoes: str = ""

    @property
    def name(self) -> str:
        """The step's display name."""
        definition = step_definition_of(self.fn)
        return definition.name if definition else getattr(self.fn, "__name__", repr(self.fn))

    def idempotency_key(self, place: str) -> str:
        """Return the key that the step sees for a call at this place in the run."""
        return self.key or step_key(origin_of(temporalio.workflow.info()), place)

    def undoing(self, name: str, key: str, converter: PayloadConverter) -> StepCall:
        """Return it as the undo step of a step or child that begins.

        It gets what was sent and received, whatever the run does with the objects later: so they
        are written at once.

        Args:
            name: of the step or child.
            key: its idempotency key.
            converter: the run's.
        """
        args = [RawValue(converter.to_payload(each)) for each in self.args]
        return replace(self, args=args, undone=name, undoes=key)

    def keep(self, converter: PayloadConverter, result: Any) -> None:
        """Note the result of what it undoes, if it needs that."""
        if self.sees_result:
            self.args[1] = RawValue(converter.to_payload(result))

    @property
    def sees_result(self) -> bool:
        """Whether it is an undo step that gets the result too."""
        definition = step_definition_of(self.fn)
        return definition is not None and definition.sees_result

    def start(
        self, place: str, undo: Mapping[str, Any] | None = None
    ) -> temporalio.workflow.ActivityHandle[Any]:
        """Start the step. A cancel waits until the step reports that it has stopped.

        Args:
            place: the activity id, unique among the calls of the run.
            undo: undo instructions for this step, recorded in the history.
        """
        if self.local:
            return self._start_here(place)
        with noted(self._note(undo)):
            return temporalio.workflow.start_activity(
                self.fn,
                args=self.args,
                activity_id=place,
                start_to_close_timeout=self.timeout,
                schedule_to_close_timeout=self.deadline,
                heartbeat_timeout=self.heartbeat,
                retry_policy=giving_up(self.retry.to_policy()),
                # With Temporal's default an undo could run while the step is still running.
                cancellation_type=temporalio.workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary=self.summary,
                **routing_of(
                    self.queue,
                    self.priority,
                    self.task_queue,
                    self.fairness,
                    self.fairness_weight,
                ),
            )

    def _start_here(self, place: str) -> temporalio.workflow.ActivityHandle[Any]:
        """Start the step in the process of the run. After a reset it is another call."""
        note = StepNote(
            origin=temporalio.workflow.info().run_id, key=self.key, **self.retry.for_worker()
        )
        with noted(note):
            return temporalio.workflow.start_local_activity(
                self.fn,
                args=self.args,
                activity_id=place,
                start_to_close_timeout=self.timeout,
                schedule_to_close_timeout=self.deadline,
                retry_policy=giving_up(self.retry.to_policy()),
                cancellation_type=temporalio.workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary=self.summary,
            )

    def _note(self, undo: Mapping[str, Any] | None) -> StepNote:
        rules = self.retry.for_worker()
        info = temporalio.workflow.info()
        return StepNote(
            origin=origin_of(info),
            redo=may_repeat(info),
            key=self.key,
            undoes=self.undoes or None,
            undo=undo,
            timeout=self.timeout.total_seconds() if self.queue else None,
            **rules,
        )


def args_of(
    given: Any, called: StepDefinition | WorkflowDefinition | None = None, kind: str = "workflow"
) -> list[Any]:
    """Return the arguments of a call: its input, or none if that is ``NOT_GIVEN``.

    Raises:
        TypeError: the step or workflow ``called`` takes no input, or needs one.
    """
    args = [] if given is NOT_GIVEN else [given]
    if called and args and not called.accepts_input:
        raise TypeError(f"the {kind} {called.name!r} takes no input")
    if called and not args and called.requires_input:
        raise TypeError(f"the {kind} {called.name!r} needs an input")
    return args


def call_of(
    fn: Callable[..., Any], given: Any, options: StepOptions, *, default: Retry = DEFAULT_RETRY
) -> StepCall:
    """Return the call for ``ctx.step``; ``given`` is its input or ``NOT_GIVEN``.

    ``default`` is the retry rule where neither the call nor the step has one.

    Raises:
        TypeError: ``fn`` is not a step, its signature and the input do not fit, or there is no
            such option.
        ValueError: A value of ``options`` is out of range.
    """
    definition = _checked(fn, "ctx.step needs", given)
    refuse_unknown("ctx.step", options, [*StepOptions.__annotations__, "compensate"])
    require_retry("ctx.step", options.get("retry"))
    args = _values_of(given, args_of(given, definition, "step"), definition)
    retry, timeout = options.get("retry"), options.get("timeout")
    if definition is not None:
        retry = retry or definition.retry
        timeout = definition.timeout if timeout is None else timeout
    span = duration(DEFAULT_TIMEOUT if timeout is None else timeout, "timeout")
    priority, key = options.get("priority"), options.get("idempotency_key")
    if priority is not None and priority not in _PRIORITIES:
        raise ValueError(f"priority is from 1 (first) to 5 (last); got {priority!r}")
    if key is not None and not key:
        raise ValueError("idempotency_key is a text that is not empty")
    task_queue = options.get("task_queue")
    queue = checked_queue(options.get("queue"))
    if queue and task_queue:
        raise ValueError("queue is one of the run's own task queue; leave it or task_queue out")
    if queue is None and task_queue is None and definition is not None:
        queue = definition.queue
    return StepCall(
        fn,
        args,
        span,
        retry or default,
        priority,
        key,
        options.get("summary"),
        queue,
        _span(options, "deadline"),
        task_queue,
        _span(options, "heartbeat"),
        *_turn(options),
        _is_local(options),
    )


_OF_QUEUES: Final = (
    "heartbeat", "queue", "task_queue", "priority", "fairness", "fairness_weight",
)  # fmt: skip


def _is_local(options: StepOptions) -> bool:
    """Return whether the step runs in the process of the run, where it waits for nothing."""
    if not options.get("local"):
        return False
    if given := [name for name in _OF_QUEUES if options.get(name) is not None]:
        raise TypeError(f"a local step takes no {given[0]}: it never waits for a worker")
    return True


def _turn(options: StepOptions) -> tuple[str | None, float | None]:
    """Return whose turn a call takes, and how large its share is."""
    key, weight = options.get("fairness"), options.get("fairness_weight")
    if key is not None and not key:
        raise ValueError("fairness is a text that is not empty")
    if weight is not None and key is None:
        raise ValueError("fairness_weight is that of a key; give fairness too")
    if weight is not None and not _LEAST_WEIGHT <= weight <= _MOST_WEIGHT:
        raise ValueError(f"fairness_weight is from 0.001 to 1000; got {weight!r}")
    return key, weight


def _span(options: StepOptions, name: Literal["deadline", "heartbeat"]) -> timedelta | None:
    given = options.get(name)
    return None if given is None else duration(given, name)


def _values_of(given: Any, args: list[Any], definition: StepDefinition | None) -> list[Any]:
    """Return the arguments as they are written; those of an ``Undo`` are two."""
    if definition is None or not definition.sees_result or not args:
        return args
    if not isinstance(given, Undo):
        raise TypeError(f"the step {definition.name!r} takes an Undo(input, result); got {given!r}")
    return [given.input, given.result]


def undo_of(
    fn: Callable[..., Any], undone: str, args: Sequence[Any], task_queue: str | None = None
) -> StepCall:
    """Return the call that undoes a step or a child: with its input, or none if it takes none.

    Args:
        fn: the undo step.
        undone: the name of the step or child.
        args: its input, if it has one.
        task_queue: of the undo step; None means that of the run.

    Raises:
        TypeError: ``fn`` is not a step, or needs an input that there is not.
    """
    definition = _checked(fn, "compensate= needs", mark="@undo")
    takes_input = definition is None or definition.accepts_input
    given = args[0] if args and takes_input else NOT_GIVEN
    if definition is not None and definition.sees_result:
        given = Undo(args[0] if args else None, None)
    options: StepOptions = {"summary": f"undo of {undone}", "task_queue": task_queue}
    return call_of(fn, given, options, default=FOREVER)


def giving_up(policy: RetryPolicy) -> RetryPolicy:
    """Return the policy, with what each attempt would meet again as an end."""
    policy.non_retryable_error_types = [*(policy.non_retryable_error_types or ()), *_HOPELESS]
    return policy


M = TypeVar("M", bound=Callable[..., Any])


def with_options(options: type[Any]) -> Callable[[M], M]:
    """Have ``help()`` show the options of a method one by one, in place of ``**options``."""

    def shown(method: M) -> M:
        signature = inspect.signature(method)
        known = signature.parameters.values()
        fixed = [each for each in known if each.kind is not each.VAR_KEYWORD]
        given = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=getattr(hint, "__forward_arg__", hint),
            )
            for name, hint in options.__annotations__.items()
        ]
        method.__signature__ = signature.replace(parameters=[*fixed, *given])  # type: ignore[attr-defined] # inspect reads it
        return method

    return shown


def origin_of(info: temporalio.workflow.Info) -> str:
    """Return the id of the run that this one began as; an operator's reset creates a new run."""
    return info.original_execution_run_id or info.run_id


def was_reset(info: temporalio.workflow.Info) -> bool:
    """Return whether the run is one that an operator's reset began."""
    return origin_of(info) != info.run_id


def repeats(info: temporalio.workflow.Info) -> bool:
    """Return whether the run repeats an earlier one: it was reset, or belongs to a run that was."""
    return was_reset(info) or HEADER in info.headers


def may_repeat(info: temporalio.workflow.Info) -> bool:
    """Return whether the run repeats an earlier one, or retries a run that may have done so."""
    return repeats(info) or info.attempt > 1


def _checked(
    fn: Any, who_needs: str, given: Any = None, *, mark: str = "@step"
) -> StepDefinition | None:
    if isinstance(fn, str) and callable(given):
        raise TypeError(_NAMED_CLOSURE.format(fn))
    definition = step_definition_of(fn)
    if definition is None and not hasattr(fn, "__temporal_activity_definition"):
        raise TypeError(f"{who_needs} a function marked with {mark}: {_hint(fn, mark)}")
    return definition


_NAMED_CLOSURE: Final = (
    "ctx.step({!r}, <function>) is no step: mark the function with @step, at the top level of a "
    "module, and write ctx.step(gather, input). A step runs on a worker that knows it by name, "
    "perhaps another one and perhaps after a crash, and none of them has the variables of a closure"
)


def _hint(fn: Any, mark: str) -> str:
    name, module = getattr(fn, "__qualname__", None), getattr(fn, "__module__", None)
    if callable(fn) and name and module:
        if "<" in name:  # <lambda>, or <locals>
            what = "a lambda" if name.endswith("<lambda>") else f"{fn.__name__}, a local function,"
            return (
                f"{what} of {module} exists only where it was made, and a step runs on any worker, "
                f"also after a crash; write it at the top level of a module and mark it with {mark}"
            )
        return f"mark {name} in {module} with {mark}"
    # Most likely the step was called, and this is its result.
    return f"got a {type(fn).__name__}; pass the function itself, and its input as an argument"


# --- forgotten awaits ---
# Detection of ``ctx`` calls that were never awaited: they would silently do nothing.


class UnawaitedCalls:
    """The calls of one run that have not started."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[str, Coroutine[Any, Any, Any]]] = {}
        self._count = 0

    def note(self, text: str, begin: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return a coroutine that leaves the record when it is awaited."""
        self._count += 1
        number = self._count

        async def call() -> Any:
            self._made.pop(number, None)
            return await begin()

        made = call()
        self._made[number] = (text, made)
        return made

    def refuse(self) -> None:
        """Refuse a call that was made and never started; cancelled calls do not count.

        Raises:
            TypeError: there is such a call; the message names the first.
        """
        left = [text for text, made in self._made.values() if _is_waiting(made)]
        for _, made in self._made.values():
            made.close()  # avoids Python's own warnings, which go unnoticed
        if left:
            raise TypeError(f"{left[0]} was never awaited and did nothing; write `await` before it")


def to_await(method: M) -> M:
    """Make a run fail if it calls this method of its context and does not await it."""

    @functools.wraps(method)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        text = f"ctx.{method.__name__}({_shown(args[0]) if args else ''})"
        return self._unawaited.note(text, lambda: method(self, *args, **kwargs))

    return called  # type: ignore[return-value] # it is called and awaited alike


def _shown(first: object) -> str:
    """Return the name of a step or workflow, and ``…`` for a list of calls, which may be long."""
    named = getattr(first, "__name__", None)
    return str(named) if named else "…" if isinstance(first, list | tuple) else repr(first)


def _is_waiting(made: Coroutine[Any, Any, Any]) -> bool:
    return inspect.getcoroutinestate(made) == inspect.CORO_CREATED


# --- cancellation while waiting ---


def cancels() -> int:
    """Return how many cancels of the current task have not been taken back.

    A count that has grown during a wait means a cancel, whatever the wait has ended with.
    ``asyncio.timeout`` takes its own cancel back.
    """
    task = asyncio.current_task()
    return task.cancelling() if task else 0


async def result_of(
    handle: asyncio.Task[Any], what: str, keep: Callable[[Any], None] | None = None
) -> Any:
    """Return the result of a step or a child, without losing a cancel of the waiting task.

    Args:
        handle: the SDK's handle.
        what: the name of the step or child in messages.
        keep: takes the result, also one that arrives together with a cancel.

    Raises:
        asyncio.CancelledError: the waiting task was cancelled, even if the step or child had
            ended by itself before the cancel reached it.
        ActivityError, ChildWorkflowError: the step or child failed for good.
    """
    before = cancels()
    try:
        result = await handle
    except asyncio.CancelledError:
        if keep is not None:
            _keep_late(handle, keep)
        raise
    except (ActivityError, ChildWorkflowError) as error:
        if cancels() > before:
            # Code that catches such an error to continue without the result must not catch this.
            raise asyncio.CancelledError(str(error)) from error
        raise
    if keep is not None:
        keep(result)
    if cancels() > before:
        # The SDK returns the result if the work finished anyway, and the cancel would be lost.
        raise asyncio.CancelledError(f"cancelled while {what} ran")
    return result


def _keep_late(handle: asyncio.Task[Any], keep: Callable[[Any], None]) -> None:
    """Keep the result of a step or a child that has come in the same task of the run as a cancel.

    The SDK cancels the handle then, so that ``handle.result()`` has no result although the history
    has one.
    """
    # Private, because a cancelled task has no public result.
    found: asyncio.Future[Any] | None = getattr(handle, "_result_fut", None)
    if found is None or not found.done() or found.cancelled() or found.exception():
        return
    keep(found.result())


# --- protection from cancellation ---

R = TypeVar("R")


async def finish_despite_cancel(work: Coroutine[Any, Any, R]) -> R:
    """Wait until the work has ended, despite any number of cancels, and return its result.

    A cancel of the run arrives in the task that waits here; the work runs in its own task.
    """
    try:
        working = asyncio.create_task(work)
    except BaseException:  # the SDK evicts the run from its cache
        work.close()  # avoids Python's warning
        raise
    while not working.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(working)
    return await working


# --- what a bad end undoes ---
# Undo steps, grouped as the run's code groups them. Each is entered before its step runs, and the
# newest runs first.


@dataclass(eq=False)
class UndoScope:
    """A part of a run that is undone on its own if an error leaves it: ``ctx.saga()``, or all.

    Attributes:
        outer: the scope around it; None for the run itself.
        parallel: whether its undo steps run at once.
    """

    outer: UndoScope | None = None
    parallel: bool = False
    _entries: list[StepCall | UndoScope] = field(default_factory=list)
    _ended: bool = False

    @property
    def current(self) -> UndoScope:
        """The innermost scope of this one in which the current task is."""
        inner = _scope.get()
        return inner if inner is not None and inner.is_in(self) else self

    @contextmanager
    def inner(self, *, parallel: bool) -> Iterator[UndoScope]:
        """Have what the current task begins in this block belong to a new scope."""
        around = self.current
        made = UndoScope(around, parallel)
        around.add(made)
        token = _scope.set(made)
        try:
            yield made
        finally:
            _scope.reset(token)
            # One that has not failed stays, for what a task of it may begin later.
            if made.ended:
                around.remove(made)

    def is_in(self, other: UndoScope) -> bool:
        """Return whether this scope is the other one, or a part of it."""
        return self is other or (self.outer is not None and self.outer.is_in(other))

    @property
    def ended(self) -> bool:
        """Whether it is being undone, so that nothing more may begin in it."""
        return self._ended or (self.outer is not None and self.outer.ended)

    @property
    def left(self) -> list[StepCall]:
        """The undo steps that a bad end runs, in the order in which their steps began."""
        parts = (each.left if isinstance(each, UndoScope) else [each] for each in self._entries)
        return [each for part in parts for each in part]

    def add(self, entry: StepCall | UndoScope) -> None:
        """Have a bad end undo this."""
        self._entries.append(entry)

    def remove(self, entry: StepCall | UndoScope) -> None:
        """Have nothing undo this, in whichever scope it is."""
        self._entries = [each for each in self._entries if each is not entry]
        for each in self._entries:
            if isinstance(each, UndoScope):
                each.remove(entry)

    def clear(self) -> None:
        """Have a bad end undo nothing of what was begun so far."""
        self._entries = [each for each in self._entries if isinstance(each, UndoScope)]
        for each in self._entries:
            if isinstance(each, UndoScope):
                each.clear()

    def end(self) -> None:
        """Have nothing more begin in it."""
        self._ended = True

    async def unwind(self, run: Callable[[StepCall], Awaitable[None]]) -> None:
        """Run each undo step, the newest first, and forget it.

        Args:
            run: runs one; it raises nothing.
        """
        entries, self._entries = self._entries[::-1], []
        if self.parallel:
            await asyncio.gather(*(_undone(each, run) for each in entries))
        else:
            for each in entries:
                await _undone(each, run)


async def _undone(entry: StepCall | UndoScope, run: Callable[[StepCall], Awaitable[None]]) -> None:
    await (entry.unwind(run) if isinstance(entry, UndoScope) else run(entry))


_scope: ContextVar[UndoScope | None] = ContextVar("sched_scope", default=None)
