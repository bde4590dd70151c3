"""Signals of a run, each kept until the workflow waits for it, and failures of handlers."""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict, deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import temporalio.workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from engine.errors import EngineError


class Signals:
    """The signals of one run, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, deque[RawValue | None]] = defaultdict(deque)
        self._line: defaultdict[str, list[object]] = defaultdict(list)
        self._received: set[str] = set()

    async def wait_for(
        self,
        name: str,
        wanted: Any,
        timeout: timedelta | None,
    ) -> Any:
        """Return the oldest signal of this name that was not returned before.

        Concurrent waits for one name are served in the order in which they began.

        A signal whose value is not of the wanted type is dropped, and logged: the sender of a
        signal must not be able to fail the run.

        Raises:
            TimeoutError: no signal came in time.
            EngineError: the class has its own handler for the name.
        """
        self._listen(name)
        line, me = self._line[name], object()
        now = temporalio.workflow.now
        end = None if timeout is None else now() + timeout
        line.append(me)
        try:
            while True:
                given = await self._next(name, me, None if end is None else end - now())
                try:
                    return _decoded(given, wanted)
                except Exception as error:  # noqa: BLE001 - a converter may raise anything
                    temporalio.workflow.logger.warning(
                        "a signal %s was dropped, because its value is no %s: %s",
                        name,
                        getattr(wanted, "__name__", wanted),
                        error,
                    )
        finally:
            line.remove(me)

    @property
    def waited_for(self) -> list[str]:
        """The names of the signals that the run waits for now."""
        return [name for name, line in self._line.items() if line]

    async def pending(self, name: str) -> int:
        """Return how many signals of this name have come and were not returned."""
        self._listen(name)
        await _delivered()
        return len(self._waiting[name])

    async def left(self) -> dict[str, RawValue]:
        """Return the signals that have come and were not returned, as memo fields of the next run.

        Later ones are not lost: the server does not let a run continue that has not seen them.
        """
        if temporalio.workflow.get_dynamic_signal_handler() is None:
            temporalio.workflow.set_dynamic_signal_handler(self._receive)
            await _delivered()
        for name in _carried_names():
            self._take_carried(name)
        given = [(name, each) for name, line in self._waiting.items() for each in line]
        none = RawValue(Payload(metadata={"encoding": _NOTHING}))
        return {
            f"{SIGNAL_CARRIED}{number:06d}.{name}": none if each is None else each
            for number, (name, each) in enumerate(given)
        }

    def _receive(self, name: str, values: Sequence[RawValue]) -> None:
        self._waiting[name].append(values[0] if values else None)

    def _take_carried(self, name: str) -> None:
        """Put the signals that an earlier run of the chain carried over before all later ones."""
        if name in self._received:
            return
        self._received.add(name)
        memo = temporalio.workflow.info().raw_memo
        carried = [memo[key] for key in sorted(memo) if _carried_name(key) == name]
        self._waiting[name].extendleft(
            None if each.metadata.get("encoding") == _NOTHING else RawValue(each)
            for each in reversed(carried)
        )

    async def _next(self, name: str, me: object, left: timedelta | None) -> RawValue | None:
        waiting, line = self._waiting[name], self._line[name]
        if left is not None and left <= timedelta(0):
            await _delivered()
            if not waiting or line[0] is not me:
                raise TimeoutError
        else:
            # One signal serves one wait: the first in line.
            await temporalio.workflow.wait_condition(
                lambda: bool(waiting) and line[0] is me,
                timeout=left,
                timeout_summary=f"waits for the signal {name}",
            )
        return waiting.popleft()

    def _listen(self, name: str) -> None:
        if name in self._received:
            return
        if temporalio.workflow.get_signal_handler(name) is not None:
            raise EngineError(
                f"ctx.wait_for({name!r}): the workflow has a @workflow.signal of that name",
                hint="wait for what the handler sets, or take the handler away",
            )

        self._take_carried(name)

        def receive(*values: Any) -> None:
            self._waiting[name].append(_kept(values))

        # Temporal decodes one value by this annotation, and several values as plain JSON.
        # A handler that could not take several values would block the run forever.
        receive.__annotations__ = {"value": RawValue}
        receive.__signature__ = _ONE_VALUE  # type: ignore[attr-defined] # inspect reads it
        # The SDK has buffered earlier signals and delivers them now.
        temporalio.workflow.set_signal_handler(name, receive)


SIGNAL_CARRIED: Final = "sched.signal."
"""The beginning of memo fields that carry a signal into the next run of a chain."""
_NOTHING: Final = b"binary/null"


def _carried_name(field: str) -> str | None:
    """Return the name of the signal that a memo field carries; None for any other field."""
    if not field.startswith(SIGNAL_CARRIED):
        return None
    return field.removeprefix(SIGNAL_CARRIED).partition(".")[2]


def _carried_names() -> list[str]:
    found = (_carried_name(field) for field in sorted(temporalio.workflow.info().raw_memo))
    return list(dict.fromkeys(name for name in found if name is not None))


async def _delivered() -> None:
    """Let the signals that have come reach their handlers; no time passes."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def _decoded(given: RawValue | None, wanted: Any) -> Any:
    if given is None and wanted is None:
        return None
    payload = given.payload if given is not None else _NO_VALUE
    return temporalio.workflow.payload_converter().from_payload(payload, wanted)


_NO_VALUE: Final = Payload(metadata={"encoding": b"json/plain"}, data=b"null")
"""What a signal without a value is read from, if one of a type is wanted."""


_ONE_VALUE: Final = inspect.Signature(
    [inspect.Parameter("value", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
)


def _kept(values: Sequence[Any]) -> RawValue | None:
    """Return the first value as it came; further values of a signal are dropped."""
    if len(values) <= 1:
        return values[0] if values else None
    return RawValue(temporalio.workflow.payload_converter().to_payload(values[0]))


# --- handlers ---
# What leaves a handler of a signal ends the run as if it had left ``run``, and so does an
# unexpected error of an update. Temporal would end the run without its undo steps, or repeat the
# task for ever.

_STATE: Final = "__sched_handlers__"


class Handlers:
    """The handlers of one run, and its task.

    Attributes:
        error: what left a handler, if anything did.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._task: asyncio.Task[Any] | None = None
        self._ended = False

    @classmethod
    def of(cls, instance: object) -> Handlers:
        """Return the handlers of this run: a signal may arrive before ``run`` begins."""
        state: dict[str, Any] = vars(instance)
        found: Handlers = state.setdefault(_STATE, cls())
        return found

    @staticmethod
    def mark(workflow_class: type) -> None:
        """Have the runs of this class end with what leaves their handlers."""
        setattr(workflow_class, _STATE, None)

    @classmethod
    def end_run(cls, instance: object, error: BaseException) -> bool:
        """Have a run end with an error of a handler; False if Temporal has to handle it."""
        return hasattr(type(instance), _STATE) and cls.of(instance).failed(error)

    @classmethod
    async def ready(cls, instance: object) -> None:
        """Wait until ``run`` has begun, so that a handler finds what it has set."""
        if hasattr(type(instance), _STATE) and not cls.of(instance).has_begun:
            await temporalio.workflow.wait_condition(lambda: cls.of(instance).has_begun)

    @property
    def has_begun(self) -> bool:
        """Whether ``run`` has begun."""
        return self._task is not None

    def begin(self) -> None:
        """Note that ``run`` begins, in the current task.

        Raises:
            BaseException: what has left a handler already.
        """
        self._task = asyncio.current_task()
        self.check()

    def check(self) -> None:
        """Raise what has left a handler."""
        if self.error is not None:
            raise self.error

    def end(self, error: BaseException) -> BaseException:
        """Note that the run ends, and return why: what left a handler has cancelled ``run``."""
        self._ended = True
        if self.error is not None and self._task is not None:
            self._task.uncancel()
        return self.error or error

    def failed(self, error: BaseException) -> bool:
        """Take an error of a handler; False if Temporal has to handle it."""
        if self._ended and isinstance(error, asyncio.CancelledError):
            return True  # the run is being undone, which cancels the steps of handlers too
        if self.error is None and not self._ended:
            self.error = error
            if self._task is not None:
                self._task.cancel()
        elif not isinstance(error, asyncio.CancelledError):
            temporalio.workflow.logger.error(
                "a handler failed beside the end of its run: %s", error
            )
        return True

    async def finish(self) -> None:
        """Wait for the handlers in progress, whose steps would be abandoned half-way."""
        finished = temporalio.workflow.all_handlers_finished
        if not finished():
            await temporalio.workflow.wait_condition(finished)
            self.check()
