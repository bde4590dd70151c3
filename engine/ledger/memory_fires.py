"""What becomes of fires in the in-memory ledger: leases, outcomes, evidence, and reading them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from engine.ledger.backfill_records import Backfill
from engine.ledger.data_gaps import DENIED, DataGap, apart
from engine.ledger.fire_records import Claim, Evidence, Fire, OpenRun, Outcome, Status
from engine.ledger.memory_backfilling import backfills_of
from engine.ledger.memory_data import check_gaps, told_gaps, write_fire
from engine.ledger.memory_runs import MemoryRuns
from engine.ledger.memory_tables import FireEntry, Tables
from engine.ledger.replica_records import Serving

_WITHOUT_RUN = DENIED | {"queued"}
_EPOCH = datetime.fromtimestamp(0, UTC)
_LOOKED_AT = 5000


class MemoryFires(MemoryRuns):
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
        asked_for = fire.kind != "window" or fire.timing == "backfill"
        retired = hold == "retired" and fire.kind != "handler"
        if fresh and (retired or (hold == "paused" and not asked_for)):
            gone = replace(fire, status="skipped", reason=hold, token=None, lease_until=None)
            self._write_fire(number, gone)
            return None
        starting_at = fire.starting_at or now
        token = uuid4()
        self._write_fire(number, replace(
            fire, status="starting", token=token, replica=replica, lease_until=now + lease,
            starting_at=starting_at,
        ))  # fmt: skip
        retention = self._smallest_retention(starting_at)
        new = replace(fire.new, token=token, timing=fire.timing, reason=fire.reason)
        claim = new.claim(
            number, starting_at, data_from=self._tables.fires[number].data_from,
            rules=self._tables.rules_of(new),
        )  # fmt: skip
        return replace(
            claim, attempts=fire.attempts, fresh=fresh, retention=retention,
            own_input=fire.own_input, kind=fire.kind,
        )  # fmt: skip

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

    def note_retention(self, retention: timedelta, now: datetime) -> None:
        """Remember what the namespace's retention is: the stretch goes on, or a new one begins."""
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
                written_as = replace(
                    fire,
                    status=outcome.status,
                    run_id=outcome.run_id or fire.run_id,
                    first_run_id=fire.first_run_id or outcome.first_run_id,
                    started_at=outcome.started_at or fire.started_at,
                    timing=outcome.timing or fire.timing,
                    reason=outcome.reason or fire.reason,
                    error=outcome.error,
                    lease_until=retry_at if waits else None,
                    token=fire.token if waits else None,
                )
                self._write_fire(outcome.fire_id, written_as)
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
                was_denied = fire.status in _WITHOUT_RUN
                ends = fire.closed_at is None or seen.closed is not None  # else it was reset
                seen_as = replace(
                    fire,
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
                    dealt_at=None,
                    followed=False,
                    token=None,
                    lease_until=None,
                    lost_at=None,
                    awaits=None,
                    reason=None if was_denied else fire.reason,
                    history=(*fire.history, fire.denied) if was_denied else fire.history,
                )
                self._write_fire(number, seen_as)
                changed.append(seen.workflow_id)
        return changed

    async def open_runs(self, limit: int, *, started_before: datetime) -> list[OpenRun]:
        """See ``Ledger``."""
        runs = [(fire.seen_at or fire.started_at or _EPOCH, number)
                for number, fire in self._tables.fires.items()
                if fire.status == "started" and fire.lost_at is None]  # fmt: skip
        found = []
        for _, number in sorted(run for run in runs if run[0] < started_before)[:limit]:
            fire = replace(self._tables.fires[number], seen_at=self.clock())
            self._tables.fires[number] = fire
            found.append(
                OpenRun(fire.new.workflow_id, fire.run_id or "", fire.started_at or _EPOCH)
            )
        return found

    async def fires(
        self, *, key: str | None = None, status: Status | None = None, limit: int = 50
    ) -> list[Fire]:
        """See ``Ledger``."""
        found = [fire.as_fire() for fire in self._tables.fires.values()
                 if key in {None, fire.new.key} and status in {None, fire.status}]  # fmt: skip
        found.sort(key=lambda fire: fire.key)
        found.sort(key=lambda fire: fire.fire_time, reverse=True)
        return found[:limit]

    async def overflow(self, key: str) -> tuple[int, datetime | None]:
        """See ``Ledger``."""
        skipped = await self.fires(key=key, status="skipped", limit=_LOOKED_AT)
        full = [fire for fire in skipped if fire.overflowed]
        last = max((fire.last_fire_time for fire in full), default=None)
        return sum(fire.windows for fire in full), last

    async def fire(self, workflow_id: str) -> Fire | None:
        """See ``Ledger``."""
        number = self._tables.runs.get(workflow_id)
        return self._tables.fires[number].as_fire() if number else None

    async def backfills(self, key: str, *, limit: int = 20) -> list[Backfill]:
        """See ``Ledger``."""
        return backfills_of(self._tables, key)[:limit]

    async def laying(self) -> list[Backfill]:
        """See ``Ledger``."""
        found = [each for each in self._tables.backfills.values() if each.state == "laying"]
        return sorted(found, key=lambda each: (each.key, each.first))

    async def check_data_gaps(self, *, rest: timedelta, limit: int) -> list[DataGap]:
        """See ``Ledger``."""
        async with self._lock:
            return check_gaps(self._tables, self.clock(), rest, limit)

    async def data_gaps(self, key: str, *, limit: int = 20) -> list[DataGap]:
        """See ``Ledger``."""
        return apart(told_gaps(self._tables, key))[:limit]

    def _write_fire(self, number: int, fire: FireEntry) -> None:
        write_fire(self._tables, number, fire, self.clock())

    @staticmethod
    def _leased(fire: FireEntry, serving: Serving) -> bool:
        return fire.status in {"claimed", "starting"} and fire.new.project == serving.project
