"""Settles windows that no living replica can start."""

from __future__ import annotations

from datetime import timedelta

from engine.ledger import Ledger
from engine.ledger.records import Serving
from engine.runtime.events import Alert, Listener
from engine.runtime.poller import planned
from engine.runtime.settings import Settings

_BATCH = 100


class Watchdog:
    """Rejects windows older than ``grace`` whose workflow nobody on the task queue knows.

    A task queue without any living replica is an outage, not a mistake: its windows wait, and
    the catch-up policy speaks when a worker returns.
    """

    def __init__(
        self, ledger: Ledger, serving: Serving, settings: Settings, *, tell: Listener
    ) -> None:
        self._ledger, self._serving, self._settings = ledger, serving, settings
        self._tell = tell

    async def turn(self) -> timedelta:
        """Look once; returns the wait until the next look."""
        alive = self._settings.heartbeat * 3
        keys = await self._ledger.unservable(self._serving, alive=alive, limit=_BATCH)
        if keys:
            await self._reject(keys)
        return self._settings.heartbeat

    async def _reject(self, keys: list[str]) -> None:
        async with self._ledger.transaction() as transaction:
            await transaction.lock(keys)
            states = await transaction.read(keys)
            now = await transaction.now()
            steps = []
            for state in states:
                schedule = state.schedule
                reason = f"no worker on task queue {schedule.task_queue} knows {schedule.workflow}"
                steps.append(planned(state, now, unable=reason))
            await transaction.record(steps)
        for step in steps:
            if step.decisions:
                windows = sum(decision.windows for decision in step.decisions)
                text = f"{step.state.key}: {windows} windows rejected, {step.decisions[0].reason}"
                self._tell(Alert("SCHEDULE_WORKFLOW_UNKNOWN", text))
