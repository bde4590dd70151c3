"""What the in-memory ledger does for operators: the verbs' half of a transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from engine.ledger.letters import Kind
from engine.ledger.memory_tables import FireEntry, ScheduleEntry, Tables
from engine.ledger.new_fire import NewFire
from engine.ledger.noted import noted
from engine.ledger.records import (
    Action,
    ActionRow,
    Evidence,
    Fire,
    NewRequest,
    Pause,
    ScheduleState,
    SkippedAhead,
    Status,
    Step,
    Timing,
)
from engine.schedules.decisions import Move, Overlap, Stop
from engine.schedules.model import Schedule
from engine.schedules.ranges import Piece
from engine.schedules.windows import Window, parse_workflow_id


class MemoryOperating:
    """See ``engine.ledger.transactions.Transaction``."""

    _tables: Tables
    _clock: Callable[[], datetime]

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
                fire, stop=stop, stop_at=self._clock(), stop_grace=grace, stop_reason=reason
            )
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

    async def count_reruns(self, workflow_id: str) -> int:
        """See ``Transaction``."""
        before = f"{workflow_id}:rerun:"
        numbers = [
            name.removeprefix(before) for name in self._tables.runs if name.startswith(before)
        ]
        return max((int(each) for each in numbers if each.isdecimal()), default=0)

    async def between(self, key: str, first: datetime, last: datetime) -> list[Fire]:
        """See ``Transaction``."""
        found = [fire for fire in self._windows(key)
                 if fire.last_fire_time >= first and fire.fire_time <= last]  # fmt: skip
        return sorted(found, key=lambda fire: fire.fire_time)

    async def covering(self, key: str, fire_time: datetime) -> Fire | None:
        """See ``Transaction``."""
        found = await self.between(key, fire_time, fire_time)
        return max(found, key=lambda fire: fire.series, default=None)

    async def definition(self, key: str, version: int) -> Schedule:
        """See ``Transaction``."""
        return self._tables.definitions[key, version]

    async def forgotten_until(self, key: str) -> datetime | None:
        """See ``Transaction``."""
        return self._tables.forgotten.get(key)

    async def carve(self, row: Fire, pieces: Sequence[Piece], *, suffixed: bool) -> None:
        """See ``Transaction``."""
        number = self._tables.windows[row.key, row.series, row.fire_time]
        gone = self._tables.fires[number]
        self._remove(number)
        for piece in pieces:
            new = replace(
                gone.new,
                bucket=piece.window.bucket,
                fire_time=piece.window.fire_time,
                windows=piece.windows,
                last_fire_time=piece.last,
                workflow_id=piece.window.workflow_id(suffixed),
            )
            self._add(replace(gone, new=new))

    async def refill(
        self, state: ScheduleState, workflow_id: str, fire_time: datetime, overlap: Overlap
    ) -> bool:
        """See ``Transaction``."""
        number = self._tables.runs.get(workflow_id)
        fire = self._tables.fires[number] if number else None
        if number is None or fire is None or fire.new.fire_time != fire_time or fire.run_id:
            return False
        if fire.status not in {"skipped", "expired", "rejected"} or fire.new.windows > 1:
            return False
        entry = self._entry(
            state, fire.window, workflow_id, "claimed" if overlap == "allow" else "queued",
            "backfill",
        )  # fmt: skip
        denied: dict[str, object] = {
            "status": fire.status,
            "reason": fire.reason,
            "error": fire.error,
        }
        entry = replace(entry, overlap=overlap, history=(*fire.history, denied))
        self._tables.put(self._tables.fires, number, entry)
        return True

    async def backfill(
        self, state: ScheduleState, window: Window, workflow_id: str, overlap: Overlap
    ) -> bool:
        """See ``Transaction``."""
        place = (window.key, window.series, window.fire_time)
        if workflow_id in self._tables.runs or place in self._tables.windows:
            return False
        begun: Status = "claimed" if overlap == "allow" else "queued"
        entry = self._entry(state, window, workflow_id, begun, "backfill")
        self._add(replace(entry, overlap=overlap))
        return True

    async def found(
        self,
        seen: Evidence,
        window: Window,
        version: int,  # noqa: ARG002 - the present one will do for as long as a process lives
        timing: Timing,
    ) -> None:
        """See ``Transaction``."""
        if seen.workflow_id in self._tables.runs:
            return
        state = self._tables.schedules[window.key].state
        entry = self._entry(state, window, seen.workflow_id, "started", timing)
        self._add(
            replace(
                entry,
                kind=_kind_of(seen.workflow_id, timing),
                run_id=seen.run_id,
                started_at=seen.started_at,
                history=({"status": "lost"},),
            )
        )

    async def act(self, actions: Sequence[Action], *, by: str) -> None:
        """See ``Transaction``."""
        for each in actions:
            row = ActionRow(
                self._clock(), by, each.verb, each.key, each.project, each.reason,
                each.workflow_id, _as_noted(each.before), _as_noted(each.after),
            )  # fmt: skip
            self._tables.put(self._tables.actions, self._tables.count("action"), row)

    def _entry(
        self,
        state: ScheduleState,
        window: Window,
        workflow_id: str,
        status: Status,
        timing: Timing,
    ) -> FireEntry:
        """A fire that somebody asked for."""
        new = NewFire.asked_for(state, window, workflow_id, status, timing)
        lease = self._clock() if status == "claimed" else None
        return replace(FireEntry.of(new), lease_until=lease)

    def _windows(self, key: str) -> Iterator[Fire]:
        for fire in self._tables.fires.values():
            if fire.new.key == key and fire.kind == "window":
                yield fire.as_fire()

    def _of(self, key: str, status: Status) -> list[tuple[int, FireEntry]]:
        fires = self._tables.fires.items()
        return [(n, fire) for n, fire in fires if fire.new.key == key and fire.status == status]

    def _skipped_ahead(self, fire: FireEntry) -> bool:
        """Whether an operator skipped it before it came."""
        mine = fire.status == "skipped" and (fire.reason or "").startswith("user")
        ahead = fire.new.fire_time > self._tables.schedules[fire.new.key].state.cursor
        return mine and ahead and fire.kind == "window"

    def _settle(self, number: int, status: Status, reason: str | None) -> None:
        fire = replace(
            self._tables.fires[number], status=status, reason=reason, token=None, lease_until=None,
            awaits=None,
        )  # fmt: skip
        self._tables.put(self._tables.fires, number, fire)

    def _add(self, fire: FireEntry) -> int:
        """Write a new row, and where it is found."""
        number = self._tables.count("fire")
        fire = replace(fire, decided_at=self._clock())
        self._tables.put(self._tables.fires, number, fire)
        if fire.kind == "window":
            place = (fire.new.key, fire.new.series, fire.new.fire_time)
            self._tables.put(self._tables.windows, place, number)
        self._tables.put(self._tables.runs, fire.new.workflow_id, number)
        return number

    def _remove(self, number: int) -> None:
        new = self._tables.fires[number].new
        self._tables.drop(self._tables.fires, number)
        self._tables.drop(self._tables.windows, (new.key, new.series, new.fire_time))
        self._tables.drop(self._tables.runs, new.workflow_id)

    def _put(self, entry: ScheduleEntry) -> None:
        self._tables.put(self._tables.schedules, entry.state.key, entry)


def _kind_of(workflow_id: str, timing: Timing) -> Kind:
    parsed = parse_workflow_id(workflow_id)
    if parsed and parsed.handler:
        return "handler"
    return timing if timing == "manual" or timing == "rerun" else "window"  # noqa: PLR1714 - so that mypy sees it


def _as_noted(state: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a state as it comes back from a database."""
    text = noted(state)
    return None if text is None else dict(json.loads(text))
