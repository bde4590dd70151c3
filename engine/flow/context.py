"""What a workflow's ``run(self, ctx)`` is given."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar, overload

import temporalio.workflow

from engine.errors import EngineError
from engine.flow.fire import MEMO_KEY, FireInfo
from engine.flow.steps import DEFAULT_TIMEOUT, Retry, duration, step_definition_of

R = TypeVar("R")
T = TypeVar("T")

_NOT_GIVEN: Final[Any] = object()  # None is an input like any other


class Context:
    """The workflow's door to the engine and to Temporal.

    Everything here is safe to replay. All of ``temporalio.workflow`` may be used beside it; in a
    unit test any object with the few members that ``run`` uses can stand in for it.
    """

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
        retry: Retry | None = ...,
        timeout: timedelta | float | None = ...,  # noqa: ASYNC109 - of the step, as declared
    ) -> R: ...

    @overload
    async def step(
        self,
        fn: Callable[[T], Awaitable[R]],
        input: T,
        *,
        retry: Retry | None = ...,
        timeout: timedelta | float | None = ...,  # noqa: ASYNC109 - of the step, as declared
    ) -> R: ...

    @overload
    async def step(
        self,
        fn: Callable[[], R],
        *,
        retry: Retry | None = ...,
        timeout: timedelta | float | None = ...,  # noqa: ASYNC109 - of the step, as declared
    ) -> R: ...

    @overload
    async def step(
        self,
        fn: Callable[[T], R],
        input: T,
        *,
        retry: Retry | None = ...,
        timeout: timedelta | float | None = ...,  # noqa: ASYNC109 - of the step, as declared
    ) -> R: ...

    async def step(
        self,
        fn: Callable[..., Any],
        input: Any = _NOT_GIVEN,  # noqa: A002 - the word of schedules.yaml
        *,
        retry: Retry | None = None,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109 - kept by the server
    ) -> Any:
        """Run a step on a worker and return what it returned.

        Once a step has completed its result is part of the run's history: a crash or a deploy
        does not run it again.

        Args:
            fn: A ``@step`` function, or any Temporal activity.
            input: Its argument. Without it the step is called with none.
            retry: Instead of the step's own retry rule.
            timeout: How long one attempt may take (timedelta or seconds), instead of the step's
                own; 10 minutes where neither says.

        Raises:
            TypeError: ``fn`` is not a step, or takes no input although there is one.
            temporalio.exceptions.ActivityError: The step failed for good; ``.cause`` says why.
        """
        definition = step_definition_of(fn)
        if definition is None and not hasattr(fn, "__temporal_activity_definition"):
            raise TypeError(f"ctx.step needs a function marked with @step; got {fn!r}")
        given = input is not _NOT_GIVEN
        if definition is not None:
            if given and not definition.accepts_input:
                raise TypeError(f"the step {definition.name!r} takes no input")
            if not given and definition.requires_input:
                raise TypeError(f"the step {definition.name!r} needs an input")
            retry = retry or definition.retry
            timeout = definition.timeout if timeout is None else timeout
        return await temporalio.workflow.execute_activity(
            fn,
            args=[input] if given else [],
            start_to_close_timeout=duration(
                DEFAULT_TIMEOUT if timeout is None else timeout,
                "timeout",
            ),
            retry_policy=None if retry is None else retry.to_policy(),
        )

    def _read_fire(self) -> FireInfo:
        value = temporalio.workflow.memo_value(MEMO_KEY, None)
        if value is None:
            raise ValueError(f"its memo has no {MEMO_KEY!r}")
        return FireInfo.from_memo(value)
