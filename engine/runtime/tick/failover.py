"""Detection of a ledger failover or restore: another ledger, or lost commits (rule L4).

A failover to a lagging standby and a restore silently undo commits that replicas have seen. The
signs: a promoted standby starts a new timeline, a restored dump has another system identifier, and
a server that lost transactions has numbered fewer of them than a replica has seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

from engine.errors import Code, LedgerError
from engine.ledger import Ledger, Lineage, Probe
from engine.runtime.events import Alert, OnEvent

_THEN = "what has run since is looked up in Temporal before anything is decided"
_APPLY = "the last changes and requests may be lost too: apply them again"


class FailoverDetector:
    """The ledger's history as one replica has seen it, for comparison with each probe.

    Attributes:
        suspect_until: windows up to then may have runs that the ledger does not know; None when no
            sign of lost commits was ever seen.
        unvouched_until: windows up to then may have runs that Temporal has forgotten too.
    """

    def __init__(
        self, ledger: Ledger, *, margin: timedelta | None = None, on_event: OnEvent
    ) -> None:
        self._ledger, self._margin, self._emit = ledger, margin, on_event
        self.unvouched_until: datetime | None = None
        self._ledger_id: UUID | None = None
        self._lineage = Lineage()
        self._server: datetime | None = None
        self._transactions = self._epoch = 0
        self.suspect_until: datetime | None = None

    async def observe(self, probe: Probe) -> bool:
        """Process a probe; return whether there is a doubt that is new to this replica.

        It queries the ledger further only if another server process answers or a sign is seen.

        Raises:
            LedgerError: another ledger answers at the same address: it has other windows.
        """
        self._recognise(probe.ledger_id)
        suspect_until = probe.suspect_until
        if probe.server is not None:
            signs = [*self._fallen(probe)]
            if signs or probe.server != self._server:
                suspect_until = await self._compare(signs)
                self.unvouched_until = await self._ledger.unvouched_until(self._margin)
            self._server = probe.server
            self._transactions, self._epoch = probe.transactions, probe.epoch
        news, self.suspect_until = suspect_until != self.suspect_until, suspect_until
        return news

    def _recognise(self, ledger_id: UUID) -> None:
        if self._ledger_id is None:
            self._ledger_id = ledger_id
        elif ledger_id != self._ledger_id:
            raise LedgerError(
                f"the database has ledger {ledger_id}, not {self._ledger_id}",
                hint="restart the replica if the change was meant",
            )

    def _fallen(self, probe: Probe) -> Iterator[str]:
        # Other loops may have written to another server before this look: as it was found counts.
        met = probe.met if probe.server != self._server else None
        transactions = probe.transactions if met is None else met
        if transactions < self._transactions:
            gone = self._transactions - transactions
            yield f"the last {gone} transactions that this replica has seen are missing"
        if probe.epoch < self._epoch:
            yield f"the ledger is at epoch {probe.epoch}, it was at {self._epoch}"

    async def _compare(self, signs: list[str]) -> datetime | None:
        """Compare the lineage with the last ones that the ledger and this replica recorded."""
        here, noted = await self._ledger.lineage()
        for before in (noted, self._lineage):
            signs += [sign for sign in before.differences(here) if sign not in signs]
        suspect_until = await self._ledger.note_lineage(here, suspect=bool(signs))
        self._lineage = Lineage(
            here.system or self._lineage.system, here.timeline or self._lineage.timeline
        )
        if signs:
            text = (
                f"the ledger may have lost its last commits ({'; '.join(signs)}); {_THEN}. {_APPLY}"
            )
            self._emit(Alert(Code.COMMITS_LOST, text))
        return suspect_until
