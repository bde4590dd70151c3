"""Counts of closed runs that no worker has reported: they are read from Temporal's histories.

A loop separate from the tracker's, so that histories never delay the closes of other runs. Most
runs are not read: their chain has one run, and the workers report the retries of their steps.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from temporalio.client import Client
from temporalio.service import RPCError

from engine.ledger import Ledger, RunCounts
from engine.runtime.dispatch.backpressure import Breaker, Budget
from engine.runtime.events import logger
from engine.runtime.run_ends import read_counts
from engine.runtime.settings import Settings
from engine.runtime.temporal_client import classify_rpc_error

_AT_ONCE: Final = 20
"""Runs of one turn, the newest ones: each costs a call, and more if it was retried or is long."""


class RunCounter:
    """Reader of counts for the replica on tracker duty.

    Args:
        breaker: knows whether this replica can reach Temporal.
        is_mine: returns whether this replica has the duty.
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        settings: Settings,
        *,
        budget: Budget,
        breaker: Breaker,
        is_mine: Callable[[], bool],
    ) -> None:
        self._client, self._ledger, self._settings = client, ledger, settings
        self._budget, self._breaker, self._is_mine = budget, breaker, is_mine

    async def run_once(self) -> timedelta:
        """Read the counts of some runs; return the wait until the next turn."""
        if not self._is_mine() or self._breaker.holds:
            return self._settings.track
        runs = await self._ledger.uncounted(_AT_ONCE)
        for run in runs:
            try:
                counts = await read_counts(
                    self._client, run.workflow_id, run.run_id, self._settings,
                    turn=self._budget.count,
                )  # fmt: skip
            except RPCError as error:
                if classify_rpc_error(error) is not None:
                    return self._settings.track  # the server is asked again in the next turn
                logger.warning("%s could not be counted: %s", run.workflow_id, error)
                counts = RunCounts(workflow_id=run.workflow_id, run_id=run.run_id)
            await self._ledger.note_counts([counts])
        return timedelta(0) if len(runs) == _AT_ONCE else self._settings.track
