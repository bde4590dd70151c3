"""Handles of runs that applications start, and the Temporal client behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from pydantic_core import to_jsonable_python

from engine.errors import RunEnded, SettingsInvalid
from engine.ledger import Fire, Start

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowHandle
    from temporalio.converter import DataConverter

    from engine.service.operate import Cancelled

R = TypeVar("R")

NOT_GIVEN: Final[Any] = object()
"""In place of a value, of which None may be one."""
PATIENCE: Final = timedelta(seconds=10)
"""How long a call to a run waits until the run has begun."""


class TemporalAccess:
    """The Temporal client of a service, made when it is first needed.

    Args:
        given: the application's client, or a function that makes it; None connects as the
            environment says.
        namespace: that of the ledger.
        converter: of a client that is made here; or a function that returns it.
    """

    def __init__(
        self,
        given: Client | Callable[[], Awaitable[Client]] | None,
        namespace: str,
        converter: DataConverter | Callable[[], DataConverter | None] | None,
    ) -> None:
        self._given, self._namespace, self._converter = given, namespace, converter
        self._client: Client | None = None
        self._lock = asyncio.Lock()

    async def client(self) -> Client:
        """Return the client.

        Raises:
            TemporalUnavailable: no server answers.
            SettingsInvalid: it is a client of another namespace.
        """
        async with self._lock:
            if self._client is None:
                self._client = await self._made()
            return self._client

    async def _made(self) -> Client:
        if self._given is None:
            # Commands need not load Temporal's SDK.
            from temporalio.contrib.pydantic import pydantic_data_converter

            from engine.runtime.temporal_client import connect_temporal

            given = self._converter() if callable(self._converter) else self._converter
            return await connect_temporal(
                namespace=self._namespace, data_converter=given or pydantic_data_converter
            )
        client = await self._given() if callable(self._given) else self._given
        if client.namespace != self._namespace:
            wrong = f"the Temporal client is of namespace {client.namespace}"
            raise SettingsInvalid([f"{wrong}, and the ledger of {self._namespace}"])
        return client


@dataclass(frozen=True, slots=True)
class StepInProgress:
    """A step of an open run that is at work, or waits for its next attempt.

    Attributes:
        step: its name.
        attempt: the number of that attempt; the first is 1.
        progress: what it gave ``activity.heartbeat`` last, as JSON has it; empty if nothing.
    """

    step: str
    attempt: int
    progress: tuple[Any, ...] = ()

    def __str__(self) -> str:
        attempt = f", attempt {self.attempt}" if self.attempt > 1 else ""
        told = ", ".join(map(str, self.progress))
        return f"{self.step}{attempt}{f': {told}' if told else ''}"


async def steps_in_progress(
    client: Client, workflow_id: str, run_id: str, *, within: timedelta | None = None
) -> tuple[StepInProgress, ...]:
    """Return the steps in progress of a run, the oldest first.

    ``within``: how long the server may take; None is the SDK's own patience.

    Raises:
        RPCError: the server does not answer, or has forgotten the run.
    """
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    described = await handle.describe(rpc_timeout=within)
    return tuple(
        [
            StepInProgress(
                each.activity_type.name,
                each.attempt,
                tuple(
                    to_jsonable_python(
                        await client.data_converter.decode(each.heartbeat_details.payloads),
                        fallback=str,
                    )
                ),
            )
            for each in described.raw_description.pending_activities
        ]
    )


class RunOperations(Protocol):
    """The operations of the service that a handle calls."""

    async def begun(self, started: Started[Any], wait: timedelta | float | None) -> Fire | None:
        """Wait until a run has begun; see ``Started.handle``."""

    async def temporal(self) -> Client:
        """Return the Temporal client."""

    async def cancel(
        self, name: str, *, reason: str | None = None, terminate: bool = False
    ) -> Cancelled:
        """Cancel a run; see ``Running.cancel``."""


@dataclass(frozen=True)
class Started(Generic[R]):
    """A start by an application, and the handle of its run.

    Calls to a run that has not begun wait for it, by default for ten seconds; then they raise
    ``EnqueueFailure``, as for a run that never can begin.

    Attributes:
        workflow_id: the id of its run in Temporal.
        new: False if the same id and input were started before; then this is the first start.
        start: what the ledger keeps of it for ever.
        fire: its row in the ledger; None once retention has removed it.
        waiting: why no worker would send it at present; None if one would, or has.
    """

    workflow_id: str
    new: bool
    start: Start
    fire: Fire | None
    waiting: str | None
    _runs: RunOperations = field(repr=False, compare=False)
    _result_type: Any = field(default=None, repr=False, compare=False)

    async def handle(
        self, *, wait: timedelta | float | None = PATIENCE
    ) -> WorkflowHandle[Any, Any]:
        """Return the handle of Temporal's client, once the run has begun.

        Args:
            wait: how long to wait for that (timedelta or seconds); None waits without limit.

        Raises:
            EnqueueFailure: the run has not begun by then, or never can.
            TemporalUnavailable: no server answers.
        """
        await self._runs.begun(self, wait)
        client = await self._runs.temporal()
        return client.get_workflow_handle(self.workflow_id, result_type=self._result_type)

    async def result(self) -> R:
        """Wait until the run has ended, however long that takes, and return its result.

        Raises:
            EnqueueFailure: the run never can begin.
            RunEnded: Temporal has removed the run.
            WorkflowFailureError: it ended badly (of ``temporalio.client``); see ``caused_by``.
        """
        async with _names_the_end(self.workflow_id):
            result: R = await (await self.handle(wait=None)).result()
        return result

    async def signal(self, signal: str | Callable[..., Any], value: Any = NOT_GIVEN) -> None:
        """Send a signal to the run: what ``ctx.wait_for`` waits for, or a handler of the class.

        Raises:
            RunEnded: the run takes none any more.
        """
        async with _names_the_end(self.workflow_id):
            await (await self.handle()).signal(signal, args=_args(value))

    async def query(self, query: str | Callable[..., Any], value: Any = NOT_GIVEN) -> Any:
        """Return the answer of a query handler of the class.

        Raises:
            RunEnded: Temporal has removed the run.
        """
        async with _names_the_end(self.workflow_id):
            return await (await self.handle()).query(query, args=_args(value))

    async def update(self, update: str | Callable[..., Any], value: Any = NOT_GIVEN) -> Any:
        """Have an update handler of the class do its work, and return its result.

        Raises:
            RunEnded: the run takes none any more.
            WorkflowUpdateFailedError: the handler refused it or failed (of ``temporalio.client``).
        """
        async with _names_the_end(self.workflow_id):
            handle: Any = await self.handle()  # one call for a name and for a method
            return await handle.execute_update(update, args=_args(value))

    async def cancel(self, *, reason: str | None = None, terminate: bool = False) -> Cancelled:
        """Cancel the run, or have it never begin; see ``ScheduleService.cancel``.

        Raises:
            NotCancellable: it has ended.
        """
        return await self._runs.cancel(self.workflow_id, reason=reason, terminate=terminate)


def _args(value: Any) -> list[Any]:
    return [] if value is NOT_GIVEN else [value]


@asynccontextmanager
async def _names_the_end(workflow_id: str) -> AsyncIterator[None]:
    """Say that a run has ended, where Temporal says that it has none."""
    from temporalio.service import RPCError, RPCStatusCode

    try:
        yield
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        raise RunEnded(
            f"{workflow_id} has ended", hint="an id is one run for ever: start another id"
        ) from error
