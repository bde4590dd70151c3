"""The long polls for the ends of runs that windows wait in line for.

Closes are looked for every few seconds, all at once. That is too slow for a line: with ``overlap:
queue`` a schedule of one second would start one run at each look, however short its runs are. So
each replica waits at the server for the closes of those runs in the way that it started itself, and
lets the next window go at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution as Execution
from temporalio.api.enums.v1 import HistoryEventFilterType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from engine.ledger import Ledger
from engine.runtime.breaker import Breaker
from engine.runtime.clock import boottime
from engine.runtime.events import Decided, Event, Settled, logger
from engine.runtime.looking import Looker
from engine.runtime.settings import Settings

_POLLS = 100
"""Long polls at once. Runs beyond them are described in turn."""
_DESCRIBED = 5
"""Runs that are described in a turn of a second."""
_KNOWN = 1000
_POLLS_A_SECOND = 10.0
_PATIENCE = 2.0
"""Seconds of a poll, and until a run is waited for again whose close did not clear the way. So long
a worker that leaves waits for the answer."""
_ANSWERED_BEFORE = 1.0
"""Seconds before its deadline at which the server gives up waiting."""
_EVERY, _GATHER = timedelta(seconds=1), timedelta(milliseconds=20)
"""How often lines are looked at while there are any, and for how long news gather."""
_WITHOUT_LINE = frozenset({"allow", "skip"})
_CLOSE = HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT


class CloseWaiter:
    """Waits for what stands in the way of lines, for one replica.

    Args:
        orphans: whether the runs of replicas that have gone are this one's to wait for.
        go_on: called when windows may have become due.
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        looker: Looker,
        settings: Settings,
        *,
        breaker: Breaker,
        replica: str,
        orphans: Callable[[], bool],
        go_on: Callable[[], None],
    ) -> None:
        self._client, self._ledger, self._looker = client, ledger, looker
        self._settings, self._breaker, self._replica = settings, breaker, replica
        self._orphans, self._go_on = orphans, go_on
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._closed: set[str] = set()
        self._rests: dict[str, float] = {}
        self._wanted: frozenset[str] = frozenset()
        self._news = asyncio.Event()
        self._leaving = False

    def hear(self, event: Event) -> None:
        """Look at once when a window came into a line, or the run before one was started."""
        match event:
            case Decided(decision) if decision.verdict == "queued":
                self._news.set()
            case Settled(claim) if claim.schedule.overlap not in _WITHOUT_LINE:
                self._news.set()

    def stop(self) -> None:
        """Begin no more polls. Those under way end by themselves: the server gives up soon."""
        self._leaving = True
        self._news.set()

    async def turn(self) -> timedelta:
        """Look once what is in the way, and wait for news; returns the wait until the next look."""
        self._news.clear()
        if not self._breaker.holds:
            await self._book()
            self._wait_for(await self._look())
        every = _EVERY if self._wanted else self._settings.track
        if not self._leaving:
            with suppress(TimeoutError):
                async with asyncio.timeout(every.total_seconds()):
                    await self._news.wait()
        return _GATHER

    async def end(self) -> None:
        """Return when no call is in flight any more."""
        if self._polls:
            await asyncio.wait([*self._polls.values()])

    async def _book(self) -> None:
        """Write down the closes that were seen, and let what waited for them go."""
        closed, self._closed = [*self._closed], set()
        if closed:
            with suppress(RPCError, ValueError):  # what was seen of the others is written
                await self._looker.look(closed)
            await self._ledger.wake()
            self._go_on()

    async def _look(self) -> list[str]:
        """Return the ids of runs in the way, the oldest line first."""
        runs = await self._ledger.in_the_way(
            self._replica, alive=self._settings.alive, orphans=self._orphans(), limit=_KNOWN
        )
        self._wanted = frozenset(run.workflow_id for run in runs)
        return [run.workflow_id for run in runs]

    def _wait_for(self, names: Sequence[str]) -> None:
        """Wait for these: the first ones have a poll, of the others some are described."""
        now = boottime()
        self._rests = {name: until for name, until in self._rests.items() if until > now}
        names = [name for name in names if name not in self._polls.keys() | self._rests.keys()]
        room = 0 if self._leaving else _POLLS - len(self._polls)
        for name in names[:room]:
            self._polls[name] = asyncio.create_task(self._poll(name))
        others = names[room:]
        self._closed.update(others[:_DESCRIBED])
        self._rest(others[:_DESCRIBED], len(others) / _DESCRIBED)

    def _rest(self, names: Iterable[str], seconds: float) -> None:
        self._rests.update(dict.fromkeys(names, boottime() + seconds))

    async def _poll(self, workflow_id: str) -> None:
        """Wait until the chain of this id has closed, or is not to be waited for any more."""
        try:
            if await self._has_closed(workflow_id):
                self._closed.add(workflow_id)
                self._rest([workflow_id], _PATIENCE)
                self._news.set()
        except Exception as error:  # noqa: BLE001 - one run never hides the others
            logger.debug("%s could not be waited for: %s", workflow_id, error)
            self._rest([workflow_id], self._patience)
        finally:
            del self._polls[workflow_id]

    async def _has_closed(self, workflow_id: str) -> bool:
        while workflow_id in self._wanted and not self._leaving:
            try:
                event = await self._close_event(workflow_id, self._patience)
            except RPCError as error:
                if error.status == RPCStatusCode.NOT_FOUND:
                    return True
                raise
            if event is not None and not _goes_on(event):
                return True
        return False

    @property
    def _patience(self) -> float:
        """Seconds of one poll: longer where there are many, so that their calls stay few."""
        return max(_PATIENCE, len(self._polls) / _POLLS_A_SECOND)

    async def _close_event(self, workflow_id: str, wait: float) -> HistoryEvent | None:
        """Return how the newest run of this id closed; None: it did not within ``wait`` seconds."""
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self._client.namespace,
            execution=Execution(workflow_id=workflow_id),
            wait_new_event=True,
            history_event_filter_type=_CLOSE,
            skip_archival=True,
        )
        answer = await self._client.workflow_service.get_workflow_execution_history(
            request, timeout=timedelta(seconds=wait + _ANSWERED_BEFORE)
        )
        return answer.history.events[-1] if answer.history.events else None


def _goes_on(event: HistoryEvent) -> bool:
    """Whether the run has closed and its chain has not: continued as new, or retried."""
    kind = event.WhichOneof("attributes")
    return bool(kind and getattr(getattr(event, kind), "new_execution_run_id", ""))
