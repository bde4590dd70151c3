"""One transaction of the in-memory ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from engine.errors import LedgerError
from engine.ledger.fire_records import Claim
from engine.ledger.memory_awaiting import with_awaited
from engine.ledger.memory_backfilling import MemoryBackfilling
from engine.ledger.memory_declaring import MemoryDeclaring
from engine.ledger.memory_follow_ups import MemoryFollowUps
from engine.ledger.memory_letters import MemoryLetters
from engine.ledger.memory_operating import MemoryOperating
from engine.ledger.memory_queues import MemoryQueues
from engine.ledger.memory_tables import FireEntry, ScheduleEntry, Tables
from engine.ledger.new_fire import NewFire
from engine.ledger.replica_records import Serving
from engine.ledger.schedule_records import ScheduleState, Step
from engine.schedules.decisions import ALL_READ, OpenFire, Unread
from engine.schedules.model import Schedule
from engine.schedules.proofs import ahead
from engine.schedules.time_rules import TIME_RULES


class MemoryTransaction(
    MemoryOperating,
    MemoryBackfilling,
    MemoryDeclaring,
    MemoryQueues,
    MemoryLetters,
    MemoryFollowUps,
):
    """See ``engine.ledger.transactions.Transaction``."""

    def __init__(
        self,
        tables: Tables,
        clock: Callable[[], datetime],
        announced: Callable[[str], list[str]],
        living: Callable[[timedelta], list[Serving]],
    ) -> None:
        self._tables, self._clock, self._announced = tables, clock, announced
        self._living = living

    async def now(self) -> datetime:
        """See ``Transaction``."""
        return self._clock()

    async def lock_due(
        self,
        serving: Serving,
        limit: int,
        *,
        but: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> list[str]:
        """See ``Transaction``."""
        now = self._clock()
        due = [
            (row.next_fire_at, key)
            for key, row in self._tables.schedules.items()
            if row.next_fire_at
            and row.next_fire_at <= now
            and row.servable(serving)
            and key not in but
            and (only is None or key in only)
        ]
        return [key for _, key in sorted(due)[:limit]]

    async def lock(self, keys: Sequence[str]) -> None:
        """See ``Transaction``. The one lock of the ledger is held already."""

    async def lock_outdated(self, serving: Serving, after: str, limit: int) -> list[str]:
        """See ``Transaction``."""
        old = [
            key
            for key, row in sorted(self._tables.schedules.items())
            if key > after
            and row.state.project == serving.project
            and row.lane in serving.lanes
            and row.state.retired_at is None
            and row.state.rules < TIME_RULES
        ]
        return old[:limit]

    async def lock_unsent(self, fire_ids: Collection[int]) -> set[int]:
        """See ``Transaction``. The one lock of the ledger is held already."""
        fires = self._tables.fires
        return {n for n in fire_ids if n in fires and fires[n].status in {"claimed", "queued"}}

    async def read(
        self,
        keys: Sequence[str],
        *,
        all_open: bool = False,
        at_once: bool = False,  # noqa: ARG002 - nothing is parsed here
    ) -> list[ScheduleState]:
        """See ``Transaction``."""
        rows = self._tables.schedules
        return [self._known(rows[key].state, all_open) for key in keys if key in rows]

    def _known(self, state: ScheduleState, all_open: bool) -> ScheduleState:  # noqa: FBT001 - private
        """Add what a plan must know of the key's fires."""
        fires = self._tables.fires
        mine = [(number, fires[number]) for number in self._tables.of_key(state.key)]
        queued = any(fire.status == "queued" for _, fire in mine)
        asked = all_open or queued or state.schedule.overlap != "allow"
        in_the_way = [
            with_awaited(self._tables, fire, found)
            for number, fire in mine
            if asked and (found := fire.in_the_way(number))
        ]
        open_fires, unread = self._ahead(state.schedule, in_the_way)
        if all_open:
            open_fires, unread = tuple(in_the_way), ALL_READ
        return replace(
            state,
            known={
                fire.new.fire_time: fire.status not in {"skipped", "expired", "rejected"}
                for _, fire in mine
                if fire.kind == "window"
                and fire.new.series == state.series
                and fire.new.fire_time > state.cursor
            },
            open_fires=open_fires,
            unread=unread,
        )

    @staticmethod
    def _ahead(
        schedule: Schedule, fires: Sequence[OpenFire]
    ) -> tuple[tuple[OpenFire, ...], Unread]:
        running = [fire for fire in fires if fire.status != "queued"]
        pending = [fire for fire in fires if fire.awaited]
        return ahead(
            fires, schedule.overlap, schedule.max_concurrent_runs,
            running=min(len(running), schedule.max_concurrent_runs), pending=len(pending),
            waiting=len(fires) - len(running) - len(pending),
        )  # fmt: skip

    async def record(
        self,
        steps: Sequence[Step],
        *,
        owner: str | None = None,
        lease: timedelta = timedelta(0),
        strict: bool = False,  # noqa: ARG002 - nothing can fail here that would not fail all
    ) -> list[Claim]:
        """See ``Transaction``."""
        claims = []
        for step in steps:
            for decision in step.decisions:
                claims += self._insert(NewFire.of(step, decision, owner), owner, lease)
            await self.move(step.state, step.moves)
            state = self._tables.schedules[step.state.key].state
            cursor = max(state.cursor, step.cursor)
            state = replace(
                state, cursor=cursor, max_bucket=step.max_bucket, failures=0,
                rules=TIME_RULES, cursor_reading=step.reading,
                pause=None if step.resumed else state.pause,
            )  # fmt: skip
            self._put(ScheduleEntry(state, step.next_fire_at))
        return claims

    async def unservable(
        self, serving: Serving, *, alive: timedelta, steady: timedelta, limit: int
    ) -> list[str]:
        """See ``Transaction``."""
        now = self._clock()
        able = [serving, *self._living(alive)]
        keys = [
            key
            for key, row in self._tables.schedules.items()
            if row.state.project == serving.project
            and row.lane == serving.task_queue
            and row.next_fire_at is not None
            and row.next_fire_at < now - row.state.schedule.grace
            and row.state.schedule.grace + alive <= steady
            and row.state.rules <= TIME_RULES
            and not any(row.servable(other) for other in able)
        ]
        return keys[:limit]

    async def back_off(self, key: str, error: str) -> None:
        """See ``Transaction``."""
        state = self._tables.schedules[key].state
        wait = timedelta(seconds=min(2.0 ** min(state.failures, 10), 300.0))
        state = replace(state, failures=state.failures + 1)
        self._put(ScheduleEntry(state, self._clock() + wait, error))

    def _insert(self, new: NewFire, owner: str | None, lease: timedelta) -> list[Claim]:
        window = (new.key, new.series, new.fire_time)
        if window in self._tables.windows:
            return []
        if new.workflow_id in self._tables.runs:
            raise LedgerError(f"{new.workflow_id} is another window's run")
        now = self._clock()
        leases = {"starting": now + lease, "claimed": new.not_before or now}
        fire = FireEntry(
            new=new,
            status=new.status,
            reason=new.reason,
            timing=new.timing,
            token=new.token,
            lease_until=leases.get(new.status),
            starting_at=now if new.token else None,
            attempts=1 if new.token else 0,
            replica=owner if new.token else None,
            awaits=new.awaits,
            overlap=new.overlap,
        )
        number = self._add(fire)
        return [self._claim(new, number, now)] if new.token else []
