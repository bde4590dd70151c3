"""Backfill of past windows that never had a run.

A request is one row of the ledger, a range. ``engine.runtime.tick.backfills`` lays it tick by tick
and decides which of its windows start.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from engine.errors import (
    BackfillOverlaps,
    MomentInFuture,
    ScheduleError,
    WindowNotFound,
    did_you_mean,
)
from engine.ledger import BY_DEFAULT, INCLUDED, Backfill, BackfillOverlap, Fire, Included
from engine.runtime.past_windows import Considered, consider, count
from engine.runtime.schedule_lock import Locked
from engine.runtime.workflow_workers import require_type
from engine.schedules import EARLIEST, TICK, from_seconds, utc_text
from engine.service.base import ReadOperations, require_in_order

_FIRST = from_seconds(EARLIEST)
_AT_ONCE = 1000
"""Windows read in one transaction."""
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
    """A requested or previewed backfill and its expected effect.

    Attributes:
        backfill: the row that ticks lay; its ``id`` is 0 for a preview.
        starts: number of windows that certainly have no run and will start, by cause.
        left_alone: number of windows that will not start, by cause.
        cost: effect of its runs on the schedule's own windows; None if there is none.
    """

    backfill: Backfill
    starts: Mapping[str, int]
    left_alone: Mapping[str, int]
    cost: str | None = None

    @property
    def would_start(self) -> int:
        """Number of windows that will start."""
        return sum(self.starts.values())


class PastWindows(ReadOperations):
    """Operations on ranges of past windows."""

    async def preview_backfill(
        self,
        key: str,
        begin: datetime,
        end: datetime,
        *,
        overlap: BackfillOverlap | None = None,
        include: Collection[Included] = (),
    ) -> BackfillRequested:
        """Preview a backfill without requesting it; the errors are those of ``backfill``."""
        async with self._locked(key) as schedule:
            new = await _requested(schedule, begin, end, overlap=overlap, include=include)
        async with self._ledger.transaction(long=True) as transaction:
            # Not under the lock: counting three days of seconds would block everyone else.
            (state,) = await transaction.read([key])
            counts = await count(transaction, state, new.cursor, new.last)
        included = frozenset[str](new.include)
        starts = {why: number for why, number in counts.items() if why in included}
        alone = {why: number for why, number in counts.items() if why not in included}
        policy = state.schedule.overlap
        costs = starts and policy in _COSTS
        return BackfillRequested(
            new, starts, alone, f"overlap: {policy}: {_COSTS[policy]}" if costs else None
        )

    async def backfill(
        self,
        key: str,
        begin: datetime,
        end: datetime,
        *,
        reason: str | None = None,
        overlap: BackfillOverlap | None = None,
        include: Collection[Included] = (),
    ) -> BackfillRequested:
        """Request runs for the windows in ``begin <= t <= end`` that have none; workers lay them.

        Args:
            key: the schedule's key.
            begin: the first moment, inclusive.
            end: the last moment, inclusive; not after now.
            reason: the reason, for the audit log.
            overlap: ``allow`` starts the windows as fast as possible, ``queue`` one after
                another. The default is ``allow`` if that is the schedule's own policy.
            include: causes for which windows start as well: skipped by a user (``user``), excluded
                by the schedule (``excluded``), prevented by the outcome of another schedule
                (``dependency``), data covered by a later run (``coalesced``,
                ``overload``).

        Raises:
            ScheduleError: ``include`` has an unknown cause, or ``begin`` is after ``end``.
            MomentInFuture: ``end`` has not passed yet.
            WindowNotFound: no window opens between the two.
            WorkflowUnknown: no worker has ever announced the workflow.
            BackfillOverlaps: an earlier request is still laying some of the windows.
        """
        seen = await self.preview_backfill(key, begin, end, overlap=overlap, include=include)
        async with self._locked(key) as schedule:
            new = await _requested(schedule, begin, end, overlap=overlap, include=include)
            new = replace(new, reason=reason)
            number = await schedule.transaction.request_backfill(new)
            after = {
                "id": number,
                "windows": new.windows,
                "until": new.last,
                "overlap": new.overlap,
            }
            included = {"include": sorted(include)} if include else {}
            await schedule.act("backfill", reason=reason, after={**after, **included})
        return replace(seen, backfill=replace(new, id=number))

    async def windows_of(self, previewed: Backfill) -> AsyncIterator[Considered]:
        """Yield each window of a backfill in its current state, in order, read in batches."""
        async with self._ledger.transaction() as transaction:
            definition = await transaction.definition(previewed.key, previewed.definition_version)
        after = previewed.cursor
        while fires := [*islice(definition.spec.fires(after, previewed.last), _AT_ONCE)]:
            async with self._ledger.transaction() as transaction:
                (state,) = await transaction.read([previewed.key])
                state = replace(state, schedule=definition)
                found = await consider(transaction, previewed, state, fires)
            for each in found:
                yield each
            after = fires[-1]

    async def laid(self, of: Backfill) -> list[Fire]:
        """Return the fires that a backfill has laid, without those started before its request."""
        async with self._ledger.transaction(long=True) as transaction:
            rows = await transaction.between(of.key, of.first, of.last)
        return [
            row
            for row in rows
            if row.timing == "backfill"
            and row.fire_time <= of.cursor
            and (row.started_at is None or row.started_at >= of.requested_at)
        ]


async def _requested(
    schedule: Locked,
    begin: datetime,
    end: datetime,
    *,
    overlap: BackfillOverlap | None,
    include: Collection[Included],
) -> Backfill:
    state, now = schedule.state, schedule.now
    require_in_order(begin, end)
    begin = max(begin, _FIRST)
    for word in sorted(set(include) - set(INCLUDED)):
        hint = did_you_mean(word, INCLUDED, f"write one of {', '.join(INCLUDED)}")
        raise ScheduleError(f"include has {word!r}", hint=hint)
    if end > now:
        raise MomentInFuture(f"{utc_text(end)} is still to come", hint="end at one that has passed")
    spec = state.schedule.spec
    first, last = spec.next(begin - TICK), spec.previous(end)
    if first is None or last is None or first > end:
        raise WindowNotFound(f"no window of {state.key} opens between the two")
    require_type(state)
    for other in await schedule.transaction.backfills(state.key, laying=True):
        if other.first <= last and first <= other.last and other.ends(state) is None:
            raise BackfillOverlaps(
                f"a backfill of {state.key} from {utc_text(other.first)} to"
                f" {utc_text(other.last)} is being laid",
                hint=f"see `sched show {state.key}`; wait for it, or end it with"
                f" `sched cancel {state.key}`",
            )
    by_default: BackfillOverlap = "allow" if state.schedule.overlap == "allow" else "queue"
    return Backfill(
        id=0,
        project=state.project,
        key=state.key,
        series=state.series,
        definition_version=state.definition_version,
        first=first,
        last=last,
        cursor=first - TICK,
        overlap=overlap or by_default,
        include=(*BY_DEFAULT, *(cause for cause in INCLUDED if cause in include)),
        requested_by=schedule.by,
        requested_at=now,
        next_at=now,
        windows=spec.count(begin - TICK, end),
    )
