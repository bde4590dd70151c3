"""What the in-memory ledger knows of open runs: seen, lost, to be ended, waited for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from engine.ledger.fire_records import InTheWay, StopOrder
from engine.ledger.memory_awaiting import waits_for_nothing
from engine.ledger.memory_follow_ups import is_to_follow
from engine.ledger.memory_tables import Tables
from engine.ledger.operating_records import ActionRow
from engine.ledger.replica_records import Serving

_SOON, _LATEST = timedelta(seconds=1), timedelta(seconds=30)
_RUNNING = {"claimed", "starting", "started"}


class MemoryRuns:
    """See ``engine.ledger.ledger.Ledger``."""

    clock: Callable[[], datetime]
    living: Callable[[timedelta], list[Serving]]
    _tables: Tables
    _lock: asyncio.Lock

    async def seen_open(self, workflow_ids: Sequence[str], at: datetime) -> None:
        """See ``Ledger``."""
        async with self._lock:
            for workflow_id in workflow_ids:
                number = self._tables.runs.get(workflow_id)
                if number and (fire := self._tables.fires[number]).status == "started":
                    seen = max(fire.open_at, at) if fire.open_at else at
                    self._tables.fires[number] = replace(fire, open_at=seen, lost_at=None)

    async def lose(self, workflow_ids: Sequence[str], error: str) -> list[str]:
        """See ``Ledger``."""
        lost = []
        async with self._lock:
            for workflow_id in workflow_ids:
                number = self._tables.runs.get(workflow_id)
                fire = self._tables.fires[number] if number else None
                if number and fire and fire.status == "started" and fire.lost_at is None:
                    gone = replace(fire, lost_at=self.clock(), error=error)
                    self._tables.fires[number] = gone
                    lost.append(workflow_id)
        return lost

    async def unknown_runs(self, workflow_ids: Sequence[str]) -> set[str]:
        """See ``Ledger``."""
        runs, fires = self._tables.runs, self._tables.fires
        return {
            name for name in workflow_ids if name not in runs or fires[runs[name]].new.windows > 1
        }

    async def in_the_way(
        self, replica: str, *, alive: timedelta, orphans: bool, limit: int
    ) -> list[InTheWay]:
        """See ``Ledger``."""
        living = {serving.replica for serving in self.living(alive)}
        fires = self._tables.fires.values()
        lines: dict[str, int] = {}
        for number, fire in self._tables.fires.items():
            if fire.status == "queued":
                lines.setdefault(fire.new.key, number)
        found = [
            InTheWay(fire.new.workflow_id, fire.new.key)
            for fire in fires
            if fire.new.key in lines and fire.status == "started" and fire.lost_at is None
            and fire.kind != "handler"
            and (fire.replica == replica or (orphans and fire.replica not in living))
        ]  # fmt: skip
        return sorted(found, key=lambda run: lines[run.key])[:limit]

    async def first_run(self, workflow_id: str) -> str | None:
        """See ``Ledger``."""
        number = self._tables.runs.get(workflow_id)
        fire = self._tables.fires[number] if number else None
        return fire.first_run_id or fire.run_id if fire and fire.new.windows == 1 else None

    async def anything_ended(self) -> bool:
        """See ``Ledger``."""
        return any(map(is_to_follow, self._tables.fires.values()))

    async def wake(self) -> list[str]:
        """See ``Ledger``."""
        async with self._lock:
            running = Counter(
                fire.new.key
                for fire in self._tables.fires.values()
                if fire.lost_at is None and fire.kind != "handler" and fire.status in _RUNNING
            )
            waiting = {
                fire.new.key
                for number, fire in self._tables.fires.items()
                if fire.status == "queued" and fire.lost_at is None
                and (fire.awaits or running[fire.new.key] < self._places(fire.new.key))
                and waits_for_nothing(self._tables, number, fire)
            }  # fmt: skip
            now, woken = self.clock(), []
            for key in sorted(waiting):
                row = self._tables.schedules[key]
                if row.state.hold is None and (row.next_fire_at is None or row.next_fire_at > now):
                    self._tables.schedules[key] = replace(row, next_fire_at=now)
                    woken.append(key)
            return woken

    async def make_due(self, keys: Sequence[str]) -> None:
        """See ``Ledger``."""
        async with self._lock:
            now = self.clock()
            for key in keys:
                if row := self._tables.due_now(key, now):
                    self._tables.schedules[key] = row

    def _places(self, key: str) -> int:
        return self._tables.schedules[key].state.schedule.max_concurrent_runs

    async def children(self, key: str) -> list[str]:
        """See ``Ledger``."""
        return [
            name
            for name, row in sorted(self._tables.schedules.items())
            if row.state.retired_at is None
            and any(rule.parent == key for rule in row.state.schedule.follows)
        ]

    async def take_stops(
        self, serving: Serving, *, limit: int, lease: timedelta
    ) -> list[StopOrder]:
        """See ``Ledger``."""
        async with self._lock:
            now, orders = self.clock(), []
            due = sorted(
                (fire.stop_at, number)
                for number, fire in self._tables.fires.items()
                if fire.stop and fire.stop_at and fire.stop_at <= now
                and fire.status == "started" and fire.new.project == serving.project
            )  # fmt: skip
            for _, number in due[:limit]:
                fire = replace(self._tables.fires[number], stop_at=now + lease)
                asked_at, grace = fire.stop_asked_at, fire.stop_grace
                if asked_at and grace is not None and asked_at + grace <= now:
                    fire = replace(fire, stop="terminate")
                self._tables.fires[number] = fire
                if fire.stop:
                    asked = fire.stop == "cancel" and fire.stop_asked_at is not None
                    orders.append(
                        StopOrder(number, fire.new.workflow_id, fire.first_run_id, fire.stop,
                                  fire.stop_grace, fire.stop_reason, asked)
                    )  # fmt: skip
            return orders

    async def stopped(self, orders: Sequence[StopOrder]) -> None:
        """See ``Ledger``."""
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
                self._tables.fires[order.fire_id] = replace(
                    fire, stop_at=look_at, stop_asked_at=asked_at,
                    first_run_id=fire.first_run_id or order.first_run_id,
                )  # fmt: skip

    async def actions(self, *, key: str | None = None, limit: int = 50) -> list[ActionRow]:
        """See ``Ledger``."""
        rows = [row for row in self._tables.actions.values() if key in {None, row.key}]
        return rows[::-1][:limit]
