"""Looks at single runs: what Temporal knows of them right now, whatever visibility says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
)
from temporalio.service import RPCError, RPCStatusCode

from engine.flow.fire import FireInfo
from engine.ledger import Ledger
from engine.ledger.fire_records import Evidence
from engine.runtime.clock import LedgerClock
from engine.runtime.events import Alert, Closed, Listener
from engine.runtime.post_mortem import with_reason
from engine.runtime.settings import Settings
from engine.runtime.starter import evidence_of, read_fire_info

_LOST = "it was started, and Temporal does not know it any more"
_LOST_CURE = "find out whether it did its work; `sched rerun` starts it again"

Seen = tuple[Evidence, FireInfo]
"""A run of ours, and the window that its memo names."""


class Looker:
    """Describes runs of one ledger.

    Args:
        ledger_id: whose runs they are; any other run is foreign, and nothing is said of it.
        notice: is shown each open run that was described.
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
        tell: Listener,
    ) -> None:
        self._client, self._ledger, self._clock = client, ledger, clock
        self._settings, self._ledger_id, self._tell = settings, ledger_id, tell
        self._notice = notice

    async def look(self, workflow_ids: Sequence[str]) -> None:
        """Look at these runs, and write down which are closed and which were open just now.

        A run that Temporal does not know is noted as lost and told: it is never started again by
        itself.

        Raises:
            RPCError: one could not be looked at; what was seen of the others is written.
        """
        asked = self._clock.now()  # before the look: a run may close while the answer travels
        looks = await asyncio.gather(*map(self.describe, workflow_ids), return_exceptions=True)
        seen = [look for look in looks if isinstance(look, Evidence)]
        if gone := [name for name, look in zip(workflow_ids, looks, strict=True) if look is None]:
            await self._lose(gone)
        closed = [each for each in seen if each.closed]
        if still := [each.workflow_id for each in seen if not each.closed]:
            await self._ledger.seen_open(still, asked)
        changed = await self._ledger.witness(closed) if closed else ()
        for each in closed:
            if each.workflow_id in changed:
                self._tell(Closed(each))
        for look in looks:
            if isinstance(look, BaseException):
                raise look

    async def _lose(self, workflow_ids: Sequence[str]) -> None:
        for workflow_id in await self._ledger.lose(workflow_ids, _LOST):
            self._tell(Alert("SCHEDULE_RUN_LOST", f"{workflow_id}: {_LOST}; {_LOST_CURE}"))

    async def describe(self, workflow_id: str) -> Evidence | None:
        """Return what became of the newest run of this id; None: there is none, or not ours.

        Raises:
            RPCError: the server could not say.
        """
        found = await self.find(workflow_id)
        return found[0] if found else None

    async def fire_of(self, run: WorkflowExecution) -> FireInfo | None:
        """Return which window a run's memo names; None: the run is not of this ledger."""
        info = await read_fire_info(run)
        return info if info is not None and info.ledger == self._ledger_id else None

    async def find(self, workflow_id: str) -> Seen | None:
        """Return what ``describe`` does, and which window the run's memo names."""
        handle = self._client.get_workflow_handle(workflow_id)
        try:
            run = await handle.describe(rpc_timeout=self._settings.rpc_timeout)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return None
            raise
        info = await self.fire_of(run)
        if info is None:
            return None
        if run.status == WorkflowExecutionStatus.RUNNING and self._notice:
            await self._notice(run)
        this_run = self._client.get_workflow_handle(workflow_id, run_id=run.run_id)
        evidence = replace(evidence_of(run), last=True)
        return await with_reason(evidence, this_run, self._settings), info
