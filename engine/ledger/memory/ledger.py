"""In-memory ledger."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from uuid import UUID

from engine.errors import LedgerRequired
from engine.ledger.alerts import AlertsInMemory, Facts
from engine.ledger.fires import IN_HAND, common_fields
from engine.ledger.memory.access_rows import AccessInMemory
from engine.ledger.memory.event_rows import EventsInMemory
from engine.ledger.memory.fire_rows import MemoryFires
from engine.ledger.memory.operations import laying_of
from engine.ledger.memory.tables import (
    FireEntry,
    MemoryRows,
    ScheduleEntry,
    facts_of,
    is_dead,
    started_windows,
)
from engine.ledger.memory.transaction import MemoryTransaction
from engine.ledger.records import (
    Action,
    Lineage,
    Load,
    NewDefinition,
    PolledQueue,
    Probe,
    Served,
    Serving,
    SlotAsk,
    Totals,
    Wanted,
    as_served,
)
from engine.ledger.schedule_rows import NextFire, ScheduleFilter, ScheduleRow, state_of
from engine.schedules import EPOCH, resolve_type
from engine.schedules.planner import TIME_RULES

# --- queue slots ---
# Step queue slots in memory, by the rules of ``hold_slots.sql``.


class MemorySlots(MemoryRows):
    """Slots of step queues. No method awaits, so that no two calls interleave."""

    _slots: dict[tuple[str, int], tuple[str, str, datetime]]
    """(lane, slot) → queue, holder and end of the lease."""
    _last_asks: dict[str, int]
    """Holder → the number of its last call."""

    async def hold_slots(
        self,
        holder: str,
        asks: Sequence[SlotAsk],
        lease: timedelta,
        *,
        take_over: bool,
        number: int,
    ) -> dict[str, int]:
        if number < self._last_asks.get(holder, 0):
            return {}
        self._last_asks[holder] = number
        held: Counter[str] = Counter()
        beyond: Counter[str] = Counter()
        now = self.clock()
        asked = {ask.lane: ask for ask in asks}
        places: Counter[str] = Counter()
        for lane, slot in self._of(holder):
            places[lane] += 1
            ask = asked.get(lane)
            most = self._concurrency(ask.queue) if ask else 0
            if ask and (
                places[lane] <= ask.running or (places[lane] <= ask.wanted and slot < most)
            ):
                self._hold(lane, slot, ask.queue, holder, now + lease)
                held[lane] += 1
                beyond[lane] += slot >= most
            else:
                del self._slots[lane, slot]
        for ask in asks:
            most = self._concurrency(ask.queue)
            taken = {
                slot
                for (lane, slot), (_, other, until) in self._slots.items()
                if lane == ask.lane and (other == holder or not take_over or until > now)
            }
            room = min(ask.wanted - held[ask.lane], most - len(taken))
            for slot in [slot for slot in range(most) if slot not in taken][: max(room, 0)]:
                self._slots.pop((ask.lane, slot), None)
                self._hold(ask.lane, slot, ask.queue, holder, now + lease)
                held[ask.lane] += 1
        usable = held - beyond
        return dict(usable)

    async def give_back_slots(self, holder: str) -> None:
        for place in self._of(holder):
            del self._slots[place]

    def _of(self, holder: str) -> list[tuple[str, int]]:
        return sorted(place for place, (_, owner, _) in self._slots.items() if owner == holder)

    def _hold(self, lane: str, slot: int, queue: str, holder: str, until: datetime) -> None:
        _, _, before = self._slots.get((lane, slot), ("", "", until))
        self._slots[lane, slot] = (queue, holder, max(before, until))

    def _concurrency(self, queue: str) -> int:
        row = self._tables.queues.get(queue)
        return row.limits.concurrency or 0 if row else 0


# --- ledger ---
# The ledger that the engine uses without ``SCHED_DATABASE_URL``. It keeps every rule of the
# PostgreSQL ledger inside one process, and loses everything when the process ends. Replicas with
# one each are guarded by the run ID alone.

STATELESS_ID = UUID("00000000-0000-0000-0000-000000000000")
"""The ledger ID in memos of stateless replicas, which nothing distinguishes."""

_KEPT_FIRES = 10_000
"""Closed fires beyond this number of fires are dropped, oldest first."""


def _local_clock() -> datetime:
    return datetime.now(UTC)


class MemoryLedger(MemorySlots, MemoryFires):
    """The record of every window, for as long as the process lives.

    Args:
        clock: the ledger's clock; by default the machine's.
        identity: goes into the memo of every run.
        remembers: True if nothing came before this process, as in a simulation.
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
        self._suspect_until: datetime | None = None
        self._listeners: list[Callable[[], None]] = []
        self._duties: dict[str, tuple[str, datetime, datetime]] = {}
        self._polled: dict[str, PolledQueue] = {}
        self._slots = {}
        self._last_asks = {}
        self.alerts = AlertsInMemory(lambda: self.clock())  # noqa: PLW0108 - tests replace the clock
        self.access = AccessInMemory(lambda: self.clock())  # noqa: PLW0108 - as above
        self.events = EventsInMemory(
            self._tables.outbox, self._lock, lambda: self.clock(),  # noqa: PLW0108 - the same
            lambda: {serving.project for serving, _, _ in self._tables.replicas.values()},
        )  # fmt: skip

    def travel(self, now: datetime) -> None:
        """Stop the clock at ``now``."""
        self.clock = lambda: now

    async def build_indexes(self, *, patience: float | None = None) -> list[str]:
        return []

    async def identity(self) -> str:
        return str(self._identity)

    async def close(self) -> None:
        """Do nothing."""

    @asynccontextmanager
    async def transaction(self, *, long: bool = False) -> AsyncIterator[MemoryTransaction]:
        """Begin a transaction, one at a time; roll it back if the block raises."""
        async with self._lock:
            asked = self._asked_for()
            with self._tables.undoable():
                yield MemoryTransaction(self._tables, self.clock)
            self._tables.forget_closed(_KEPT_FIRES)
            if self._asked_for() != asked:
                for wake in self._listeners:
                    wake()

    def _asked_for(self) -> tuple[int, ...]:
        """Return the counters that only requests raise."""
        return tuple(self._tables.counters[name] for name in ("action", "epoch", "notice"))

    async def listen(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` for requests made in this process only."""
        self._listeners.append(wake)
        try:
            wake()
            await asyncio.Event().wait()
        finally:
            self._listeners.remove(wake)

    async def probe(self, serving: Serving, *, ahead: timedelta | None = None) -> Probe:
        due = [row.due_at for row in self._tables.schedules.values()
               if row.due_at is not None and row.servable(serving)]  # fmt: skip
        leases = [until for until, _ in self._leased(serving)]
        stops = [at for at, _ in self._to_stop(serving)]
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
            suspect_until=self._suspect_until,
            lay_at=min((each.next_at for each in laying_of(self._tables, serving)), default=None),
        )

    async def prepare(self) -> bool:
        """Return False: there is nothing to parse."""
        return False

    async def lineage(self) -> tuple[Lineage, Lineage]:
        """Return no lineage: a process has one history."""
        return Lineage(), Lineage()

    async def note_lineage(self, lineage: Lineage, *, suspect: bool) -> datetime | None:
        if suspect:
            self._suspect_until = self.clock()
        return self._suspect_until

    async def announce(
        self,
        serving: Serving,
        *,
        engine: str,
        tzdata: str,
        retention: timedelta | None,
        heartbeat: timedelta = timedelta(seconds=10),
    ) -> None:
        async with self._lock:
            now = self.clock()
            self._tables.replicas[serving.replica] = (serving, now, heartbeat)
            if retention is not None:
                self.note_retention(retention, now)
            for name in serving.types:
                self._tables.rules[serving.task_queue, name] = serving.rules.get(name) or None
            for row in list(self._tables.schedules.values()):
                schedule = row.state.schedule
                found = resolve_type(schedule.workflow, self._announced(schedule.task_queue))
                if found and not schedule.external:
                    self._put(row, workflow_type=found)

    async def newer_rules(self, project: str) -> tuple[int, str]:
        return 0, TIME_RULES

    async def other_rules(self, project: str, *, alive: timedelta) -> list[str]:
        return []

    async def totals(self, serving: Serving, *, most: int) -> Totals:
        now, fires = self.clock(), [*self._tables.fires.values()]
        overdue = [
            row
            for row in self._tables.schedules.values()
            if row.state.project == serving.project
            and row.lane in serving.lanes
            and row.is_due(now)
            and row.next_fire_at is not None
            and row.next_fire_at < now - row.state.schedule.grace
        ]
        there = [each for each in fires if each.lost_at is None]
        found = (
            sum(each.status == "queued" for each in fires),
            sum(each.status in IN_HAND for each in there),
            sum(each.status == "started" for each in there),
            sum(map(is_dead, fires)),
            len(overdue),
        )
        return Totals(*(min(each, most) for each in found))

    async def load(self, *, most: int) -> Load:
        now = self.clock()
        due = (row.next_fire_at for row in self._tables.schedules.values() if row.is_due(now))
        held = (
            fire.replica
            for fire in self._tables.fires.values()
            if fire.status in IN_HAND and fire.lost_at is None and fire.replica
        )
        rows = self._tables.schedules.values()
        awaits = any(row.next_fire_at is not None and row.state.hold is None for row in rows)
        return Load(Counter(islice(held, most)), min(filter(None, due), default=None), awaits)

    async def facts(self, *, limit: int = 200) -> Facts:
        return facts_of(self._tables, self.clock(), limit)

    async def replicas(self, *, alive: timedelta) -> int:
        return len(self.living(alive))

    async def withdraw(self, serving: Serving) -> None:
        self._tables.replicas.pop(serving.replica, None)

    async def served(self, *, alive: timedelta) -> Served:
        return as_served(
            (other.project, other.task_queue, other.types) for other in self.living(alive)
        )

    async def hold_duty(self, duty: str, holder: str, lease: timedelta) -> datetime | None:
        now = self.clock()
        other, expires, watermark = self._duties.get(duty, (holder, now, EPOCH))
        if other != holder and expires >= now:
            return None
        self._duties[duty] = (holder, now + lease, watermark)
        return watermark

    async def external_queues(self) -> list[str]:
        states = (row.state for row in self._tables.schedules.values())
        return sorted({
            state.schedule.task_queue
            for state in states
            if state.schedule.external and state.retired_at is None
        })  # fmt: skip

    async def note_polls(
        self, seen: Mapping[str, tuple[datetime | None, int]], *, of: Sequence[str]
    ) -> list[PolledQueue]:
        now = self.clock()
        for queue, (polled_at, waiting) in seen.items():
            before = self._polled.get(queue)
            since, known = (before.since, before.polled_at) if before else (now, None)
            newest = max(filter(None, (polled_at, known)), default=None)
            self._polled[queue] = PolledQueue(queue, newest, waiting, since, now)
        self._polled = {queue: row for queue, row in self._polled.items() if queue in of}
        return [self._polled[queue] for queue in seen if queue in of]

    async def polled_queues(self, *, within: timedelta) -> list[PolledQueue]:
        now = self.clock()
        return [row for _, row in sorted(self._polled.items()) if row.looked_at > now - within]

    async def release_duty(self, duty: str, holder: str) -> None:
        other, _, watermark = self._duties.get(duty, ("", EPOCH, EPOCH))
        if other == holder:
            self._duties[duty] = (holder, EPOCH, watermark)

    async def set_watermark(self, duty: str, holder: str, watermark: datetime) -> None:
        other, expires, before = self._duties[duty]
        if other == holder:
            self._duties[duty] = (holder, expires, max(before, watermark))

    async def schedules(
        self,
        project: str | None = None,
        *,
        key: str | None = None,
        wanted: ScheduleFilter | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[ScheduleRow]:
        asked = {of_key: request_id for request_id, of_key in self._tables.requests.items()}
        found = (
            self._shown(name, row, asked.get(name))
            for name, row in sorted(self._tables.schedules.items())
            if project in {None, row.state.project}
            and key in {None, name}
            and (after is None or name > after)
        )
        if wanted is not None:
            gone = {name for name, each in self._tables.projects.items() if each.forgotten}
            found = (
                row
                for row in found
                if not row.of_starts and wanted.matches(row)
                if row.state != "retired" or row.project not in gone
            )
        return list(islice(found, limit))

    async def create_within(
        self, connection: object, new: NewDefinition, action: Action, *, by: str
    ) -> None:
        raise LedgerRequired(
            "a connection can be joined only where the ledger is in PostgreSQL",
            cure="set SCHED_DATABASE_URL",
        )

    def _shown(self, key: str, row: ScheduleEntry, request_id: str | None) -> ScheduleRow:
        newest = self._newest(key)
        version = self._tables.versions.get((key, row.state.definition_version))
        fields = common_fields(ScheduleRow, row) | common_fields(ScheduleRow, row.state)
        fields |= {
            "next_fire_at": row.next_fire_at if row.is_due(self.clock()) else row.due_at,
            "workflow": row.state.schedule.workflow,
            "state": state_of(row.state.hold, row.next_fire_at),
            "last_fire_at": newest.last_fire_time if newest else None,
            "last_status": newest.status if newest else None,
            "skips": {f.fire_time: f.reason or "" for f in self._skipped_ahead(key)},
            "request_id": request_id,
            "defined_at": version and version.applied_at,
            "started": started_windows(row.state, self._tables.of_key(key)),
        }
        return ScheduleRow(**fields)

    def _newest(self, key: str) -> FireEntry | None:
        """Return the key's newest fire, not counting windows skipped before they came."""
        now = self.clock()
        fires = [
            fire
            for fire in self._tables.of_key(key)
            if fire.fire_time <= now and fire.kind != "handler"
        ]
        return max(fires, key=lambda fire: fire.fire_time, default=None)

    async def count_schedules(self, project: str) -> int:
        rows = self._tables.schedules.values()
        return sum(row.state.project == project and row.state.retired_at is None for row in rows)

    async def wanted(self, project: str) -> list[Wanted]:
        found = Counter(
            (row.lane, row.state.schedule.workflow, row.state.workflow_type)
            for row in self._tables.schedules.values()
            if row.state.project == project and row.state.hold is None and row.next_fire_at
        )
        return [Wanted(*kind, count) for kind, count in found.items()]

    async def upcoming(self, project: str, limit: int) -> list[NextFire]:
        found = [
            NextFire(row.key, moment, row.schedule.timezone)
            for row in await self.schedules(project)
            if row.schedule and (moment := row.next_start_at)
        ]
        return sorted(found, key=lambda fire: (fire.fire_time, fire.key))[:limit]
