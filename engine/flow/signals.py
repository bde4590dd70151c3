"""Signals of a run.

Signals that a run waits for, each kept until somebody asks for it.
"""

from __future__ import annotations

import inspect
from collections import defaultdict, deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import temporalio.workflow
from temporalio.common import RawValue

from engine.errors import EngineError


def too_late(name: str, timeout: timedelta | None) -> TimeoutError:
    """Return what is raised when a signal does not come in time."""
    return TimeoutError(f"no signal {name} came within {timeout}")


class Signals:
    """The signals of one run, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, deque[RawValue | None]] = defaultdict(deque)
        self._line: defaultdict[str, list[object]] = defaultdict(list)
        self._heard: set[str] = set()

    async def wait_for(
        self,
        name: str,
        wanted: Any,
        timeout: timedelta | None,  # noqa: ASYNC109 - durable, kept by the server
    ) -> Any:
        """Return the oldest signal of this name that was not returned before.

        Of several who wait for one name, those who came first are served first.

        Raises:
            TimeoutError: none came in time.
            EngineError: the class has a handler of its own for the name.
        """
        self._listen(name)
        waiting, line, me = self._waiting[name], self._line[name], object()
        line.append(me)
        try:
            # One signal is for one of those who wait: whoever came first.
            await temporalio.workflow.wait_condition(
                lambda: bool(waiting) and line[0] is me,
                timeout=timeout,
                timeout_summary=f"waits for the signal {name}",
            )
        except TimeoutError:
            # Its cause is how asyncio does it: a cancel, which would be told as the reason.
            raise too_late(name, timeout) from None
        finally:
            line.remove(me)
        given = waiting.popleft()
        if given is None:
            return None
        return temporalio.workflow.payload_converter().from_payload(given.payload, wanted)

    def _listen(self, name: str) -> None:
        if name in self._heard:
            return
        if temporalio.workflow.get_signal_handler(name) is not None:
            raise EngineError(
                f"ctx.wait_for({name!r}): the workflow has a @workflow.signal of that name",
                cure="wait for what the handler sets, or take the handler away",
            )

        def heard(*values: Any) -> None:
            self._waiting[name].append(_kept(values))

        # Temporal asks what to decode it into; of more than one value it leaves that to itself.
        # A handler that could not take them would hold up the run for ever.
        heard.__annotations__ = {"value": RawValue}
        heard.__signature__ = _ONE_VALUE  # type: ignore[attr-defined] # inspect reads it
        # What came before this moment was kept by the SDK and arrives now.
        temporalio.workflow.set_signal_handler(name, heard)
        self._heard.add(name)


_ONE_VALUE: Final = inspect.Signature(
    [inspect.Parameter("value", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
)


def _kept(values: Sequence[Any]) -> RawValue | None:
    """The first value, as it came; a signal with several was meant for somebody else."""
    if len(values) <= 1:
        return values[0] if values else None
    return RawValue(temporalio.workflow.payload_converter().to_payload(values[0]))
