"""Carries out wishes to end a run: cancels it, and terminates it when its grace has passed.

A wish is a column of the fire, so it outlives whoever had it. Nothing here says that a run has
ended: the tracker sees that.
"""

from __future__ import annotations

import asyncio

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from engine.ledger import Ledger
from engine.ledger.fire_records import StopOrder
from engine.ledger.replica_records import Serving
from engine.runtime.events import Alert, Listener, Stopped
from engine.runtime.looking import Looker
from engine.runtime.settings import Settings

_BATCH = 50


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
        answers = await asyncio.gather(*map(self._ask, orders))
        asked = [order for order, answer in zip(orders, answers, strict=True) if answer]
        if asked:
            await self._ledger.stopped(asked)
        return len(asked)

    async def _ask(self, order: StopOrder) -> bool:
        """Ask one run to end; False when that has to be tried again after the lease."""
        handle = self._client.get_workflow_handle(order.workflow_id, run_id=order.run_id)
        timeout = self._settings.rpc_timeout
        try:
            if order.stop == "cancel":
                await handle.cancel(rpc_timeout=timeout)
            else:
                await handle.terminate(reason=order.stop_reason, rpc_timeout=timeout)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:  # it has closed already
                await self._looker.look([order.workflow_id])
                return True
            text = f"{order.workflow_id} could not be asked to {order.stop}: {error.message}"
            self._tell(Alert("SCHEDULE_STOP_FAILED", text))
            return False
        self._tell(Stopped(order))
        return True
