"""Finds and writes rows of the in-memory ledger, for every part of a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime

from engine.ledger.fire_records import Claim, Fire, Status, Timing
from engine.ledger.memory_data import write_fire
from engine.ledger.memory_tables import FireEntry, ScheduleEntry, Tables
from engine.ledger.new_fire import NewFire
from engine.ledger.schedule_records import ScheduleState
from engine.schedules.windows import Window


class MemoryRows:
    """What all parts of a transaction share."""

    _tables: Tables
    _clock: Callable[[], datetime]

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
        self._write(number, fire)

    def _add(self, fire: FireEntry) -> int:
        """Write a new row, and where it is found."""
        number = self._tables.count("fire")
        self._write(number, replace(fire, decided_at=self._clock()))
        if fire.kind == "window":
            place = (fire.new.key, fire.new.series, fire.new.fire_time)
            self._tables.put(self._tables.windows, place, number)
        self._tables.put(self._tables.runs, fire.new.workflow_id, number)
        return number

    def _write(self, number: int, fire: FireEntry) -> None:
        write_fire(self._tables, number, fire, self._clock())

    def _claim(self, new: NewFire, number: int, now: datetime) -> Claim:
        data_from, rules = self._tables.fires[number].data_from, self._tables.rules_of(new)
        return new.claim(number, now, data_from=data_from, rules=rules)

    def _remove(self, number: int) -> None:
        new = self._tables.fires[number].new
        self._tables.drop(self._tables.fires, number)
        self._tables.drop(self._tables.windows, (new.key, new.series, new.fire_time))
        self._tables.drop(self._tables.runs, new.workflow_id)

    def _put(self, entry: ScheduleEntry) -> None:
        self._tables.put(self._tables.schedules, entry.state.key, entry)
