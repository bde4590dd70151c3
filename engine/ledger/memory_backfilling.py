"""What the in-memory ledger does with windows of the past: finds, carves and fills them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from engine.ledger.fire_records import Evidence, Fire, Status, Timing
from engine.ledger.letters import Kind
from engine.ledger.memory_rows import MemoryRows
from engine.ledger.schedule_records import ScheduleState
from engine.schedules.decisions import Overlap
from engine.schedules.model import Schedule
from engine.schedules.ranges import Piece
from engine.schedules.windows import Window, parse_workflow_id


class MemoryBackfilling(MemoryRows):
    """See ``engine.ledger.transactions.Transaction``."""

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


def _kind_of(workflow_id: str, timing: Timing) -> Kind:
    parsed = parse_workflow_id(workflow_id)
    if parsed and parsed.handler:
        return "handler"
    return timing if timing == "manual" or timing == "rerun" else "window"  # noqa: PLR1714 - so that mypy sees it
