"""Fires of the in-memory ledger: their runs, their accounts, and what is listed of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from uuid import uuid4

from engine.ledger.failures import (
    Counted,
    FailingNote,
    RetryNote,
    RunCounts,
    RunDetails,
    Uncounted,
    as_details,
)
from engine.ledger.fires import (
    DENIED,
    IN_HAND,
    AccountRow,
    BlockingRun,
    Claim,
    DataGap,
    Evidence,
    Fire,
    OpenRun,
    Outcome,
    Status,
    StopOrder,
    common_fields,
    outermost_gaps,
)
from engine.ledger.memory.operations import backfills_of, is_to_follow, waits_for_nothing
from engine.ledger.memory.tables import (
    FireEntry,
    MemoryRows,
    Tables,
    check_gaps,
    larger_known,
    reported_gaps,
    summary_of,
)
from engine.ledger.records import ActionRow, Backfill, DefinitionVersion, Serving, Standing
from engine.ledger.schedule_rows import RunSummary
from engine.schedules import EPOCH, Reason, ReasonCode, code_of

# --- open runs ---

_SOON, _LATEST = timedelta(seconds=1), timedelta(seconds=30)
_RUNNING = {"claimed", "starting", "started"}


class MemoryRuns(MemoryRows):
    """Open runs: seen open, lost, to be stopped, or waited for."""

    _lock: asyncio.Lock

    async def seen_open(self, workflow_ids: Sequence[str], at: datetime) -> dict[str, str | None]:
        noted = {}
        async with self._lock:
            for workflow_id in workflow_ids:
                fire = self._tables.of_run(workflow_id)
                if fire and fire.status == "started":
                    seen = max(fire.open_at, at) if fire.open_at else at
                    self._tables.change(fire, open_at=seen, lost_at=None)
                    noted[workflow_id] = fire.failing_noted
        return noted

    async def note_failing(self, notes: Sequence[FailingNote]) -> set[str]:
        written = set()
        async with self._lock:
            for note in notes:
                fire = self._tables.of_run(note.workflow_id)
                is_open = fire and fire.status == "started" and fire.lost_at is None
                if fire and is_open and fire.failing_noted == note.before:
                    self._tables.change(fire, failing_noted=note.now)
                    written.add(note.workflow_id)
        return written

    async def uncounted(self, limit: int) -> list[Uncounted]:
        found = [Uncounted(fire.workflow_id, fire.run_id or "")
                 for fire in self._tables.fires.values() if fire.counted == "wanted"]  # fmt: skip
        return found[: -limit - 1 : -1]

    async def note_counts(self, counts: Sequence[RunCounts]) -> None:
        async with self._lock:
            for each in counts:
                fire = self._tables.of_run(each.workflow_id)
                if fire and fire.run_id == each.run_id and fire.counted == "wanted":
                    self._tables.change(
                        fire,
                        tries=fire.tries if each.tries is None else each.tries,
                        retries_noted=larger_known(fire.retries_noted, each.step_retries),
                        tried_noted=each.tried_text or fire.tried_noted,
                        counted="read",
                    )

    async def note_retries(self, notes: Sequence[RetryNote]) -> None:
        async with self._lock:
            for note in notes:
                fire = self._tables.of_run(note.workflow_id)
                if fire and fire.counted != "read":
                    retries = (fire.retries_noted or 0) + note.retries
                    elsewhere: Counted = "elsewhere" if fire.closed_at is None else "wanted"
                    counted = elsewhere if note.elsewhere else fire.counted
                    self._tables.change(fire, retries_noted=retries, counted=counted)

    async def run_summaries(self, keys: Sequence[str]) -> list[RunSummary]:
        now = self.clock()
        return [summary_of(key, self._tables.of_key(key), now) for key in keys]

    async def count_fires(
        self, first: datetime, last: datetime, *, keys: Collection[str] = (), most: int
    ) -> Counter[Status]:
        found: Counter[Status] = Counter()
        for fire in self._tables.fires.values():
            mine = not keys or any(fnmatchcase(fire.key, each) for each in keys)
            if mine and fire.kind == "window" and first <= fire.fire_time < last:
                found[fire.status] += fire.windows
        return found

    async def run_details(self, workflow_id: str) -> RunDetails:
        fire = self._tables.of_run(workflow_id)
        return as_details(fire.failure_noted, fire.tried_noted) if fire else RunDetails()

    async def lose(self, workflow_ids: Sequence[str], error: str) -> list[str]:
        lost = []
        async with self._lock:
            for workflow_id in workflow_ids:
                fire = self._tables.of_run(workflow_id)
                if fire and fire.status == "started" and fire.lost_at is None:
                    self._tables.change(fire, lost_at=self.clock(), error=error, failing_noted=None)
                    lost.append(workflow_id)
        return lost

    async def unknown_runs(self, workflow_ids: Sequence[str]) -> set[str]:
        found = {name: self._tables.of_run(name) for name in workflow_ids}
        return {name for name, fire in found.items() if fire is None or fire.windows > 1}

    async def in_the_way(
        self, replica: str, *, alive: timedelta, orphans: bool, limit: int
    ) -> list[BlockingRun]:
        living = {serving.replica for serving in self.living(alive)}
        fires = self._tables.fires.values()
        lines: dict[str, int] = {}
        for fire in fires:
            if fire.status == "queued":
                lines.setdefault(fire.key, fire.fire_id)
        found = [
            BlockingRun(fire.workflow_id, fire.key)
            for fire in fires
            if fire.key in lines and fire.status == "started" and fire.lost_at is None
            and fire.kind != "handler"
            and (fire.replica == replica or (orphans and fire.replica not in living))
        ]  # fmt: skip
        return sorted(found, key=lambda run: lines[run.key])[:limit]

    async def first_run(self, workflow_id: str) -> str | None:
        fire = self._tables.of_run(workflow_id)
        return fire.first_run_id or fire.run_id if fire and fire.windows == 1 else None

    async def anything_ended(self) -> bool:
        return any(map(is_to_follow, self._tables.fires.values()))

    async def wake(self) -> list[str]:
        async with self._lock:
            fires = [fire for fire in self._tables.fires.values() if fire.lost_at is None]
            running = Counter(
                fire.key for fire in fires if fire.kind != "handler" and fire.status in _RUNNING
            )
            rows = self._tables.schedules
            waiting = {
                fire.key
                for fire in fires
                if fire.status == "queued"
                and (
                    fire.awaits
                    or running[fire.key] < rows[fire.key].state.schedule.max_concurrent_runs
                )
                and waits_for_nothing(self._tables, fire)
            }
            now, woken = self.clock(), []
            for key in sorted(waiting):
                row = self._tables.schedules[key]
                if row.state.hold is None and not row.is_due(now):
                    self._put(row.due_from(now))
                    woken.append(key)
            return woken

    async def make_due(self, keys: Sequence[str]) -> None:
        async with self._lock:
            await super().make_due(keys)

    async def children(self, key: str) -> list[str]:
        return [
            name
            for name, row in sorted(self._tables.schedules.items())
            if row.state.retired_at is None
            and any(rule.parent == key for rule in row.state.schedule.follows)
        ]

    async def take_stops(
        self, serving: Serving, *, limit: int, lease: timedelta
    ) -> list[StopOrder]:
        async with self._lock:
            now, orders = self.clock(), []
            due = sorted(each for each in self._to_stop(serving) if each[0] <= now)
            for _, number in due[:limit]:
                fire = self._tables.fires[number]
                asked_at, grace, stop = fire.stop_asked_at, fire.stop_grace, fire.stop
                if asked_at and grace is not None and asked_at + grace <= now:
                    stop = "terminate"
                taken = self._tables.change(fire, stop=stop, stop_at=now + lease)
                asked = stop == "cancel" and asked_at is not None
                orders.append(StopOrder(**{**common_fields(StopOrder, taken), "asked": asked}))
            return orders

    async def stopped(self, orders: Sequence[StopOrder]) -> None:
        async with self._lock:
            for order in orders:
                fire = self._tables.fires[order.fire_id]
                if fire.stop != order.stop:
                    continue
                now = self.clock()
                asked_at = fire.stop_asked_at or now
                look_at = now + min(max(now - asked_at, _SOON), _LATEST)
                if fire.stop == "cancel" and fire.stop_grace is not None:
                    look_at = min(look_at, asked_at + fire.stop_grace)
                self._tables.change(
                    fire, stop_at=look_at, stop_asked_at=asked_at,
                    first_run_id=fire.first_run_id or order.first_run_id,
                )  # fmt: skip

    def _to_stop(self, serving: Serving) -> Iterator[tuple[datetime, int]]:
        """Yield the moment and the number of each run that a replica is to stop."""
        for number, fire in self._tables.fires.items():
            runs = fire.status == "started" and fire.project == serving.project
            if runs and fire.stop and fire.stop_at:
                yield fire.stop_at, number

    async def actions(self, *, key: str | None = None, limit: int = 50) -> list[ActionRow]:
        rows = [row for row in self._tables.actions.values() if key in {None, row.key}]
        return rows[::-1][:limit]


class MemoryAccounts(MemoryRows):
    """The account of a schedule, as the audit reads it."""

    async def standings(self, keys: Sequence[str]) -> list[Standing]:
        now, found = self.clock(), []
        for key in sorted(set(keys) & self._tables.schedules.keys()):
            state = self._tables.schedules[key].state
            forgotten = self._tables.forgotten.get(key)
            found.append(
                Standing(
                    **common_fields(Standing, state), now=now, enabled=state.schedule.enabled,
                    forgotten_until=forgotten,
                    idle=self._tables.schedules[key].next_fire_at is None,
                )
            )  # fmt: skip
        return found

    async def definition_versions(self, key: str, *, limit: int) -> list[DefinitionVersion]:
        versions = [row for (of, _), row in self._tables.versions.items() if of == key]
        return sorted(versions, key=lambda row: -row.version)[:limit]

    async def account_rows(
        self,
        key: str,
        first: datetime,
        last: datetime,
        *,
        after: tuple[datetime, int] | None = None,
        limit: int,
    ) -> list[AccountRow]:
        found = [
            AccountRow(**{**common_fields(AccountRow, fire), "decided_at": fire.decided_at})
            for fire in self._tables.of_key(key)
            if fire.kind == "window" and fire.last_fire_time >= first and fire.fire_time <= last
            and (after is None or (fire.fire_time, fire.series) > after)
        ]  # fmt: skip
        return sorted(found, key=lambda row: (row.fire_time, row.series))[:limit]


# --- fires ---
# Leases, outcomes and evidence of fires, and reading them.

_WITHOUT_RUN = DENIED | {"queued"}
_LOOKED_AT = 5000


def _newest(fires: list[Fire], limit: int) -> list[Fire]:
    fires.sort(key=lambda fire: fire.key)
    fires.sort(key=lambda fire: fire.fire_time, reverse=True)
    return fires[:limit]


class MemoryFires(MemoryRuns, MemoryAccounts):
    """The part of ``Ledger`` that moves and reads fires; ``MemoryLedger`` is the whole.

    Args:
        clock: the ledger's clock.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.clock = clock
        self._tables = Tables()
        self._lock = asyncio.Lock()
        self._retentions: list[tuple[timedelta, datetime, datetime]] = []

    async def take_over(self, serving: Serving, *, limit: int, lease: timedelta) -> list[Claim]:
        async with self._lock:
            now = self.clock()
            stale = sorted(each for each in self._leased(serving) if each[0] <= now)
            fires = [self._tables.fires[number] for _, number in stale[:limit]]
            taken = [self._take(fire, serving.replica, now, lease) for fire in fires]
            return [claim for claim in taken if claim]

    def _take(self, fire: FireEntry, replica: str, now: datetime, lease: timedelta) -> Claim | None:
        hold = self._tables.schedules[fire.key].hold_at(now)
        fresh = fire.status == "claimed"
        fire = replace(fire, attempts=fire.attempts + 1)
        retired = hold == "retired" and fire.kind != "handler"
        if hold and fresh and (retired or (hold == "paused" and fire.yields_to_a_pause)):
            self._settle(fire, "skipped", Reason(hold, hold))
            return None
        starting_at = fire.starting_at or now
        fire = self._write(replace(
            fire, status="starting", token=uuid4(), replica=replica, lease_until=now + lease,
            starting_at=starting_at,
        ))  # fmt: skip
        return self._claim(fire, fresh=fresh, retention=self._smallest_retention(starting_at))

    async def renew(self, claims: Sequence[Claim], lease: timedelta) -> set[int]:
        now, renewed = self.clock(), set()
        async with self._lock:
            for claim in claims:
                fire = self._held(claim)
                if fire and fire.lease_until is not None and fire.lease_until > now:
                    self._tables.change(fire, lease_until=max(fire.lease_until, now + lease))
                    renewed.add(claim.fire_id)
        return renewed

    def _held(self, by: Claim | Outcome) -> FireEntry | None:
        """Return the row of a claim that still holds."""
        fire = self._tables.fires.get(by.fire_id)
        holds = fire is not None and (fire.status, fire.token) == ("starting", by.token)
        return fire if holds else None

    def note_retention(self, retention: timedelta, now: datetime) -> None:
        """Record the namespace's retention, in the current stretch or a new one."""
        begun = now
        if self._retentions and self._retentions[-1][0] == retention:
            _, begun, _ = self._retentions.pop()
        self._retentions.append((retention, begun, now))

    def _smallest_retention(self, since: datetime) -> timedelta | None:
        """Return the smallest one seen since then, including the stretch that it fell into."""
        fell_into = max((begun for _, begun, _ in self._retentions if begun <= since), default=None)
        in_force = [
            retention
            for retention, begun, until in self._retentions
            if until >= since or begun == fell_into
        ]
        return min(in_force, default=None)

    async def settle(self, outcomes: Sequence[Outcome]) -> int:
        written = 0
        async with self._lock:
            for outcome in outcomes:
                fire = self._held(outcome)
                if fire is None:
                    continue
                written += 1
                waits = outcome.status == "starting"
                reported = outcome.status == "started" and outcome.reported
                retry_at = self.clock() + (outcome.retry_after or timedelta())
                self._write(
                    replace(
                        fire,
                        status=outcome.status,
                        run_id=outcome.run_id or fire.run_id,
                        first_run_id=fire.first_run_id or outcome.first_run_id,
                        started_at=outcome.started_at or fire.started_at,
                        timing=outcome.timing or fire.timing,
                        reason=outcome.reason or fire.reason,
                        error=outcome.error,
                        counted="reported"
                        if reported and fire.counted != "elsewhere"
                        else fire.counted,
                        retries_noted=larger_known(fire.retries_noted, 0 if reported else None),
                        lease_until=retry_at if waits else None,
                        token=fire.token if waits else None,
                    )
                )
        return written

    async def record_evidence(self, evidence: Sequence[Evidence]) -> list[str]:
        changed = []
        async with self._lock:
            for seen in evidence:
                fire = self._tables.of_run(seen.workflow_id)
                if fire is None or fire.windows != 1 or not fire.is_news(seen):
                    continue
                was_denied = fire.status in _WITHOUT_RUN
                ends = fire.closed_at is None or seen.closed is not None  # else it was reset
                seen_as = replace(
                    fire.ended_as(seen),
                    status=seen.closed or "started",
                    run_id=seen.run_id,
                    first_run_id=fire.first_run_id or seen.first_run_id,
                    stop=fire.stop if ends else None,
                    stop_at=fire.stop_at if ends else None,
                    started_at=fire.started_at or seen.started_at,
                    closed_at=seen.closed_at,
                    seen_at=fire.seen_at if seen.closed is None else self.clock(),
                    timing=fire.timing or "late",
                    error=seen.error,
                    not_undone=seen.not_undone,
                    failing_noted=None,
                    dealt_at=None,
                    followed=False,
                    token=None,
                    lease_until=None,
                    lost_at=None,
                    awaits=None,
                    reason=None if was_denied else fire.reason,
                    history=(*fire.history, fire.denied) if was_denied else fire.history,
                )
                self._write(seen_as)
                changed.append(seen.workflow_id)
        return changed

    async def open_runs(self, limit: int, *, started_before: datetime) -> list[OpenRun]:
        runs = [
            (fire.seen_at or fire.started_at or EPOCH, number)
            for number, fire in self._tables.fires.items()
            if fire.status == "started" and fire.lost_at is None
        ]
        found = []
        for _, number in sorted(run for run in runs if run[0] < started_before)[:limit]:
            fire = self._tables.change(self._tables.fires[number], seen_at=self.clock())
            found.append(OpenRun(fire.workflow_id, fire.run_id or "", fire.started_at or EPOCH))
        return found

    async def fires(
        self,
        *,
        key: str | None = None,
        status: Status | None = None,
        reason_code: ReasonCode | None = None,
        limit: int = 50,
    ) -> list[Fire]:
        found = [fire.as_fire() for fire in self._tables.fires.values()
                 if key in {None, fire.key} and status in {None, fire.status}
                 and reason_code in {None, code_of(fire.reason)}]  # fmt: skip
        return _newest(found, limit)

    async def fires_page(
        self,
        key: str,
        first: datetime,
        last: datetime,
        *,
        status: Status | None = None,
        reason_code: ReasonCode | None = None,
        after: str = "",
        limit: int,
    ) -> list[Fire]:
        found = [fire for fire in await self.fires(key=key, status=status, reason_code=reason_code,
                                                   limit=len(self._tables.fires) + 1)
                 if first <= fire.fire_time <= last
                 and (fire.fire_time < last or fire.workflow_id > after)]  # fmt: skip
        found.sort(key=lambda fire: fire.workflow_id)
        return sorted(found, key=lambda fire: fire.fire_time, reverse=True)[:limit]

    async def failing(self, *, key: str | None = None, limit: int = 50) -> list[Fire]:
        found = [fire.as_fire() for fire in self._tables.fires.values()
                 if fire.failing and key in {None, fire.key}]  # fmt: skip
        return _newest(found, limit)

    async def overflow(self, key: str) -> tuple[int, datetime | None]:
        skipped = await self.fires(key=key, status="skipped", limit=_LOOKED_AT)
        full = [fire for fire in skipped if fire.overflowed]
        last = max((fire.last_fire_time for fire in full), default=None)
        return sum(fire.windows for fire in full), last

    async def backfills(self, key: str, *, limit: int = 20) -> list[Backfill]:
        return backfills_of(self._tables, key)[:limit]

    async def laying(self) -> list[Backfill]:
        found = [each for each in self._tables.backfills.values() if each.state == "laying"]
        return sorted(found, key=lambda each: (each.key, each.first))

    async def check_data_gaps(self, *, rest: timedelta, limit: int) -> list[DataGap]:
        async with self._lock:
            return check_gaps(self._tables, self.clock(), rest, limit)

    async def data_gaps(self, key: str, *, limit: int = 20) -> list[DataGap]:
        return outermost_gaps(reported_gaps(self._tables, key))[:limit]

    def _leased(self, serving: Serving) -> Iterator[tuple[datetime, int]]:
        """Yield the end of the lease and the number of each fire that a replica may take over."""
        for number, fire in self._tables.fires.items():
            waits = fire.status in IN_HAND and fire.project == serving.project
            if waits and fire.lease_until:
                yield fire.lease_until, number
