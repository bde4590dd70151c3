"""Workflow context."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final, Literal, NoReturn, Protocol, TypeAlias, TypeVar, Unpack, overload
from uuid import UUID

import temporalio.workflow
from temporalio.common import RawValue
from temporalio.converter import PayloadConverter

from engine.errors import EngineError
from engine.flow.children import DEFAULT_LIMIT, Children, all_of
from engine.flow.definition import FOREVER, definition_of, duration, refuse_unknown, require_retry
from engine.flow.failures import CompensationFailed, NotUndone, require_read
from engine.flow.fire import MEMO_KEY, FireInfo
from engine.flow.saga import UNDO_CARRIED, Saga
from engine.flow.signals import SIGNAL_CARRIED, Signals
from engine.flow.step_calls import (
    NOT_GIVEN,
    ChildOptions,
    StepCall,
    StepOptions,
    UnawaitedCalls,
    UndoScope,
    args_of,
    call_of,
    cancels,
    to_await,
    undo_of,
    with_options,
)
from engine.flow.step_types import StepAlone, StepWithInput, UndoAlone, UndoOf
from engine.flow.steps import Undo

# --- progress ---


def progress_line(done: float, total: float | None, note: str) -> str:
    """Return for example ``420 of 1,000 (42 %): sending mails``."""
    line = f"{done:,}"
    if total is not None:
        line += f" of {total:,}"
        if total > 0:
            # Rounded down: 100 % appears only when everything is done.
            line += f" ({int(100 * done / total)} %)"
    return f"{line}: {note}" if note else line


# --- protocols ---
# The shape of a workflow class, for type checkers.

R_co = TypeVar("R_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class RunsAlone(Protocol[R_co]):
    """A class whose ``run`` needs no input."""

    async def run(self, ctx: Context, /) -> R_co:
        """See ``workflow``."""


class RunsWithInput(Protocol[T_contra, R_co]):
    """A class whose ``run`` takes an input."""

    async def run(self, ctx: Context, input: T_contra, /) -> R_co:
        """See ``workflow``."""


WorkflowClass = TypeVar("WorkflowClass", bound="type[RunsAlone[Any] | RunsWithInput[Any, Any]]")


# --- context ---

_CARRIED: Final = (SIGNAL_CARRIED, UNDO_CARRIED)
_CARRIES: Final = "sched.carries"
"""The memo field with the number of the fields that an earlier run has carried over."""
WAITS: Final = "sched.waits"
"""The query that tells which signals a run waits for, and whether for its handlers."""
_CONTEXT: Final = "__sched_context__"
STAND_IN: Final[ContextVar[Context | None]] = ContextVar("sched_stand_in", default=None)
"""The context of a unit test, in place of that of a run."""
OnContinue: TypeAlias = Literal["refuse", "carry", "commit"]
R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


class _Decided(Exception):
    """End of a call in a race that another has won, or of the race itself."""


class Context:
    """The ``ctx`` of ``run(self, ctx)``: a workflow's interface to the engine and to Temporal.

    Everything here is safe to replay, and all of ``temporalio.workflow`` may be used as well. In a
    unit test any object with the members that ``run`` uses can replace it.
    """

    def __init__(self, *, leaves_notes: bool = False) -> None:
        self._children, self._signals = Children(), Signals()
        self._unawaited = UnawaitedCalls()
        self._saga = Saga(self._children, leaves_notes=leaves_notes)
        self._scope: UndoScope = self._saga.scope
        self._continued: tuple[list[Any], str] | None = None

    @classmethod
    def current(cls) -> Context:
        """Return the context of the run that this code belongs to: the ``ctx`` of handlers.

        A signal or an update may arrive before ``run`` begins.

        Raises:
            EngineError: The code is not called by a run of a ``@workflow`` class.
        """
        in_workflow = temporalio.workflow.in_workflow()
        running = temporalio.workflow.instance() if in_workflow else None
        definition = definition_of(type(running))
        found: Context | None = None if in_workflow else STAND_IN.get()
        if definition is not None:
            state = vars(running)
            if _CONTEXT not in state:
                state[_CONTEXT] = Context(leaves_notes=definition.compensate_on_terminate)
            found = state[_CONTEXT]
        if found is None:
            raise EngineError(
                "Context.current() was called outside of a run of a @workflow class",
                hint="call it in run, or in a handler of a signal, an update or a query",
            )
        return found

    # What never waits; identical on every replay.

    @property
    def scheduled(self) -> bool:
        """Whether a schedule started this run, so that ``fire`` can be read."""
        try:
            self._read_fire()
        except ValueError:
            return False
        return True

    @property
    def fire(self) -> FireInfo:
        """The window this run was started for.

        Raises:
            EngineError: The run was started by hand, not by a schedule (see ``scheduled``).
        """
        try:
            return self._read_fire()
        except ValueError as error:
            raise EngineError(
                f"ctx.fire: no schedule started the run {temporalio.workflow.info().workflow_id!r}"
                f" ({error})",
                hint="ask ctx.scheduled first",
            ) from None

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that names the run and logs nothing on replay."""
        return temporalio.workflow.logger

    def now(self) -> datetime:
        """Return the run's own time (aware, in UTC), identical on every replay."""
        return temporalio.workflow.now()

    def random(self) -> Random:
        """Return the run's own random number generator, identical on every replay."""
        return temporalio.workflow.random()

    def uuid(self) -> UUID:
        """Return a new UUID, identical on every replay."""
        return temporalio.workflow.uuid4()

    def patched(self, change: str) -> bool:
        """Return whether this run takes the new branch of a change of its code.

        A run that passed this call with the old code keeps the old branch, every other run takes
        the new one: ``if ctx.patched("send-twice"): ... else: ...``. Once no run of the old code is
        left, replace it by Temporal's ``workflow.deprecate_patch``, and remove that later.
        """
        return temporalio.workflow.patched(change)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report the run's progress, which the Web UI and ``sched fires`` show.

        A report adds nothing to the history, so it may be frequent.

        Args:
            done: The amount done, in any unit.
            total: The total amount; None if unknown.
            note: A text for people.
        """
        temporalio.workflow.set_current_details(progress_line(done, total, note))

    # What waits, and has to be awaited.

    @overload
    async def step(
        self,
        fn: StepAlone[R],
        *,
        compensate: UndoAlone | UndoOf[Undo[None, R | None]] | None = ...,
        **options: Unpack[StepOptions],
    ) -> R: ...

    @overload
    async def step(
        self,
        fn: StepWithInput[T, R],
        input: T,
        *,
        compensate: UndoOf[T] | UndoOf[Undo[T, R | None]] | UndoAlone | None = ...,
        **options: Unpack[StepOptions],
    ) -> R: ...

    @to_await
    @with_options(StepOptions)
    async def step(
        self,
        fn: Callable[..., Any],
        input: Any = NOT_GIVEN,
        *,
        compensate: Callable[..., Any] | None = None,
        **options: Unpack[StepOptions],
    ) -> Any:
        """Run a step on a worker and return its result.

        The result of a completed step is part of the run's history: a crash or a deploy does not
        run the step again.

        Args:
            fn: A ``@step`` function or method, or any Temporal activity (see ``as_step``).
            input: Its argument; if omitted, the step is called without one.
            compensate: The ``@undo`` step of this one. When ``run`` raises or is cancelled, the
                undo steps of all started steps run in reverse order, each with the input of its
                step (or none if it takes none), or with an ``Undo`` of input and result if its
                parameter is one, and with its own retry rule and timeout. An undo step
                is registered before its step runs, so it must cope with a step that had no
                effect. If one fails, it is logged and the others still run; the run then ends
                with ``CompensationFailed``, whose cause is the run's own error.
            **options: ``retry`` overrides the step's own rule; ``timeout`` limits one attempt
                (timedelta or seconds; by default the step's own, else 10 minutes); ``deadline``
                limits all attempts and waits together; ``heartbeat`` overrides how long the step's
                worker may send no heartbeat; ``queue`` overrides the queue in which the
                step waits for its turn; ``task_queue`` names workers of another task queue, for
                the undo too; ``priority`` orders waiting steps, from 1 (first) to 5 (last), by
                default 3; ``idempotency_key`` overrides the generated key in ``step_info()``;
                ``summary`` appears beside the step in the Web UI; ``local`` runs it in the process
                of the run, for short reads without an effect.

        Raises:
            TypeError: ``fn`` or ``compensate`` is not a step, or does not fit the input.
            temporalio.exceptions.ActivityError: The step failed for good; see ``.cause``.
            asyncio.CancelledError: The run was cancelled; the step has stopped or finished.
        """
        call = call_of(fn, input, options)
        undo = None
        if compensate is not None:
            if call.local:
                raise TypeError(
                    f"the step {call.name!r} is local, which a terminated run could not undo: leave"
                    " local or compensate out"
                )
            if compensate == fn:
                raise TypeError(f"the step {call.name!r} cannot undo itself: name another one")
            undo = undo_of(compensate, call.name, call.args, call.task_queue)
        return await self._run_step(call, undo)

    @overload
    async def child(
        self,
        workflow: type[RunsAlone[R]],
        *,
        compensate: UndoAlone | UndoOf[Undo[None, R | None]] | None = ...,
        **options: Unpack[ChildOptions],
    ) -> R: ...

    @overload
    async def child(
        self,
        workflow: type[RunsWithInput[T, R]],
        input: T,
        *,
        compensate: UndoOf[T] | UndoOf[Undo[T, R | None]] | UndoAlone | None = ...,
        **options: Unpack[ChildOptions],
    ) -> R: ...

    @overload
    async def child(
        self,
        workflow: str,
        input: Any = ...,
        *,
        result_type: type | None = ...,
        compensate: UndoAlone | UndoOf[Any] | None = ...,
        **options: Unpack[ChildOptions],
    ) -> Any: ...

    @to_await
    @with_options(ChildOptions)
    async def child(
        self,
        workflow: Any,
        input: Any = NOT_GIVEN,
        *,
        result_type: type | None = None,
        compensate: Callable[..., Any] | None = None,
        **options: Unpack[ChildOptions],
    ) -> Any:
        """Run another workflow as a child of this run, and return its result.

        When this run fails or is cancelled, it cancels the child and waits until the child has
        undone its work. When this run is terminated, so is the child.

        Args:
            workflow: A ``@workflow`` class, or any Temporal workflow type as text.
            input: Its argument; if omitted, the child is started without one.
            result_type: The type to decode the result into, if ``workflow`` is text.
            compensate: The step that undoes the child, as for ``step``. It runs unless the child
                failed or was cancelled, because such a child has undone its own work.
            **options: ``task_queue`` is the child's, by default the one of this run; ``timeout``
                overrides the child's own timeout of a run (timedelta or seconds), ``retry`` its
                own retry rule; ``id`` is its workflow id, by default
                ``child:<this run's id>:<name>:<n>``; ``parent_close_policy`` says what becomes of
                it when this run is terminated or times out: ``terminate`` (the default),
                ``abandon`` or ``request_cancel``.

        Raises:
            TypeError: ``workflow`` is not a workflow, or does not fit the input.
            temporalio.exceptions.ChildWorkflowError: The child did not complete; see ``.cause``.
            asyncio.CancelledError: This run was cancelled; the child has ended.
        """
        known = [*ChildOptions.__annotations__, "compensate", "result_type"]
        refuse_unknown("ctx.child", options, known)
        require_retry("ctx.child", options.get("retry"))
        return await self._run_child(workflow, input, options, result_type, compensate)

    @overload
    async def parallel(
        self, first: Awaitable[A], second: Awaitable[B], /, *, limit: int | None = ...
    ) -> tuple[A, B]: ...

    @overload
    async def parallel(
        self,
        first: Awaitable[A],
        second: Awaitable[B],
        third: Awaitable[C],
        /,
        *,
        limit: int | None = ...,
    ) -> tuple[A, B, C]: ...

    @overload
    async def parallel(
        self,
        first: Awaitable[A],
        second: Awaitable[B],
        third: Awaitable[C],
        fourth: Awaitable[D],
        /,
        *,
        limit: int | None = ...,
    ) -> tuple[A, B, C, D]: ...

    @overload
    async def parallel(
        self,
        first: Awaitable[A],
        second: Awaitable[B],
        third: Awaitable[C],
        fourth: Awaitable[D],
        fifth: Awaitable[E],
        /,
        *,
        limit: int | None = ...,
    ) -> tuple[A, B, C, D, E]: ...

    @overload
    async def parallel(
        self,
        things: Iterable[Awaitable[R]],
        /,
        *,
        limit: int | None = ...,
        return_exceptions: Literal[False] = ...,
    ) -> list[R]: ...

    @overload
    async def parallel(
        self,
        things: Iterable[Awaitable[R]],
        /,
        *,
        limit: int | None = ...,
        return_exceptions: bool,
    ) -> list[R | BaseException]: ...

    @to_await
    async def parallel(
        self,
        *things: Any,
        limit: int | None = DEFAULT_LIMIT,
        return_exceptions: bool = False,
    ) -> Any:
        """Wait for several steps or children at once, and return their results in order.

        ``await ctx.parallel([ctx.step(resize, each) for each in pictures], limit=4)``, or for
        unlike things ``money, stock = await ctx.parallel(ctx.step(charge), ctx.step(reserve))``.

        Args:
            *things: A list or a generator of calls of ``ctx.step`` or ``ctx.child``, or of any
                coroutines of the workflow; the results are a list. Or the calls themselves; then
                the results are a tuple.
            limit: How many may be in flight at a time, by default 100; None means all.
            return_exceptions: Let the others continue if one fails; its error is its result.

        Raises:
            ValueError: ``limit`` is below 1.
            BaseException: The error of the first call that failed. The others were cancelled and
                have ended; those that had not started do not start.
        """
        one_by_one = len(things) != 1 or inspect.isawaitable(things[0])
        calls = list(things if one_by_one else things[0])
        results = await all_of(calls, limit, return_exceptions=return_exceptions)
        return tuple(results) if one_by_one else results

    @to_await
    async def race(self, *things: Awaitable[R]) -> R:
        """Wait for the first of several calls to end, and return its result.

        ``await ctx.race(ctx.wait_for("paid", Payment), give_up(ctx))``. The others are cancelled
        and have ended by then, and the work that they had begun is undone.

        Args:
            *things: Calls of ``ctx.step``, ``ctx.child`` or ``ctx.wait_for``, or any coroutines of
                the workflow. Of those that end at the same moment the first one counts.

        Raises:
            CompensationFailed: The work of one of the others could not be undone.
            BaseException: The error of the call that ended first.
        """
        won: list[R] = []
        left: list[CompensationFailed] = []

        async def enter(call: Awaitable[R]) -> None:
            try:
                async with self.saga():
                    result = await call
                    if won:
                        raise _Decided
                    won.append(result)
            except CompensationFailed as error:
                left.append(error)
                raise
            raise _Decided

        try:
            await all_of([enter(each) for each in things], None)
        except Exception:
            if not (won or left):
                raise
        if left:
            raise left[0]
        return won[0]

    @overload
    async def wait_for(
        self,
        signal: str,
        wanted: type[R],
        *,
        timeout: timedelta | float | None = ...,
    ) -> R: ...

    @overload
    async def wait_for(
        self,
        signal: str,
        *,
        timeout: timedelta | float | None = ...,
    ) -> Any: ...

    @to_await
    async def wait_for(
        self,
        signal: str,
        wanted: Any = None,
        *,
        timeout: timedelta | float | None = None,
    ) -> Any:
        """Wait for a signal and return its value.

        Signals of one name are returned one by one, in order of arrival, including those that
        arrived before the wait.

        Args:
            signal: Its name, as in ``temporal workflow signal --name``.
            wanted: The type to decode the value into; by default plain JSON, and None if the
                signal carries no value.
            timeout: How long to wait (timedelta or seconds); None means forever, 0 not at all.

        A signal whose value is not of that type is dropped, and logged; so is one without a value,
        unless the type has None.

        Raises:
            TimeoutError: No signal came in time.
        """
        longest = None if timeout is None else _wait_of(timeout)
        try:
            return await self._next_signal(signal, wanted, longest)
        except TimeoutError:
            # asyncio's own cause is a cancel, which would be reported as the reason.
            raise TimeoutError(f"no signal {signal} came within {longest}") from None

    @overload
    def on_failure(self, fn: StepAlone[Any], **options: Unpack[StepOptions]) -> None: ...

    @overload
    def on_failure(
        self, fn: StepWithInput[T, Any], input: T, **options: Unpack[StepOptions]
    ) -> None: ...

    def on_failure(
        self,
        fn: Callable[..., Any],
        input: Any = NOT_GIVEN,
        **options: Unpack[StepOptions],
    ) -> None:
        """Have a bad end of the run run this step, in its turn among the undo steps.

        Args:
            fn: A step of any kind. Without a retry rule it is retried for ever.
            input: Its argument; if omitted, the step is called without one.
            **options: As for ``step``.

        Raises:
            TypeError: ``fn`` is not a step, or does not fit the input.
        """
        if options.get("local"):
            raise TypeError(
                "ctx.on_failure takes no local: a terminated run could not run the step"
            )
        self._note_undo(call_of(fn, input, options, default=FOREVER))

    @asynccontextmanager
    async def saga(
        self,
        *,
        parallel: bool = False,
        timeout: timedelta | float | None = None,
    ) -> AsyncIterator[None]:
        """Undo a part of the run on its own, if an error leaves it.

        ``async with ctx.saga(): ...``: the undo steps of the steps and children that were begun in
        the block run before the error leaves it, so that ``run`` can catch it and take another way.
        If the block completes, its steps are undone with the rest of the run.

        Args:
            parallel: Whether its undo steps run at once, in place of one after the other.
            timeout: How long the block may take, without its undo steps.

        Raises:
            TimeoutError: The block took longer, and is undone.
            CompensationFailed: A step of the block could not be undone; its cause is the error.
            asyncio.CancelledError: A cancel came while the block was undone; its cause is the
                error.
        """
        limit = None if timeout is None else duration(timeout, "timeout").total_seconds()
        with self._scope.inner(parallel=parallel) as scope:
            try:
                async with asyncio.timeout(limit):
                    yield
            except (Exception, asyncio.CancelledError, SystemExit) as error:
                before = cancels()
                left = await self._unwind_scope(scope)
                ending = CompensationFailed("ctx.saga()", left) if left else error
                if ending is not error:
                    ending.__cause__ = error
                is_cancel = isinstance(ending, asyncio.CancelledError)
                if cancels() > before and not is_cancel:
                    # The unwinding has taken the cancel. Code that catches the error, to go
                    # another way, would go on in spite of it.
                    raise asyncio.CancelledError("cancelled while it undid a part") from ending
                if ending is error:
                    raise
                raise ending from error

    def commit(self) -> None:
        """Keep what the run has done so far: a bad end from here on does not undo it."""
        self._forget_undos()

    @to_await
    async def pending(self, signal: str) -> int:
        """Return how many signals of this name have come and were not waited for.

        Args:
            signal: Its name, as for ``wait_for``.
        """
        return await self._count_signals(signal)

    @to_await
    async def sleep(self, span: timedelta | float) -> None:
        """Sleep durably (timedelta or seconds): no crash or deploy shortens the wait.

        A zero or negative span returns at once.
        """
        seconds = span.total_seconds() if isinstance(span, timedelta) else span
        if seconds > 0:
            await temporalio.workflow.sleep(seconds)

    @to_await
    async def sleep_until(self, moment: datetime) -> None:
        """Sleep durably until this moment; return at once if it has passed.

        Raises:
            ValueError: The moment has no timezone.
        """
        if moment.tzinfo is None:
            raise ValueError(f"{moment} has no timezone; give an aware datetime")
        await self.sleep(moment - self.now())

    @overload
    async def continue_as_new(
        self, workflow: RunsAlone[Any], /, *, undo: OnContinue = ...
    ) -> NoReturn: ...

    @overload
    async def continue_as_new(
        self,
        workflow: RunsWithInput[T, Any],
        input: T,
        /,
        *,
        undo: OnContinue = ...,
    ) -> NoReturn: ...

    @to_await
    async def continue_as_new(
        self,
        workflow: Any,
        input: Any = NOT_GIVEN,
        /,
        *,
        undo: OnContinue = "refuse",
    ) -> NoReturn:
        """End this run, and begin the next one of its chain with an empty history.

        ``await ctx.continue_as_new(self, next_page)``. Signals that have come and were not waited
        for reach the next run.

        Args:
            workflow: The workflow itself, ``self``, whose ``run`` takes the input.
            input: The input of the next run; if omitted, it has none.
            undo: What happens to steps that a bad end would undo. ``carry``: a bad end of the next
                run undoes them. ``commit``: they stay. By default there must be none.

        Raises:
            TypeError: The workflow does not take this input.
            EngineError: There is something to undo, or a child is open.
        """
        definition = definition_of(type(workflow))
        args = args_of(input, definition)
        if definition is not None:
            require_read(args, self._converter, definition.input_type)
        await self._continue(args, undo)
        raise AssertionError("the run has ended")

    # What a stand-in of the testing kit does without a server. The decorator calls `_unwind` when
    # `run` raises or is cancelled.

    @property
    def _converter(self) -> PayloadConverter:
        return temporalio.workflow.payload_converter()

    def _read_fire(self) -> FireInfo:
        value = temporalio.workflow.memo_value(MEMO_KEY, None)
        if value is None:
            raise ValueError(f"its memo has no {MEMO_KEY!r}")
        run = temporalio.workflow.info()
        policy = run.retry_policy
        return replace(
            FireInfo.from_memo(value),
            fired_at=run.start_time,
            attempt=run.attempt,
            max_attempts=(policy.maximum_attempts or None) if policy else 1,
        )

    def _next_wait(self) -> timedelta | None:
        """Return the time until the next try of this run, if its schedule lists the waits."""
        try:
            fire = self._read_fire()
        except ValueError:
            return None
        if not fire.retry_intervals or fire.attempt == fire.max_attempts:
            return None
        place = min(fire.attempt, len(fire.retry_intervals))
        return timedelta(seconds=fire.retry_intervals[place - 1])

    async def _run_step(self, call: StepCall, undo: StepCall | None) -> Any:
        return await self._saga.run(call, undo)

    async def _run_child(
        self, child: Any, given: Any, options: ChildOptions, result_type: Any, undo: Any
    ) -> Any:
        return await self._saga.run_child(child, given, options, result_type, undo)

    async def _next_signal(self, signal: str, wanted: Any, longest: timedelta | None) -> Any:
        return await self._signals.wait_for(signal, wanted, longest)

    def _note_undo(self, undo: StepCall) -> None:
        self._saga.on_failure(undo)

    def _forget_undos(self) -> None:
        self._saga.commit()

    async def _count_signals(self, signal: str) -> int:
        return await self._signals.pending(signal)

    def _waits(self) -> list[str]:
        waits = [f"the signal {name}" for name in self._signals.waited_for]
        if not temporalio.workflow.all_handlers_finished():
            waits.append("its handlers, which are in progress")
        return waits

    async def _continue_again(self) -> None:
        """Continue as ``continue_as_new`` was told to, with what has come since then.

        Handlers may have ended meanwhile, with steps to undo, and signals may have arrived.
        """
        if self._continued is not None:
            await self._continue(*self._continued)

    async def _continue(self, args: list[Any], undo: str) -> None:
        refuse_forgotten(self._saga.to_undo, undo)
        if self._children.under_way:
            raise EngineError(
                "ctx.continue_as_new: a child is open, and would be ended with this run",
                hint="wait for it first",
            )
        carried: dict[str, Any] = {**await self._signals.left()}
        if undo == "carry":
            carried |= self._saga.carried()
        memo = temporalio.workflow.info().raw_memo
        kept = {
            name: RawValue(each) for name, each in memo.items() if not name.startswith(_CARRIED)
        }
        self._continued = args, undo
        temporalio.workflow.continue_as_new(
            args=args,
            # Without a memo the next run would inherit this one's; an empty one counts as none.
            memo={**kept, **carried, _CARRIES: len(carried)} if carried or memo else None,
        )

    async def _unwind(self) -> list[NotUndone]:
        return await self._saga.unwind()

    async def _unwind_scope(self, scope: UndoScope) -> list[NotUndone]:
        return await self._saga.unwind_scope(scope)


def carries() -> bool:
    """Return whether an earlier run of the chain has left signals or undo steps to this one."""
    return any(field.startswith(_CARRIED) for field in temporalio.workflow.info().raw_memo)


def refuse_forgotten(to_undo: Sequence[str], undo: str) -> None:
    """Refuse to continue as new while a bad end would undo something, unless the run has decided.

    Args:
        to_undo: the steps that a bad end would undo.
        undo: that of ``Context.continue_as_new``.

    Raises:
        EngineError: the next run would know nothing of them.
    """
    if to_undo and undo == "refuse":
        raise EngineError(
            f"ctx.continue_as_new: a bad end of this run would undo {', '.join(to_undo)}, and"
            " the next run knows nothing of that",
            hint='write undo="carry" or undo="commit"',
        )


def _wait_of(timeout: timedelta | float) -> timedelta:
    """Return the timeout of a wait, which may be zero."""
    return timedelta(0) if timeout in {0, timedelta(0)} else duration(timeout, "timeout")
