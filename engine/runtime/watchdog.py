"""Settles windows that no living replica can start."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from engine.errors import Code
from engine.ledger import Ledger, Transaction
from engine.ledger.floors import again_after
from engine.ledger.replica_records import Serving
from engine.ledger.schedule_records import Step
from engine.runtime import unknown
from engine.runtime.clock import boottime
from engine.runtime.events import Alert, Listener, tell_decided, without_run
from engine.runtime.planning import concerns_others, planned
from engine.runtime.presence import Presence
from engine.runtime.settings import Settings

_BATCH = 100
_ROWS = 50
"""Rows of one schedule at most, for a transaction of seconds; the next look goes on."""


class Watchdog:
    """Rejects windows older than ``grace`` whose workflow nobody on the task queue knows.

    A task queue without any living replica is an outage, not a mistake: its windows wait, and
    the catch-up policy speaks when a worker returns.

    Args:
        distrusts: whether the ledger's clock is wrong. By one that was set forward every other
            replica has been silent for too long, and every window is old.
    """

    def __init__(
        self,
        ledger: Ledger,
        presence: Presence,
        serving: Serving,
        settings: Settings,
        *,
        distrusts: Callable[[], bool] = lambda: False,
        tell: Listener,
    ) -> None:
        self._ledger, self._presence, self._serving = ledger, presence, serving
        self._settings, self._tell, self._distrusts = settings, tell, distrusts

    async def turn(self) -> timedelta:
        """Look once; returns the wait until the next look."""
        if self._distrusts():
            return self._settings.heartbeat
        async with self._ledger.transaction() as transaction:
            begun = boottime()
            keys = await self._unservable(transaction)
            took = boottime() - begun
            if keys:
                await transaction.lock(keys)
                # Somebody who can may have announced himself while we waited for the lock.
                keys = await self._unservable(transaction)
            steps = await self._rejected(transaction, keys) if keys else []
            queue = self._serving.task_queue
            announced = await transaction.announced([queue]) if steps else {}
        for step in steps:
            windows = sum(each.windows for each in step.decisions if each.verdict == "rejected")
            if windows:
                noun = "window" if windows == 1 else "windows"
                why = unknown.explained(step.state.schedule, announced.get(queue, ()))
                text = f"{step.state.key}: {windows} {noun} rejected, {why}"
                self._tell(Alert(Code.WORKFLOW_UNKNOWN, text))
        tell_decided(without_run(steps), self._tell)
        if any(map(concerns_others, steps)):
            await self._ledger.wake()
        wait = again_after(took, least=self._settings.heartbeat.total_seconds())
        return timedelta(seconds=wait)

    async def _unservable(self, transaction: Transaction) -> list[str]:
        return await transaction.unservable(
            self._serving,
            alive=self._settings.alive,
            steady=self._presence.steady,
            limit=_BATCH,
        )

    async def _rejected(self, transaction: Transaction, keys: list[str]) -> list[Step]:
        states = await transaction.read(keys)
        now = await transaction.now()
        steps = [
            planned(state, now, rows=_ROWS, unable=unknown.reason(state.schedule))
            for state in states
        ]
        await transaction.record(steps)
        return steps
