"""The wishes to end runs: a run is cancelled, and terminated when its grace has passed.

A wish is a column of the fire, so it outlives whoever had it. Nothing here says that a run has
ended: that has to be seen. No answer of the server ends a wish either. With the id of a run that
has continued as new, *terminate* is answered "not found", and *cancel* is accepted and forgotten.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from engine.errors import Code
from engine.ledger import Ledger
from engine.ledger.fire_records import StopOrder
from engine.ledger.replica_records import Serving
from engine.runtime.events import Alert, Listener, Stopped
from engine.runtime.looking import Chain, Looker
from engine.runtime.settings import Settings

_BATCH = 50
_TRIES = 3
"""How often a run that goes on without having heard of it is asked again at once."""


class Stopper:
    """Ends runs for one replica."""

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        looker: Looker,
        serving: Serving,
        settings: Settings,
        *,
        tell: Listener,
    ) -> None:
        self._client, self._ledger, self._looker = client, ledger, looker
        self._serving, self._settings, self._tell = serving, settings, tell

    async def stop_due(self) -> int:
        """Ask the runs whose time has come to end; return how many were asked."""
        orders = await self._ledger.take_stops(
            self._serving, limit=_BATCH, lease=self._settings.lease
        )
        answers = await asyncio.gather(*map(self._guarded, orders))
        if asked := [order for order in answers if order]:
            await self._ledger.stopped(asked)
            await self._ledger.wake()  # one that was seen closed may be what others wait for
        return len(asked)

    async def _guarded(self, order: StopOrder) -> StopOrder | None:
        """Carry out a wish; None when that has to be tried again after the lease."""
        try:
            return await self._carry_out(order)
        except (RPCError, ValueError) as error:
            text = f"{order.workflow_id} could not be asked to {order.stop}: {error}"
            self._tell(Alert(Code.STOP_FAILED, text))
            return None

    async def _carry_out(self, order: StopOrder) -> StopOrder:
        """Ask the chain to end, until its newest run has heard of it or has closed."""
        chain = None
        if order.asked or order.first_run_id is None:
            chain = await self._looker.chain(order.workflow_id)
            if chain is None or not chain.is_open:
                return await self._seen(order)
            order = replace(order, first_run_id=order.first_run_id or chain.first_run_id)
        for again in range(_TRIES):
            if _has_heard(order, chain):
                return order
            await self._ask(order)
            if not again and not order.asked:
                self._tell(Stopped(order))
            chain = await self._looker.chain(order.workflow_id)
            if chain is None or not chain.is_open or chain.first_run_id != order.first_run_id:
                return await self._seen(order)
        return order

    async def _ask(self, order: StopOrder) -> None:
        """Ask once. Names the chain and no run: which of them is the last changes meanwhile."""
        await self._looker.budget.call()
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
        """Let what became of the run be written: it has closed, or is nobody's any more."""
        await self._looker.look([order.workflow_id])
        return order


def _has_heard(order: StopOrder, chain: Chain | None) -> bool:
    """Whether the newest run knows that it is to end, and may take its time."""
    return order.stop == "cancel" and chain is not None and chain.cancel_requested
