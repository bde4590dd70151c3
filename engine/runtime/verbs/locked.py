"""One schedule under its row lock: where every verb begins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from engine.errors import ScheduleNotFound, ScheduleRetired
from engine.ledger import Ledger, Transaction
from engine.ledger.fire_records import Fire
from engine.ledger.operating_records import Action
from engine.ledger.schedule_records import ScheduleState, Step
from engine.runtime.ending import end
from engine.runtime.planning import decided_to_the_end
from engine.schedules.catch_up import CatchUp
from engine.schedules.decisions import STOPS, Hold, Overlap


@dataclass(slots=True)
class Locked:
    """A schedule that nobody else changes at present.

    Attributes:
        transaction: what is written in it is visible to others all at once.
        state: the schedule, fresh.
        now: the ledger's clock, read after the lock was had.
        by: who acts.
    """

    transaction: Transaction
    state: ScheduleState
    now: datetime
    by: str

    async def decide(self, make_up: CatchUp | None = None, then: Hold | None = None) -> Step:
        """Decide every window up to now as things stand.

        ``make_up``: see ``plan``; ``then``: what holds the schedule from now on.
        """
        await self.read_line(self.state.schedule.overlap)
        (step,) = await end(
            self.transaction,
            [self.state],
            lambda state: decided_to_the_end(state, self.now, make_up=make_up, then=then),
        )
        self.state = replace(step.state, cursor=step.cursor)
        return step

    async def read_line(self, policy: Overlap) -> None:
        """Read all that waits where a start is to take the place of all of it."""
        if policy in STOPS and self.state.unread.waiting:
            (self.state,) = await self.transaction.read([self.state.key], all_open=True)

    async def act(
        self,
        verb: str,
        *,
        reason: str | None = None,
        workflow_id: str | None = None,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> None:
        """Note what is done."""
        project, key = self.state.project, self.state.key
        action = Action(project, key, verb, reason, workflow_id, before, after)
        await self.transaction.act([action], by=self.by)


@asynccontextmanager
async def locked(
    ledger: Ledger, key: str, *, by: str, all_open: bool = False, retired: bool = False
) -> AsyncIterator[Locked]:
    """Lock one schedule for as long as the block lasts; all of it is written, or nothing.

    Args:
        ledger: the memory that has it.
        key: of the schedule.
        by: who acts.
        all_open: whether every open fire is wanted, also where runs may overlap.
        retired: whether a retired one will do.

    Raises:
        ScheduleNotFound: there is none of this key.
        ScheduleRetired: it does not exist any more.
    """
    async with ledger.transaction(long=True) as transaction:
        await transaction.lock([key])
        found = await transaction.read([key], all_open=all_open)
        if not found:
            raise ScheduleNotFound(key)
        (state,) = found
        if state.retired_at is not None and not retired:
            raise ScheduleRetired(
                f"{key} was retired at {state.retired_at:%Y-%m-%d %H:%M:%S}Z",
                cure="declare it again",
            )
        yield Locked(transaction, state, await transaction.now(), by)


async def has_window(transaction: Transaction, row: Fire, at: datetime) -> bool:
    """Whether a row stands for a window at ``at``.

    A range of an older definition may span moments at which it had no window.
    """
    if row.windows == 1:
        return row.fire_time == at
    definition = await transaction.definition(row.key, row.definition_version)
    return row.fire_time <= at <= row.last_fire_time and definition.spec.previous(at) == at
