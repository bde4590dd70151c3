"""The ledger in memory: what the engine uses without ``SCHED_DATABASE_URL``.

It keeps every rule of the PostgreSQL ledger inside one process and forgets all of it when the
process ends. Several replicas with one each are guarded by the run id alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from engine.ledger.fire_records import Fire
from engine.ledger.memory_backfilling import laying_of
from engine.ledger.memory_fires import MemoryFires
from engine.ledger.memory_slots import MemorySlots
from engine.ledger.memory_transaction import MemoryTransaction
from engine.ledger.queue_rows import PolledQueue
from engine.ledger.replica_records import Lineage, Probe, Served, Serving, Wanted, as_served
from engine.ledger.schedule_records import NextFire, ScheduleRow, ScheduleState, state_of
from engine.schedules.time_rules import TIME_RULES
from engine.schedules.versions import resolve_type

STATELESS_ID = UUID("00000000-0000-0000-0000-000000000000")
"""The ledger id in memos of stateless replicas: they have no memory to tell them apart by."""

_EPOCH = datetime.fromtimestamp(0, UTC)
_KEPT_FIRES = 10_000
"""Closed fires beyond this many are forgotten, oldest first."""


def _local_clock() -> datetime:
    return datetime.now(UTC)


class MemoryLedger(MemorySlots, MemoryFires):
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
        super().__init__(clock)
        self.remembers = self._tables.remembers = remembers
        self._identity = identity
        self._replicas: dict[str, tuple[Serving, datetime]] = {}
        self._doubted_at: datetime | None = None
        self._hearing: list[Callable[[], None]] = []
        self._duties: dict[str, tuple[str, datetime, datetime]] = {}
        self._polled: dict[str, PolledQueue] = {}
        self._slots = {}
        self._last_asks = {}

    def travel(self, now: datetime) -> None:
        """Let the clock stand at ``now`` from here on."""
        self.clock = lambda: now

    async def build_indexes(
        self,
        *,
        patience: float | None = None,  # noqa: ARG002 - there is nothing to wait for
    ) -> list[str]:
        """See ``Ledger``."""
        return []

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
            asked = self._asked_for()
            with self._tables.undoable():
                yield MemoryTransaction(self._tables, self.clock, self._announced, self.living)
            self._tables.forget_closed(_KEPT_FIRES)
            if self._asked_for() != asked:
                for wake in self._hearing:
                    wake()

    def _asked_for(self) -> tuple[int, int]:
        """What grows with each verb and each apply, and with nothing else."""
        return self._tables.counters["action"], self._tables.counters["epoch"]

    async def hear(self, wake: Callable[[], None]) -> None:
        """See ``Ledger``. Only what is asked for in this process is heard."""
        self._hearing.append(wake)
        try:
            wake()
            await asyncio.Event().wait()
        finally:
            self._hearing.remove(wake)

    async def probe(
        self,
        serving: Serving,
        *,
        ahead: timedelta | None = None,  # noqa: ARG002 - nothing is left out
    ) -> Probe:
        """See ``Ledger``."""
        due = [row.next_fire_at for row in self._tables.schedules.values()
               if row.next_fire_at is not None and row.servable(serving)]  # fmt: skip
        leases = [fire.lease_until for fire in self._tables.fires.values()
                  if fire.lease_until and self._leased(fire, serving)]  # fmt: skip
        stops = [fire.stop_at for fire in self._tables.fires.values()
                 if fire.stop_at and fire.stop and fire.status == "started"
                 and fire.new.project == serving.project]  # fmt: skip
        rows = self._tables.schedules.values()
        return Probe(
            chained=any(
                row.state.schedule.follows for row in rows if row.state.project == serving.project
            ),
            now=self.clock(),
            ledger_id=self._identity,
            epoch=self._tables.counters["epoch"],
            due_at=min(due, default=None),
            stale_at=min(leases, default=None),
            stop_at=min(stops, default=None),
            doubted_at=self._doubted_at,
            lay_at=min((each.next_at for each in laying_of(self._tables, serving)), default=None),
        )

    async def prepare(self) -> bool:
        """See ``Ledger``. Nothing is parsed here."""
        return False

    async def lineage(self) -> tuple[Lineage, Lineage]:
        """See ``Ledger``. A process has one history."""
        return Lineage(), Lineage()

    async def note_lineage(
        self,
        lineage: Lineage,  # noqa: ARG002 - as above
        *,
        doubted: bool,
    ) -> datetime | None:
        """See ``Ledger``."""
        if doubted:
            self._doubted_at = self.clock()
        return self._doubted_at

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
                self.note_retention(retention, now)
            for name in serving.types:
                self._tables.rules[serving.task_queue, name] = serving.rules.get(name) or None
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

    async def replicas(self, *, alive: timedelta) -> int:
        """See ``Ledger``."""
        return len(self.living(alive))

    async def withdraw(self, serving: Serving) -> None:
        """See ``Ledger``."""
        self._replicas.pop(serving.replica, None)

    async def served(self, *, alive: timedelta) -> Served:
        """See ``Ledger``."""
        return as_served(
            (other.project, other.task_queue, other.types) for other in self.living(alive)
        )

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

    async def external_queues(self) -> list[str]:
        """See ``Ledger``."""
        states = (row.state for row in self._tables.schedules.values())
        return sorted({
            state.schedule.task_queue
            for state in states
            if state.schedule.external and state.retired_at is None
        })  # fmt: skip

    async def note_polls(
        self, seen: Mapping[str, tuple[datetime | None, int]], *, of: Sequence[str]
    ) -> list[PolledQueue]:
        """See ``Ledger``."""
        now = self.clock()
        for queue, (polled_at, waiting) in seen.items():
            before = self._polled.get(queue)
            since, known = (before.since, before.polled_at) if before else (now, None)
            newest = max(filter(None, (polled_at, known)), default=None)
            self._polled[queue] = PolledQueue(queue, newest, waiting, since, now)
        self._polled = {queue: row for queue, row in self._polled.items() if queue in of}
        return [self._polled[queue] for queue in seen if queue in of]

    async def polled_queues(self, *, within: timedelta) -> list[PolledQueue]:
        """See ``Ledger``."""
        now = self.clock()
        return [row for _, row in sorted(self._polled.items()) if row.looked_at > now - within]

    async def release_duty(self, duty: str, holder: str) -> None:
        """See ``Ledger``."""
        other, _, watermark = self._duties.get(duty, ("", _EPOCH, _EPOCH))
        if other == holder:
            self._duties[duty] = (holder, _EPOCH, watermark)

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
            newest = await self._newest(name)
            rows.append(
                ScheduleRow(
                    key=name,
                    project=row.state.project,
                    workflow=row.state.schedule.workflow,
                    schedule=row.state.schedule,
                    state=state_of(row.state.hold, row.next_fire_at),
                    next_fire_at=row.next_fire_at,
                    last_fire_at=newest.last_fire_time if newest else None,
                    last_status=newest.status if newest else None,
                    workflow_type=row.state.workflow_type,
                    definition_version=row.state.definition_version,
                    series=row.state.series,
                    effective_from=row.state.effective_from,
                    error=row.error,
                    rules=row.state.rules,
                    pause=row.state.pause,
                    origin=row.state.origin,
                    skips=self._skips(row.state),
                )
            )
        return rows

    async def _newest(self, key: str) -> Fire | None:
        """The key's newest fire; not one that was skipped before it came."""
        now, fires = self.clock(), await self.fires(key=key, limit=_KEPT_FIRES)
        numbers, kept = self._tables.runs, self._tables.fires
        return next(
            (
                fire
                for fire in fires
                if fire.fire_time <= now and kept[numbers[fire.workflow_id]].kind != "handler"
            ),
            None,
        )

    async def count_schedules(self, project: str) -> int:
        """See ``Ledger``."""
        rows = self._tables.schedules.values()
        return sum(row.state.project == project and row.state.retired_at is None for row in rows)

    async def wanted(self, project: str) -> list[Wanted]:
        """See ``Ledger``."""
        found = Counter(
            (row.lane, row.state.schedule.workflow, row.state.workflow_type)
            for row in self._tables.schedules.values()
            if row.state.project == project and row.state.hold is None and row.next_fire_at
        )
        return [Wanted(*kind, count) for kind, count in found.items()]

    async def upcoming(self, project: str, limit: int) -> list[NextFire]:
        """See ``Ledger``."""
        found = [
            NextFire(name, moment, row.state.schedule.timezone)
            for name, row in self._tables.schedules.items()
            if row.state.project == project
            and row.next_fire_at is not None
            and (
                moment := row.state.schedule.first_start(
                    row.next_fire_at, but=self._skips(row.state)
                )
            )
        ]
        return sorted(found, key=lambda fire: (fire.fire_time, fire.key))[:limit]

    def _skips(self, state: ScheduleState) -> dict[datetime, str]:
        """Return the windows to come that somebody skipped, and why."""
        fires = (self._tables.fires[number] for number in self._tables.of_key(state.key))
        return {
            fire.new.fire_time: fire.reason or ""
            for fire in fires
            if fire.kind == "window" and fire.status == "skipped"
            and fire.new.series == state.series and fire.new.fire_time > state.cursor
        }  # fmt: skip

    def _announced(self, task_queue: str) -> list[str]:
        return [name for queue, name in self._tables.rules if queue == task_queue]
