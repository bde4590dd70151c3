"""From a schedule's row to the step that the ledger records: the planner, applied."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from engine.ledger import Transaction
from engine.ledger.schedule_records import ScheduleState, Step
from engine.runtime import unknown
from engine.schedules.catch_up import CatchUp
from engine.schedules.decisions import Hold, Move, Plan
from engine.schedules.planner import plan
from engine.schedules.spans import MOST_ROWS
from engine.schedules.time_rules import TIME_RULES, cursor_by_new_rules

_NO_LIMIT = sys.maxsize

LONGEST_WAIT = timedelta(seconds=30)
"""A plan that waits for an answer is made again by then at the latest."""

MOST_OWED: Final = 5000
"""So many windows one plan may start: 0.2 s of the event loop, and 2 s of one transaction."""


async def holding(transaction: Transaction, steps: Sequence[Step]) -> list[Step]:
    """Return the steps whose plans still hold, and see that they do until the transaction ends.

    A sweeper takes no lock of a schedule: what a plan gives up because nobody has begun to send it
    may be on its way meanwhile, and what was to take its place would run beside it.
    """
    given_up = {step.state.key: _given_up(step.moves) for step in steps}
    if not (ids := set().union(*given_up.values())):
        return [*steps]
    unsent = await transaction.lock_unsent(ids)
    return [step for step in steps if given_up[step.state.key] <= unsent]


async def holds(transaction: Transaction, moves: Sequence[Move]) -> bool:
    """Whether what these moves give up is unsent, until the transaction ends; see ``holding``."""
    ids = _given_up(moves)
    return not ids or ids <= await transaction.lock_unsent(ids)


def _given_up(moves: Sequence[Move]) -> set[int]:
    return {move.fire.fire_id for move in moves if move.to == "skip"}


def waits(step: Step) -> bool:
    """Whether a step puts windows into the line of their key."""
    return any(decision.verdict == "queued" for decision in step.decisions)


def concerns_others(step: Step) -> bool:
    """Whether windows of other schedules may be waiting for what a step decides, or it for them."""
    without_run = any(decision.verdict != "claimed" for decision in step.decisions)
    return without_run or any(move.to == "skip" for move in step.moves)


def owes_many(state: ScheduleState, now: datetime) -> bool:
    """Whether more windows are still to start than should be decided at once."""
    schedule = state.schedule
    since = max(_cursor(state), now - schedule.grace - schedule.spread)
    return state.hold is None and since < now and schedule.spec.count(since, now) > MOST_OWED


def decided_to_the_end(
    state: ScheduleState,
    now: datetime,
    *,
    make_up: CatchUp | None = None,
    then: Hold | None = None,
) -> Step:
    """Decide everything that a schedule owes as it stands, because it is about to change (L3).

    Args:
        state: the schedule.
        now: the ledger's clock.
        make_up: see ``plan``.
        then: what holds it from now on. That ends whatever nobody has begun to send, so where very
            many windows are to start it speaks of all of them at once.
    """
    unable = _unable(state)
    # By a clock that was set back to before this definition took effect, the window that it owes by
    # first sight is still to come; the next definition begins after it, and it would be nobody's.
    until = max(now, state.effective_from)
    hold = then if then and owes_many(state, now) else None
    step = planned(state, until, make_up=make_up, unable=unable, final=True, hold=hold)
    return replace(step, next_fire_at=None)


def decided_in_part(state: ScheduleState, now: datetime) -> Step:
    """Decide the first of very many windows that a schedule owes, before it changes."""
    return planned(state, now, unable=_unable(state), limit=MOST_ROWS, audited=False)


def _unable(state: ScheduleState) -> str | None:
    return unknown.reason(state.schedule) if state.workflow_type is None else None


def planned(
    state: ScheduleState,
    now: datetime,
    *,
    make_up: CatchUp | None = None,
    unable: str | None = None,
    final: bool = False,
    limit: int = 1000,
    audited: bool = True,
    doubted_at: datetime | None = None,
    rows: int = MOST_ROWS,
    hold: Hold | None = None,
) -> Step:
    """Return what the planner decides for one schedule, ready to be recorded."""
    cursor = _cursor(state)
    # What newer rules owe before the cursor is owed now or never: the cursor does not go back.
    whole = cursor < state.cursor
    decided = plan(
        state.schedule,
        series=state.series,
        effective_from=state.effective_from,
        cursor=cursor,
        now=now,
        hold=hold or state.hold,
        hold_until=state.pause.until if state.pause else None,
        make_up=make_up,
        unable=unable,
        final=final,
        limit=_NO_LIMIT if whole else limit,
        rows=_NO_LIMIT if whole else rows,
        known=state.known,
        open_fires=state.open_fires,
        unread=state.unread,
        suffixed=state.suffixed,
        audited=audited,
        doubted_at=doubted_at,
    )
    return _step(state, decided)


def _cursor(state: ScheduleState) -> datetime:
    """The schedule's cursor by the present rules of time."""
    if state.rules == TIME_RULES:
        return state.cursor
    # Of an edit, by a replica with older rules, too.
    cursor = cursor_by_new_rules(state.schedule, state.cursor, state.cursor_reading)
    return max(cursor, min(state.cursor, state.effective_from))


def _step(state: ScheduleState, decided: Plan) -> Step:
    return Step(
        state,
        decided.decisions,
        max(state.cursor, decided.cursor),
        decided.next,
        moves=decided.moves,
        looks=decided.looks,
        resumed=decided.resumed,
        audit=decided.audit,
        withheld=decided.withheld,
    )
