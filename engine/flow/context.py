"""What a workflow's ``run(self, ctx)`` is given."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar, overload

import temporalio.workflow

from engine.errors import EngineError
from engine.flow.calls import NOT_GIVEN, call_of, undo_of
from engine.flow.fire import MEMO_KEY, FireInfo
from engine.flow.saga import Saga
from engine.flow.steps import Retry

R = TypeVar("R")
T = TypeVar("T")


class Context:
    """The workflow's door to the engine and to Temporal.

    Everything here is safe to replay. All of ``temporalio.workflow`` may be used beside it; in a
    unit test any object with the few members that ``run`` uses can stand in for it.
    """

    def __init__(self) -> None:
        self._saga = Saga()

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

    @overload
    async def step(
        self,
        fn: Callable[[], Awaitable[R]],
        *,
        compensate: Callable[[], Any] | None = ...,
        retry: Retry | None = ...,
        timeout: timedelta | float | None = ...,  # noqa: ASYNC109 - of the step, as declared
    ) -> R: ...

    @overload
    async def step(
        self,
        fn: Callable[[T], Awaitable[R]],
        input: T,
        *,
        compensate: Callable[[T], Any] | Callable[[], Any] | None = ...,
        retry: Retry | None = ...,
        timeout: timedelta | float | None = ...,  # noqa: ASYNC109 - of the step, as declared
    ) -> R: ...

    @overload
    async def step(
        self,
        fn: Callable[[], R],
        *,
        compensate: Callable[[], Any] | None = ...,
        retry: Retry | None = ...,
        timeout: timedelta | float | None = ...,  # noqa: ASYNC109 - of the step, as declared
    ) -> R: ...

    @overload
    async def step(
        self,
        fn: Callable[[T], R],
        input: T,
        *,
        compensate: Callable[[T], Any] | Callable[[], Any] | None = ...,
        retry: Retry | None = ...,
        timeout: timedelta | float | None = ...,  # noqa: ASYNC109 - of the step, as declared
    ) -> R: ...

    async def step(
        self,
        fn: Callable[..., Any],
        input: Any = NOT_GIVEN,  # noqa: A002 - the word of schedules.yaml
        *,
        compensate: Callable[..., Any] | None = None,
        retry: Retry | None = None,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109 - kept by the server
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
                One that fails is logged and the others still run; the run ends with its own
                error.
            retry: Instead of the step's own retry rule.
            timeout: How long one attempt may take (timedelta or seconds), instead of the step's
                own; 10 minutes where neither says.

        Raises:
            TypeError: ``fn`` or ``compensate`` is not a step, or does not fit the input.
            temporalio.exceptions.ActivityError: The step failed for good; ``.cause`` says why.
            asyncio.CancelledError: The run was cancelled; the step has stopped or finished.
        """
        call = call_of(fn, input, retry=retry, timeout=timeout)
        undo = None if compensate is None else undo_of(compensate, call)
        return await self._saga.run(call, undo)

    async def _unwind(self) -> None:
        """Take back what has been done; the decorator calls it when ``run`` ends badly."""
        await self._saga.unwind()

    def _read_fire(self) -> FireInfo:
        value = temporalio.workflow.memo_value(MEMO_KEY, None)
        if value is None:
            raise ValueError(f"its memo has no {MEMO_KEY!r}")
        return FireInfo.from_memo(value)
