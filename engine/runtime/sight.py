"""What a poller sees of Temporal besides its own starts: runs in the way, runs that were lost.

A plan that cannot be made without knowing more says so; the question is asked here, outside every
transaction, and the next turn plans again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from engine.ledger import Ledger
from engine.ledger.schedule_records import ScheduleState, Step
from engine.runtime.auditor import Auditor
from engine.runtime.looking import Looker
from engine.runtime.stopper import Stopper


class Sight:
    """The questions of one poller. A key whose question fails backs off, and the others go on."""

    def __init__(
        self, ledger: Ledger, *, looker: Looker, auditor: Auditor, stopper: Stopper
    ) -> None:
        self._ledger, self._looker = ledger, looker
        self._auditor, self._stopper = auditor, stopper

    def is_audited(self, state: ScheduleState) -> bool:
        """Whether every run of the key after its cursor is known (rule L4)."""
        return self._auditor.is_audited(state)

    def forget(self) -> None:
        """Trust no answer of before: the ledger may have lost its last commits."""
        self._auditor.forget()

    async def stop_due(self) -> None:
        """End the runs that somebody wants to end."""
        await self._stopper.stop_due()

    async def look(self, steps: Sequence[Step]) -> None:
        """Find out what these steps lack."""
        behind = (
            self._or_back_off(
                [step.state], self._looker.look([fire.workflow_id for fire in step.looks])
            )
            for step in steps
            if step.looks
        )
        if asked := [*behind]:
            await asyncio.gather(*asked)
            await self._ledger.wake()  # a close that was seen may be what others wait for
        if missed := [step.state for step in steps if step.audit]:
            await self._or_back_off(missed, self._auditor.audit(missed))

    async def _or_back_off(self, states: Sequence[ScheduleState], asking: Awaitable[None]) -> None:
        try:
            await asking
        except Exception as error:  # noqa: BLE001 - one bad schedule never stops the others
            async with self._ledger.transaction() as transaction:
                for state in states:
                    await transaction.back_off(state.key, f"{type(error).__name__}: {error}")
