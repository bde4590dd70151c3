"""Janitor: the loop that keeps the ledger small and repairs next fire times."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date, datetime, timedelta

from engine.errors import ArchiveFailed, Code, DefinitionUnreadable, ScheduleError
from engine.ledger import KeyMaintenance, Ledger, Serving
from engine.runtime.clock import boottime
from engine.runtime.events import Alert, Notice, OnEvent, logger
from engine.runtime.retention.archive import Archive
from engine.runtime.retention.compaction import (
    AIM,
    BatchSizers,
    Compactor,
    Cutoffs,
    merges,
    midnight,
    removals,
    rollup,
    rollup_days,
)
from engine.runtime.settings import Settings
from engine.schedules import utc_text
from engine.schedules.planner import LONGEST_WAIT, ScheduleState, current_cursor, plan, wake_at

# --- repair of next fire times ---
# The next fire time is a cached column. A wrong one would silently stop a schedule, so it is
# derived again.

_AT_ONCE = 100


async def repair(ledger: Ledger, project: str, on_event: OnEvent) -> AsyncIterator[int]:
    """Check every schedule of a project, in batches; yield the number of repairs per batch.

    A next fire time that is too early costs one tick, which corrects it. One that is too late or
    missing is found only here. A schedule is locked only if its next fire time looks wrong.
    """
    after = ""
    while True:
        async with ledger.upkeep() as upkeep:
            cached = await upkeep.next_fires(project, after, _AT_ONCE)
            now = await upkeep.now()
            states = await upkeep.read([*cached])
        if not cached:
            return
        wrong = [state.key for state in states if _due(state, now, cached[state.key])]
        yield await _repair_keys(ledger, wrong, on_event) if wrong else 0
        after = max(cached)


async def _repair_keys(ledger: Ledger, keys: list[str], on_event: OnEvent) -> int:
    mended = []
    async with ledger.upkeep() as upkeep:
        cached = await upkeep.lock_free(keys)
        now = await upkeep.now()
        for state in await upkeep.read([*cached]):
            right = _due(state, now, cached[state.key])
            if right is not None:
                await upkeep.correct_next(state.key, right)
                mended.append((state, cached[state.key], right))
    for state, was, right in mended:
        if was is None and state.room:  # no fault: its last window was rejected after its claim
            text = f"{state.key} goes on: its limit of {state.schedule.limit} has {state.room} left"
            on_event(Notice(text, good=True))
        else:
            text = f"{state.key} would have fired next at {_shown(was)}; it is {_shown(right)} now"
            on_event(Alert(Code.NEXT_FIRE_REPAIRED, text))
    return len(mended)


def _due(state: ScheduleState, now: datetime, cached: datetime | None) -> datetime | None:
    """Return the schedule's due time if the cached one is later or missing, else None."""
    if cached is not None and cached <= now + LONGEST_WAIT:
        return None  # the next tick corrects it; a withheld plan may wait for an answer
    if state.hold is not None:  # its windows stay undecided until the hold ends
        due = state.pause.until if state.hold == "paused" and state.pause else None
    else:
        try:
            step = plan(state, now, limit=1, rows=1)
        except Exception:  # noqa: BLE001 - a schedule that fails is reported by the tick
            return None
        busy = step.moves or step.looks or step.audit
        if busy or not all(each.excluded for each in step.decisions):
            due = now
        elif step.decisions:  # a day off is decided with its last window
            due = wake_at(state.schedule, current_cursor(state))
        else:
            due = step.next_fire_at
    if due is None or (cached is not None and cached <= due):
        return None
    return due


def _shown(at: datetime | None) -> str:
    return "never" if at is None else utc_text(at)


# --- janitor ---
# One replica at a time performs this duty, in slow rounds of short transactions. Two at once would
# do no harm, because a row is removed only as it was archived. The janitor locks no schedule that a
# tick may need, except one with a wrong next fire time.

_DUTY = "janitor"
_LEASE = timedelta(seconds=60)
_KEYS = 200
_OPEN_DAYS = 200
_DAY = timedelta(days=1)
_EVENTS = 1000
_DEAD_DELIVERIES = timedelta(days=30)
"""How long a delivery that was given up can be made again."""
_LATE = timedelta(hours=1)
"""Delay after midnight before the previous day is counted."""
_BREATH = timedelta(milliseconds=20)
_OLD = timedelta(minutes=5)
"""Age of a snapshot from which the dead rows that it keeps alive are reported."""
_DEAD = 20_000
"""Number of dead rows worth an alert: five minutes of 70 windows a second."""


class Janitor:
    """Performer of the janitor's rounds, a short piece of work per turn.

    Args:
        archive: stores removed rows; without it rows are only merged, never removed.

    Attributes:
        rested_at: when it ended its last round, or else took the duty (``boottime``); None on
            replicas that do not have the duty.
    """

    def __init__(
        self,
        ledger: Ledger,
        archive: Archive | None,
        serving: Serving,
        settings: Settings,
        *,
        on_event: OnEvent,
    ) -> None:
        self._ledger, self._archive = ledger, archive
        self._serving, self._settings, self._emit = serving, settings, on_event
        self._sizers = BatchSizers()
        self._round: AsyncIterator[None] | None = None
        self._tidied: date | None = None
        self._told: set[str] = set()
        self._holders: set[tuple[str, str | None]] = set()
        self.rested_at: float | None = None

    async def run_once(self) -> timedelta:
        """Do one piece of work; return the wait until the next."""
        period = self._settings.janitor or _DAY
        lease = max(_LEASE, self._settings.lease)
        if await self._ledger.hold_duty(_DUTY, self._serving.replica, lease) is None:
            self._round = self.rested_at = None
            return min(period, lease)
        self.rested_at = self.rested_at or boottime()
        work, begun = self._round or self._rounds(), boottime()
        self._round = None  # a failed round starts over
        try:
            await anext(work)
        except StopAsyncIteration:
            self.rested_at = boottime()
            return period
        self._round = work
        # Pause for as long as the work took, to leave the database to more urgent work.
        return max(_BREATH, timedelta(seconds=boottime() - begun))

    async def _rounds(self) -> AsyncIterator[None]:
        await self._ledger.wake()
        await self._name_old_snapshots()
        async for _ in repair(self._ledger, self._serving.project, self._emit):
            yield
        async for _ in self._count_open_days():
            yield
        async for _ in self._forget_events():
            yield
        async with self._ledger.upkeep() as upkeep:
            now, remembered = await upkeep.now(), await upkeep.remembered_for()
        if remembered is None or self._tidied == now.date():
            return  # the cutoffs move only at midnight
        compactor = Compactor(self._ledger, self._archive, self._sizers, now)
        try:
            async for _ in self._compact(now, remembered, compactor):
                yield
        except ArchiveFailed as error:
            self._emit_once("failed", Alert(error.code, str(error)))
            return
        if "failed" in self._told and self._archive:
            self._told.discard("failed")
            self._emit(Notice("the archive can be written again", good=True))
        self._tidied = now.date()
        if summary := str(compactor.tally):
            self._emit(Notice(f"cleaned up the ledger: {summary}", good=True))

    async def _name_old_snapshots(self) -> None:
        """Report each holder of an old snapshot once, because it makes the tables grow."""
        async with self._ledger.upkeep() as upkeep:
            found = await upkeep.old_snapshots(_OLD, _DEAD)
        for each in found:
            if (each.kind, each.name) not in self._holders:
                self._emit(Alert(Code.OLD_SNAPSHOT, str(each)))
        self._holders = {(each.kind, each.name) for each in found}

    async def _compact(
        self, now: datetime, remembered: timedelta, compactor: Compactor
    ) -> AsyncIterator[None]:
        """Count and compact all keys, also those of other projects."""
        after = ""
        while True:
            async with self._ledger.upkeep() as upkeep:
                found = await upkeep.keys(after, _KEYS)
            yield
            for maintenance in found:
                after = maintenance.key
                try:
                    async for _ in self._compact_key(maintenance, now, remembered, compactor):
                        yield
                except (ScheduleError, DefinitionUnreadable) as error:
                    logger.warning("%s cannot be cleaned up: %s", maintenance.key, error)
            if len(found) < _KEYS:
                break
        await compactor.carry_out()

    async def _compact_key(
        self,
        maintenance: KeyMaintenance,
        now: datetime,
        remembered: timedelta,
        compactor: Compactor,
    ) -> AsyncIterator[None]:
        async for _ in self._rollup_days(maintenance, midnight(now - _LATE)):
            yield
        cutoffs = Cutoffs.of(maintenance, self._settings, now, remembered)
        if self._archive is None and maintenance.oldest and maintenance.oldest < cutoffs.remove:
            text = "SCHED_ARCHIVE is not set: old fires become ranges, and nothing is deleted"
            self._emit_once("unset", Notice(text, good=True))
        if self._archive is not None:
            async for piece, _ in removals(self._ledger, self._sizers, maintenance, cutoffs):
                await compactor.add(piece)
            yield
        async for piece, goes_on in merges(
            self._ledger, self._sizers, maintenance, cutoffs, archived=self._archive is not None
        ):
            await compactor.add(piece, now=goes_on)
            yield

    async def _rollup_days(
        self, maintenance: KeyMaintenance, until: datetime
    ) -> AsyncIterator[None]:
        """Count the past days that have not been counted yet."""
        since = maintenance.summarised_until or (
            maintenance.oldest and midnight(maintenance.oldest)
        )
        if since is not None:
            sizer = self._sizers.counting
            async for _ in rollup_days(self._ledger, sizer, maintenance, since, until, note=True):
                yield

    async def _forget_events(self) -> AsyncIterator[None]:
        """Remove events that have been delivered, and dead deliveries."""
        after: int | None = 0
        while after is not None:
            after = await self._ledger.events.forget(
                after, keep=self._settings.events_keep, dead=_DEAD_DELIVERIES, limit=_EVENTS
            )
            yield

    async def _count_open_days(self) -> AsyncIterator[None]:
        after = ("", date.min)
        while True:
            begun = boottime()
            async with self._ledger.upkeep() as upkeep:
                days = await upkeep.open_days(after, _OPEN_DAYS)
                for after in days:
                    key, day = after
                    begin = midnight(datetime.fromisoformat(f"{day}T00:00:00+00:00"))
                    await rollup(upkeep, key, begin, begin + _DAY)
                    if boottime() - begun > AIM:
                        break  # the next transaction continues after this day
            if not days:
                return
            yield

    def _emit_once(self, what: str, event: Alert | Notice) -> None:
        if what not in self._told:
            self._told.add(what)
            self._emit(event)
