"""Ends of runs, read from their histories: why they ended badly, and how often they were tried.

This is a loop of its own beside the tracker's, so that histories never delay the closes of other
runs. It runs on the replica that has the tracker's duty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from temporalio.client import Client
from temporalio.service import RPCError

from engine.ledger import Evidence, Ledger, RunCounts, UnreadEnd
from engine.runtime.dispatch.backpressure import Breaker, Budget
from engine.runtime.events import Closed, OnEvent, logger
from engine.runtime.runs.ends import read_counts, with_failure, without_failure
from engine.runtime.runs.memo import UnreadableHere
from engine.runtime.settings import Settings
from engine.runtime.temporal_client import classify_rpc_error

_AT_ONCE: Final = 20
"""Runs of one turn: each costs a call, and more if it was retried or is long."""
_REMEMBERED: Final = 20_000


class EndReader:
    """Reader of ends that the tracker has recorded.

    A bad end is recorded as soon as it is listed, and its reason is read here: of each key the
    newest, one key after the other. What follows a bad end, and its event, wait for the reason. The
    counts of runs are read last. Most runs are not read: their chain has one run, and the workers
    report the retries of their steps.

    Args:
        breaker: knows whether this replica can reach Temporal.
        is_mine: returns whether this replica has the tracker's duty, and keeps it.
        pass_on: returns whether a run that cannot be read here is left to a replica with the codec.

    Attributes:
        rouse: called when there is something to read.
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
        pass_on: Callable[[str, UnreadableHere], bool],
        on_event: OnEvent,
    ) -> None:
        self._client, self._ledger, self._settings = client, ledger, settings
        self._budget, self._breaker, self._emit = budget, breaker, on_event
        self._is_mine, self._pass_on = is_mine, pass_on
        self.rouse: Callable[[], None] = lambda: None
        self._recorded: dict[str, Evidence] = {}
        self._after = ""

    def on_unread(self, ends: Sequence[Evidence]) -> None:
        """Take in what is known of bad ends that were recorded just now."""
        self._recorded.update((each.run_id, each) for each in ends)
        while len(self._recorded) > _REMEMBERED:
            del self._recorded[next(iter(self._recorded))]
        self.rouse()

    async def run_once(self) -> timedelta:
        """Read some ends; return the wait until the next turn."""
        if not self._is_mine() or self._breaker.holds:
            return self._settings.track
        unread = await self._ledger.unread_ends(_AT_ONCE, after=self._after)
        self._after = unread[-1].key if len(unread) == _AT_ONCE else ""
        if unread:
            goes_on = any(await asyncio.gather(*map(self._read, unread)))
        else:
            goes_on = await self._count()
        return timedelta(0) if goes_on else self._settings.track

    async def _read(self, end: UnreadEnd) -> bool:
        """Read why a run ended badly; return whether that is noted."""
        evidence = self._recorded.get(end.run_id, end.evidence)
        try:
            async with self._budget.failure():
                evidence = await with_failure(evidence, self._client, self._settings)
        except UnreadableHere as why:
            if self._pass_on(end.workflow_id, why):
                return False
            evidence = without_failure(evidence, why)
        except RPCError as error:
            if classify_rpc_error(error) is not None:
                logger.debug("why %s ended badly is read later: %s", end.workflow_id, error)
                return False
            evidence = without_failure(evidence, error)
        if await self._ledger.note_failures([evidence]):
            self._emit(Closed(evidence))
        self._recorded.pop(end.run_id, None)
        return True

    async def _count(self) -> bool:
        """Read the counts of the newest closed runs; return whether there may be more."""
        runs = await self._ledger.uncounted(_AT_ONCE)
        for run in runs:
            try:
                counts = await read_counts(
                    self._client,
                    run.workflow_id,
                    run.run_id,
                    self._settings,
                    turn=self._budget.count,
                )
            except RPCError as error:
                if classify_rpc_error(error) is not None:
                    return False  # the server is asked again in the next turn
                logger.warning("%s could not be counted: %s", run.workflow_id, error)
                counts = RunCounts(workflow_id=run.workflow_id, run_id=run.run_id)
            await self._ledger.note_counts([counts])
        return len(runs) == _AT_ONCE
