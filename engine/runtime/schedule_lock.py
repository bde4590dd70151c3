"""Row lock of a schedule, and the decisions that an operator's command makes under it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from engine.errors import ScheduleNotFound, ScheduleRenamed, ScheduleRetired
from engine.ledger import Action
from engine.schedules import STOPS, CatchUp, Overlap, Reason, utc_text
from engine.schedules.planner import (
    MOST_ROWS,
    Hold,
    Move,
    Pause,
    Plan,
    ScheduleState,
    current_cursor,
    plan,
    unresolved_workflow,
)

if TYPE_CHECKING:
    from engine.ledger import Ledger, Transaction

# --- fires that are given up ---
# A sweeper takes no schedule lock, so a plan that gives up a fire may be too late for it.


async def still_valid(transaction: Transaction, plans: Sequence[Plan]) -> list[Plan]:
    """Return the plans that are still valid, and keep them so until the transaction ends.

    A sweeper takes no schedule lock: a fire that a plan gives up as unsent may be in flight by
    now, and its replacement would run beside it.
    """
    given_up = {planned.state.key: _given_up(planned.moves) for planned in plans}
    if not (ids := set().union(*given_up.values())):
        return [*plans]
    unsent = await transaction.lock_unsent(ids)
    return [planned for planned in plans if given_up[planned.state.key] <= unsent]


async def stay_unsent(transaction: Transaction, moves: Sequence[Move]) -> bool:
    """Return whether the fires given up here stay unsent until the transaction ends."""
    ids = _given_up(moves)
    return not ids or ids <= await transaction.lock_unsent(ids)


def _given_up(moves: Sequence[Move]) -> set[int]:
    return {move.fire.fire_id for move in moves if move.to == "skip"}


# --- end of a definition ---
# Before a definition or its hold ends, everything it owes is decided (rule L3).

_log = logging.getLogger(__name__)
MOST_OWED: Final = 5000
"""Most windows that one plan may start: 0.2 s of the event loop, and 2 s of one transaction."""


def owes_many(state: ScheduleState, now: datetime) -> bool:
    """Return whether more windows are owed than should be decided at once."""
    schedule = state.schedule
    since = max(current_cursor(state), now - schedule.grace - schedule.spread)
    return state.hold is None and since < now and schedule.spec.count(since, now) > MOST_OWED


def decided_to_the_end(
    state: ScheduleState,
    now: datetime,
    *,
    on_resume: CatchUp | None = None,
    then: Hold | None = None,
) -> Plan:
    """Decide everything that a schedule owes before it changes (rule L3).

    Args:
        state: the schedule.
        now: the ledger's clock.
        on_resume: see ``plan``.
        then: the hold that begins now. It gives up every unsent fire anyway, so where very many
            windows are owed it decides all of them at once.
    """
    unable = _unable(state)
    # If the clock was set back to before this definition took effect, the window that it owes by
    # first sight lies ahead. The next definition begins after it and would not decide it either.
    until = max(now, state.effective_from)
    hold = then if then and owes_many(state, now) else None
    planned = plan(state, until, on_resume=on_resume, unable=unable, final=True, hold=hold)
    return replace(planned, next_fire_at=None)


def decided_in_part(state: ScheduleState, now: datetime) -> Plan:
    """Decide the first of very many windows that a schedule owes, before it changes."""
    return plan(state, now, unable=_unable(state), limit=MOST_ROWS, audited=False)


def _unable(state: ScheduleState) -> Reason | None:
    return unresolved_workflow(state.schedule) if state.workflow_type is None else None


async def record_decided(
    transaction: Transaction,
    states: Sequence[ScheduleState],
    decided: Callable[[ScheduleState], Plan],
) -> list[Plan]:
    """Record the plans that ``decided`` returns for these locked schedules.

    A fire that a plan gives up may be in flight by now. Its schedule is read and decided again.
    """
    plans = {state.key: decided(state) for state in states}
    while True:
        held = {planned.state.key for planned in await still_valid(transaction, [*plans.values()])}
        if not (sent := plans.keys() - held):
            break
        for state in await transaction.read(sorted(sent), all_open=True):
            plans[state.key] = decided(state)
    await transaction.record([*plans.values()], strict=True)
    return [*plans.values()]


async def decide_ahead(ledger: Ledger, key: str) -> None:
    """Decide in parts what a schedule owes, if it is too much for the transaction of an edit.

    Each part is decided as in a tick, and workers begin to start it. Where a decision needs a
    look at Temporal first, the edit decides the rest.
    """
    announced = False
    while True:
        async with ledger.transaction(long=True) as transaction:
            await transaction.lock([key])
            now = await transaction.now()
            found = await transaction.read([key])
            state = next((each for each in found if owes_many(each, now)), None)
            if state is None:
                return
            planned = decided_in_part(state, now)
            if planned.cursor <= state.cursor or not await stay_unsent(transaction, planned.moves):
                return
            await transaction.record([planned], strict=True)
        if not announced:
            _log.warning(
                "%s owes very many windows by its old definition; they are decided first", key
            )
            announced = True
        await asyncio.sleep(0)


# --- row lock ---
# One schedule under its row lock; every operator command begins with it.


@dataclass(slots=True)
class Locked:
    """A schedule that is locked against all other changes.

    Attributes:
        transaction: the transaction with the lock; its writes become visible all at once.
        state: the schedule, read under the lock.
        now: the ledger's clock, read after the lock was acquired.
        by: the actor.
    """

    transaction: Transaction
    state: ScheduleState
    now: datetime
    by: str

    async def decide(self, on_resume: CatchUp | None = None, then: Hold | None = None) -> Plan:
        """Decide every window up to now under the current definition and state.

        ``on_resume``: see ``plan``; ``then``: the hold that begins now.
        """
        await self.read_line(self.state.schedule.overlap)
        (planned,) = await record_decided(
            self.transaction,
            [self.state],
            lambda state: decided_to_the_end(state, self.now, on_resume=on_resume, then=then),
        )
        self.state = replace(planned.state, cursor=planned.cursor)
        return planned

    async def read_line(self, policy: Overlap) -> None:
        """Read the whole line, if a start by this policy replaces all of it."""
        if policy in STOPS and self.state.unread.waiting:
            (self.state,) = await self.transaction.read([self.state.key], all_open=True)

    async def pause(self, reason: str | None, until: datetime | None = None) -> Pause:
        """Pause the schedule from now on, and record the action; return the pause.

        Windows that opened before are decided first. Those that are claimed and not yet being sent
        are skipped. Open runs continue, and queued windows, requested runs and windows of a
        backfill stay. A pause replaces another one, and keeps the moment at which that one began.
        """
        before = self.state.pause
        if before is None:
            await self.decide(then="paused")
        after = Pause(before.at if before else self.now, reason, self.by, until)
        await self.transaction.pause(self.state.key, after)
        shown = None if before is None else {"paused": asdict(before)}
        await self.act("pause", reason=reason, before=shown, after={"paused": asdict(after)})
        return after

    async def act(
        self,
        verb: str,
        *,
        reason: str | None = None,
        workflow_id: str | None = None,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> None:
        """Record the action."""
        project, key = self.state.project, self.state.key
        action = Action(project, key, verb, reason, workflow_id, before, after)
        await self.transaction.act([action], by=self.by)


@asynccontextmanager
async def locked(
    ledger: Ledger, key: str, *, by: str, all_open: bool = False, retired: bool = False
) -> AsyncIterator[Locked]:
    """Lock one schedule while the block lasts; its writes commit together or not at all.

    Args:
        ledger: the ledger with the schedule.
        key: the schedule's key.
        by: the actor.
        all_open: whether to read every open fire, also where runs may overlap.
        retired: whether to accept a retired schedule.

    Raises:
        ScheduleNotFound: no schedule has this key.
        ScheduleRenamed: it has another key now.
        ScheduleRetired: the schedule is retired.
    """
    async with ledger.transaction(long=True) as transaction:
        await transaction.lock([key])
        found = await transaction.read([key], all_open=all_open)
        if not found:
            raise ScheduleNotFound(key)
        (state,) = found
        if not retired:
            require_present(state)
        if state.retired_at is not None and not retired:
            raise ScheduleRetired(
                f"{key} was retired at {utc_text(state.retired_at)}",
                hint="declare it again",
            )
        yield Locked(transaction, state, await transaction.now(), by)


def require_present(state: ScheduleState) -> None:
    """Refuse a key that the schedule no longer has.

    Raises:
        ScheduleRenamed: it has another one now.
    """
    if state.successor is not None:
        raise ScheduleRenamed(
            f"{state.key} was renamed to {state.successor}", hint=f"name {state.successor}"
        )
