"""Inspection and cancellation of single runs."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
)
from temporalio.service import RPCError, RPCStatusCode

from engine.errors import Code
from engine.flow.fire import FireInfo
from engine.ledger import Ledger
from engine.ledger.fires import Evidence, StopOrder
from engine.ledger.records import Serving
from engine.runtime.clock import LedgerClock
from engine.runtime.dispatch.backpressure import Budget
from engine.runtime.dispatch.starter import ENDED_BADLY, evidence_of, with_failure
from engine.runtime.events import Alert, Closed, OnEvent, Stopped
from engine.runtime.run_memo import first_run_of, read_chain_info, read_fire_info
from engine.runtime.settings import Settings

# --- inspection ---
# Single runs are described, which is current where visibility lags.

VISIBILITY_LAG = timedelta(seconds=60)
"""Assumed maximum lag of visibility. Younger windows, and runs whose close appears later, are
described one by one."""
_LOST = "it was started, and Temporal does not know it any more"
_LOST_CURE = "find out whether it did its work; `sched rerun` starts it again"

ObservedRun = tuple[Evidence, FireInfo | None]
"""A run of this ledger, and the window that its memo names; None if the ledger knows its chain."""


@dataclass(frozen=True, slots=True)
class Chain:
    """State of the newest run of a chain; old servers return no ``first_run_id``."""

    first_run_id: str | None
    is_open: bool
    cancel_requested: bool


class RunInspector:
    """Inspector of one ledger's runs.

    Args:
        ledger_id: the ledger; runs of any other are foreign and ignored.
        notice: called with each open run that was described.

    Attributes:
        budget: the budget of calls; callers of ``describe`` and ``find`` must take a turn before.
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        clock: LedgerClock,
        settings: Settings,
        *,
        ledger_id: str,
        notice: Callable[[WorkflowExecutionDescription], Awaitable[None]] | None = None,
        budget: Budget | None = None,
        on_event: OnEvent,
    ) -> None:
        self.budget = budget or Budget()
        self._client, self._ledger, self._clock = client, ledger, clock
        self._settings, self._ledger_id, self._emit = settings, ledger_id, on_event
        self._notice = notice

    async def look(self, workflow_ids: Sequence[str], *, tracking: bool = False) -> bool:
        """Describe these runs and record which are closed; return whether any is no longer open.

        A run that Temporal does not know is recorded as lost and reported. It is never restarted
        automatically.

        Raises:
            RPCError: one could not be described; the results of the others are written.
        """
        looks = await asyncio.gather(
            *(self._dated(name, tracking) for name in workflow_ids), return_exceptions=True
        )
        seen = [look for look in looks if not isinstance(look, BaseException)]
        changed = await self._lose([name for name, each, _ in seen if each is None])
        still: defaultdict[datetime, list[str]] = defaultdict(list)
        for name, each, asked in seen:
            if each is not None and not each.closed:
                still[asked].append(name)
        for asked, names in still.items():
            await self._ledger.seen_open(names, asked)
        closed = [each for _, each, _ in seen if each is not None and each.closed]
        changed += await self._ledger.record_evidence(closed) if closed else []
        for each in closed:
            if each.workflow_id in changed:
                self._emit(Closed(each))
        for look in looks:
            if isinstance(look, BaseException):
                raise look
        return bool(closed) or any(each is None for _, each, _ in seen)

    async def _dated(
        self,
        workflow_id: str,
        tracking: bool,  # noqa: FBT001 - private
    ) -> tuple[str, Evidence | None, datetime]:
        """Describe a run; return also the time of the request, by the ledger's clock.

        It is taken after the turn in the budget and before the call, because a run may close while
        the answer travels. It is the clock's lower bound: an open run was certainly open then.
        """
        await self.budget.call(tracking=tracking)
        asked = self._clock.now()
        return workflow_id, await self.describe(workflow_id), asked

    async def _lose(self, workflow_ids: Sequence[str]) -> list[str]:
        lost = await self._ledger.lose(workflow_ids, _LOST) if workflow_ids else []
        for workflow_id in lost:
            self._emit(Alert(Code.RUN_LOST, f"{workflow_id}: {_LOST}; {_LOST_CURE}"))
        return lost

    async def describe(self, workflow_id: str) -> Evidence | None:
        """Return the evidence of this id's newest run; None if there is none or it is foreign.

        Raises:
            RPCError: the server did not answer.
        """
        found = await self.find(workflow_id)
        return found[0] if found else None

    async def fire_of(self, run: WorkflowExecution) -> FireInfo | None:
        """Return the window that a run's own memo names; None if the run is foreign.

        Raises:
            ValueError: the memo cannot be read, so the run's owner is unknown.
        """
        info = await read_fire_info(run)
        return info if info is not None and info.ledger == self._ledger_id else None

    async def seen_closed(self, run: WorkflowExecution) -> ObservedRun | None:
        """Return the evidence of a closed run that was listed; None if it settles no fire.

        Visibility knows no chains. If the run did not complete, or has no readable memo, the id's
        newest run is described: it may have been retried, reset, or continued as new.

        Raises:
            RPCError: the server did not answer.
            ValueError: the run's owner cannot be read.
        """
        if run.status == WorkflowExecutionStatus.CONTINUED_AS_NEW:
            return None
        with suppress(ValueError):  # its chain may identify it
            info = await read_fire_info(run)
            if info is not None and info.ledger != self._ledger_id:
                return None
            if info is not None and run.status == WorkflowExecutionStatus.COMPLETED:
                return evidence_of(run), info
        await self.budget.call(tracking=True)
        return await self.find(run.id)

    async def find(self, workflow_id: str) -> ObservedRun | None:
        """Return the result of ``describe``, with the run's window.

        Raises:
            RPCError: the server did not answer.
            ValueError: the run's owner cannot be read.
        """
        run = await self._newest(workflow_id)
        if run is None:
            return None
        is_ours, info = await self._whose(run)
        if not is_ours:
            return None
        if run.status == WorkflowExecutionStatus.RUNNING and self._notice:
            await self._notice(run)
        this_run = self._client.get_workflow_handle(workflow_id, run_id=run.run_id)
        evidence = replace(evidence_of(run), last=True, first_run_id=first_run_of(run))
        if evidence.closed in ENDED_BADLY:
            await self.budget.call()
        return await with_failure(evidence, this_run, self._settings), info

    async def chain(self, workflow_id: str) -> Chain | None:
        """Return the state of this id's chain of runs; None if Temporal does not know it.

        Raises:
            RPCError: the server did not answer.
        """
        await self.budget.call()
        run = await self._newest(workflow_id)
        if run is None:
            return None
        extended = run.raw_description.workflow_extended_info
        is_open = run.status == WorkflowExecutionStatus.RUNNING
        return Chain(first_run_of(run), is_open, extended.cancel_requested)

    async def _newest(self, workflow_id: str) -> WorkflowExecutionDescription | None:
        handle = self._client.get_workflow_handle(workflow_id)
        try:
            return await handle.describe(rpc_timeout=self._settings.rpc_timeout)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return None
            raise

    async def _whose(self, run: WorkflowExecutionDescription) -> tuple[bool, FireInfo | None]:
        """Return whether a run is of this ledger, and its window if the ledger may lack it."""
        problem: ValueError | None = None
        try:
            info = await read_fire_info(run)
        except ValueError as error:
            info, problem = None, error
        if info is None:
            first = first_run_of(run)
            if first and first == await self._ledger.first_run(run.id):
                return True, None
            if problem:
                raise problem
            timeout = self._settings.rpc_timeout
            info = await read_chain_info(self._client, run, rpc_timeout=timeout)
        return info is not None and info.ledger == self._ledger_id, info


# --- cancellation ---
# Stop orders: a run is cancelled, and terminated when its grace has passed.
#
# An order is a column of the fire, so it survives its replica. Only an observed close ends it, no
# answer of the server does: for the id of a run that has continued as new, *terminate* returns "not
# found", and *cancel* is accepted without effect.

_BATCH = 50
_TRIES = 3
"""Maximum number of immediate requests to a chain whose newest run has not received one."""


class RunCanceller:
    """Canceller and terminator of runs for one replica."""

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        inspector: RunInspector,
        serving: Serving,
        settings: Settings,
        *,
        on_event: OnEvent,
    ) -> None:
        self._client, self._ledger, self._inspector = client, ledger, inspector
        self._serving, self._settings, self._emit = serving, settings, on_event

    async def stop_due(self) -> int:
        """Carry out the due stop orders; return how many were carried out."""
        orders = await self._ledger.take_stops(
            self._serving, limit=_BATCH, lease=self._settings.lease
        )
        answers = await asyncio.gather(*map(self._guarded, orders))
        if asked := [order for order in answers if order]:
            await self._ledger.stopped(asked)
            await self._ledger.wake()  # others may wait for a close that was seen
        return len(asked)

    async def _guarded(self, order: StopOrder) -> StopOrder | None:
        """Carry out an order; return None on failure, which is retried after the lease."""
        try:
            return await self._carry_out(order)
        except (RPCError, ValueError) as error:
            text = f"{order.workflow_id} could not be asked to {order.stop}: {error}"
            self._emit(Alert(Code.STOP_FAILED, text))
            return None

    async def _carry_out(self, order: StopOrder) -> StopOrder:
        """Ask the chain to end until its newest run has the request or has closed."""
        chain = None
        if order.asked or order.first_run_id is None:
            chain = await self._inspector.chain(order.workflow_id)
            if chain is None or not chain.is_open:
                return await self._seen(order)
            order = replace(order, first_run_id=order.first_run_id or chain.first_run_id)
        for again in range(_TRIES):
            if _has_heard(order, chain):
                return order
            await self._ask(order)
            if not again and not order.asked:
                self._emit(Stopped(order))
            chain = await self._inspector.chain(order.workflow_id)
            if chain is None or not chain.is_open or chain.first_run_id != order.first_run_id:
                return await self._seen(order)
        return order

    async def _ask(self, order: StopOrder) -> None:
        """Send one request. It names the chain, no run: the newest run may change meanwhile."""
        await self._inspector.budget.call()
        handle = self._client.get_workflow_handle(
            order.workflow_id, first_execution_run_id=order.first_run_id
        )
        timeout = self._settings.rpc_timeout
        try:
            if order.stop == "cancel":
                await handle.cancel(rpc_timeout=timeout)
            else:
                await handle.terminate(reason=order.stop_reason, rpc_timeout=timeout)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise

    async def _seen(self, order: StopOrder) -> StopOrder:
        """Record what became of a run that has closed, is unknown, or belongs to another chain."""
        await self._inspector.look([order.workflow_id])
        return order


def _has_heard(order: StopOrder, chain: Chain | None) -> bool:
    """Return whether the newest run has the cancel request and is in its grace."""
    return order.stop == "cancel" and chain is not None and chain.cancel_requested
