"""Signals of a run, each kept until the workflow waits for it."""

from __future__ import annotations

import inspect
from collections import defaultdict, deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import temporalio.workflow
from temporalio.common import RawValue

from engine.errors import EngineError


class Signals:
    """The signals of one run, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, deque[RawValue | None]] = defaultdict(deque)
        self._line: defaultdict[str, list[object]] = defaultdict(list)

    async def wait_for(
        self,
        name: str,
        wanted: Any,
        timeout: timedelta | None,  # noqa: ASYNC109 - durable, kept by the server
    ) -> Any:
        """Return the oldest signal of this name that was not returned before.

        Concurrent waits for one name are served in the order in which they began.

        Raises:
            TimeoutError: no signal came in time.
            EngineError: the class has its own handler for the name.
        """
        self._listen(name)
        waiting, line, me = self._waiting[name], self._line[name], object()
        line.append(me)
        try:
            # One signal serves one wait: the first in line.
            await temporalio.workflow.wait_condition(
                lambda: bool(waiting) and line[0] is me,
                timeout=timeout,
                timeout_summary=f"waits for the signal {name}",
            )
        finally:
            line.remove(me)
        given = waiting.popleft()
        if given is None:
            return None
        return temporalio.workflow.payload_converter().from_payload(given.payload, wanted)

    def _listen(self, name: str) -> None:
        if name in self._waiting:
            return
        if temporalio.workflow.get_signal_handler(name) is not None:
            raise EngineError(
                f"ctx.wait_for({name!r}): the workflow has a @workflow.signal of that name",
                cure="wait for what the handler sets, or take the handler away",
            )

        def heard(*values: Any) -> None:
            self._waiting[name].append(_kept(values))

        # Temporal decodes one value by this annotation, and several values as plain JSON.
        # A handler that could not take several values would block the run forever.
        heard.__annotations__ = {"value": RawValue}
        heard.__signature__ = _ONE_VALUE  # type: ignore[attr-defined] # inspect reads it
        # The SDK has buffered earlier signals and delivers them now.
        temporalio.workflow.set_signal_handler(name, heard)


_ONE_VALUE: Final = inspect.Signature(
    [inspect.Parameter("value", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
)


def _kept(values: Sequence[Any]) -> RawValue | None:
    """Return the first value as it came; further values of a signal are dropped."""
    if len(values) <= 1:
        return values[0] if values else None
    return RawValue(temporalio.workflow.payload_converter().to_payload(values[0]))
