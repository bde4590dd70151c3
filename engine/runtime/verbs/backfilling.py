"""Backfill: runs for windows of the past that never had one.

The request is one row of the ledger, a range that ticks lay (``engine.runtime.backfills``). Only a
window that surely has no run is started: one that was skipped, expired or rejected, or one from
before its schedule was declared. What was started, or may have been, is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from engine.errors import BackfillOverlaps, MomentInFuture, WindowNotFound, WorkflowUnknown
from engine.ledger import Ledger, Transaction
from engine.ledger.backfill_records import (
    FORGOTTEN,
    SURELY_NOT_RUN,
    UNDECIDED,
    Backfill,
    InLine,
)
from engine.ledger.operating_records import Action
from engine.ledger.schedule_records import ScheduleState
from engine.runtime import unknown
from engine.runtime.events import Alert
from engine.runtime.verbs.locked import Locked, locked
from engine.schedules.instants import EARLIEST, TICK, from_seconds
from engine.schedules.model import Schedule
from engine.schedules.timing import Spec

_FIRST = from_seconds(EARLIEST)
_COSTS = {
    "skip": "own windows that open while a backfilled run is open are skipped",
    "queue": "own windows that open while a backfilled run is open wait for its end",
    "queue_one": "of own windows that open while a backfilled run is open one waits for its end,"
    " the others are skipped",
    "cancel_previous": "own windows that open while a backfilled run is open cancel it",
    "terminate_previous": "own windows that open while a backfilled run is open terminate it",
}


@dataclass(frozen=True, slots=True)
class BackfillRequested:
    """A backfill that was asked for, and what it will come to as things are now.

    Attributes:
        backfill: the row that ticks lay.
        would_start: how many of its windows have surely no run.
        left_alone: how many will not be started, by why.
        cost: what its runs will cost the schedule's own windows; None where they cost nothing.
    """

    backfill: Backfill
    would_start: int
    left_alone: Mapping[str, int]
    cost: str | None = None


async def backfill(
    ledger: Ledger,
    key: str,
    begin: datetime,
    end: datetime,
    *,
    by: str,
    reason: str | None = None,
    overlap: InLine | None = None,
) -> BackfillRequested:
    """Ask for runs of the windows of ``begin <= t <= end`` that have none; workers lay them.

    Args:
        ledger: the memory that has the schedule.
        key: of the schedule.
        begin: the first moment.
        end: the last moment; not after now.
        by: who acts.
        reason: why.
        overlap: ``allow`` starts them as fast as it goes, ``queue`` one after another; without it
            whatever comes nearer to the schedule's own policy.

    Raises:
        MomentInFuture: ``end`` is still to come.
        WindowNotFound: no window opens between the two.
        WorkflowUnknown: no worker ever announced the workflow.
        BackfillOverlaps: some of the windows are being laid for an earlier request.
    """
    begin = max(begin, _FIRST)
    async with ledger.transaction(long=True) as transaction:
        # Not under the lock: nobody is to wait while three days of seconds are counted.
        counts = Counter[str]()
        counted = end <= await transaction.now()
        for state in await transaction.read([key]) if counted else ():
            counts = await _counted(transaction, state, begin, end)
    async with locked(ledger, key, by=by) as schedule:
        new = await _requested(schedule, begin, end, reason=reason, overlap=overlap)
        number = await schedule.transaction.request_backfill(new)
        after = {"id": number, "windows": new.windows, "until": new.last, "overlap": new.overlap}
        await schedule.act("backfill", reason=reason, after=after)
        policy = schedule.state.schedule.overlap
    starts = counts.pop("", 0)
    cost = _COSTS.get(policy)
    said = f"overlap: {policy}: {cost}" if cost and starts else None
    return BackfillRequested(replace(new, id=number), starts, counts, said)


async def _requested(
    schedule: Locked,
    begin: datetime,
    end: datetime,
    *,
    reason: str | None,
    overlap: InLine | None,
) -> Backfill:
    state, now = schedule.state, schedule.now
    if end > now:
        raise MomentInFuture(
            f"{end:%Y-%m-%d %H:%M:%S}Z is still to come", cure="end at one that has passed"
        )
    spec = state.schedule.spec
    first, last = spec.next(begin - TICK), spec.previous(end)
    if first is None or last is None or first > end:
        raise WindowNotFound(f"no window of {state.key} opens between the two")
    if state.workflow_type is None:
        raise WorkflowUnknown(unknown.reason(state.schedule), cure="start a worker that has it")
    for other in await schedule.transaction.backfills(state.key, laying=True):
        if other.first <= last and first <= other.last and other.ends(state) is None:
            raise BackfillOverlaps(
                f"a backfill of {state.key} from {other.first:%Y-%m-%d %H:%M:%S}Z to"
                f" {other.last:%Y-%m-%d %H:%M:%S}Z is being laid",
                cure=f"see `sched show {state.key}`; wait for it, or end it with"
                f" `sched cancel {state.key}`",
            )
    return Backfill(
        id=0,
        project=state.project,
        key=state.key,
        series=state.series,
        definition_version=state.definition_version,
        first=first,
        last=last,
        cursor=first - TICK,
        overlap=overlap or _like(state.schedule),
        include=SURELY_NOT_RUN,
        reason=reason,
        requested_by=schedule.by,
        requested_at=now,
        next_at=now,
        windows=spec.count(begin - TICK, end),
    )


def _like(schedule: Schedule) -> InLine:
    return "allow" if schedule.overlap == "allow" else "queue"


async def _counted(
    transaction: Transaction, state: ScheduleState, begin: datetime, end: datetime
) -> Counter[str]:
    """How many windows would start (under ""), and how many would not, by why.

    Counted in the database, and by the definitions of ranges: bounded, however many they are.
    """
    spec, key, counts = state.schedule.spec, state.key, Counter[str]()
    forgotten = await transaction.forgotten_until(key)
    edges = sorted({begin - TICK, end, *(
        edge for edge in (forgotten, state.cursor) if edge and begin <= edge < end
    )})  # fmt: skip
    ranges = await transaction.ranges_between(key, begin - TICK, end)
    versions = {row.definition_version for row in ranges}
    specs: dict[int, Spec] = {
        version: (await transaction.definition(key, version)).spec for version in versions
    }
    for after, until in pairwise(edges):
        without = spec.count(after, until)
        found = await transaction.count_windows(key, after, until)
        for row in ranges:
            low, high = max(after, row.fire_time - TICK), min(until, row.last_fire_time)
            if low < high:
                found[row.status] += specs[row.definition_version].count(low, high)
        for status, number in found.items():
            counts["" if status in SURELY_NOT_RUN else status] += number
        why = ""
        if after >= state.cursor:
            why = UNDECIDED
        elif forgotten is not None and until <= forgotten:
            why = FORGOTTEN
        counts[why] += max(without - found.total(), 0)
    return +counts


async def end_backfill(
    transaction: Transaction, each: Backfill, why: str, now: datetime, *, by: str
) -> Alert:
    """Let nothing more of a backfill be laid; returns what is to be told of it."""
    ended = replace(each, state="ended", ended_reason=why, ended_at=now)
    await transaction.move_backfill(ended)
    await note_end(transaction, ended, by=by)
    left = each.windows - each.done
    text = (
        f"the backfill of {each.key} from {each.first:%Y-%m-%d %H:%M:%S}Z to"
        f" {each.last:%Y-%m-%d %H:%M:%S}Z has ended: {why}; {left} of its {each.windows} windows"
        " were not laid"
    )
    return Alert("SCHEDULE_BACKFILL_ENDED", text)


async def note_end(transaction: Transaction, each: Backfill, *, by: str) -> None:
    """Note what a backfill came to, which goes no further."""
    after = {
        "id": each.id, "state": each.state, "laid": each.laid, "left_alone": dict(each.left_alone),
        "not_laid": max(each.windows - each.done, 0),
    }  # fmt: skip
    action = Action(each.project, each.key, "backfill", each.ended_reason, after=after)
    await transaction.act([action], by=by)
