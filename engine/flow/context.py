"""The workflow context."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, Protocol, TypeVar, Unpack, overload
from uuid import UUID

import temporalio.workflow

from engine.errors import EngineError
from engine.flow.children import Children, all_of
from engine.flow.coroutines import UnawaitedCalls, to_await
from engine.flow.failures import NotUndone
from engine.flow.fire import MEMO_KEY, FireInfo
from engine.flow.retries import Retry, duration
from engine.flow.saga import Saga
from engine.flow.signals import Signals
from engine.flow.step_calls import NOT_GIVEN, StepOptions, call_of, undo_of

# --- run information ---
# What a run knows of itself, the same on every replay.


class RunInfo:
    """The part of ``Context`` that waits for nothing."""

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
        """The window this run stands for.

        Raises:
            EngineError: The run was started by hand, not by a schedule (see ``scheduled``).
        """
        try:
            return self._read_fire()
        except ValueError as error:
            raise EngineError(
                f"ctx.fire: no schedule started the run {temporalio.workflow.info().workflow_id!r}"
                f" ({error})",
                cure="ask ctx.scheduled first",
            ) from None

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that names the run and stays silent on replay."""
        return temporalio.workflow.logger

    def now(self) -> datetime:
        """Return the run's own time, aware, in UTC: the same on every replay."""
        return temporalio.workflow.now()

    def random(self) -> Random:
        """Return the run's own source of random numbers: the same on every replay."""
        return temporalio.workflow.random()

    def uuid(self) -> UUID:
        """Return a new UUID: the same on every replay."""
        return temporalio.workflow.uuid4()

    def patched(self, change: str) -> bool:
        """Return whether this run may take the new way of a change of its code.

        A run that passed here with the old code takes the old way for good, every other one the
        new way: ``if ctx.patched("send-twice"): ... else: ...``. Once no run of the old code is
        left, Temporal's ``workflow.deprecate_patch`` and then removal end it.
        """
        return temporalio.workflow.patched(change)

    def _read_fire(self) -> FireInfo:
        value = temporalio.workflow.memo_value(MEMO_KEY, None)
        if value is None:
            raise ValueError(f"its memo has no {MEMO_KEY!r}")
        return FireInfo.from_memo(value)


# --- progress ---
# How far a run is, as a line for people.


def progress_line(done: float, total: float | None, note: str) -> str:
    """Return for example ``420 of 1,000 (42 %): sending mails``."""
    line = f"{done:,}"
    if total is not None:
        line += f" of {total:,}"
        if total > 0:
            # Rounded down: 100 % is said when all of it is done, and not before.
            line += f" ({int(100 * done / total)} %)"
    return f"{line}: {note}" if note else line


# --- protocols ---
# What a type checker demands of a workflow class.

R_co = TypeVar("R_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class RunsAlone(Protocol[R_co]):
    """A class whose ``run`` can do without an input."""

    async def run(self, ctx: Context, /) -> R_co:
        """See ``workflow``."""


class RunsWithInput(Protocol[T_contra, R_co]):
    """A class whose ``run`` takes an input."""

    async def run(self, ctx: Context, input: T_contra, /) -> R_co:  # noqa: A002 - the word of schedules.yaml
        """See ``workflow``."""


WorkflowClass = TypeVar("WorkflowClass", bound="type[RunsAlone[Any] | RunsWithInput[Any, Any]]")


# --- context ---
# What a workflow's ``run(self, ctx)`` is given.

R = TypeVar("R")
T = TypeVar("T")


class Context(RunInfo):
    """The workflow's door to the engine and to Temporal.

    Everything here is safe to replay. All of ``temporalio.workflow`` may be used beside it; in a
    unit test any object with the few members that ``run`` uses can stand in for it.
    """

    def __init__(self, *, leaves_notes: bool = False) -> None:
        self._children, self._signals = Children(), Signals()
        self._unawaited = UnawaitedCalls()
        self._saga = Saga(self._children, leaves_notes=leaves_notes)

    @overload
    async def step(
        self,
        fn: Callable[[], Awaitable[R]],
        *,
        compensate: Callable[[], Any] | None = ...,
        **options: Unpack[StepOptions],
    ) -> R: ...

    @overload
    async def step(
        self,
        fn: Callable[[T], Awaitable[R]],
        input: T,
        *,
        compensate: Callable[[T], Any] | Callable[[], Any] | None = ...,
        **options: Unpack[StepOptions],
    ) -> R: ...

    @overload
    async def step(
        self,
        fn: Callable[[], R],
        *,
        compensate: Callable[[], Any] | None = ...,
        **options: Unpack[StepOptions],
    ) -> R: ...

    @overload
    async def step(
        self,
        fn: Callable[[T], R],
        input: T,
        *,
        compensate: Callable[[T], Any] | Callable[[], Any] | None = ...,
        **options: Unpack[StepOptions],
    ) -> R: ...

    @to_await
    async def step(
        self,
        fn: Callable[..., Any],
        input: Any = NOT_GIVEN,  # noqa: A002 - the word of schedules.yaml
        *,
        compensate: Callable[..., Any] | None = None,
        **options: Unpack[StepOptions],
    ) -> Any:
        """Run a step on a worker and return what it returned.

        Once a step has completed its result is part of the run's history: a crash or a deploy
        does not run it again.

        Args:
            fn: A ``@step`` function, or any Temporal activity.
            input: Its argument. Without it the step is called with none.
            compensate: The step that takes this one back. When ``run`` raises or is cancelled,
                the undo steps of all steps begun run in reverse order, each with the input of
                its step (or none where it takes none) and by its own retry rule and timeout. It
                is noted before the step runs, so it must cope with a step that had no effect.
                One that fails is logged and the others still run; the run ends with
                ``CompensationFailed`` then, whose cause is its own error.
            **options: ``retry``, instead of the step's own rule; ``timeout``, how long one
                attempt may take (timedelta or seconds; 10 minutes where neither says);
                ``queue``, where it waits for its turn, instead of the step's own;
                ``priority``, from 1 (first) to 5 (last), 3 where none is said, in which waiting
                steps are given to workers; ``idempotency_key``, instead of the one that
                ``step_info()`` makes up; ``summary``, a line beside the step in the Web UI.

        Raises:
            TypeError: ``fn`` or ``compensate`` is not a step, or does not fit the input.
            temporalio.exceptions.ActivityError: The step failed for good; ``.cause`` says why.
            asyncio.CancelledError: The run was cancelled; the step has stopped or finished.
        """
        call = call_of(fn, input, options)
        undo = None if compensate is None else undo_of(compensate, call)
        return await self._saga.run(call, undo)

    @overload
    async def child(
        self,
        workflow: type[RunsAlone[R]],
        *,
        task_queue: str | None = ...,
        timeout: timedelta | float | None = ...,  # noqa: ASYNC109 - of the child, as declared
        retry: Retry | None = ...,
    ) -> R: ...

    @overload
    async def child(
        self,
        workflow: type[RunsWithInput[T, R]],
        input: T,
        *,
        task_queue: str | None = ...,
        timeout: timedelta | float | None = ...,  # noqa: ASYNC109 - of the child, as declared
        retry: Retry | None = ...,
    ) -> R: ...

    @overload
    async def child(
        self,
        workflow: str,
        input: Any = ...,
        *,
        task_queue: str | None = ...,
        timeout: timedelta | float | None = ...,  # noqa: ASYNC109 - of the child, as declared
        retry: Retry | None = ...,
        result_type: type | None = ...,
    ) -> Any: ...

    @to_await
    async def child(
        self,
        workflow: Any,
        input: Any = NOT_GIVEN,  # noqa: A002 - the word of schedules.yaml
        *,
        task_queue: str | None = None,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109 - kept by the server
        retry: Retry | None = None,
        result_type: type | None = None,
    ) -> Any:
        """Run another workflow as a child of this run, and return what it returned.

        The child's id is ``child:<this run's id>:<name>:<n>``. It is cancelled when this run is,
        or fails, which waits until it has undone what it did; and it is terminated when this run
        is.

        Args:
            workflow: A ``@workflow`` class, or any Temporal workflow type as text.
            input: Its argument. Without it the child is started with none.
            task_queue: Where it runs; by default where this run does.
            timeout: How long it may take (timedelta or seconds), instead of its own.
            retry: Instead of its own rule.
            result_type: What to decode the result into, where ``workflow`` is text.

        Raises:
            TypeError: It is no workflow, or does not fit the input.
            temporalio.exceptions.ChildWorkflowError: It ended badly; ``.cause`` says why.
            asyncio.CancelledError: This run was cancelled; the child has ended.
        """
        return await self._children.run(
            workflow,
            input,
            task_queue=task_queue,
            timeout=timeout,
            retry=retry,
            result_type=result_type,
        )

    @to_await
    async def parallel(
        self, things: Sequence[Awaitable[R]], *, limit: int | None = None
    ) -> list[R]:
        """Wait for several steps or children at once, and return their results in order.

        ``await ctx.parallel([ctx.step(resize, each) for each in pictures], limit=4)``

        Args:
            things: Calls of ``ctx.step``, ``ctx.child`` or any coroutines of the workflow.
            limit: How many may be under way at a time; None means all.

        Raises:
            ValueError: ``limit`` is below 1.
            BaseException: Whatever the first to fail raised. The others are cancelled, and have
                ended; those that had not begun do not begin.
        """
        return await all_of(things, limit)

    @overload
    async def wait_for(
        self,
        signal: str,
        wanted: type[R],
        *,
        timeout: timedelta | float | None = ...,  # noqa: ASYNC109 - durable, kept by the server
    ) -> R: ...

    @overload
    async def wait_for(
        self,
        signal: str,
        *,
        timeout: timedelta | float | None = ...,  # noqa: ASYNC109 - durable, kept by the server
    ) -> Any: ...

    @to_await
    async def wait_for(
        self,
        signal: str,
        wanted: Any = None,
        *,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109 - durable, kept by the server
    ) -> Any:
        """Wait for a signal and return what it carries.

        Signals of one name are returned one by one, in the order in which they came, those
        included that came before anybody waited.

        Args:
            signal: Its name, as in ``temporal workflow signal --name``.
            wanted: What to decode its value into; without it plain JSON values are returned, and
                None where the signal carries none.
            timeout: How long to wait (timedelta or seconds); None means without end.

        Raises:
            TimeoutError: None came in time.
        """
        longest = None if timeout is None else duration(timeout, "timeout")
        return await self._signals.wait_for(signal, wanted, longest)

    @to_await
    async def sleep(self, span: timedelta | float) -> None:
        """Sleep that long (timedelta or seconds), durably: no crash or deploy shortens it.

        Nothing is waited for where the span is zero or negative.
        """
        seconds = span.total_seconds() if isinstance(span, timedelta) else span
        if seconds > 0:
            await temporalio.workflow.sleep(seconds)

    @to_await
    async def sleep_until(self, moment: datetime) -> None:
        """Sleep until this moment, durably; not at all where it has passed.

        Raises:
            ValueError: The moment has no timezone.
        """
        if moment.tzinfo is None:
            raise ValueError(f"{moment} has no timezone; give an aware datetime")
        await self.sleep(moment - self.now())

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far the run is, for whoever looks at it: in the Web UI and ``sched fires``.

        It costs nothing in the history, so say it as often as there is something new.

        Args:
            done: How much is done, in whatever unit.
            total: Of how much; None where that is not known.
            note: A line for people.
        """
        temporalio.workflow.set_current_details(progress_line(done, total, note))

    async def _unwind(self) -> list[NotUndone]:
        """Take back what has been done; the decorator calls it when ``run`` ends badly."""
        return await self._saga.unwind()
