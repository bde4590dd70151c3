"""Backfill: gives windows of the past the runs that they never had.

Only a window that surely has no run is started: one that was skipped, expired or rejected, or one
from before its schedule was declared. What was started, or may have been, is listed instead. Doing
it again does nothing, so a backfill that was interrupted is begun anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Literal

from engine.errors import MomentInFuture, WindowNotFound, WorkflowUnknown
from engine.ledger import Ledger
from engine.ledger.fire_records import Fire
from engine.ledger.schedule_records import ScheduleState
from engine.runtime import unknown
from engine.runtime.carving import take_out
from engine.runtime.verbs.locked import Locked, has_window, locked
from engine.schedules.instants import EARLIEST, TICK, from_seconds
from engine.schedules.windows import is_suffixed

_FIRST = from_seconds(EARLIEST)
_AT_ONCE = 200
"""Windows of one transaction: the schedule fires on between two of them."""

Overlap = Literal["allow", "queue"]
_NO_RUN = {"skipped", "expired", "rejected"}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a backfill has come.

    Attributes:
        until: every window up to here is done.
        windows: how many there are from the first to the last.
        done: how many of them were looked at.
        started: run ids that were claimed or queued by now.
        left_alone: windows that have, had or may have had a run, and why.
    """

    until: datetime
    windows: int
    done: int
    started: tuple[str, ...] = ()
    left_alone: tuple[tuple[str, str], ...] = ()


async def backfill(
    ledger: Ledger,
    key: str,
    begin: datetime,
    end: datetime,
    *,
    by: str,
    reason: str | None = None,
    overlap: Overlap | None = None,
) -> AsyncIterator[Progress]:
    """Start the windows of ``begin <= t <= end`` that have no run, and tell how far it is.

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
    """
    cursor, done, total = max(begin, _FIRST) - TICK, 0, 0
    while True:
        async with locked(ledger, key, by=by) as schedule:
            spec = schedule.state.schedule.spec
            _require_past(end, schedule.now)
            total = total or spec.count(cursor, end)
            if not total:
                raise WindowNotFound(f"no window of {key} opens between the two")
            fires = [*islice(spec.fires(cursor, end), _AT_ONCE)]
            if not fires:
                return
            batch = _Batch(schedule, overlap or _like(schedule), reason)
            await batch.fill(fires)
        cursor, done = fires[-1], done + len(fires)
        yield Progress(cursor, total, done, tuple(batch.started), tuple(batch.left_alone))


def _require_past(end: datetime, now: datetime) -> None:
    if end > now:
        raise MomentInFuture(
            f"{end:%Y-%m-%d %H:%M:%S}Z is still to come", cure="end at one that has passed"
        )


def _like(schedule: Locked) -> Overlap:
    return "allow" if schedule.state.schedule.overlap == "allow" else "queue"


class _Batch:
    """Some windows of one schedule, under its lock."""

    def __init__(self, schedule: Locked, overlap: Overlap, reason: str | None) -> None:
        self._schedule, self._overlap, self._reason = schedule, overlap, reason
        self._forgotten: datetime | None = None
        self.started: list[str] = []
        self.left_alone: list[tuple[str, str]] = []

    async def fill(self, fire_times: Sequence[datetime]) -> None:
        state, transaction = self._schedule.state, self._schedule.transaction
        if state.workflow_type is None:
            raise WorkflowUnknown(unknown.reason(state.schedule), cure="start a worker that has it")
        rows = await transaction.between(state.key, fire_times[0], fire_times[-1])
        self._forgotten = await transaction.forgotten_until(state.key)
        for at in fire_times:
            row = await self._row_of(at, rows)
            if row is None:
                await self._begin(at)
            elif row.status not in _NO_RUN:
                self.left_alone.append((_id_of(state, row, at), row.status))
            else:
                rows = await self._again(at, row, rows)
        if self.started:
            after = {"windows": len(self.started), "until": fire_times[-1]}
            await self._schedule.act("backfill", reason=self._reason, after=after)

    async def _row_of(self, at: datetime, rows: Sequence[Fire]) -> Fire | None:
        for row in rows:
            if row.fire_time <= at <= row.last_fire_time and await has_window(
                self._schedule.transaction, row, at
            ):
                return row
        return None

    async def _begin(self, at: datetime) -> None:
        """A window without any row: before the definition, or still undecided."""
        state = self._schedule.state
        window = state.window(at)
        # Numbers of a later series may have been those of an earlier one.
        workflow_id = window.workflow_id(state.suffixed or state.series > 1)
        if at > state.cursor:
            self.left_alone.append((window.workflow_id(state.suffixed), "undecided"))
        elif self._forgotten is not None and at <= self._forgotten:
            self.left_alone.append((workflow_id, "forgotten, see the archive"))
        elif await self._schedule.transaction.backfill(state, window, workflow_id, self._overlap):
            self.started.append(workflow_id)
        else:
            self.left_alone.append((workflow_id, "its id belongs to another window"))

    async def _again(self, at: datetime, row: Fire, rows: list[Fire]) -> list[Fire]:
        """A window that was decided against."""
        state, transaction = self._schedule.state, self._schedule.transaction
        workflow_id = row.workflow_id
        if row.windows > 1:
            workflow_id = await take_out(transaction, row, at)
            rows = await transaction.between(row.key, row.fire_time, rows[-1].last_fire_time)
        if await transaction.refill(state, workflow_id, at, self._overlap):
            self.started.append(workflow_id)
        return rows


def _id_of(state: ScheduleState, row: Fire, at: datetime) -> str:
    """The id of one window's run, where its row may stand for many."""
    if row.windows == 1 or row.series != state.series:
        return row.workflow_id
    return state.window(at).workflow_id(is_suffixed(row.workflow_id))
