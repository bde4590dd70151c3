"""Laying of backfills: past windows that become fires, some at each tick.

``engine.service.backfill`` requests a backfill. Each tick turns some of its windows into fires, in
one transaction with the backfill's cursor and under the row lock of its schedule. Where runs may
overlap, the fires are claims of this replica; otherwise a few wait in line. Windows that
``consider`` leaves alone are counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice

from engine.errors import Code, CommitUnknown, EngineError
from engine.ledger import Backfill, Claim, Fire, Ledger, Serving, ToLay, Transaction
from engine.runtime.events import Alert, OnEvent
from engine.runtime.past_windows import Considered, consider, end_backfill, note_end, split_range
from engine.runtime.settings import Settings
from engine.runtime.tick.lookups import RunLookups
from engine.runtime.tracking.runs import VISIBILITY_LAG
from engine.runtime.workflow_workers import type_of
from engine.schedules import is_suffixed
from engine.schedules.planner import ScheduleState, unresolved_workflow

_IN_LINE = 10
"""Limit on the windows that wait in a key's line; at the limit no more of a backfill is laid."""
_READ_AHEAD = (200, 1000)
"""Fewest and most windows read in one transaction: those that are left alone take no room."""
_LOOK_FOR = timedelta(seconds=30)
"""How long other replicas leave a key alone while its runs are looked up."""
_BACK_OFF = timedelta(seconds=60)
_TAKEN = "its id belongs to another window"


class _RowChanged(Exception):
    """A concurrent change of a row between its read and its write."""


@dataclass(slots=True)
class Laid:
    """Result of one transaction.

    Attributes:
        windows: how many were laid or left alone.
        queued: whether some of them wait in line now.
        alerts: alerts to emit after the commit.
        look: the key whose runs must be looked up first, and the start and end of that time.
    """

    windows: int = 0
    queued: bool = False
    alerts: list[Alert] = field(default_factory=list)
    look: tuple[str, datetime, datetime] | None = None


class Backfills:
    """Laying of backfills by one replica. A key's row lock decides which replica lays it.

    Args:
        lookups: looks up the runs of a key after signs of lost commits.
        on_event: receives alerts about backfills that ended early or are delayed.
    """

    def __init__(
        self,
        ledger: Ledger,
        serving: Serving,
        settings: Settings,
        *,
        lookups: RunLookups,
        on_event: OnEvent,
    ) -> None:
        self._ledger, self._serving, self._settings = ledger, serving, settings
        self._lookups, self._emit = lookups, on_event
        self._looking: asyncio.Task[None] | None = None

    async def lay(self, claims: list[Claim], limit: int, suspect_until: datetime | None) -> Laid:
        """Lay windows of the one backfill whose turn it is.

        Args:
            claims: receives the claims to send. After an unconfirmed commit it holds those that
                the commit would have made; after any other error it is empty.
            limit: the most claims.
            suspect_until: when the last sign of lost commits was seen.

        Raises:
            LedgerUnavailable: the ledger is away, or the commit is unconfirmed.
        """
        key = None
        try:
            async with self._ledger.transaction() as transaction:
                key = await transaction.lock_laying(self._serving)
                if key is None:
                    return Laid()
                turn = _LayingTurn(transaction, self._serving, self._settings, claims, limit)
                laid = await turn.take(key, suspect_until)
        except CommitUnknown:
            raise
        except Exception as error:
            claims.clear()
            if key is None:
                raise
            if not isinstance(error, _RowChanged):
                # A timeout looks like a ledger that is away; if it is away, this fails as well.
                await self._put_off(key, f"{type(error).__name__}: {error}")
            return Laid()
        for event in laid.alerts:
            self._emit(event)
        if laid.look is not None and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look(*laid.look))
        return laid

    async def _put_off(self, key: str, error: str) -> None:
        async with self._ledger.transaction() as transaction:
            await transaction.put_off_backfills(key, _BACK_OFF, error)
        self._emit(Alert(Code.BACKFILL_HELD, f"the backfill of {key} waits: {error}"))

    async def _look(self, key: str, since: datetime, until: datetime) -> None:
        """Look up and record the runs of a key; the next turn of the key retries a failure."""
        try:
            await self._lookups.look_up(key, since)
            async with self._ledger.transaction() as transaction:
                await transaction.backfill_looked_at(key, until)
        except Exception as error:  # noqa: BLE001 - nothing awaits this task
            text = f"the backfill of {key} waits: its runs could not be looked up: {error}"
            self._emit(Alert(Code.BACKFILL_HELD, text))


class _LayingTurn:
    """One transaction under the row lock of one schedule."""

    def __init__(
        self,
        transaction: Transaction,
        serving: Serving,
        settings: Settings,
        claims: list[Claim],
        limit: int,
    ) -> None:
        self._transaction, self._serving, self._settings = transaction, serving, settings
        self._claims, self._limit, self._laid = claims, limit, Laid()

    async def take(self, key: str, suspect_until: datetime | None) -> Laid:
        """Lay part of the key's backfill whose turn it is; end backfills that cannot continue."""
        laid = self._laid
        states = await self._transaction.read([key])
        now = await self._transaction.now()
        if not states:
            unread = "its definition cannot be read"
            await self._transaction.put_off_backfills(key, _BACK_OFF, unread)
            return laid
        (state,) = states
        for each in await self._transaction.backfills(key, laying=True):
            if why := each.ends(state):
                by = self._serving.replica
                laid.alerts.append(await end_backfill(self._transaction, each, why, now, by=by))
            elif not each.is_halted(state) and each.next_at <= now:
                if await self._is_sure(each, now, suspect_until):
                    await self._lay(each, state, now)
                break
        return laid

    async def _is_sure(self, each: Backfill, now: datetime, suspect_until: datetime | None) -> bool:
        """Return whether the ledger is known to have every run of the key since the request."""
        if suspect_until is None or suspect_until <= (each.looked_at or each.requested_at):
            return True
        shown_at = suspect_until + VISIBILITY_LAG
        if now < shown_at:
            await self._transaction.move_backfill(replace(each, next_at=shown_at))
            return False
        # The surviving ``laid_at`` proves all earlier commits; only later ones may be lost.
        since = (each.laid_at or each.requested_at) - VISIBILITY_LAG
        await self._transaction.put_off_backfills(each.key, _LOOK_FOR)
        self._laid.look = each.key, since, now
        return False

    async def _lay(self, each: Backfill, state: ScheduleState, now: datetime) -> None:
        in_line = each.overlap == "queue"
        limit = self._limit
        if in_line:
            limit = _IN_LINE - await self._transaction.count_waiting(each.key, _IN_LINE)
        later = now + self._settings.tick
        if limit <= 0:
            await self._transaction.move_backfill(replace(each, next_at=later))
            return
        state = await self._as_asked_for(each, state)
        if state.workflow_type is None:
            raise EngineError(unresolved_workflow(state.schedule))
        batch = _Batch(self._transaction, each, state)
        await batch.choose(limit)
        windows = [*await batch.split(), *batch.new]
        claims, written = await self._transaction.lay(
            state,
            windows,
            overlap=each.overlap,
            owner=self._serving.replica,
            lease=self._settings.lease,
        )
        if any(window.again and window.workflow_id not in written for window in windows):
            raise _RowChanged
        batch.left_alone[_TAKEN] += len(windows) - len(written)
        self._claims += sorted(claims, key=lambda claim: claim.fire_time)
        self._laid.windows, self._laid.queued = batch.seen, in_line and bool(written)
        full = in_line and len(written) >= limit
        moved = replace(
            each,
            cursor=batch.until,
            laid=each.laid + len(written),
            laid_at=now,
            error=None,
            left_alone=+(Counter(each.left_alone) + batch.left_alone),
            next_at=later if full else now,
        )
        if moved.cursor >= each.last:
            moved = replace(moved, state="done", ended_at=now)
            await note_end(self._transaction, moved, by=self._serving.replica)
        await self._transaction.move_backfill(moved)

    async def _as_asked_for(self, each: Backfill, state: ScheduleState) -> ScheduleState:
        """Return the state with the definition of the request, even if an edit followed it."""
        if each.definition_version == state.definition_version:
            return state
        schedule = await self._transaction.definition(each.key, each.definition_version)
        kind, version = await type_of(self._transaction, schedule), each.definition_version
        return replace(state, schedule=schedule, definition_version=version, workflow_type=kind)


class _Batch:
    """Windows of a backfill that one transaction handles.

    Attributes:
        new: windows that start and have no row yet.
        left_alone: how many windows do not start, by ``Considered.why``.
        seen: how many windows were considered.
        until: the fire time of the last of them.
    """

    def __init__(self, transaction: Transaction, each: Backfill, state: ScheduleState) -> None:
        self._transaction, self._each, self._state = transaction, each, state
        self._again: dict[int, tuple[Fire, list[datetime]]] = {}
        self.new: list[ToLay] = []
        self.left_alone: Counter[str] = Counter()
        self.seen = 0
        self.until = each.cursor

    async def choose(self, limit: int) -> None:
        """Consider the next windows until ``limit`` of them start."""
        fewest, most = _READ_AHEAD
        ahead = min(max(4 * limit, fewest), most)
        each, spec = self._each, self._state.schedule.spec
        fires = [*islice(spec.fires(each.cursor, each.last), ahead)]
        if not fires:
            self.until = each.last
            return
        starts = 0
        for window in await consider(self._transaction, each, self._state, fires):
            if starts == limit:
                return
            if window.starts:
                self._take(window)
                starts += 1
            else:
                self.left_alone[window.why] += 1
            self.seen, self.until = self.seen + 1, window.at
        if len(fires) < ahead:
            self.until = each.last

    def _take(self, each: Considered) -> None:
        if each.row is not None:
            self._again.setdefault(id(each.row), (each.row, []))[1].append(each.at)
            return
        window = self._state.window(each.at)
        # A later series may reuse the bucket numbers of an earlier one.
        workflow_id = window.workflow_id(self._state.suffixed or self._state.series > 1)
        self.new.append(ToLay(window, workflow_id, again=False))

    async def split(self) -> list[ToLay]:
        """Return the windows that were decided against, each now in a row of its own."""
        found = []
        for row, moments in self._again.values():
            if row.windows == 1:
                found.append(ToLay(row.window, row.workflow_id, again=True))
                continue
            suffixed = is_suffixed(row.workflow_id)
            found += [
                ToLay(window, window.workflow_id(suffixed), again=True)
                for window in await split_range(self._transaction, row, *moments)
            ]
        return sorted(found, key=lambda each: each.window.fire_time)
