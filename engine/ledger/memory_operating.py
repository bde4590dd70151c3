"""What the in-memory ledger does for operators: the verbs' half of a transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from engine.ledger.fire_records import Fire
from engine.ledger.memory_rows import MemoryRows
from engine.ledger.memory_tables import FireEntry
from engine.ledger.new_fire import NewFire
from engine.ledger.noted import noted
from engine.ledger.operating_records import Action, ActionRow, NewRequest, SkippedAhead
from engine.ledger.schedule_records import Pause, ScheduleState, Step
from engine.schedules.decisions import Move, Stop
from engine.schedules.windows import Window


class MemoryOperating(MemoryRows):
    """See ``engine.ledger.transactions.Transaction``."""

    async def pause(self, key: str, pause: Pause) -> None:
        """See ``Transaction``."""
        row = self._tables.schedules[key]
        following = pause.until if row.state.schedule.enabled else None
        self._put(replace(row, state=replace(row.state, pause=pause), next_fire_at=following))
        for number, fire in self._of(key, "claimed"):
            if fire.kind == "window":
                self._settle(number, "skipped", "paused")

    async def resume(self, key: str, next_fire_at: datetime | None) -> None:
        """See ``Transaction``."""
        row = self._tables.schedules[key]
        following = next_fire_at if row.state.schedule.enabled else None
        self._put(replace(row, state=replace(row.state, pause=None), next_fire_at=following))

    async def move(self, state: ScheduleState, moves: Sequence[Move]) -> None:
        """See ``Transaction``."""
        for move in moves:
            number, fire = move.fire.fire_id, self._tables.fires.get(move.fire.fire_id)
            if fire is None:
                continue
            if move.to == "start" and fire.status == "queued":
                started = replace(
                    fire, status="claimed", lease_until=move.not_before or self._clock(),
                    reason=fire.awaits.reason if fire.awaits else fire.reason, awaits=None,
                )  # fmt: skip
                self._tables.put(self._tables.fires, number, started)
            elif move.to == "release" and fire.awaits:
                released = replace(fire, reason=fire.awaits.reason, awaits=None)
                self._tables.put(self._tables.fires, number, released)
            elif move.to == "skip" and fire.status in {"claimed", "queued"}:
                self._settle(number, "skipped", move.reason)
            elif move.to in {"cancel", "terminate"}:
                grace = state.schedule.cancel_grace
                self._wish(number, move.to, grace, move.reason or "")

    async def stop(self, fire_ids: Sequence[int], stop: Stop, *, reason: str) -> None:
        """See ``Transaction``."""
        for fire_id in fire_ids:
            self._wish(fire_id, stop, None, reason)

    def _wish(self, fire_id: int, stop: Stop, grace: timedelta | None, reason: str) -> None:
        fire = self._tables.fires[fire_id]
        stronger = fire.stop is None or (fire.stop == "cancel" and stop == "terminate")
        if fire.status in {"starting", "started"} and stronger:
            asked = replace(
                fire, stop=stop, stop_at=self._clock(), stop_grace=grace, stop_reason=reason,
                stop_asked_at=None,
            )  # fmt: skip
            self._tables.put(self._tables.fires, fire_id, asked)

    async def request(self, state: ScheduleState, new: NewRequest) -> bool:
        """See ``Transaction``."""
        if new.workflow_id in self._tables.runs:
            return False
        window = Window(state.key, new.series, new.bucket, new.fire_time)
        entry = self._entry(state, window, new.workflow_id, new.status, new.kind)
        entry = replace(entry, kind=new.kind, overlap=new.overlap, own_input=new.own_input)
        self._add(replace(entry, reason=new.reason))
        return True

    async def make_due(self, keys: Sequence[str]) -> None:
        """See ``Transaction``."""
        for key in keys:
            if row := self._tables.due_now(key, self._clock()):
                self._put(row)

    async def unskip(self, key: str, series: int, fire_time: datetime) -> bool:
        """See ``Transaction``."""
        number = self._tables.windows.get((key, series, fire_time))
        if number is None or not self._skipped_ahead(self._tables.fires[number]):
            return False
        self._remove(number)
        return True

    async def lift_skips(self, keys: Sequence[str]) -> list[SkippedAhead]:
        """See ``Transaction``."""
        lifted = []
        for key in keys:
            series = self._tables.schedules[key].state.series
            for number, fire in self._of(key, "skipped"):
                if fire.new.series == series and self._skipped_ahead(fire):
                    self._remove(number)
                    new = fire.new
                    lifted.append(
                        SkippedAhead(key, new.fire_time, new.workflow_id, fire.reason or "")
                    )
        return lifted

    async def give_up(self, workflow_ids: Sequence[str], reason: str) -> frozenset[str]:
        """See ``Transaction``."""
        given_up = set()
        for workflow_id in workflow_ids:
            number = self._tables.runs.get(workflow_id)
            if number is not None and self._tables.fires[number].status in {"claimed", "queued"}:
                self._settle(number, "skipped", reason)
                given_up.add(workflow_id)
        return frozenset(given_up)

    async def note_ahead(self, step: Step) -> None:
        """See ``Transaction``."""
        for decision in step.decisions:
            new = NewFire.of(step, decision, None)
            if (new.key, new.series, new.fire_time) not in self._tables.windows:
                self._add(FireEntry.of(new))

    async def fire(self, workflow_id: str) -> Fire | None:
        """See ``Transaction``."""
        number = self._tables.runs.get(workflow_id)
        return self._tables.fires[number].as_fire() if number else None

    async def window(self, key: str, bucket: int, series: int | None) -> Fire | None:
        """See ``Transaction``."""
        found = [fire for fire in self._windows(key)
                 if fire.bucket == bucket and series in {None, fire.series}]  # fmt: skip
        return max(found, key=lambda fire: fire.series, default=None)

    async def count_reruns(self, window: Window, workflow_id: str) -> int:  # noqa: ARG002 - PostgreSQL finds them by it
        """See ``Transaction``."""
        before = f"{workflow_id}:rerun:"
        numbers = [
            name.removeprefix(before) for name in self._tables.runs if name.startswith(before)
        ]
        return max((int(each) for each in numbers if each.isdecimal()), default=0)

    async def act(self, actions: Sequence[Action], *, by: str) -> None:
        """See ``Transaction``."""
        for each in actions:
            row = ActionRow(
                self._clock(), by, each.verb, each.key, each.project, each.reason,
                each.workflow_id, _as_noted(each.before), _as_noted(each.after),
            )  # fmt: skip
            self._tables.put(self._tables.actions, self._tables.count("action"), row)


def _as_noted(state: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a state as it comes back from a database."""
    text = noted(state)
    return None if text is None else dict(json.loads(text))
