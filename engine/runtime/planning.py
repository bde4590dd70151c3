"""Planning of one schedule under its row lock."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from engine.errors import ScheduleNotFound, ScheduleRetired
from engine.ledger import Ledger, Transaction
from engine.ledger.fires import Fire
from engine.ledger.records import Action, PolledQueue, ScheduleState, Served, Step
from engine.schedules import Schedule
from engine.schedules.ids import Window, is_suffixed, nearest_name, resolve_type
from engine.schedules.model import CatchUp
from engine.schedules.planner.decisions import Hold, Move, Plan, without
from engine.schedules.planner.planner import MOST_ROWS, TIME_RULES, cursor_by_new_rules, plan
from engine.schedules.policies import STOPS, Overlap

# --- unknown workflows ---
# What is said of a workflow that no worker can run, or that none lives to run.


def reason(schedule: Schedule) -> str:
    """Return what the ledger keeps beside each window of it."""
    return f"no worker on task queue {schedule.task_queue} knows {schedule.workflow}"


def explained(schedule: Schedule, announced: Collection[str]) -> str:
    """Return the reason and what may help, for whoever reads it now.

    Args:
        schedule: whose workflow nobody knows.
        announced: every type that a worker of its task queue ever announced.
    """
    if not announced:
        return f"{reason(schedule)}; no worker has ever served that task queue"
    if resolve_type(schedule.workflow, announced):
        return f"{reason(schedule)}; start a worker that has it, one did know it"
    near = nearest_name(schedule.workflow, announced)
    meant = f"did you mean {near}? New" if near else "new"
    code = f"{meant} code is found when `sched up` or the worker starts again"
    return f"{reason(schedule)}; {code}"


def unserved_at(project: str, lane: str, workflow: str, served: Served) -> str | None:
    """Return where no worker lives that would start what comes due; None when one does.

    Args:
        project: whose workers start it.
        lane: the task queue of its workers; "" is external, which any of the project starts.
        workflow: its type or, while no worker has announced one, its name.
        served: what living workers serve.
    """
    if not lane:
        return None if any(project == other for other, _ in served) else f"project {project}"
    place, types = f"project {project}, task queue {lane}", served.get((project, lane))
    if types is not None and workflow not in types:
        return f"{place}, workflow {workflow}"
    return place if types is None else None


def no_worker_lives(places: Mapping[str, int]) -> str:
    """Return what is told of places, and of how many schedules each; empty where there are none."""
    if not places:
        return ""
    named = "; ".join(
        f"{place} ({count} schedule{'' if count == 1 else 's'})"
        for place, count in sorted(places.items())
    )
    cure = "start a worker (`sched up` or `sched worker`)"
    return f"no worker lives that starts what comes due of {named}: {cure}"


def nobody_polls(row: PolledQueue) -> str:
    """Return what is told of a task queue that is left alone."""
    since = f" since {row.polled_at:%Y-%m-%d %H:%M:%S}Z" if row.polled_at else ""
    runs = "1 run waits" if row.waiting == 1 else f"{row.waiting} runs wait"
    what = f"nobody has polled the task queue {row.task_queue}{since}"
    return f"{what}, and {runs} there; start its worker"


def left_alone(rows: Iterable[PolledQueue], queues: Collection[str]) -> list[str]:
    """Return what is to be told of these task queues, where nobody polls them."""
    return [nobody_polls(row) for row in rows if row.is_left_alone and row.task_queue in queues]


# --- from a row to a step ---
# From a schedule's row to the step that the ledger records: the planner, applied.

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
    return reason(state.schedule) if state.workflow_type is None else None


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


# --- splitting of ranges ---
# Windows that are taken out of a row that stands for many.


async def split_range(transaction: Transaction, row: Fire, *moments: datetime) -> list[Window]:
    """Give each window that opened at one of these moments a row of its own; returns them.

    What is left of the row says what it said, of fewer windows. One statement, however many.

    Args:
        transaction: in which it happens.
        row: as it was read.
        moments: in order.

    Raises:
        ValueError: the row has no window at one of them.
    """
    definition = await transaction.definition(row.key, row.definition_version)
    first = Window(row.key, row.series, row.bucket, row.fire_time)
    pieces = without(definition.spec, first, row.last_fire_time, *moments)
    await transaction.split_range(row, pieces, suffixed=is_suffixed(row.workflow_id))
    return [Window(row.key, row.series, definition.spec.bucket(at), at) for at in moments]


# --- end of a definition ---
# The end of a definition, or of what holds it: first everything it owes is decided (rule L3).

_log = logging.getLogger(__name__)


async def end(
    transaction: Transaction,
    states: Sequence[ScheduleState],
    decided: Callable[[ScheduleState], Step],
) -> list[Step]:
    """Record what ``decided`` says of these locked schedules.

    What a step gives up may be on its way meanwhile. Such a schedule is read and decided again.
    """
    steps = {state.key: decided(state) for state in states}
    while True:
        held = {step.state.key for step in await holding(transaction, [*steps.values()])}
        if not (sent := steps.keys() - held):
            break
        for state in await transaction.read(sorted(sent), all_open=True):
            steps[state.key] = decided(state)
    await transaction.record([*steps.values()], strict=True)
    return [*steps.values()]


async def decide_ahead(ledger: Ledger, key: str) -> None:
    """Decide what a schedule owes in parts, where that is too much for the transaction of an edit.

    Each part is decided as a tick decides it, and workers begin to start it. Where nothing can be
    decided before somebody has looked, the edit decides it after all.
    """
    told = False
    while True:
        async with ledger.transaction(long=True) as transaction:
            await transaction.lock([key])
            now = await transaction.now()
            found = await transaction.read([key])
            state = next((each for each in found if owes_many(each, now)), None)
            if state is None:
                return
            step = decided_in_part(state, now)
            if step.cursor <= state.cursor or not await holds(transaction, step.moves):
                return
            await transaction.record([step], strict=True)
        if not told:
            _log.warning(
                "%s owes very many windows by its old definition; they are decided first", key
            )
            told = True
        await asyncio.sleep(0)


# --- row lock ---
# One schedule under its row lock: where every verb begins.


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
