"""The ledger in memory: what the engine uses without ``SCHED_DATABASE_URL``.

It keeps every rule of the PostgreSQL ledger inside one process and forgets all of it when the
process ends. Several replicas with one each are guarded by the run id alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from engine.ledger.memory_tables import FireEntry, Tables
from engine.ledger.memory_transaction import MemoryTransaction
from engine.ledger.records import (
    Claim,
    Evidence,
    Fire,
    NextFire,
    OpenRun,
    Outcome,
    Probe,
    ScheduleRow,
    Serving,
    Status,
)
from engine.schedules.time_rules import TIME_RULES
from engine.schedules.versions import resolve_type

STATELESS_ID = UUID("00000000-0000-0000-0000-000000000000")
"""The ledger id in memos of stateless replicas: they have no memory to tell them apart by."""

_DENIED = frozenset({"skipped", "expired", "rejected", "unvouched", "queued"})
_EPOCH = datetime.fromtimestamp(0, UTC)
_KEPT_FIRES = 10_000
"""Closed fires beyond this many are forgotten, oldest first."""


def _local_clock() -> datetime:
    return datetime.now(UTC)


class MemoryLedger:
    """The memory of every window, for as long as the process lives.

    Args:
        clock: the ledger's clock; by default the machine's.
        identity: goes into the memo of every run.
        remembers: True where nothing came before this process, as in a simulation.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], datetime] = _local_clock,
        identity: UUID = STATELESS_ID,
        remembers: bool = False,
    ) -> None:
        self.remembers = remembers
        self.clock = clock
        self._identity = identity
        self._tables = Tables()
        self._lock = asyncio.Lock()
        self._types: set[tuple[str, str]] = set()
        self._retentions: list[tuple[timedelta, datetime, datetime]] = []
        self._replicas: dict[str, tuple[Serving, datetime]] = {}
        self._duties: dict[str, tuple[str, datetime, datetime]] = {}

    def travel(self, now: datetime) -> None:
        """Let the clock stand at ``now`` from here on."""
        self.clock = lambda: now

    async def identity(self) -> str:
        """See ``Ledger``."""
        return str(self._identity)

    async def close(self) -> None:
        """See ``Ledger``."""

    @asynccontextmanager
    async def transaction(
        self,
        *,
        long: bool = False,  # noqa: ARG002 - no limits to lift here
    ) -> AsyncIterator[MemoryTransaction]:
        """See ``Ledger``. One at a time; what a failing block wrote is undone."""
        async with self._lock:
            with self._tables.undoable():
                yield MemoryTransaction(self._tables, self.clock, self._announced, self.living)
            self._tables.forget_closed(_KEPT_FIRES)

    async def probe(self, serving: Serving) -> Probe:
        """See ``Ledger``."""
        due = [row.next_fire_at for row in self._tables.schedules.values()
               if row.next_fire_at is not None and row.servable(serving)]  # fmt: skip
        leases = [fire.lease_until for fire in self._tables.fires.values()
                  if fire.lease_until and self._leased(fire, serving)]  # fmt: skip
        return Probe(
            now=self.clock(),
            ledger_id=self._identity,
            epoch=self._tables.counters["epoch"],
            due_at=min(due, default=None),
            stale_at=min(leases, default=None),
        )

    async def take_over(self, serving: Serving, *, limit: int, lease: timedelta) -> list[Claim]:
        """See ``Ledger``."""
        async with self._lock:
            now = self.clock()
            stale = [
                (fire.lease_until, number)
                for number, fire in self._tables.fires.items()
                if self._leased(fire, serving) and fire.lease_until and fire.lease_until <= now
            ]
            claims = []
            for _, number in sorted(stale)[:limit]:
                if claim := self._take(number, serving.replica, now, lease):
                    claims.append(claim)
            return claims

    def _take(self, number: int, replica: str, now: datetime, lease: timedelta) -> Claim | None:
        fire = self._tables.fires[number]
        hold = self._tables.schedules[fire.new.key].state.hold
        fresh = fire.status == "claimed"
        fire = replace(fire, attempts=fire.attempts + 1)
        if fresh and hold in {"paused", "retired"}:
            self._tables.fires[number] = replace(
                fire, status="skipped", reason=hold, token=None, lease_until=None
            )
            return None
        starting_at = fire.starting_at or now
        token = uuid4()
        self._tables.fires[number] = replace(
            fire, status="starting", token=token, replica=replica, lease_until=now + lease,
            starting_at=starting_at,
        )  # fmt: skip
        retention = self._smallest_retention(starting_at)
        new = replace(fire.new, token=token, timing=fire.timing, reason=fire.reason)
        claim = new.claim(number, starting_at)
        return replace(claim, attempts=fire.attempts, fresh=fresh, retention=retention)

    async def renew(self, claims: Sequence[Claim], lease: timedelta) -> set[int]:
        """See ``Ledger``."""
        now, renewed = self.clock(), set()
        async with self._lock:
            for claim in claims:
                fire = self._tables.fires.get(claim.fire_id)
                if fire is None or (fire.status, fire.token) != ("starting", claim.token):
                    continue
                if fire.lease_until is not None and fire.lease_until > now:
                    until = max(fire.lease_until, now + lease)
                    self._tables.fires[claim.fire_id] = replace(fire, lease_until=until)
                    renewed.add(claim.fire_id)
        return renewed

    def _note_retention(self, retention: timedelta, now: datetime) -> None:
        """The stretch goes on, or a new one begins."""
        begun = now
        if self._retentions and self._retentions[-1][0] == retention:
            _, begun, _ = self._retentions.pop()
        self._retentions.append((retention, begun, now))

    def _smallest_retention(self, since: datetime) -> timedelta | None:
        """In force since then: what was seen after it, and the stretch it fell into."""
        fell_into = max((begun for _, begun, _ in self._retentions if begun <= since), default=None)
        in_force = [
            retention
            for retention, begun, until in self._retentions
            if until >= since or begun == fell_into
        ]
        return min(in_force, default=None)

    async def settle(self, outcomes: Sequence[Outcome]) -> int:
        """See ``Ledger``."""
        written = 0
        async with self._lock:
            for outcome in outcomes:
                fire = self._tables.fires.get(outcome.fire_id)
                if fire is None or (fire.status, fire.token) != ("starting", outcome.token):
                    continue
                written += 1
                waits = outcome.status == "starting"
                retry_at = self.clock() + (outcome.retry_after or timedelta())
                self._tables.fires[outcome.fire_id] = replace(
                    fire,
                    status=outcome.status,
                    run_id=outcome.run_id or fire.run_id,
                    started_at=outcome.started_at or fire.started_at,
                    timing=outcome.timing or fire.timing,
                    reason=outcome.reason or fire.reason,
                    error=outcome.error,
                    lease_until=retry_at if waits else None,
                    token=fire.token if waits else None,
                )
        return written

    async def witness(self, evidence: Sequence[Evidence]) -> list[str]:
        """See ``Ledger``."""
        changed = []
        async with self._lock:
            for seen in evidence:
                number = self._tables.runs.get(seen.workflow_id)
                fire = self._tables.fires[number] if number else None
                if number is None or fire is None or fire.new.windows != 1:
                    continue
                if not fire.is_news(seen):
                    continue
                denied: dict[str, object] = {
                    "status": fire.status, "reason": fire.reason, "error": fire.error,
                }  # fmt: skip
                was_denied = fire.status in _DENIED
                self._tables.fires[number] = replace(
                    fire,
                    status=seen.closed or "started",
                    run_id=seen.run_id,
                    started_at=fire.started_at or seen.started_at,
                    closed_at=seen.closed_at,
                    timing=fire.timing or "late",
                    error=seen.error,
                    token=None,
                    lease_until=None,
                    reason=None if was_denied else fire.reason,
                    history=(*fire.history, denied) if was_denied else fire.history,
                )
                changed.append(seen.workflow_id)
        return changed

    async def open_runs(self, limit: int, *, started_before: datetime) -> list[OpenRun]:
        """See ``Ledger``."""
        runs = [(fire.seen_at or _EPOCH, number) for number, fire in self._tables.fires.items()
                if fire.status == "started" and (fire.started_at or _EPOCH) < started_before
                and (fire.seen_at or _EPOCH) < started_before]  # fmt: skip
        found = []
        for _, number in sorted(runs)[:limit]:
            fire = replace(self._tables.fires[number], seen_at=self.clock())
            self._tables.fires[number] = fire
            found.append(
                OpenRun(fire.new.workflow_id, fire.run_id or "", fire.started_at or _EPOCH)
            )
        return found

    async def announce(
        self,
        serving: Serving,
        *,
        engine: str,  # noqa: ARG002 - told to nobody
        tzdata: str,  # noqa: ARG002 - told to nobody
        retention: timedelta | None,
    ) -> None:
        """See ``Ledger``."""
        async with self._lock:
            now = self.clock()
            self._replicas[serving.replica] = (serving, now)
            if retention is not None:
                self._note_retention(retention, now)
            self._types |= {(serving.task_queue, name) for name in serving.types}
            for key, row in list(self._tables.schedules.items()):
                schedule = row.state.schedule
                found = resolve_type(schedule.workflow, self._announced(schedule.task_queue))
                if found and not schedule.external:
                    state = replace(row.state, workflow_type=found)
                    self._tables.schedules[key] = replace(row, state=state)

    async def newer_rules(
        self,
        project: str,  # noqa: ARG002 - one process has one set of rules
    ) -> tuple[int, str]:
        """See ``Ledger``."""
        return 0, TIME_RULES

    async def other_rules(
        self,
        project: str,  # noqa: ARG002 - one process has one set of rules
        *,
        alive: timedelta,  # noqa: ARG002 - as above
    ) -> list[str]:
        """See ``Ledger``."""
        return []

    async def withdraw(self, serving: Serving) -> None:
        """See ``Ledger``."""
        self._replicas.pop(serving.replica, None)

    def living(self, alive: timedelta) -> list[Serving]:
        """Return the replicas that announced within ``alive``."""
        now = self.clock()
        return [other for other, seen in self._replicas.values() if seen > now - alive]

    async def hold_duty(self, duty: str, holder: str, lease: timedelta) -> datetime | None:
        """See ``Ledger``."""
        now = self.clock()
        other, expires, watermark = self._duties.get(duty, (holder, now, _EPOCH))
        if other != holder and expires >= now:
            return None
        self._duties[duty] = (holder, now + lease, watermark)
        return watermark

    async def set_watermark(self, duty: str, holder: str, watermark: datetime) -> None:
        """See ``Ledger``."""
        other, expires, before = self._duties[duty]
        if other == holder:
            self._duties[duty] = (holder, expires, max(before, watermark))

    async def schedules(
        self, project: str | None = None, *, key: str | None = None
    ) -> list[ScheduleRow]:
        """See ``Ledger``."""
        rows = []
        for name, row in sorted(self._tables.schedules.items()):
            if project not in {None, row.state.project} or key not in {None, name}:
                continue
            newest = next(iter(await self.fires(key=name, limit=1)), None)
            rows.append(
                ScheduleRow(
                    key=name,
                    project=row.state.project,
                    workflow=row.state.schedule.workflow,
                    schedule=row.state.schedule,
                    state=row.state.hold or "active",
                    next_fire_at=row.next_fire_at,
                    last_fire_at=newest.last_fire_time if newest else None,
                    last_status=newest.status if newest else None,
                    workflow_type=row.state.workflow_type,
                    definition_version=row.state.definition_version,
                    series=row.state.series,
                    effective_from=row.state.effective_from,
                    error=row.error,
                    rules=row.state.rules,
                )
            )
        return rows

    async def count_schedules(self, project: str) -> int:
        """See ``Ledger``."""
        rows = self._tables.schedules.values()
        return sum(row.state.project == project and row.state.retired_at is None for row in rows)

    async def lanes(self, project: str) -> dict[str, int]:
        """See ``Ledger``."""
        rows = self._tables.schedules.values()
        return Counter(
            row.lane
            for row in rows
            if row.state.project == project and row.state.retired_at is None
        )

    async def upcoming(self, project: str, limit: int) -> list[NextFire]:
        """See ``Ledger``."""
        found = [
            NextFire(name, moment, row.state.schedule.timezone)
            for name, row in self._tables.schedules.items()
            if row.state.project == project
            and row.next_fire_at is not None
            and (moment := row.state.schedule.first_start(row.next_fire_at))
        ]
        return sorted(found, key=lambda fire: (fire.fire_time, fire.key))[:limit]

    async def fires(
        self, *, key: str | None = None, status: Status | None = None, limit: int = 50
    ) -> list[Fire]:
        """See ``Ledger``."""
        found = [fire.as_fire() for fire in self._tables.fires.values()
                 if key in {None, fire.new.key} and status in {None, fire.status}]  # fmt: skip
        found.sort(key=lambda fire: fire.key)
        found.sort(key=lambda fire: fire.fire_time, reverse=True)
        return found[:limit]

    async def fire(self, workflow_id: str) -> Fire | None:
        """See ``Ledger``."""
        number = self._tables.runs.get(workflow_id)
        return self._tables.fires[number].as_fire() if number else None

    @staticmethod
    def _leased(fire: FireEntry, serving: Serving) -> bool:
        return fire.status in {"claimed", "starting"} and fire.new.project == serving.project

    def _announced(self, task_queue: str) -> list[str]:
        return [name for queue, name in self._types if queue == task_queue]
